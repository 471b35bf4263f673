//! The one place that reads the system's clocks.

use std::sync::LazyLock;
use std::time::{Instant as SystemInstant, SystemTime, UNIX_EPOCH};

use wire::{Instant, UnixTime};

/// Reads the system's clocks in the types that machines take.
///
/// All clocks of a process count from the same origin, the moment the first one was made, so that
/// instants of different threads compare. The monotonic side does not count time for which the
/// whole system sleeps, where the system has it so (Linux: `CLOCK_MONOTONIC`).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What [`Instant::ZERO`] stands for.
    origin: SystemInstant,
}

impl Clock {
    /// Returns a clock that agrees with all others of this process.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: *ORIGIN }
    }

    /// Returns the time since the process's origin; never goes back.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that hands time to everyone else"
    )]
    pub fn now(&self) -> Instant {
        Instant::ZERO + SystemInstant::now().saturating_duration_since(self.origin)
    }

    /// Returns the wall clock, which may jump; the epoch where it stands before 1970.
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

/// The origin that all clocks share.
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
    fn the_wall_clock_stands_after_the_first_line_of_this_crate() {
        // 2025-01-01; a zero would show a failed conversion.
        assert!(Clock::new().unix_time() > UnixTime::from_secs(1_735_689_600));
    }
}
