//! When each waiting ticket is tried.

use std::collections::{BTreeMap, VecDeque};

use super::slots::TicketSlot;

/// A pass has at most about this many tickets, so that putting them in order takes less than 1 ms.
const PASS_MAX: usize = 32_768;

/// Times are rounded up to a multiple of this.
const STEP_MS: u64 = 10;

/// The pause of a ticket after its first try in vain.
const PAUSE_MIN_MS: u64 = 50;

/// Doublings of the pause: 800 ms at most.
const DOUBLINGS_MAX: u8 = 4;

/// A ticket, ordered by its age.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) since_ms: u64,
    pub(super) slot: TicketSlot,
}

/// Tickets in passes: the oldest of those that are due first.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    pass: VecDeque<Turn>,
    later: BTreeMap<u64, VecDeque<Turn>>,
}

impl Schedule {
    /// Adds a ticket that is tried in the next pass.
    pub(super) fn add(&mut self, now_ms: u64, turn: Turn) {
        self.at(now_ms, turn);
    }

    /// Adds a ticket that is tried again: by `until_ms` if that is given, or after a pause that grows with
    /// the number of `tries`.
    pub(super) fn retry(&mut self, now_ms: u64, turn: Turn, tries: u8, until_ms: Option<u64>) {
        let doublings = u32::from(tries.min(DOUBLINGS_MAX));
        let pause = PAUSE_MIN_MS.checked_shl(doublings).unwrap_or(PAUSE_MIN_MS);
        let at = until_ms.unwrap_or_else(|| now_ms.saturating_add(pause));
        self.at(at.max(now_ms.saturating_add(1)), turn);
    }

    fn at(&mut self, at_ms: u64, turn: Turn) {
        let at = at_ms.div_ceil(STEP_MS).saturating_mul(STEP_MS);
        self.later.entry(at).or_default().push_back(turn);
    }

    /// Returns the next ticket of the pass; begins the next pass if `now_ms` has reached it.
    pub(super) fn next(&mut self, now_ms: u64) -> Option<Turn> {
        if self.pass.is_empty() {
            self.begin(now_ms);
        }
        self.pass.pop_front()
    }

    /// Returns a ticket to the front of the pass.
    pub(super) fn unget(&mut self, turn: Turn) {
        self.pass.push_front(turn);
    }

    fn begin(&mut self, now_ms: u64) {
        let now = now_ms.div_ceil(STEP_MS).saturating_mul(STEP_MS);
        while self.pass.len() < PASS_MAX
            && let Some(mut turns) = self.later.first_entry()
            && *turns.key() <= now
        {
            let room = PASS_MAX.saturating_sub(self.pass.len());
            let due = turns.get_mut();
            let count = due.len().min(room);
            self.pass.extend(due.drain(..count));
            if due.is_empty() {
                turns.remove();
            }
        }
        // Runs in order, which a stable sort merges.
        let turns = self.pass.make_contiguous();
        turns.sort_by_key(|turn| (turn.since_ms, turn.slot.index));
    }

    /// Returns when the next ticket is due.
    pub(super) fn deadline(&self, now_ms: u64) -> Option<u64> {
        if !self.pass.is_empty() {
            return Some(now_ms);
        }
        self.later.first_key_value().map(|(at, _)| *at)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let later = self.later.values().map(VecDeque::capacity);
        let turns = later.fold(self.pass.capacity(), usize::saturating_add);
        turns.saturating_mul(size_of::<Turn>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(since_ms: u64) -> Turn {
        let slot = TicketSlot {
            index: u32::try_from(since_ms).unwrap(),
            generation: 0,
        };
        Turn { since_ms, slot }
    }

    fn pass(schedule: &mut Schedule, now_ms: u64) -> Vec<u64> {
        let turns = core::iter::from_fn(|| schedule.next(now_ms));
        turns.map(|turn| turn.since_ms).collect()
    }

    #[test]
    fn the_oldest_of_the_due_tickets_is_first() {
        let mut schedule = Schedule::default();
        schedule.add(1_000, turn(900));
        schedule.retry(1_000, turn(100), 0, None);
        schedule.retry(1_000, turn(50), 9, None);
        schedule.retry(1_000, turn(70), 0, Some(1_015));
        assert_eq!(schedule.deadline(1_000), Some(1_000));
        assert_eq!(pass(&mut schedule, 1_000), [900]);
        assert_eq!(schedule.deadline(1_000), Some(1_020));
        assert_eq!(pass(&mut schedule, 1_050), [70, 100]);
        assert_eq!(pass(&mut schedule, 1_799), [50], "rounded up to 1,800");
        assert_eq!(schedule.deadline(1_800), None);
    }

    #[test]
    fn a_long_pass_is_cut() {
        let mut schedule = Schedule::default();
        let count = 2 * PASS_MAX as u64 + 5;
        for since in (0..count).rev() {
            schedule.add(0, turn(since));
        }
        assert!(schedule.next(0).is_some());
        assert_eq!(schedule.pass.len(), PASS_MAX - 1);
        assert_eq!(pass(&mut schedule, 0).len() as u64, count - 1);
    }
}
