//! Clocks of nodes.

use core::time::Duration;

use wire::{Instant, UnixTime};

/// A monotonic clock with its own origin and drift.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// World time at which the clock shows `base_local`.
    base_world: Instant,
    base_local: Instant,
    /// Drift in parts per million.
    drift_ppm: i32,
}

impl Clock {
    pub(super) fn new(now: Instant, offset: Duration, drift_ppm: i32) -> Self {
        Self {
            base_world: now,
            base_local: now + offset,
            drift_ppm: clamp(drift_ppm),
        }
    }

    /// Returns the clock's time at world time `world`.
    pub(super) fn local(&self, world: Instant) -> Instant {
        let elapsed = world.saturating_since(self.base_world).as_nanos();
        let shown = elapsed.saturating_mul(self.pace()) / MILLION;
        self.base_local + nanos(shown)
    }

    /// Returns the first world time at which the clock shows `local` or later.
    pub(super) fn world(&self, local: Instant) -> Instant {
        let shown = local.saturating_since(self.base_local).as_nanos();
        let elapsed = shown.saturating_mul(MILLION).div_ceil(self.pace());
        self.base_world + nanos(elapsed)
    }

    /// Changes the drift without a jump.
    pub(super) fn set_drift(&mut self, now: Instant, drift_ppm: i32) {
        self.base_local = self.local(now);
        self.base_world = now;
        self.drift_ppm = clamp(drift_ppm);
    }

    /// Nanoseconds that the clock advances per million of world time.
    fn pace(&self) -> u128 {
        u128::try_from(1_000_000 + self.drift_ppm).unwrap_or(MILLION)
    }
}

/// A node's wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WallClock {
    /// Equal to the world's.
    #[default]
    Exact,
    /// Ahead of the world's.
    Ahead(Duration),
    /// Behind the world's.
    Behind(Duration),
    /// The node has none: `set_unix_time` is never called.
    Missing,
}

impl WallClock {
    /// Returns the node's wall clock when the world's is `truth`.
    pub(super) fn read(self, truth: UnixTime) -> Option<UnixTime> {
        match self {
            Self::Exact => Some(truth),
            Self::Ahead(span) => Some(truth + span),
            Self::Behind(span) => {
                let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                Some(UnixTime::from_millis(
                    truth.as_millis().saturating_sub(span),
                ))
            }
            Self::Missing => None,
        }
    }
}

/// Limits drift to 10 % either way, so that the clock moves forward.
fn clamp(drift_ppm: i32) -> i32 {
    drift_ppm.clamp(-100_000, 100_000)
}

fn nanos(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Parts in a million.
const MILLION: u128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_deadline_is_due_at_its_world_time_and_not_a_nanosecond_before(
            offset in 0..1_000_000_000_000_u64,
            drift in -100_000..=100_000,
            ahead in 1..1_000_000_000_000_u64,
        ) {
            let clock = Clock::new(Instant::ZERO, Duration::from_nanos(offset), drift);
            let deadline = Instant::from_nanos(offset + ahead);
            let due = clock.world(deadline);
            prop_assert!(clock.local(due) >= deadline);
            prop_assert!(clock.local(due.saturating_sub(Duration::from_nanos(1))) < deadline);
        }

        #[test]
        fn a_change_of_pace_does_not_jump(
            drift in -100_000..=100_000, next in -100_000..=100_000, at in 0..1_000_000_000_000_u64,
        ) {
            let mut clock = Clock::new(Instant::ZERO, Duration::from_secs(3), drift);
            let now = Instant::from_nanos(at);
            let before = clock.local(now);
            clock.set_drift(now, next);
            prop_assert_eq!(clock.local(now), before);
        }
    }

    #[test]
    fn a_wall_clock_may_be_wrong_or_missing() {
        let truth = UnixTime::from_secs(1_000);
        let day = Duration::from_secs(86_400);
        assert_eq!(WallClock::Exact.read(truth), Some(truth));
        assert_eq!(WallClock::Ahead(day).read(truth), Some(truth + day));
        assert_eq!(
            WallClock::Behind(day).read(truth),
            Some(UnixTime::from_millis(0))
        );
        assert_eq!(WallClock::Missing.read(truth), None);
    }
}
