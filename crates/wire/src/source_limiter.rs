//! Limits for each source: how many things it holds, and how often it acts.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::time::Instant;
use crate::token_bucket::{Fill, Level, TokenBucket};

/// Limits how many things each source holds, and all sources together.
///
/// The key is usually a [`SourceKey`](crate::SourceKey). Memory is bounded by the total.
#[derive(Debug)]
pub struct SourceLimiter<K> {
    /// No entry is zero.
    held: BTreeMap<K, u32>,
    total: u32,
    total_max: u32,
    source_max: u32,
    /// Limits how many are taken a second.
    rate: Option<TokenBucket>,
}

/// The limit that one more would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// The limit of all sources.
    Total,
    /// The limit of this source.
    Source,
    /// The rate of all sources.
    Rate,
}

impl<K: Copy + Ord> SourceLimiter<K> {
    /// Makes a limiter for `total_max` in all and `source_max` a source.
    #[must_use]
    pub const fn new(total_max: u32, source_max: u32) -> Self {
        Self {
            held: BTreeMap::new(),
            total: 0,
            total_max,
            source_max,
            rate: None,
        }
    }

    /// Limits the rate, too.
    #[must_use]
    pub const fn with_rate(mut self, rate: TokenBucket) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Counts one more of `source`.
    ///
    /// # Errors
    ///
    /// The limit that it would exceed; then it is not counted, and takes nothing of the rate.
    pub fn take(&mut self, now: Instant, source: K) -> Result<(), LimitError> {
        let held = self.held(source);
        if self.total >= self.total_max {
            return Err(LimitError::Total);
        }
        if held >= self.source_max {
            return Err(LimitError::Source);
        }
        if self.rate.as_mut().is_some_and(|rate| !rate.take(now, 1)) {
            return Err(LimitError::Rate);
        }
        self.held.insert(source, held.saturating_add(1));
        self.total = self.total.saturating_add(1);
        Ok(())
    }

    /// Counts one of `source` less, if it holds any.
    pub fn release(&mut self, source: K) {
        let Some(held) = self.held.get_mut(&source) else {
            return;
        };
        *held = held.saturating_sub(1);
        if *held == 0 {
            self.held.remove(&source);
        }
        self.total = self.total.saturating_sub(1);
    }

    /// Returns how many a source holds.
    #[must_use]
    pub fn held(&self, source: K) -> u32 {
        self.held.get(&source).copied().unwrap_or(0)
    }

    /// Returns how many all sources hold.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// Returns the number of sources that hold any.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.held.len()
    }
}

/// A token bucket for each source that acted lately.
///
/// A source without an entry has a full bucket. At most `sources_max` are remembered; if all of
/// them have a bucket that is not full, other sources are refused.
#[derive(Debug)]
pub struct SourceRates<K> {
    fill: Fill,
    sources_max: usize,
    levels: BTreeMap<K, Level>,
}

impl<K: Copy + Ord> SourceRates<K> {
    /// Makes buckets with this rate and burst for at most `sources_max` sources.
    #[must_use]
    pub const fn new(fill: Fill, sources_max: usize) -> Self {
        Self {
            fill,
            sources_max,
            levels: BTreeMap::new(),
        }
    }

    /// Takes one unit of `source`.
    ///
    /// # Errors
    ///
    /// The time after which the source can take one, if no other call takes it.
    pub fn take(&mut self, now: Instant, source: K) -> Result<(), Duration> {
        if self.levels.len() >= self.sources_max && !self.levels.contains_key(&source) {
            self.forget_full(now);
            if self.levels.len() >= self.sources_max {
                return Err(self.interval());
            }
        }
        let full = || Level::full(self.fill, now);
        let level = self.levels.entry(source).or_insert_with(full);
        if level.take(self.fill, now, 1) {
            return Ok(());
        }
        let at = level.available_at(self.fill, 1);
        Err(at.map_or_else(|| self.interval(), |at| at.saturating_since(now)))
    }

    /// Charges `units` to a source that has an entry; it may then be in debt.
    pub fn charge(&mut self, now: Instant, source: K, units: u32) {
        if let Some(level) = self.levels.get_mut(&source) {
            level.charge(self.fill, now, units);
        }
    }

