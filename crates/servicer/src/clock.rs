//! The only module that reads the system's clocks.

use std::sync::LazyLock;
use std::time::{Instant as SystemInstant, SystemTime, UNIX_EPOCH};

use wire::{Instant, UnixTime};

/// Reads the system's clocks and returns the time types of the machines.
///
/// All clocks of a process have the same origin, the moment when the first one was created, so
/// instants of different threads are comparable. On systems that support it (Linux:
/// `CLOCK_MONOTONIC`), the monotonic clock does not advance while the system sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The system instant of [`Instant::ZERO`].
    origin: SystemInstant,
}

impl Clock {
    /// Returns a clock with the origin of this process.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: *ORIGIN }
    }

    /// Returns the time since the process's origin. It never decreases.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that hands time to everyone else"
    )]
    pub fn now(&self) -> Instant {
        Instant::ZERO + SystemInstant::now().saturating_duration_since(self.origin)
    }

    /// Returns the wall-clock time, which may jump. If the clock is set before 1970, returns the
    /// epoch.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that hands time to everyone else"
    )]
    pub fn unix_time(&self) -> UnixTime {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        UnixTime::from_millis(0) + since_epoch
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// The origin of all clocks of the process.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock that hands time to everyone else"
)]
static ORIGIN: LazyLock<SystemInstant> = LazyLock::new(SystemInstant::now);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_one_process_agree_and_do_not_go_back() {
        let early = Clock::new();
        let first = early.now();
        let late = Clock::new();
        let second = late.now();
        assert!(first <= second);
        assert!(second <= early.now());
    }

    #[test]
    fn the_wall_clock_is_past_2025() {
        // 2025-01-01. A failed conversion would return 0.
        assert!(Clock::new().unix_time() > UnixTime::from_secs(1_735_689_600));
    }
}
