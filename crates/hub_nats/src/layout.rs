//! Which message holds which bytes of a segment.

use core::ops::Range;

/// Bytes of a segment that a message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset in the segment, bytes.
    pub(crate) offset: u32,
    pub(crate) len: u32,
    /// Bytes of the message before these.
    pub(crate) skip: u32,
    /// Number of the message in the stream.
    pub(crate) seq: u64,
}

impl Piece {
    const fn end(&self) -> u64 {
        (self.offset as u64).saturating_add(self.len as u64)
    }

    /// Returns the part in `range`, if there is any.
    fn clip(&self, range: &Range<u64>) -> Option<Self> {
        let start = u64::from(self.offset).max(range.start);
        let end = self.end().min(range.end);
        if start >= end {
            return None;
        }
        let cut = u32::try_from(start.saturating_sub(self.offset.into())).ok()?;
        Some(Self {
            offset: u32::try_from(start).ok()?,
            len: u32::try_from(end.saturating_sub(start)).ok()?,
            skip: self.skip.saturating_add(cut),
            seq: self.seq,
        })
    }
}

/// A segment: its length, and its messages by offset. What no message holds is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Length of the segment, bytes.
    pub(crate) capacity: u64,
    /// Ordered by offset, without overlaps.
    pieces: Vec<Piece>,
}

impl Layout {
    pub(crate) const fn new(capacity: u64) -> Self {
        Self {
            capacity,
            pieces: Vec::new(),
        }
    }

    /// Adds what a later message holds; it replaces earlier bytes at the same offsets.
    pub(crate) fn put(&mut self, piece: Piece) {
        if piece.len == 0 {
            return;
        }
        let start = u64::from(piece.offset);
        if self.pieces.last().is_none_or(|last| last.end() <= start) {
            self.pieces.push(piece);
            return;
        }
        let (before, after) = (0..start, piece.end()..u64::MAX);
        let kept: Vec<_> = self
            .pieces
            .iter()
            .flat_map(|old| [old.clip(&before), old.clip(&after)])
            .flatten()
            .collect();
        self.pieces = kept;
        self.pieces.push(piece);
        self.pieces.sort_unstable_by_key(|piece| piece.offset);
    }

    /// Returns the pieces in `range`, cut to it.
    pub(crate) fn pieces_in(&self, range: Range<u64>) -> impl Iterator<Item = Piece> {
        let first = self
            .pieces
            .partition_point(|piece| piece.end() <= range.start);
        self.pieces
            .iter()
            .skip(first)
            .map_while(move |piece| piece.clip(&range))
    }

    /// Returns the number of pieces.
    #[cfg(test)]
    pub(crate) const fn messages(&self) -> usize {
        self.pieces.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u32, len: u32, seq: u64) -> Piece {
        Piece {
            offset,
            len,
            skip: 0,
            seq,
        }
    }

    /// For each byte, the message and the byte in it.
    fn bytes(layout: &Layout, range: Range<u64>) -> Vec<Option<(u64, u32)>> {
        let len = usize::try_from(range.end - range.start).unwrap();
        let mut found = vec![None; len];
        for piece in layout.pieces_in(range.clone()) {
            for at in 0..piece.len {
                let offset = u64::from(piece.offset + at) - range.start;
                let slot = &mut found[usize::try_from(offset).unwrap()];
                assert_eq!(*slot, None, "two messages hold a byte");
                *slot = Some((piece.seq, piece.skip + at));
            }
        }
        found
    }

    #[test]
    fn later_messages_replace_bytes_of_earlier_ones() {
        // Every pair of places in a short segment, on top of two neighbours.
        for start in 0..12_u32 {
            for len in 0..12 - start {
                let mut layout = Layout::new(12);
                layout.put(piece(1, 4, 1));
                layout.put(piece(5, 3, 2));
                layout.put(piece(start, len, 3));
                let mut expected = vec![None; 12];
                for (from, count, seq) in [(1, 4, 1), (5, 3, 2), (start, len, 3)] {
                    for at in 0..count {
                        expected[(from + at) as usize] = Some((seq, at));
                    }
                }
                for from in 0..12_usize {
                    for to in from..=12 {
                        let found = bytes(&layout, from as u64..to as u64);
                        assert_eq!(found, expected[from..to], "{start} {len}: {from}..{to}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_appended_message_is_one_piece() {
        let mut layout = Layout::new(100);
        for at in 0..10 {
            layout.put(piece(at * 10, 10, at.into()));
        }
        assert_eq!(layout.messages(), 10);
        layout.put(piece(100, 0, 11));
        assert_eq!(layout.messages(), 10);
    }
}
