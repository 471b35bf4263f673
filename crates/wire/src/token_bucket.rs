//! Token buckets.

use core::ops::Add as _;
use core::time::Duration;

use crate::time::Instant;

/// A token bucket, exact in whole numbers.
///
/// It counts billionths of a unit, so one nanosecond of any rate is a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    fill: Fill,
    level: Level,
}

/// Rate and burst of a bucket. Thousands of [`Level`]s can share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Units per second.
    pub rate: u32,
    /// Maximum number of units.
    pub burst: u32,
}

/// The level of a bucket, 16 bytes. The caller passes the same [`Fill`] to each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Billionths of a unit held at `at`; at most the burst. Negative is a debt.
    units: i64,
    /// Time of `units`; never goes back.
    at: Instant,
}

impl Level {
    /// Returns the level of a full bucket.
    #[must_use]
    pub const fn full(fill: Fill, now: Instant) -> Self {
        Self {
            units: scaled(fill.burst),
            at: now,
        }
    }

    /// Returns the time of the last call.
    #[must_use]
    pub const fn as_of(&self) -> Instant {
        self.at
    }

    /// Takes `units` and returns true if the bucket holds them; else takes none.
    pub fn take(&mut self, fill: Fill, now: Instant, units: u32) -> bool {
        self.refill(fill, now);
        let holds = self.units >= scaled(units);
        if holds {
            self.units = self.units.saturating_sub(scaled(units));
        }
        holds
    }

    /// Takes `units` even if the bucket does not hold them. The debt is earned back first.
    pub fn charge(&mut self, fill: Fill, now: Instant, units: u32) {
        self.refill(fill, now);
        self.units = self.units.saturating_sub(scaled(units));
    }

    /// Returns whether the bucket is full.
    pub fn is_full(&mut self, fill: Fill, now: Instant) -> bool {
        self.refill(fill, now);
        self.units >= scaled(fill.burst)
    }

    /// Returns when the bucket holds `units`, if none are taken before; `None` if it never does.
    #[must_use]
    pub fn available_at(&self, fill: Fill, units: u32) -> Option<Instant> {
        let missing = scaled(units).saturating_sub(self.units);
        if missing <= 0 {
            return Some(self.at);
        }
        if units > fill.burst || fill.rate == 0 {
            return None;
        }
        let nanos = missing.unsigned_abs().div_ceil(fill.rate.into());
        Some(self.at.add(Duration::from_nanos(nanos)))
    }

    /// Adds the units gained since `at`.
    fn refill(&mut self, fill: Fill, now: Instant) {
        let nanos = now.as_nanos().saturating_sub(self.at.as_nanos());
        self.at = self.at.max(now);
        let gained = i64::try_from(nanos.saturating_mul(fill.rate.into())).unwrap_or(i64::MAX);
        self.units = self.units.saturating_add(gained).min(scaled(fill.burst));
    }
}

impl TokenBucket {
    /// Makes a full bucket of `burst` units that gains `rate` units per second.
    #[must_use]
    pub const fn new(rate: u32, burst: u32, now: Instant) -> Self {
        let fill = Fill { rate, burst };
        Self {
            fill,
            level: Level::full(fill, now),
        }
    }

    /// Takes `units` and returns true if the bucket holds them; else takes none.
    pub fn take(&mut self, now: Instant, units: u32) -> bool {
        self.level.take(self.fill, now, units)
    }

    /// Returns whether the bucket holds `units`.
    pub fn holds(&mut self, now: Instant, units: u32) -> bool {
        self.refill(now);
        self.level.units >= scaled(units)
    }

    /// Takes `units`, or all if the bucket holds fewer.
    ///
    /// For packets that are sent in any case but count.
    pub fn take_forced(&mut self, now: Instant, units: u32) {
        self.refill(now);
        let left = self.level.units.saturating_sub(scaled(units));
        self.level.units = left.max(0);
    }

    /// Returns the whole units that the bucket holds.
    #[must_use]
    pub fn available(&self, now: Instant) -> u32 {
        let mut ahead = *self;
        ahead.refill(now);
        u32::try_from(ahead.level.units.max(0) / SCALE).unwrap_or(u32::MAX)
    }

