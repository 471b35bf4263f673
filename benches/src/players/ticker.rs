//! Turns at a fixed rate.

use core::time::Duration;

use servicer::Clock;
use wire::Instant;

/// Turns at a fixed interval since the first.
#[derive(Debug)]
pub struct Ticker {
    clock: Clock,
    next: Instant,
    period: Duration,
}

impl Ticker {
    /// Starts now.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        let clock = Clock::new();
        Self {
            next: clock.now(),
            period,
            clock,
        }
    }

    /// Waits for the next turn. A late turn runs at once and does not shift later ones. Returns its
    /// due time.
    pub fn wait(&mut self) -> Instant {
        let due = self.next;
        self.next += self.period;
        let left = due.saturating_since(self.clock.now());
        if left > Duration::ZERO {
            sleep(left);
        }
        due
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }
}

#[expect(clippy::disallowed_methods, reason = "turns come by the clock")]
pub(super) fn sleep(span: Duration) {
    std::thread::sleep(span);
}
