//! Storage of the log's bytes.

use core::fmt;

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

/// The files of a log: the hub's interface to a disk.
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
