//! Chunks that arrived past one that is missing.

use crate::message::AHEAD_MAX;

/// Chunks by index, as many as arrived and at most [`AHEAD_MAX`], in memory that grows with them.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Slot of each chunk plus 1, by index modulo [`AHEAD_MAX`]; 0 where none is.
    places: Vec<u16>,
    /// Slots of one stride each.
    slots: Vec<u8>,
    /// Slots that are empty.
    free: Vec<u16>,
    /// Past the last chunk that is kept, when one is.
    end: u32,
    /// How many are kept.
    held: u32,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self {
            places: vec![0; usize::try_from(AHEAD_MAX).unwrap_or(0)],
            slots: Vec::new(),
            free: Vec::new(),
            end: 0,
            held: 0,
        }
    }

    /// Forgets all, and gives the memory of the chunks back.
    pub(super) fn clear(&mut self) {
        self.places.fill(0);
        self.slots = Vec::new();
        self.free = Vec::new();
        self.end = 0;
        self.held = 0;
    }

    /// Keeps a chunk that is not kept and has at most `stride` bytes.
    ///
    /// The caller sees to it that all that are kept lie within [`AHEAD_MAX`] of each other, and
    /// that `stride` is the same until [`clear`](Self::clear).
    pub(super) fn put(&mut self, index: u32, stride: u16, bytes: &[u8]) {
        let stride = usize::from(stride);
        let used = self.slots.len().checked_div(stride).unwrap_or(0);
        let slot = self
            .free
            .pop()
            .unwrap_or_else(|| u16::try_from(used).unwrap_or(u16::MAX));
        let start = usize::from(slot).saturating_mul(stride);
        if usize::from(slot) == used {
            self.slots.resize(start.saturating_add(stride), 0);
        }
        let end = start.saturating_add(bytes.len());
        let (Some(place), Some(room)) = (
            self.places.get_mut(place(index)),
            self.slots.get_mut(start..end),
        ) else {
            debug_assert!(false, "chunk {index} has no place");
            return;
        };
        room.copy_from_slice(bytes);
        *place = slot.saturating_add(1);
        self.end = self.end.max(index.saturating_add(1));
        self.held = self.held.saturating_add(1);
    }

    /// Appends the first `len` bytes of a chunk to `out` and forgets it; false where it is not
    /// kept.
    pub(super) fn take(&mut self, index: u32, stride: u16, len: usize, out: &mut Vec<u8>) -> bool {
        let place = self.places.get_mut(place(index));
        let Some((place, slot)) = place.and_then(|place| Some((place.checked_sub(1)?, place)))
        else {
            return false;
        };
        let start = usize::from(place).saturating_mul(stride.into());
        let bytes = self.slots.get(start..start.saturating_add(len));
        out.extend_from_slice(bytes.unwrap_or_default());
        *slot = 0;
        self.free.push(place);
        self.held = self.held.saturating_sub(1);
        true
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.places.get(place(index)).is_some_and(|slot| *slot > 0)
    }

    /// Returns the chunks past `next` that are kept, in order.
    pub(super) fn past(&self, next: u32) -> impl Iterator<Item = u32> + '_ {
        let end = if self.held == 0 { 0 } else { self.end };
        (next.saturating_add(1)..end).filter(|&index| self.has(index))
    }
}

fn place(index: u32) -> usize {
    usize::try_from(index % AHEAD_MAX).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_its_room_is_used_again() {
        let mut ahead = Ahead::new();
        for round in 0..100_u32 {
            let first = round * 700;
            for index in [first + 3, first + 1, first + 2] {
                ahead.put(index, 4, &index.to_be_bytes());
            }
            // A last chunk may be shorter.
            ahead.put(first + AHEAD_MAX, 4, &[9]);
            let past: Vec<_> = ahead.past(first).collect();
            assert_eq!(past, [first + 1, first + 2, first + 3, first + AHEAD_MAX]);
            let mut out = Vec::new();
            assert!(ahead.take(first + 2, 4, 4, &mut out));
            assert!(!ahead.take(first + 2, 4, 4, &mut out));
            assert!(ahead.take(first + AHEAD_MAX, 4, 1, &mut out));
            assert_eq!(out, [&(first + 2).to_be_bytes()[..], &[9]].concat());
            assert!(ahead.take(first + 1, 4, 4, &mut out) && ahead.take(first + 3, 4, 4, &mut out));
            assert_eq!(ahead.past(first).count(), 0);
            assert_eq!(ahead.slots.len(), 16, "four slots, whatever passed through");
        }
    }
}
