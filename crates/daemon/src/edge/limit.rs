//! Limits of the edge: requests a second of each source, and long polls at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use servicer::Clock;
use wire::token_bucket::Fill;
use wire::{SourceKey, SourceLimiter, SourceRates};

use super::EdgeConfig;

/// The limits, shared by all connections. No lock is held across a wait.
#[derive(Debug)]
pub(super) struct Limiter {
    clock: Clock,
    rates: Mutex<SourceRates<SourceKey>>,
    waits: Arc<Mutex<SourceLimiter<SourceKey>>>,
}

impl Limiter {
    pub(super) fn new(config: &EdgeConfig) -> Self {
        let fill = Fill {
            rate: config.requests_per_second.max(1),
            burst: config.requests_burst.max(1),
        };
        let most = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let waits = SourceLimiter::new(most(config.waits_max), most(config.waits_per_source_max));
        Self {
            clock: Clock::new(),
            rates: Mutex::new(SourceRates::new(fill, SOURCES_MAX)),
            waits: Arc::new(Mutex::new(waits)),
        }
    }

    /// Takes one request of `source`. If it exceeds the rate, returns when it may be repeated.
    pub(super) fn request(&self, source: SourceKey) -> Result<(), Duration> {
        lock(&self.rates).take(self.clock.now(), source)
    }

    /// Takes a long poll of `source`, unless there are too many.
    pub(super) fn wait(&self, source: SourceKey) -> Option<WaitGuard> {
        let taken = lock(&self.waits).take(self.clock.now(), source);
        taken.is_ok().then(|| WaitGuard {
            waits: Arc::clone(&self.waits),
            source,
        })
    }
}

/// A long poll that counts until it is dropped.
#[derive(Debug)]
pub(super) struct WaitGuard {
    waits: Arc<Mutex<SourceLimiter<SourceKey>>>,
    source: SourceKey,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        lock(&self.waits).release(self.source);
    }
}

/// Counts are consistent after a panic, too.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sources whose rate is remembered: 3 MiB. If all of them are busy, others are refused.
const SOURCES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use crate::edge::Transport;

    const ONE: SourceKey = SourceKey::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    const TWO: SourceKey = SourceKey::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));

    fn config() -> EdgeConfig {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        EdgeConfig::new(listen, Transport::PlainHttp)
    }

    #[test]
    fn long_polls_are_limited_in_all_and_for_each_source() {
        let limiter = Limiter::new(&EdgeConfig {
            waits_max: 3,
            waits_per_source_max: 2,
            ..config()
        });
        let (first, _second) = (limiter.wait(ONE).unwrap(), limiter.wait(ONE).unwrap());
        assert!(limiter.wait(ONE).is_none(), "two each");
        let third = limiter.wait(TWO).unwrap();
        assert!(limiter.wait(TWO).is_none(), "three in all");
        drop((first, third));
        assert!(limiter.wait(ONE).is_some());
        assert_eq!(lock(&limiter.waits).sources(), 1);
    }

    #[test]
    fn requests_are_limited_for_each_source() {
        let limiter = Limiter::new(&EdgeConfig {
            requests_per_second: 1,
            requests_burst: 2,
            ..config()
        });
        assert!(limiter.request(ONE).is_ok() && limiter.request(ONE).is_ok());
        let wait = limiter.request(ONE).unwrap_err();
        assert!(wait <= Duration::from_secs(1) && wait > Duration::ZERO);
        assert_eq!(limiter.request(TWO), Ok(()));
    }
}
