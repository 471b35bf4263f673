//! Errors of a log.

use core::fmt;

use super::segment::{FileError, SegmentId};

/// Why a record was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendError {
    /// The disk is full.
    Full,
    /// The disk has failed; the log accepts nothing more.
    Dead,
}

/// Why a mail was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// The read failed; a retry may succeed.
    Unreadable,
    /// The data is corrupt.
    Rotten,
}

/// A log that failed to open, with its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFailure<F> {
    /// The reason.
    pub error: OpenError,
    /// The files, as opening left them.
    pub files: F,
}

impl<F> fmt::Display for OpenFailure<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<F: fmt::Debug> core::error::Error for OpenFailure<F> {}

/// Why a log did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The disk has no room; nothing is broken.
    Full,
    /// The disk failed.
    Failed,
    /// The state at the start of this segment, or all of it, is corrupt: the disk has lost data, or
    /// the file belongs to another log. Continuing would lose acknowledged mail, so an operator
    /// must decide.
    Rotten(SegmentId),
    /// This segment is missing between older and newer ones; only the oldest is ever removed.
    Missing(SegmentId),
    /// This segment holds a record that this release cannot read.
    Foreign(SegmentId),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("no room on the disk for a first segment"),
            Self::Failed => f.write_str("the disk failed"),
            Self::Rotten(segment) => {
                write!(
                    f,
                    "the disk has lost the beginning of segment {}",
                    segment.0
                )
            }
            Self::Missing(segment) => {
                write!(f, "the disk has lost segment {}", segment.0)
            }
            Self::Foreign(segment) => {
                write!(f, "segment {} was written by another release", segment.0)
            }
        }
    }
}

impl core::error::Error for OpenError {}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Full => Self::Full,
            FileError::Failed => Self::Failed,
        }
    }
}

impl From<AppendError> for OpenError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Full => Self::Full,
            AppendError::Dead => Self::Failed,
        }
    }
}
