//! A view of segments that keeps all changes in memory.

use std::collections::{BTreeMap, BTreeSet};

use super::segment::{FileError, SegmentFile, SegmentId, SnapshotId};

/// A view of the segments in `F` that changes nothing there: a changed segment is copied to memory,
/// and snapshots are hidden. So a store that is opened on it reads every segment, and can be
/// inspected without changing a byte of its folder.
#[derive(Debug)]
pub struct Overlay<F> {
    files: F,
    changed: BTreeMap<SegmentId, Vec<u8>>,
    removed: BTreeSet<SegmentId>,
}

impl<F: SegmentFile> Overlay<F> {
    /// Returns a view of `files`.
    #[must_use]
    pub const fn new(files: F) -> Self {
        Self {
            files,
            changed: BTreeMap::new(),
            removed: BTreeSet::new(),
        }
    }

    /// Returns the copy of a segment, which is made if there is none.
    fn copy(&mut self, segment: SegmentId) -> Result<&mut Vec<u8>, FileError> {
        if !self.changed.contains_key(&segment) {
            let listed = self.files.list()?;
            let found = listed.iter().find(|(id, _)| *id == segment);
            let (_, len) = found.ok_or(FileError::Failed)?;
            let mut bytes = vec![0; usize::try_from(*len).map_err(|_| FileError::Failed)?];
            self.files.read(segment, 0, &mut bytes)?;
            self.changed.insert(segment, bytes);
        }
        self.changed.get_mut(&segment).ok_or(FileError::Failed)
    }
}

impl<F: SegmentFile> SegmentFile for Overlay<F> {
    fn list(&mut self) -> Result<Vec<(SegmentId, u64)>, FileError> {
        let mut all: BTreeMap<_, _> = self.files.list()?.into_iter().collect();
        all.retain(|segment, _| !self.removed.contains(segment));
        let changed = self.changed.iter();
        all.extend(changed.map(|(segment, bytes)| (*segment, bytes.len() as u64)));
        Ok(all.into_iter().collect())
    }

    fn allocate(&mut self, segment: SegmentId, bytes: u64) -> Result<(), FileError> {
        let len = usize::try_from(bytes).map_err(|_| FileError::Full)?;
        self.changed.insert(segment, vec![0; len]);
        Ok(())
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let copy = self.copy(segment)?;
        let first = usize::try_from(offset).map_err(|_| FileError::Failed)?;
        let place = copy
            .get_mut(first..)
            .and_then(|rest| rest.get_mut(..bytes.len()));
        place.ok_or(FileError::Failed)?.copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self, _segment: SegmentId) -> Result<(), FileError> {
        Ok(())
    }

    fn read(
        &mut self,
        segment: SegmentId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, FileError> {
        let Some(copy) = self.changed.get(&segment) else {
            return self.files.read(segment, offset, buf);
        };
        let first = usize::try_from(offset).map_err(|_| FileError::Failed)?;
        let rest = copy.get(first..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        let (from, to) = (rest.get(..len), buf.get_mut(..len));
        if let (Some(from), Some(to)) = (from, to) {
            to.copy_from_slice(from);
        }
        Ok(len)
    }

    fn remove(&mut self, segment: SegmentId) -> Result<(), FileError> {
        self.changed.remove(&segment);
        self.removed.insert(segment);
        Ok(())
    }

    fn list_snapshots(&mut self) -> Result<Vec<SnapshotId>, FileError> {
        Ok(Vec::new())
    }

    fn append_snapshot(&mut self, _: SnapshotId, _: &[u8]) -> Result<(), FileError> {
        Err(FileError::Full)
    }

    fn sync_snapshot(&mut self, _: SnapshotId) -> Result<(), FileError> {
        Err(FileError::Full)
    }

    fn read_snapshot(&mut self, _: SnapshotId, _: u64, _: &mut [u8]) -> Result<usize, FileError> {
        Err(FileError::Failed)
    }

    fn remove_snapshot(&mut self, _: SnapshotId) -> Result<(), FileError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::MemorySegments;

    const ONE: SegmentId = SegmentId(1);

    fn read(files: &mut impl SegmentFile) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        files.read(ONE, 0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn changes_are_seen_in_the_view_only() {
        let mut files = MemorySegments::new(1 << 20);
        files.allocate(ONE, 8).unwrap();
        files.write(ONE, 0, b"original").unwrap();
        let mut view = Overlay::new(files);
        view.write(ONE, 4, b"XY").unwrap();
        assert_eq!(read(&mut view), b"origXYal");
        view.allocate(SegmentId(2), 4).unwrap();
        assert_eq!(view.list().unwrap(), [(ONE, 8), (SegmentId(2), 4)]);
        assert_eq!(view.write(ONE, 7, b"XY"), Err(FileError::Failed));
        view.remove(ONE).unwrap();
        assert_eq!(view.list().unwrap(), [(SegmentId(2), 4)]);
        assert_eq!(read(&mut view.files), b"original");
        assert_eq!(view.files.list().unwrap(), [(ONE, 8)]);
    }
}
