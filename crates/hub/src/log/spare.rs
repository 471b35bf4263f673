//! The next segment, allocated ahead of need.

use super::segment::{FileError, Prepared, SegmentFile, SegmentId, Wait};

/// The next segment, or the attempt to allocate it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    /// Allocated, with its length.
    ready: Option<(SegmentId, u64)>,
    /// Being allocated in the background, with its length and the least one worth a try.
    pending: Option<(SegmentId, u64, u64)>,
    /// Whether to allocate one; cleared by an attempt that found no room.
    pub(super) is_wanted: bool,
}

/// Result of a step of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is a spare, or none is wanted.
    Done,
    /// It is being allocated in the background.
    Pending,
    /// There is no room for a segment of this length; the least one worth a try.
    NoRoom(u64, u64),
    /// The disk has failed.
    Failed,
}

impl Spare {
    pub(super) const fn new() -> Self {
        Self {
            ready: None,
            pending: None,
            is_wanted: true,
        }
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// Returns whether the last attempt found no room, and none has begun since.
    pub(super) const fn has_no_room(&self) -> bool {
        self.ready.is_none() && self.pending.is_none() && !self.is_wanted
    }

    /// Returns whether an attempt is to be started.
    pub(super) const fn is_due(&self) -> bool {
        self.is_wanted && self.ready.is_none() && self.pending.is_none()
    }

    pub(super) const fn take(&mut self) -> Option<(SegmentId, u64)> {
        self.ready.take()
    }

    /// Begins to allocate `segment` with `bytes`.
    pub(super) fn begin(
        &mut self,
        files: &mut impl SegmentFile,
        segment: SegmentId,
        (bytes, least): (u64, u64),
    ) -> Step {
        self.pending = Some((segment, bytes, least));
        match files.prepare(segment, bytes) {
            Ok(Prepared::Started) => Step::Pending,
            Ok(Prepared::Done) => self.end(Ok(())),
            Err(error) => self.end(Err(error)),
        }
    }

    /// Takes the result of an attempt in the background; may wait for it.
    pub(super) fn poll(&mut self, files: &mut impl SegmentFile, wait: Wait) -> Step {
        if self.pending.is_none() {
            return Step::Done;
        }
        match files.poll_prepared(wait) {
            Some(result) => self.end(result),
            None => Step::Pending,
        }
    }

    const fn end(&mut self, result: Result<(), FileError>) -> Step {
        let Some((segment, bytes, least)) = self.pending.take() else {
            return Step::Done;
        };
        match result {
            Ok(()) => {
                self.ready = Some((segment, bytes));
                self.is_wanted = false;
                Step::Done
            }
            Err(FileError::Full) => Step::NoRoom(bytes, least),
            Err(FileError::Failed) => Step::Failed,
        }
    }
}
