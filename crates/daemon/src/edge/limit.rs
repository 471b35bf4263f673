//! How much one source, and all together, may ask of the edge.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use servicer::Clock;
use wire::{Instant, SourceKey};

use super::EdgeConfig;

/// Counts what sources do. Shared by all connections; no lock is held across a wait.
#[derive(Debug)]
pub(super) struct Limiter {
    clock: Clock,
    rates: Mutex<Rates>,
    waits: Arc<Mutex<Places>>,
}

impl Limiter {
    pub(super) fn new(config: &EdgeConfig) -> Self {
        Self {
            clock: Clock::new(),
            rates: Mutex::new(Rates::new(
                config.requests_per_second,
                config.requests_burst,
            )),
            waits: Arc::new(Mutex::new(Places::new(
                config.waits_max,
                config.waits_per_source_max,
            ))),
        }
    }

    /// Takes one request of `source`; where it comes too early, returns when it may come again.
    pub(super) fn request(&self, source: SourceKey) -> Result<(), Duration> {
        lock(&self.rates).take(self.clock.now(), source)
    }

    /// Takes a wait of `source`, unless there are too many.
    pub(super) fn wait(&self, source: SourceKey) -> Option<WaitGuard> {
        Guard::take(&self.waits, source).map(WaitGuard)
    }
}

/// A wait that counts until it is dropped.
#[derive(Debug)]
pub(super) struct WaitGuard(#[expect(dead_code, reason = "held for its drop")] Guard);

#[derive(Debug)]
struct Guard {
    slots: Arc<Mutex<Places>>,
    source: SourceKey,
}

impl Guard {
    fn take(slots: &Arc<Mutex<Places>>, source: SourceKey) -> Option<Self> {
        lock(slots).take(source).then(|| Self {
            slots: Arc::clone(slots),
            source,
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        lock(&self.slots).give_back(self.source);
    }
}

/// A number of places, for all and for each source.
#[derive(Debug)]
struct Places {
    total_max: usize,
    each_max: usize,
    total: usize,
    /// Sources with a place.
    by_source: BTreeMap<SourceKey, usize>,
}

impl Places {
    const fn new(total_max: usize, each_max: usize) -> Self {
        Self {
            total_max,
            each_max,
            total: 0,
            by_source: BTreeMap::new(),
        }
    }

    fn take(&mut self, source: SourceKey) -> bool {
        let taken = self.by_source.get(&source).copied().unwrap_or_default();
        if self.total >= self.total_max || taken >= self.each_max {
            return false;
        }
        self.by_source.insert(source, taken.saturating_add(1));
        self.total = self.total.saturating_add(1);
        true
    }

    fn give_back(&mut self, source: SourceKey) {
        self.total = self.total.saturating_sub(1);
        if let Some(taken) = self.by_source.get_mut(&source) {
            *taken = taken.saturating_sub(1);
            if *taken == 0 {
                self.by_source.remove(&source);
            }
        }
    }
}

/// A token bucket for each source that has asked of late.
#[derive(Debug)]
struct Rates {
    /// Time in which one request is earned.
    interval: Duration,
    /// Time in which a full bucket is earned.
    depth: Duration,
    /// When each source's bucket will be full again.
    full_at: BTreeMap<SourceKey, Instant>,
}

impl Rates {
    fn new(per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1)
            .checked_div(per_second)
            .unwrap_or(Duration::from_secs(1));
        Self {
            interval,
            depth: interval.saturating_mul(burst.max(1)),
            full_at: BTreeMap::new(),
        }
    }

    fn take(&mut self, now: Instant, source: SourceKey) -> Result<(), Duration> {
        if self.full_at.len() >= SOURCES_MAX && !self.full_at.contains_key(&source) {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= SOURCES_MAX {
                return Err(self.interval);
            }
        }
        let full_at = self.full_at.entry(source).or_insert(now);
        let next = (*full_at).max(now) + self.interval;
        let debt = next.saturating_since(now);
        if debt > self.depth {
            return Err(debt.saturating_sub(self.depth));
        }
        *full_at = next;
        Ok(())
    }
}

/// A count is right after a panic too.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sources whose rate is known; 3 MiB. While so many are busy, others are refused.
const SOURCES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    const ONE: SourceKey = SourceKey::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    const TWO: SourceKey = SourceKey::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));

    #[test]
    fn a_source_has_its_burst_and_then_its_rate() {
        let mut rates = Rates::new(10, 5);
        let start = Instant::from_millis(1_000);
        for _ in 0..5 {
            assert_eq!(rates.take(start, ONE), Ok(()));
        }
        assert_eq!(rates.take(start, ONE), Err(Duration::from_millis(100)));
        assert_eq!(rates.take(start, TWO), Ok(()), "others are not held up");
        let later = start + Duration::from_millis(100);
        assert_eq!(rates.take(later, ONE), Ok(()));
        assert_eq!(rates.take(later, ONE), Err(Duration::from_millis(100)));
    }

    #[test]
    fn as_many_sources_are_known_as_may_be() {
        let mut rates = Rates::new(1, 1);
        let start = Instant::from_millis(0);
        for source in 0..SOURCES_MAX {
            let source = SourceKey::of(Ipv6Addr::from_bits((source as u128) << 64).into());
            assert_eq!(rates.take(start, source), Ok(()));
        }
        assert!(rates.take(start, ONE).is_err());
        assert_eq!(rates.full_at.len(), SOURCES_MAX);
        // Those who have paid are forgotten.
        let later = start + Duration::from_secs(2);
        assert_eq!(rates.take(later, ONE), Ok(()));
        assert_eq!(rates.full_at.len(), 1);
    }

    #[test]
    fn places_are_for_all_and_for_each() {
        let slots = Arc::new(Mutex::new(Places::new(3, 2)));
        let take = |source| Guard::take(&slots, source);
        let (first, _second) = (take(ONE).unwrap(), take(ONE).unwrap());
        assert!(take(ONE).is_none(), "two each");
        let third = take(TWO).unwrap();
        assert!(take(TWO).is_none(), "three in all");
        drop((first, third));
        assert!(take(ONE).is_some());
        assert_eq!(lock(&slots).by_source.len(), 1);
    }
}
