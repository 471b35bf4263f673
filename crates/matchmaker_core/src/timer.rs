//! Deadlines.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use wire::{Instant, MatchId};

use crate::server::{ServerLink, Slot};
use crate::ticket::TicketId;

/// What a deadline is for. The order breaks ties: a lost server is removed before a match could be
/// placed on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A lease may have expired.
    Server(ServerLink),
    /// A match waits for a server, or for its answer.
    Match(MatchId),
    /// A slot starts, stops, backs off or is idle.
    Slot(Slot),
    Ticket(TicketId),
    /// The oldest ended ticket is removed.
    Ended,
    Recovered,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    order: BTreeSet<(Instant, Timer)>,
    due: BTreeMap<Timer, Instant>,
    /// When timers last ran. A deadline set now is later, so that a run terminates.
    ran_at: Option<Instant>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.clear(timer);
        let at = self
            .ran_at
            .map_or(at, |ran_at| at.max(ran_at + Duration::from_nanos(1)));
        self.order.insert((at, timer));
        self.due.insert(timer, at);
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        if let Some(at) = self.due.remove(&timer) {
            self.order.remove(&(at, timer));
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Removes the first timer due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        self.ran_at = Some(now);
        let (at, timer) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.clear(timer);
        Some(timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_set_while_timers_run_is_later() {
        let mut timers = Timers::default();
        let now = Instant::from_millis(5);
        timers.set(Timer::Ended, now);
        assert_eq!(timers.pop_due(now), Some(Timer::Ended));
        timers.set(Timer::Ended, now);
        assert_eq!(timers.pop_due(now), None);
        assert!(timers.next().unwrap() > now);
    }

    #[test]
    fn a_new_deadline_replaces_the_old_one() {
        let mut timers = Timers::default();
        timers.set(Timer::Ended, Instant::from_millis(5));
        timers.set(Timer::Ended, Instant::from_millis(9));
        timers.set(Timer::Recovered, Instant::from_millis(7));
        assert_eq!(timers.len(), 2);
        assert_eq!(timers.next(), Some(Instant::from_millis(7)));
        timers.clear(Timer::Recovered);
        assert_eq!(timers.pop_due(Instant::from_millis(8)), None);
        assert_eq!(timers.pop_due(Instant::from_millis(9)), Some(Timer::Ended));
        assert_eq!(timers.next(), None);
    }
}
