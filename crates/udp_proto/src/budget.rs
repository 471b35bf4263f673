//! Budgets: what may be spent in a time, in all and for one source.

mod answer;
mod prefix;
mod ration;

use core::time::Duration;

use wire::Instant;

pub use answer::AnswerBudget;
pub use prefix::{Prefix, PrefixShares, ShareRefusal, prefix_of};
pub use ration::{RationRefusal, Rationed};

/// A bucket that fills at a rate up to a burst; exact, in whole numbers.
///
/// Counts billionths of a unit, so that a nanosecond's worth of any rate is a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    fill: Fill,
    level: Level,
}

/// How a bucket fills; one for all where there are thousands alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Units per second.
    pub rate: u32,
    /// Most units held.
    pub burst: u32,
}

/// What is in a bucket, 16 bytes, without how it fills: whoever holds it gives the same [`Fill`] each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Units held at `at`, in billionths; at most the burst.
    units: u64,
    /// When `units` was right; never goes back.
    at: Instant,
}

impl Level {
    /// Makes that of a full bucket.
    #[must_use]
    pub const fn full(fill: Fill, now: Instant) -> Self {
        Self {
            units: scaled(fill.burst),
            at: now,
        }
    }

    /// Returns when something was last asked of it, or it was made.
    #[must_use]
    pub const fn as_of(&self) -> Instant {
        self.at
    }

    /// Takes `units` where so many are held; else nothing changes and the answer is false.
    pub fn take(&mut self, fill: Fill, now: Instant, units: u32) -> bool {
        self.refill(fill, now);
        match self.units.checked_sub(scaled(units)) {
            Some(left) => {
                self.units = left;
                true
            }
            None => false,
        }
    }

    /// Adds what was gained since.
    fn refill(&mut self, fill: Fill, now: Instant) {
        let nanos = now.as_nanos().saturating_sub(self.at.as_nanos());
        self.at = self.at.max(now);
        let gained = nanos.saturating_mul(fill.rate.into());
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

    /// Takes `units` where so many are held; else nothing changes and the answer is false.
    pub fn take(&mut self, now: Instant, units: u32) -> bool {
        self.level.take(self.fill, now, units)
    }

    /// Returns whether so many are held.
    pub fn holds(&mut self, now: Instant, units: u32) -> bool {
        self.refill(now);
        self.level.units >= scaled(units)
    }

    /// Takes `units`, or all there is where fewer are held.
    ///
    /// For what must leave in any case and shall count.
    pub fn take_forced(&mut self, now: Instant, units: u32) {
        self.refill(now);
        self.level.units = self.level.units.saturating_sub(scaled(units));
    }

    /// Returns the whole units held.
    #[must_use]
    pub fn available(&self, now: Instant) -> u32 {
        let mut ahead = *self;
        ahead.refill(now);
        u32::try_from(ahead.level.units / SCALE).unwrap_or(u32::MAX)
    }

    /// Returns when `units` are held, if none are taken before; `None` where they never are.
    #[must_use]
    pub fn available_at(&self, units: u32) -> Option<Instant> {
        let missing = scaled(units).saturating_sub(self.level.units);
        if missing == 0 {
            return Some(self.level.at);
        }
        if units > self.fill.burst || self.fill.rate == 0 {
            return None;
        }
        let nanos = missing.div_ceil(self.fill.rate.into());
        Some(self.level.at + Duration::from_nanos(nanos))
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

/// `units` in billionths; no `u32` overflows it.
const fn scaled(units: u32) -> u64 {
    SCALE.saturating_mul(units as u64)
}

/// Billionths in a unit: nanoseconds in a second.
const SCALE: u64 = 1_000_000_000;

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
        fn a_bucket_says_when_it_holds_enough(
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
    fn time_that_goes_back_gains_nothing() {
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
