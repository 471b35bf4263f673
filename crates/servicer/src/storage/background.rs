//! Segments on a disk, with a thread that allocates the next one ahead of need.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use hub::log::{
    FileError, FileSegments, Prepared, SegmentFile, SegmentFiller, SegmentId, SnapshotId, Wait,
};

use crate::handle::SpawnError;

/// Segments as files, allocated by a helper thread: filling and syncing one takes tens of
/// milliseconds, in which the storage thread acknowledges mail.
///
/// Dropping it waits for the allocation that runs: the folder's lock is released after that.
pub struct BackgroundSegments {
    /// `None` while it is dropped, which ends the thread.
    orders: Option<Sender<(SegmentId, u64)>>,
    results: Receiver<Filled>,
    thread: Option<JoinHandle<()>>,
    files: FileSegments,
}

type Filled = (SegmentId, Result<File, FileError>);

impl BackgroundSegments {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if the system has no thread or descriptor left.
    pub fn new(files: FileSegments) -> Result<Self, SpawnError> {
        let filler = files.filler()?;
        // One order is outstanding at a time.
        let (orders, taken) = crossbeam_channel::bounded(1);
        let (sender, results) = crossbeam_channel::bounded(1);
        let thread = std::thread::Builder::new()
            .name("hub segments".to_owned())
            .spawn(move || fill_all(&filler, &taken, &sender))?;
        Ok(Self {
            orders: Some(orders),
            results,
            thread: Some(thread),
            files,
        })
    }
}

impl Drop for BackgroundSegments {
    fn drop(&mut self) {
        self.orders = None;
        // A panic was reported as a failed allocation.
        self.thread.take().map(JoinHandle::join);
    }
}

fn fill_all(filler: &SegmentFiller, orders: &Receiver<(SegmentId, u64)>, results: &Sender<Filled>) {
    for (segment, bytes) in orders {
        // A full disk is found without writing all that still fits.
        let is_full =
            free_bytes(filler.folder()).is_ok_and(|free| free.is_some_and(|free| free < bytes));
        let result = if is_full {
            Err(FileError::Full)
        } else {
            filler.fill(segment, bytes)
        };
        if results.send((segment, result)).is_err() {
            return;
        }
    }
}

/// Returns how many bytes this process may still write on the disk of `folder`; `None` on systems
/// that do not tell.
///
/// # Errors
///
/// The system's error.
pub fn free_bytes(folder: &Path) -> io::Result<Option<u64>> {
    #[cfg(any(target_os = "android", target_os = "linux"))]
    #[expect(clippy::useless_conversion, reason = "u32 on 32-bit systems")]
    {
        let found = nix::sys::statvfs::statvfs(folder)?;
        let blocks = u64::from(found.blocks_available());
        Ok(Some(
            blocks.saturating_mul(u64::from(found.fragment_size())),
        ))
    }
    #[cfg(not(any(target_os = "android", target_os = "linux")))]
    {
        let _ = folder;
        Ok(None)
    }
}

impl SegmentFile for BackgroundSegments {
    fn list(&mut self) -> Result<Vec<(SegmentId, u64)>, FileError> {
        self.files.list()
    }

    fn allocate(&mut self, segment: SegmentId, bytes: u64) -> Result<(), FileError> {
        self.files.allocate(segment, bytes)
    }

    fn prepare(&mut self, segment: SegmentId, bytes: u64) -> Result<Prepared, FileError> {
        let orders = self.orders.as_ref().ok_or(FileError::Failed)?;
        let sent = orders.send((segment, bytes));
        sent.map(|()| Prepared::Started)
            .map_err(|_| FileError::Failed)
    }

    fn poll_prepared(&mut self, wait: Wait) -> Option<Result<(), FileError>> {
        let (segment, result) = if wait == Wait::UntilDone {
            self.results.recv().ok()
        } else {
            match self.results.try_recv() {
                Ok(filled) => Some(filled),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => None,
            }
        }
        // The thread has panicked.
        .unwrap_or((SegmentId(0), Err(FileError::Failed)));
        Some(result.map(|file| self.files.adopt(segment, file)))
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.files.write(segment, offset, bytes)
    }

    fn sync(&mut self, segment: SegmentId) -> Result<(), FileError> {
        self.files.sync(segment)
    }

    fn read(
        &mut self,
        segment: SegmentId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, FileError> {
        self.files.read(segment, offset, buf)
    }

    fn remove(&mut self, segment: SegmentId) -> Result<(), FileError> {
        self.files.remove(segment)
    }

    fn list_snapshots(&mut self) -> Result<Vec<SnapshotId>, FileError> {
        self.files.list_snapshots()
    }

    fn append_snapshot(&mut self, snapshot: SnapshotId, bytes: &[u8]) -> Result<(), FileError> {
        self.files.append_snapshot(snapshot, bytes)
    }

    fn sync_snapshot(&mut self, snapshot: SnapshotId) -> Result<(), FileError> {
        self.files.sync_snapshot(snapshot)
    }

    fn read_snapshot(
        &mut self,
        snapshot: SnapshotId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, FileError> {
        self.files.read_snapshot(snapshot, offset, buf)
    }

    fn remove_snapshot(&mut self, snapshot: SnapshotId) -> Result<(), FileError> {
        self.files.remove_snapshot(snapshot)
    }
}

impl fmt::Debug for BackgroundSegments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundSegments")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
