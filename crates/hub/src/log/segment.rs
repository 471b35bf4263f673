//! Where the log's bytes lie.

use core::fmt;

/// One file of the log; later ones have larger numbers, none is used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The files of a log: the one place where the hub meets a disk.
///
/// An error of `write` or `sync` says nothing about which bytes are on disk, and a later `sync`
/// that succeeds does not either: the system may have dropped the pages (what `PostgreSQL`
/// met in 2018). The log therefore never goes on with a segment after an error.
pub trait SegmentFile {
    /// Returns all segments with their lengths in bytes, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// [`FileError::Failed`] where the folder cannot be read.
    fn list(&mut self) -> Result<Vec<(SegmentId, u64)>, FileError>;

    /// Makes a segment of `bytes` zeros, whose space is taken; durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Full`] where the disk has no room, or the system no descriptor; nothing is left
    /// of the segment then. After another error nothing is written any more.
    fn allocate(&mut self, segment: SegmentId, bytes: u64) -> Result<(), FileError>;

    /// Writes `bytes` at `offset` of an allocated segment, inside its length.
    ///
    /// # Errors
    ///
    /// [`FileError`] after which any part may be written.
    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// Returns once all that was written to `segment` is on disk.
    ///
    /// # Errors
    ///
    /// [`FileError`] after which nobody knows what is.
    fn sync(&mut self, segment: SegmentId) -> Result<(), FileError>;

    /// Fills `buf` from `offset` on and returns how many bytes there were.
    ///
    /// # Errors
    ///
    /// [`FileError::Failed`] where the disk cannot be read.
    fn read(&mut self, segment: SegmentId, offset: u64, buf: &mut [u8])
    -> Result<usize, FileError>;

    /// Removes a segment; durable when it returns, so that segments never return out of order.
    ///
    /// # Errors
    ///
    /// [`FileError::Failed`] where it cannot be removed.
    fn remove(&mut self, segment: SegmentId) -> Result<(), FileError>;
}

/// Why a file did not do as it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileError {
    /// No room is left.
    Full,
    /// Anything else.
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