    /// Returns when the bucket holds `units`, if none are taken before; `None` if it never does.
    #[must_use]
    pub fn available_at(&self, units: u32) -> Option<Instant> {
        self.level.available_at(self.fill, units)
    }

    /// Changes the rate from `now` on.
    pub fn set_rate(&mut self, now: Instant, rate: u32) {
        self.refill(now);
        self.fill.rate = rate;
    }

    /// Returns the units gained per second.
    #[must_use]
    pub const fn rate(&self) -> u32 {
        self.fill.rate
    }

    fn refill(&mut self, now: Instant) {
        self.level.refill(self.fill, now);
    }
}

/// Returns billionths of a unit: at most 4.3e18, which fits.
const fn scaled(units: u32) -> i64 {
    SCALE.saturating_mul(units as i64)
}

/// Billionths in a unit: nanoseconds in a second.
const SCALE: i64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_agrees_with_exact_arithmetic(
            rate in 0_u32..2_000_000,
            burst in 0_u32..10_000,
            start in any::<u32>(),
            steps in prop::collection::vec((0_u64..3_000_000_000, 0_u32..5_000), 1..200),
        ) {
            let mut now = Instant::from_nanos(start.into());
            let mut bucket = TokenBucket::new(rate, burst, now);
            let full = u128::from(burst) * 1_000_000_000;
            let mut level = full;
            for (wait, units) in steps {
                now += Duration::from_nanos(wait);
                level = (level + u128::from(wait) * u128::from(rate)).min(full);
                let cost = u128::from(units) * 1_000_000_000;
                prop_assert_eq!(u128::from(bucket.available(now)), level / 1_000_000_000);
                prop_assert_eq!(bucket.take(now, units), level >= cost);
                if level >= cost {
                    level -= cost;
                }
            }
        }

        #[test]
        fn a_bucket_reports_when_it_holds_enough(
            rate in 1_u32..2_000_000,
            taken in 0_u32..1_000,
            units in 1_u32..1_000,
        ) {
            let mut bucket = TokenBucket::new(rate, 1_000, Instant::ZERO);
            bucket.take_forced(Instant::ZERO, taken);
            let when = bucket.available_at(units).unwrap();
            let mut early = bucket;
            if when > Instant::ZERO {
                prop_assert!(!early.take(when.saturating_sub(Duration::from_nanos(1)), units));
            }
            prop_assert!(bucket.take(when, units));
        }
    }

    #[test]
    fn a_debt_is_earned_back_first() {
        let fill = Fill { rate: 10, burst: 2 };
        let mut level = Level::full(fill, Instant::ZERO);
        level.charge(fill, Instant::ZERO, 5);
        assert!(!level.take(fill, Instant::from_millis(399), 1));
        assert_eq!(level.available_at(fill, 1), Some(Instant::from_millis(400)));
        assert!(level.take(fill, Instant::from_millis(400), 1));
        assert!(!level.is_full(fill, Instant::from_millis(599)));
        assert!(level.is_full(fill, Instant::from_millis(600)));
    }

    #[test]
    fn a_clock_step_back_adds_no_tokens() {
        let mut bucket = TokenBucket::new(1_000, 1, Instant::from_millis(10));
        assert!(bucket.take(Instant::from_millis(10), 1));
        for _ in 0..10 {
            assert!(!bucket.take(Instant::from_millis(5), 1));
            assert!(!bucket.take(Instant::from_millis(10), 1));
        }
        assert!(bucket.take(Instant::from_millis(11), 1));
    }

    #[test]
    fn the_extremes_do_not_overflow() {
        let last = Instant::from_nanos(u64::MAX);
        let mut bucket = TokenBucket::new(u32::MAX, u32::MAX, Instant::ZERO);
        assert!(bucket.take(Instant::ZERO, u32::MAX));
        assert!(!bucket.take(Instant::ZERO, 1));
        assert!(bucket.take(last, u32::MAX));
        assert_eq!(bucket.available_at(1), Some(last));
        let mut none = TokenBucket::new(0, 1, Instant::ZERO);
        assert!(none.take(Instant::ZERO, 1));
        assert_eq!(none.available_at(1), None);
        assert_eq!(none.available_at(2), None);
        none.set_rate(last, 5);
        assert_eq!(none.rate(), 5);
    }
}
