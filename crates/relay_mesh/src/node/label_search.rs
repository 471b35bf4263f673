//! When to search for flows without a label. A search visits all flows with a remote end.

use core::time::Duration;

use wire::Instant;

#[derive(Debug)]
pub(super) struct LabelSearch {
    /// When to search; `None` if no flow has to wait for a label.
    due_at: Option<Instant>,
    /// The earliest next search.
    not_before: Instant,
    /// Until then the active path gets its labels first, since the one before failed.
    failover_deadline: Instant,
}

impl LabelSearch {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            due_at: Some(now),
            not_before: now,
            failover_deadline: now,
        }
    }

    /// Schedules a search no later than `at`.
    pub(super) fn schedule(&mut self, at: Instant) {
        self.due_at = Some(self.due_at.map_or(at, |before| before.min(at)));
    }

    /// Whether to search now; clears the schedule if so.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let may_search = self.not_before <= now;
        let search = self.due_at.take_if(|at| *at <= now && may_search);
        search.is_some()
    }

    /// Delays the next search after one through `flows`: by 1 µs for each flow, up to
    /// [`PAUSE_MAX`].
    pub(super) fn on_searched(&mut self, now: Instant, flows: usize) {
        let micros = u64::try_from(flows).unwrap_or(u64::MAX);
        self.not_before = now + Duration::from_micros(micros).min(PAUSE_MAX);
    }

    /// The deadline of a search that is scheduled for before the earliest possible one.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let is_delayed = self.due_at.is_some_and(|at| at <= self.not_before);
        is_delayed.then_some(self.not_before)
    }

    /// Gives the path that takes over from a failed one its labels first, for
    /// [`FAILOVER_PRIORITY`].
    pub(super) fn on_failover(&mut self, now: Instant) {
        self.failover_deadline = now + FAILOVER_PRIORITY;
    }

    pub(super) fn is_after_failover(&self, now: Instant) -> bool {
        now < self.failover_deadline
    }

    /// Schedules a search for when the other paths get labels again.
    pub(super) fn schedule_after_failover(&mut self) {
        self.schedule(self.failover_deadline);
    }
}

/// Maximum time between two searches.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// How long spare paths wait for the labels of the new path after a failure: four round trips of
/// 250 ms.
pub(super) const FAILOVER_PRIORITY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_rest_for_a_microsecond_a_flow_and_no_longer_than_50_ms() {
        let at = Instant::from_millis;
        let mut search = LabelSearch::new(at(0));
        assert!(search.take_due(at(0)));
        for (flows, millis) in [(10, 1), (10_000, 10), (1_000_000, 50)] {
            search.on_searched(at(0), flows);
            search.schedule(at(0));
            assert!(!search.take_due(at(0)), "{flows}");
            let due = search.poll_timeout();
            assert!(due.is_some_and(|due| at(0) < due && due <= at(millis)));
            assert!(search.take_due(at(millis)), "{flows}");
            assert_eq!(search.poll_timeout(), None);
        }
    }
}