    /// Forgets sources with a full bucket.
    pub fn forget_full(&mut self, now: Instant) {
        let fill = self.fill;
        self.levels.retain(|_, level| !level.is_full(fill, now));
    }

    /// Returns the number of sources that are remembered.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.levels.len()
    }

    /// The time in which one unit is gained; a second if none is.
    fn interval(&self) -> Duration {
        let second = Duration::from_secs(1);
        second.checked_div(self.fill.rate).unwrap_or(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    #[test]
    fn each_source_and_all_together_have_their_limit() {
        let mut limiter = SourceLimiter::new(3, 2);
        assert_eq!(limiter.take(NOW, 1), Ok(()));
        assert_eq!(limiter.take(NOW, 1), Ok(()));
        assert_eq!(limiter.take(NOW, 1), Err(LimitError::Source));
        assert_eq!(limiter.take(NOW, 2), Ok(()));
        assert_eq!(limiter.take(NOW, 2), Err(LimitError::Total));
        assert_eq!((limiter.held(1), limiter.total()), (2, 3));
        limiter.release(1);
        limiter.release(2);
        limiter.release(2);
        assert_eq!((limiter.sources(), limiter.total()), (1, 1));
        limiter.release(1);
        assert_eq!((limiter.sources(), limiter.total()), (0, 0));
    }

    #[test]
    fn a_refusal_uses_none_of_the_rate() {
        let bucket = TokenBucket::new(1, 2, NOW);
        let mut limiter = SourceLimiter::new(4, 1).with_rate(bucket);
        assert_eq!(limiter.take(NOW, 1), Ok(()));
        for _ in 0..9 {
            assert_eq!(limiter.take(NOW, 1), Err(LimitError::Source));
        }
        assert_eq!(limiter.take(NOW, 2), Ok(()));
        assert_eq!(limiter.take(NOW, 3), Err(LimitError::Rate));
        let later = NOW + Duration::from_secs(1);
        assert_eq!(limiter.take(later, 3), Ok(()));
    }

    #[test]
    fn each_source_has_its_burst_and_its_rate() {
        let fill = Fill { rate: 10, burst: 5 };
        let mut rates = SourceRates::new(fill, 8);
        let start = Instant::from_millis(1_000);
        for _ in 0..5 {
            assert_eq!(rates.take(start, 1), Ok(()));
        }
        assert_eq!(rates.take(start, 1), Err(Duration::from_millis(100)));
        assert_eq!(rates.take(start, 2), Ok(()), "others are not delayed");
        let later = start + Duration::from_millis(100);
        assert_eq!(rates.take(later, 1), Ok(()));
        assert_eq!(rates.take(later, 1), Err(Duration::from_millis(100)));
    }

    #[test]
    fn memory_is_bounded_and_full_buckets_are_forgotten() {
        let fill = Fill { rate: 1, burst: 1 };
        let mut rates = SourceRates::new(fill, 1_024);
        let taken = (0..5_000).filter(|source| rates.take(NOW, *source).is_ok());
        assert_eq!(taken.count(), 1_024);
        assert_eq!(rates.sources(), 1_024);
        assert_eq!(rates.take(NOW, 9_999), Err(Duration::from_secs(1)));
        let later = NOW + Duration::from_secs(1);
        assert_eq!(rates.take(later, 9_999), Ok(()));
        assert_eq!(rates.sources(), 1);
    }

    #[test]
    fn a_charge_delays_the_source() {
        let fill = Fill {
            rate: 100,
            burst: 256,
        };
        let mut rates = SourceRates::new(fill, 8);
        let mut taken = 0;
        for millis in 0..10_000 {
            let now = Instant::from_millis(millis);
            if rates.take(now, 1).is_ok() {
                taken += 1;
                rates.charge(now, 1, 31);
            }
        }
        assert!(taken <= 8 + 100 * 10 / 32 + 1, "{taken}");
        rates.charge(NOW, 2, 31);
        assert_eq!(rates.sources(), 1, "only known sources are charged");
    }
}
