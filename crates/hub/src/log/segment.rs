//! Segments: the interface to a disk, and an implementation in memory with fault injection.

use core::fmt;
use std::collections::BTreeMap;

use wire::Generator;

/// Number of a segment; increasing, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Number of a snapshot of the mail index; increasing, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u64);

impl SnapshotId {
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The files of a log: the hub's interface to a disk.
///
/// Segments hold the log; snapshots of the mail index only shorten a start, and may fail or vanish.
///
/// After an error of `write` or `sync`, it is unknown which bytes are on disk, even if a later
/// `sync` succeeds: the system may have dropped the pages (as `PostgreSQL` found in 2018). So the
/// log never writes to a segment again after an error.
pub trait SegmentFile {
    /// Returns all segments with their lengths in bytes, ordered by number.
    ///
    /// # Errors
    ///
    /// [`FileError::Failed`] if the folder cannot be read.
    fn list(&mut self) -> Result<Vec<(SegmentId, u64)>, FileError>;

    /// Allocates a segment of `bytes` zeros; it is durable on return.
    ///
    /// # Errors
    ///
    /// [`FileError::Full`] if the disk has no room or the system no descriptor; then nothing is
    /// left of the segment. After another error nothing is written any more.
    fn allocate(&mut self, segment: SegmentId, bytes: u64) -> Result<(), FileError>;

    /// Begins to allocate a segment as [`allocate`](Self::allocate) does. An implementation with a
    /// thread returns [`Prepared::Started`] at once, and the result by
    /// [`poll_prepared`](Self::poll_prepared). At most one is prepared at a time.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate).
    fn prepare(&mut self, segment: SegmentId, bytes: u64) -> Result<Prepared, FileError> {
        self.allocate(segment, bytes).map(|()| Prepared::Done)
    }

    /// Returns the result of the preparation that was started, once; `None` while it runs.
    fn poll_prepared(&mut self, wait: Wait) -> Option<Result<(), FileError>> {
        let _ = wait;
        Some(Err(FileError::Failed))
    }

    /// Writes `bytes` at `offset`, within the segment's length.
    ///
    /// # Errors
    ///
    /// [`FileError`]; any part may be written.
    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// Syncs all writes to `segment`.
    ///
    /// # Errors
    ///
    /// [`FileError`]; it is unknown which writes are on disk.
    fn sync(&mut self, segment: SegmentId) -> Result<(), FileError>;

    /// Fills `buf` from `offset`; returns the number of bytes read.
    ///
    /// # Errors
    ///
    /// [`FileError::Failed`] if the disk cannot be read.
    fn read(&mut self, segment: SegmentId, offset: u64, buf: &mut [u8])
    -> Result<usize, FileError>;

    /// Removes a segment; durable on return, so that removed segments never reappear out of order.
    ///
    /// # Errors
    ///
    /// [`FileError::Failed`] if it cannot be removed.
    fn remove(&mut self, segment: SegmentId) -> Result<(), FileError>;

    /// Returns all snapshots, ordered by number.
    ///
    /// # Errors
    ///
    /// [`FileError::Failed`] if the folder cannot be read.
    fn list_snapshots(&mut self) -> Result<Vec<SnapshotId>, FileError>;

    /// Appends `bytes` to a snapshot, and creates it if needed.
    ///
    /// # Errors
    ///
    /// [`FileError`]; any part may be written.
    fn append_snapshot(&mut self, snapshot: SnapshotId, bytes: &[u8]) -> Result<(), FileError>;

    /// Syncs a snapshot, its existence too.
    ///
    /// # Errors
    ///
    /// [`FileError`]; it is unknown which writes are on disk.
    fn sync_snapshot(&mut self, snapshot: SnapshotId) -> Result<(), FileError>;

    /// Fills `buf` from `offset` of a snapshot; returns the number of bytes read.
    ///
    /// # Errors
    ///
    /// [`FileError::Failed`] if the disk cannot be read.
    fn read_snapshot(
        &mut self,
        snapshot: SnapshotId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, FileError>;

    /// Removes a snapshot. It may reappear after a power cut.
    ///
    /// # Errors
    ///
    /// [`FileError::Failed`] if it cannot be removed.
    fn remove_snapshot(&mut self, snapshot: SnapshotId) -> Result<(), FileError>;
}

/// Whether [`SegmentFile::poll_prepared`] blocks until there is a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It returns `None` while the preparation runs.
    No,
    /// It blocks.
    UntilDone,
}

/// Progress of [`SegmentFile::prepare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prepared {
    /// The segment is allocated.
    Done,
    /// The allocation runs on another thread.
    Started,
}

