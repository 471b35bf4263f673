//! Between the time of machines and that of the standard library, which QUIC's code takes.

use core::time::Duration;

use wire::Instant;

/// Two names of one moment, from which all others are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    epoch: std::time::Instant,
    start: Instant,
}

impl Clock {
    /// Has `start` be `epoch`.
    pub(super) const fn new(epoch: std::time::Instant, start: Instant) -> Self {
        Self { epoch, start }
    }

    pub(super) fn to_std(self, now: Instant) -> std::time::Instant {
        let since = now.saturating_since(self.start);
        self.epoch.checked_add(since).unwrap_or(self.epoch)
    }

    pub(super) fn of_std(self, then: std::time::Instant) -> Instant {
        self.start + then.saturating_duration_since(self.epoch)
    }
}

/// Least time between two looks at QUIC's timers, so that one that is always due is no busy loop.
pub(super) const TIMER_GAP: Duration = Duration::from_micros(1);
