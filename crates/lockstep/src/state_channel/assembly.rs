//! A state that arrives in fragments.

use super::marks::Marks;
use super::message::{StatePart, part_range};

/// The place of one state; its memory is used for one after the other.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// Number of the state; 0 where the place is free.
    number: u32,
    total: u32,
    count: u16,
    arrived: Marks,
    /// At least `total` bytes while a state is here; those of fragments that did not arrive are of
    /// older states.
    bytes: Vec<u8>,
}

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It is the last one.
    Whole,
    /// Others are missing.
    Kept,
    /// It was there.
    Duplicate,
    /// It names another length or number of fragments than the first of its state.
    Contradicts,
}

impl Assembly {
    /// Begins with the state of a fragment.
    pub(super) fn begin(&mut self, part: &StatePart<'_>) {
        self.number = part.number;
        self.total = part.total;
        self.count = part.count;
        self.arrived = Marks::default();
        // Nothing is cleared: a state is only read when all of it was written, and so a head that
        // announces much costs no work, and memory once.
        let total = usize::try_from(part.total).unwrap_or(usize::MAX);
        if self.bytes.len() < total {
            let missing = total.saturating_sub(self.bytes.len());
            self.bytes.reserve_exact(missing);
            self.bytes.resize(total, 0);
        }
    }

    /// Takes a fragment of the state that is here.
    pub(super) fn put(&mut self, part: &StatePart<'_>) -> Put {
        if (part.total, part.count) != (self.total, self.count) {
            return Put::Contradicts;
        }
        let range = part_range(self.total, self.count, part.index);
        let start = usize::try_from(range.start).unwrap_or(usize::MAX);
        let end = usize::try_from(range.end).unwrap_or(usize::MAX);
        let Some(place) = self.bytes.get_mut(start..end) else {
            return Put::Contradicts;
        };
        if place.len() != part.bytes.len() {
            return Put::Contradicts;
        }
        if !self.arrived.insert(part.index) {
            return Put::Duplicate;
        }
        place.copy_from_slice(part.bytes);
        if self.arrived.count() == self.count {
            Put::Whole
        } else {
            Put::Kept
        }
    }

    /// Gives the bytes of a whole state for a buffer to be used again, frees the place, and returns
    /// the state's length.
    pub(super) const fn swap_out(&mut self, buffer: &mut Vec<u8>) -> u32 {
        core::mem::swap(&mut self.bytes, buffer);
        self.number = 0;
        self.total
    }

    pub(super) const fn free(&mut self) {
        self.number = 0;
    }

    /// Number of the state; 0 where the place is free.
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    pub(super) const fn arrived(&self) -> &Marks {
        &self.arrived
    }
}
