//! Why a log does not do as it is told.

use core::fmt;

use super::segment::{FileError, SegmentId};

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendError {
    /// The disk has no room; nothing is broken.
    Full,
    /// The disk has failed; nothing is taken any more.
    Dead,
}

/// Why a mail was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// The disk did not answer; it may the next time.
    Unreadable,
    /// What it answered is not what was written.
    Rotten,
}

/// A log that does not open, and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFailure<F> {
    /// Why.
    pub error: OpenError,
    /// The files, as far as opening has come with them.
    pub files: F,
}

impl<F> fmt::Display for OpenFailure<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<F: fmt::Debug> core::error::Error for OpenFailure<F> {}

/// Why a log does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The disk has no room for a first segment.
    Full,
    /// The disk failed.
    Failed,
    /// The state that this segment begins with was on disk and does not check now, or nothing in it
    /// does: the disk has rotted, or the file is another one's. Going on without it would lose
    /// acknowledged mail; a person must choose.
    Rotten(SegmentId),
    /// This segment is gone, though older and newer ones are there: only the oldest is ever removed.
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