/// Why a file operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileError {
    /// The disk is full.
    Full,
    /// Any other error.
    Failed,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no room is left on the disk",
            Self::Failed => "the disk failed",
        })
    }
}

impl core::error::Error for FileError {}

/// Segments in memory: for tests, and for hubs with mail that need not survive the process.
///
/// Faults occur only if injected:
///
/// | call | fault |
/// |---|---|
/// | [`set_capacity`](Self::set_capacity) | full disk, until raised |
/// | [`fail_sync_after`](Self::fail_sync_after) | a sync fails, its pages are dropped, the next one "succeeds" |
/// | [`stop_after`](Self::stop_after) | the process dies at that operation, in the middle of a write |
/// | [`power_cut`](Self::power_cut) | un-synced sectors are lost one by one: lost, torn, reordered writes |
/// | [`fill_after`](Self::fill_after) | full disk, from that allocation on |
/// | [`prepare_slowly`](Self::prepare_slowly) | a segment is prepared when the test says so |
/// | [`fail_reads`](Self::fail_reads) | reads and listings fail for a while, as without descriptors |
/// | [`flip_bit`](Self::flip_bit), [`swap`](Self::swap), [`truncate`](Self::truncate), and for snapshots [`flip_snapshot_bit`](Self::flip_snapshot_bit), [`truncate_snapshot`](Self::truncate_snapshot) | corruption, mixed-up and shortened files |
#[derive(Clone, Debug)]
pub struct MemorySegments {
    segments: BTreeMap<SegmentId, Segment>,
    snapshots: BTreeMap<SnapshotId, Segment>,
    capacity: u64,
    /// Syncs until one fails.
    fail_sync: Option<u64>,
    /// Changes until the process dies.
    stop: Option<u64>,
    /// Allocations until the disk is full.
    allocations: Option<u64>,
    /// Reads and listings that succeed, and those after them that fail.
    fail_reads: (u64, u64),
    syncs: u64,
    background: Option<Background>,
}

/// Preparations as by another thread.
#[derive(Clone, Copy, Debug, Default)]
struct Background {
    pending: Option<(SegmentId, u64)>,
    finished: bool,
    waits: u64,
}

#[derive(Clone)]
struct Segment {
    /// What a read returns: the page cache.
    cached: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors that are in the cache only.
    dirty: Vec<(usize, usize)>,
}

impl fmt::Debug for Segment {
    /// Omits the bytes: they are mail, and many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("len", &self.cached.len())
            .field("dirty", &self.dirty)
            .finish_non_exhaustive()
    }
}

/// Unit that a disk writes atomically, bytes.
const SECTOR: usize = 512;

