//! Deadlines of many slots: an indexed binary heap.

use wire::Instant;

/// The earliest deadline of up to 65,536 slots.
///
/// Setting and clearing cost O(log n), and allocate only for a new slot index. Ties go to the lower
/// slot, for determinism.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// A heap: no entry is before its parent.
    heap: Vec<(Instant, u16)>,
    /// Index of each slot in `heap`; `NOWHERE` without a deadline.
    position: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Timers {
    /// Sets or clears the deadline of `slot`.
    pub(crate) fn set(&mut self, slot: u16, deadline: Option<Instant>) {
        let index = usize::from(slot);
        if self.position.len() <= index {
            self.position.resize(index.saturating_add(1), NOWHERE);
        }
        let at = self.position.get(index).copied().unwrap_or(NOWHERE);
        match (at, deadline) {
            (NOWHERE, None) => {}
            (NOWHERE, Some(deadline)) => {
                self.heap.push((deadline, slot));
                self.settle(self.heap.len().saturating_sub(1));
            }
            (at, Some(deadline)) => {
                let at = at as usize;
                if let Some(entry) = self.heap.get_mut(at) {
                    if entry.0 == deadline {
                        return;
                    }
                    entry.0 = deadline;
                }
                self.settle(at);
            }
            (at, None) => {
                let at = at as usize;
                self.heap.swap_remove(at);
                self.place(index, NOWHERE);
                if at < self.heap.len() {
                    self.settle(at);
                }
            }
        }
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|(deadline, _)| *deadline)
    }

    /// Removes and returns the slot with the earliest deadline if that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u16> {
        let &(deadline, slot) = self.heap.first()?;
        if deadline > now {
            return None;
        }
        self.set(slot, None);
        Some(slot)
    }

    /// Moves the entry at `at` up or down to its place.
    fn settle(&mut self, mut at: usize) {
        while at > 0 {
            let parent = at.saturating_sub(1) / 2;
            if self.heap.get(at) >= self.heap.get(parent) {
                break;
            }
            self.exchange(at, parent);
            at = parent;
        }
        loop {
            let left = at.saturating_mul(2).saturating_add(1);
            let right = left.saturating_add(1);
            let mut least = at;
            for child in [left, right] {
                if child < self.heap.len() && self.heap.get(child) < self.heap.get(least) {
                    least = child;
                }
            }
            if least == at {
                break;
            }
            self.exchange(at, least);
            at = least;
        }
        self.note(at);
    }

    fn exchange(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.note(a);
        self.note(b);
    }

    /// Records the position of the entry at `at`.
    fn note(&mut self, at: usize) {
        if let Some(&(_, slot)) = self.heap.get(at) {
            self.place(usize::from(slot), u32::try_from(at).unwrap_or(NOWHERE));
        }
    }

    fn place(&mut self, index: usize, at: u32) {
        if let Some(position) = self.position.get_mut(index) {
            *position = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(steps in proptest::collection::vec((0_u16..40, proptest::option::of(0_u64..50)), 1..400)) {
            let mut timers = Timers::default();
            let mut model = BTreeMap::new();
            for (slot, deadline) in steps {
                match deadline {
                    Some(nanos) => model.insert(slot, Instant::from_nanos(nanos)),
                    None => model.remove(&slot),
                };
                timers.set(slot, deadline.map(Instant::from_nanos));
                prop_assert_eq!(timers.next(), model.values().min().copied());
            }
            let mut order: Vec<_> = model.iter().map(|(slot, at)| (*at, *slot)).collect();
            order.sort_unstable();
            for (at, slot) in order {
                prop_assert_eq!(timers.pop_due(at), Some(slot));
            }
            prop_assert_eq!(timers.next(), None);
        }
    }

    #[test]
    fn nothing_is_due_early() {
        let mut timers = Timers::default();
        timers.set(3, Some(Instant::from_nanos(10)));
        assert_eq!(timers.pop_due(Instant::from_nanos(9)), None);
        assert_eq!(timers.pop_due(Instant::from_nanos(10)), Some(3));
    }
}
