//! Opening: from what the files hold to a log that can be written to.

use super::index::Index;
use super::recovery::{self, Age, Recovery, ZEROS};
use super::segment::{SegmentFile, SegmentId};
use super::{Log, OpenError};

impl<F: SegmentFile> Log<F> {
    /// Reads all segments, and cuts the newest behind its last whole record.
    pub(super) fn recover(&mut self) -> Result<Recovery, OpenError> {
        let mut recovery = Recovery::default();
        let found = self.files.list()?;
        let newest = self.newest_begun(&found)?;
        // The numbers of what was begun have no gaps, and only the oldest is ever removed.
        for ((one, _), (next, _)) in found.iter().zip(found.iter().skip(1)) {
            if *next != one.next() && newest.is_some_and(|newest| *next <= newest) {
                return Err(OpenError::Missing(one.next()));
            }
        }
        for (segment, len) in found {
            let bytes = self.read_whole(segment, len)?;
            let is_newest = Some(segment) == newest;
            let age = if is_newest { Age::Newest } else { Age::Older };
            if newest.is_none_or(|newest| segment > newest) {
                self.files.remove(segment)?;
                continue;
            }
            let before = recovery.records;
            let scan = recovery::scan(segment, &bytes, age, &mut self.index, &mut recovery)
                .map_err(|_| OpenError::Foreign(segment))?;
            // Going on would remove a file in which nothing seems to wait.
            if recovery.records == before && !recovery::is_zero(&bytes) {
                return Err(OpenError::Rotten(segment));
            }
            recovery.segments = recovery.segments.saturating_add(1);
            self.segments.insert(segment, len);
            if is_newest {
                self.end = scan.end;
                recovery.torn_bytes = self.cut(segment, bytes, scan.end)?;
            }
        }
        Ok(recovery)
    }

    /// Returns the newest segment whose state is told to the end; later ones hold nothing that was
    /// ever acknowledged.
    fn newest_begun(&mut self, found: &[(SegmentId, u64)]) -> Result<Option<SegmentId>, OpenError> {
        for (segment, len) in found.iter().rev() {
            let bytes = self.read_whole(*segment, *len)?;
            let read = |age| {
                let mut scratch = (Index::default(), Recovery::default());
                recovery::scan(*segment, &bytes, age, &mut scratch.0, &mut scratch.1)
                    .map_err(|_| OpenError::Foreign(*segment))
            };
            if read(Age::Newest)?.ready {
                return Ok(Some(*segment));
            }
            // Nothing follows a state that was not on disk to its end: this one was, and is not.
            if read(Age::Older)?.used || recovery::is_mixed_up(*segment, &bytes) {
                return Err(OpenError::Rotten(*segment));
            }
        }
        Ok(None)
    }

    fn read_whole(&mut self, segment: SegmentId, len: u64) -> Result<Vec<u8>, OpenError> {
        let len = usize::try_from(len).map_err(|_| OpenError::Failed)?;
        let mut bytes = vec![0; len];
        let read = self.files.read(segment, 0, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Writes the newest segment again as it was read, zeros behind its last whole record, and
    /// syncs it.
    ///
    /// What a read gives after a failed sync or a kill may be in memory only; written again it
    /// is not. And what is behind the last whole record must never read as a record later. Returns
    /// how much that was.
    fn cut(&mut self, segment: SegmentId, mut bytes: Vec<u8>, end: u64) -> Result<u64, OpenError> {
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        let tail = bytes.get_mut(end..).unwrap_or_default();
        let torn = tail
            .chunks(ZEROS.len())
            .rposition(|chunk| Some(chunk) != ZEROS.get(..chunk.len()))
            .map_or(0, |last| {
                last.saturating_add(1)
                    .saturating_mul(ZEROS.len())
                    .min(tail.len())
            });
        tail.fill(0);
        bytes.truncate(end.saturating_add(torn));
        self.files.write(segment, 0, &bytes)?;
        self.files.sync(segment)?;
        Ok(torn as u64)
    }
}