impl MemorySegments {
    /// Creates an empty disk of `capacity` bytes.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self {
            segments: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            capacity,
            fail_sync: None,
            stop: None,
            allocations: None,
            fail_reads: (0, 0),
            syncs: 0,
            background: None,
        }
    }

    /// Lets each preparation of a segment take until [`finish_preparation`](Self::finish_preparation)
    /// is called, or the log waits for it.
    pub fn prepare_slowly(&mut self) {
        self.background = Some(Background::default());
    }

    /// Ends the preparation that runs; returns whether one did.
    pub fn finish_preparation(&mut self) -> bool {
        let pending = self.background.and_then(|background| background.pending);
        if let Some(background) = &mut self.background {
            background.finished |= pending.is_some();
        }
        pending.is_some()
    }

    /// Returns how often the log waited for a preparation.
    #[must_use]
    pub fn preparation_waits(&self) -> u64 {
        self.background.map_or(0, |background| background.waits)
    }

    /// Sets the capacity, bytes; existing segments stay.
    pub const fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
    }

    /// Lets `count` syncs succeed; the next one fails and drops its unsynced data.
    pub const fn fail_sync_after(&mut self, count: u64) {
        self.fail_sync = Some(count);
    }

    /// Lets `count` operations succeed; all later ones fail, the first one halfway.
    pub const fn stop_after(&mut self, count: u64) {
        self.stop = Some(count);
    }

    /// Returns whether [`stop_after`](Self::stop_after) has taken effect.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop == Some(0)
    }

    /// Kills the process: all writes stay, synced or not, and injected faults are cleared.
    pub const fn kill(&mut self) {
        self.stop = None;
        self.fail_sync = None;
        self.allocations = None;
        self.fail_reads = (0, 0);
        self.background = None;
    }

    /// Cuts the power: `generator` decides for each unsynced sector whether it was written.
    pub fn power_cut(&mut self, generator: &mut Generator) {
        self.kill();
        for file in self
            .segments
            .values_mut()
            .chain(self.snapshots.values_mut())
        {
            for (start, end) in core::mem::take(&mut file.dirty) {
                let first = start.saturating_sub(start % SECTOR);
                for at in (first..end).step_by(SECTOR) {
                    if generator.chance(500_000) {
                        file.persist(at.max(start), at.saturating_add(SECTOR).min(end));
                    }
                }
            }
            file.cached.clone_from(&file.durable);
        }
        // A file that was never synced may be missing.
        self.snapshots
            .retain(|_, file| !file.durable.is_empty() || generator.chance(500_000));
    }

    /// Lets `count` segments be allocated; then the disk is full.
    pub const fn fill_after(&mut self, count: u64) {
        self.allocations = Some(count);
    }

    /// Lets `well` reads and listings succeed, then `count` fail; the disk is unchanged.
    pub const fn fail_reads(&mut self, well: u64, count: u64) {
        self.fail_reads = (well, count);
    }

    /// Swaps the contents of two segments, as a wrong restore does.
    pub fn swap(&mut self, one: SegmentId, other: SegmentId) {
        if let (Some(first), Some(second)) =
            (self.segments.remove(&one), self.segments.remove(&other))
        {
            self.segments.insert(one, second);
            self.segments.insert(other, first);
        }
    }

    /// Truncates a segment to `len` bytes, as a repaired file system does.
    pub fn truncate(&mut self, segment: SegmentId, len: usize) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.cached.truncate(len);
            segment.durable.truncate(len);
        }
    }

    /// Inverts one bit.
    pub fn flip_bit(&mut self, segment: SegmentId, offset: usize, bit: u8) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.flip(offset, bit);
        }
    }

    /// Inverts one bit of a snapshot.
    pub fn flip_snapshot_bit(&mut self, snapshot: SnapshotId, offset: usize, bit: u8) {
        if let Some(file) = self.snapshots.get_mut(&snapshot) {
            file.flip(offset, bit);
        }
    }

    /// Truncates a snapshot to `len` bytes.
    pub fn truncate_snapshot(&mut self, snapshot: SnapshotId, len: usize) {
        if let Some(file) = self.snapshots.get_mut(&snapshot) {
            file.cached.truncate(len);
            file.durable.truncate(len);
        }
    }

    /// Returns how many syncs were requested.
    #[must_use]
    pub const fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Returns the size of all segments and snapshots, bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.files().map(|file| file.cached.len() as u64).sum()
    }

    /// Returns all bytes on the disk, for tests that search for data that must not be there.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        self.files()
            .flat_map(|file| file.cached.iter().copied())
            .collect()
    }

    fn files(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values().chain(self.snapshots.values())
    }

    /// Counts one sync; fails if that fault is injected.
    fn count_sync(&mut self) -> Result<(), FileError> {
        self.syncs = self.syncs.saturating_add(1);
        let is_failing = self.fail_sync == Some(0);
        self.fail_sync = self.fail_sync.and_then(|count| count.checked_sub(1));
        if is_failing {
            Err(FileError::Failed)
        } else {
            Ok(())
        }
    }

    /// Counts one read or listing; fails if a fault is injected.
    const fn look(&mut self) -> Result<(), FileError> {
        match self.fail_reads {
            (0, 0) => Ok(()),
            (0, count) => {
                self.fail_reads = (0, count.saturating_sub(1));
                Err(FileError::Failed)
            }
            (well, count) => {
                self.fail_reads = (well.saturating_sub(1), count);
                Ok(())
            }
        }
    }

    /// Counts one change; fails if the process has died.
    fn step(&mut self) -> Result<(), FileError> {
        if let Some(left) = &mut self.stop {
            *left = left.checked_sub(1).ok_or(FileError::Failed)?;
        }
        Ok(())
    }
}

impl SegmentFile for MemorySegments {
    fn list(&mut self) -> Result<Vec<(SegmentId, u64)>, FileError> {
        self.look()?;
        let len = |(id, segment): (&SegmentId, &Segment)| (*id, segment.cached.len() as u64);
        Ok(self.segments.iter().map(len).collect())
    }

    fn allocate(&mut self, segment: SegmentId, bytes: u64) -> Result<(), FileError> {
        self.step()?;
        let len = usize::try_from(bytes).map_err(|_| FileError::Full)?;
        if let Some(left) = &mut self.allocations {
            *left = left.checked_sub(1).ok_or(FileError::Full)?;
        }
        if self.used().saturating_add(bytes) > self.capacity {
            return Err(FileError::Full);
        }
        let zeros = Segment {
            cached: vec![0; len],
            durable: vec![0; len],
            dirty: Vec::new(),
        };
        self.segments.insert(segment, zeros);
        Ok(())
    }

    fn prepare(&mut self, segment: SegmentId, bytes: u64) -> Result<Prepared, FileError> {
        match &mut self.background {
            Some(background) => {
                background.pending = Some((segment, bytes));
                background.finished = false;
                Ok(Prepared::Started)
            }
            None => self.allocate(segment, bytes).map(|()| Prepared::Done),
        }
    }

    fn poll_prepared(&mut self, wait: Wait) -> Option<Result<(), FileError>> {
        let background = self.background.as_mut()?;
        let (segment, bytes) = background.pending?;
        if !background.finished {
            if wait == Wait::No {
                return None;
            }
            background.waits = background.waits.saturating_add(1);
        }
        background.pending = None;
        Some(self.allocate(segment, bytes))
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let alive = self.step();
        // The process may die in the middle of a write.
        let len = if alive.is_ok() {
            bytes.len()
        } else {
            bytes.len() / 2
        };
        let segment = self.segments.get_mut(&segment).ok_or(FileError::Failed)?;
        let start = usize::try_from(offset).map_err(|_| FileError::Failed)?;
        let end = start.checked_add(len).ok_or(FileError::Failed)?;
        let target = segment.cached.get_mut(start..end).ok_or(FileError::Full)?;
        target.copy_from_slice(bytes.get(..len).unwrap_or_default());
        segment.dirty.push((start, end));
        alive
    }

    fn sync(&mut self, segment: SegmentId) -> Result<(), FileError> {
        self.step()?;
        let outcome = self.count_sync();
        let segment = self.segments.get_mut(&segment).ok_or(FileError::Failed)?;
        segment.sync(outcome)
    }

    fn read(
        &mut self,
        segment: SegmentId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, FileError> {
        self.look()?;
        let segment = self.segments.get(&segment).ok_or(FileError::Failed)?;
        segment.read(offset, buf)
    }

    fn remove(&mut self, segment: SegmentId) -> Result<(), FileError> {
        self.step()?;
        let removed = self.segments.remove(&segment);
        removed.map(drop).ok_or(FileError::Failed)
    }

    fn list_snapshots(&mut self) -> Result<Vec<SnapshotId>, FileError> {
        self.look()?;
        Ok(self.snapshots.keys().copied().collect())
    }

    fn append_snapshot(&mut self, snapshot: SnapshotId, bytes: &[u8]) -> Result<(), FileError> {
        let alive = self.step();
        let len = if alive.is_ok() {
            bytes.len()
        } else {
            bytes.len() / 2
        };
        let room = self.capacity.saturating_sub(self.used());
        // What fits is written, as by a file system.
        let fitting = usize::try_from(room).unwrap_or(usize::MAX).min(len);
        let file = self.snapshots.entry(snapshot).or_insert(Segment {
            cached: Vec::new(),
            durable: Vec::new(),
            dirty: Vec::new(),
        });
        let start = file.cached.len();
        file.cached
            .extend_from_slice(bytes.get(..fitting).unwrap_or_default());
        file.dirty.push((start, file.cached.len()));
        if fitting < len {
            return Err(FileError::Full);
        }
        alive
    }

    fn sync_snapshot(&mut self, snapshot: SnapshotId) -> Result<(), FileError> {
        self.step()?;
        let outcome = self.count_sync();
        let file = self.snapshots.get_mut(&snapshot).ok_or(FileError::Failed)?;
        file.sync(outcome)
    }

    fn read_snapshot(
        &mut self,
        snapshot: SnapshotId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, FileError> {
        self.look()?;
        let file = self.snapshots.get(&snapshot).ok_or(FileError::Failed)?;
        file.read(offset, buf)
    }

    fn remove_snapshot(&mut self, snapshot: SnapshotId) -> Result<(), FileError> {
        self.step()?;
        let removed = self.snapshots.remove(&snapshot);
        removed.map(drop).ok_or(FileError::Failed)
    }
}

impl Segment {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, FileError> {
        let start = usize::try_from(offset).map_err(|_| FileError::Failed)?;
        let bytes = self.cached.get(start..).unwrap_or_default();
        let len = bytes.len().min(buf.len());
        if let (Some(target), Some(bytes)) = (buf.get_mut(..len), bytes.get(..len)) {
            target.copy_from_slice(bytes);
        }
        Ok(len)
    }

    fn sync(&mut self, outcome: Result<(), FileError>) -> Result<(), FileError> {
        // After a failure the pages count as clean, though they are not on the disk.
        let dirty = core::mem::take(&mut self.dirty);
        outcome?;
        for (start, end) in dirty {
            self.persist(start, end);
        }
        Ok(())
    }

    fn flip(&mut self, offset: usize, bit: u8) {
        for bytes in [&mut self.cached, &mut self.durable] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// Writes `start..end` from the cache to the disk. A snapshot grows there.
    fn persist(&mut self, start: usize, end: usize) {
        let end = end.min(self.cached.len());
        if end > self.durable.len() {
            self.durable.resize(end, 0);
        }
        if let (Some(target), Some(bytes)) = (
            self.durable.get_mut(start..end),
            self.cached.get(start..end),
        ) {
            target.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Seed;

    const ID: SegmentId = SegmentId(1);

    fn disk() -> MemorySegments {
        let mut disk = MemorySegments::new(8_192);
        disk.allocate(ID, 4_096).unwrap();
        disk
    }

    fn byte_at(disk: &mut MemorySegments, offset: u64) -> u8 {
        let mut buf = [0];
        disk.read(ID, offset, &mut buf).unwrap();
        buf[0]
    }

    #[test]
    fn a_power_cut_takes_sectors_that_were_not_synced() {
        let mut kept = 0;
        let mut generator = Seed::from_number(1).generator(0);
        for _ in 0..100 {
            let mut disk = disk();
            disk.write(ID, 0, &[1; 512]).unwrap();
            disk.sync(ID).unwrap();
            disk.write(ID, 512, &[2; 1_024]).unwrap();
            disk.power_cut(&mut generator);
            assert_eq!(byte_at(&mut disk, 0), 1);
            kept += i32::from(byte_at(&mut disk, 512) == 2);
        }
        assert!((20..80).contains(&kept), "{kept}");
    }

    #[test]
    fn a_sync_after_a_failed_sync_persists_nothing() {
        let mut disk = disk();
        disk.fail_sync_after(0);
        disk.write(ID, 0, &[7]).unwrap();
        assert_eq!(disk.sync(ID), Err(FileError::Failed));
        assert_eq!(disk.sync(ID), Ok(()));
        assert_eq!(byte_at(&mut disk, 0), 7);
        disk.power_cut(&mut Seed::from_number(1).generator(0));
        assert_eq!(byte_at(&mut disk, 0), 0);
    }

    #[test]
    fn a_full_disk_allocates_nothing() {
        let mut disk = disk();
        assert_eq!(disk.allocate(SegmentId(2), 4_097), Err(FileError::Full));
        assert_eq!(disk.allocate(SegmentId(2), 4_096), Ok(()));
        disk.remove(ID).unwrap();
        assert_eq!(disk.allocate(SegmentId(3), 4_096), Ok(()));
    }

    #[test]
    fn a_process_dies_in_the_middle_of_a_write() {
        let mut disk = disk();
        disk.stop_after(1);
        disk.write(ID, 0, &[1; 8]).unwrap();
        assert_eq!(disk.write(ID, 8, &[2; 8]), Err(FileError::Failed));
        assert!(disk.is_stopped());
        assert_eq!((byte_at(&mut disk, 11), byte_at(&mut disk, 12)), (2, 0));
        assert_eq!(disk.sync(ID), Err(FileError::Failed));
    }
}
