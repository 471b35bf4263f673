//! How many datagrams one shard passes on to others: in all, and of those that come from one prefix.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

use wire::Instant;

/// What one shard may pass on. Takes 24 KiB, whoever sends.
#[derive(Debug)]
pub(super) struct Allowance {
    all: Bucket,
    /// Those of the prefixes. Prefixes that meet in a place share it; the hash is keyed, so nobody chooses
    /// whom to meet.
    prefixes: Vec<Bucket>,
    hasher: RandomState,
}

/// Datagrams a second: those of 270 clients who have moved and send 60 a second, at a copy of some 0.5
/// microseconds for each of the others.
pub(super) const PER_SECOND: u64 = 16_384;

/// Datagrams at once: as many as may wait for one shard.
pub(super) const BURST: u64 = 1_024;

/// Datagrams a second of one prefix: those of 17 clients who have moved.
pub(super) const PREFIX_PER_SECOND: u64 = 1_024;

/// Of one prefix at once.
pub(super) const PREFIX_BURST: u64 = 128;

/// Buckets of prefixes.
const PREFIXES: usize = 1_024;

impl Default for Allowance {
    fn default() -> Self {
        Self {
            all: Bucket::new(PER_SECOND, BURST),
            prefixes: vec![Bucket::new(PREFIX_PER_SECOND, PREFIX_BURST); PREFIXES],
            hasher: RandomState::new(),
        }
    }
}

impl Allowance {
    /// Takes the worth of one datagram from `source`; false where there is none, in all or for its prefix.
    pub(super) fn take(&mut self, now: Instant, source: IpAddr) -> bool {
        let place = self.place(source);
        let Some(prefix) = self.prefixes.get_mut(place) else {
            return false;
        };
        // Who is refused by one loses nothing of the other.
        self.all.holds(now) && prefix.take(now) && self.all.take(now)
    }

    /// Where the bucket of a source's prefix is.
    pub(super) fn place(&self, source: IpAddr) -> usize {
        let hash = self.hasher.hash_one(prefix_of(source));
        let place = hash.checked_rem(PREFIXES as u64).unwrap_or(0);
        usize::try_from(place).unwrap_or(0)
    }
}

/// The /24 of an IPv4 address, the /56 of an IPv6 address: what one household or host is given.
fn prefix_of(source: IpAddr) -> (bool, u64) {
    match source.to_canonical() {
        IpAddr::V4(address) => (false, u64::from(address.to_bits() >> 8)),
        IpAddr::V6(address) => {
            let high = u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX);
            (true, high >> 8)
        }
    }
}

/// A bucket that fills at a rate up to a burst.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// What one datagram takes; what is left of a nanosecond is dropped.
    cost_nanos: u64,
    /// What all take that it holds when it is full.
    burst_nanos: u64,
    /// When it is full again; in the past where it is.
    full_at: Instant,
}

impl Bucket {
    /// Makes a full one.
    const fn new(per_second: u64, burst: u64) -> Self {
        let cost_nanos = match 1_000_000_000_u64.checked_div(per_second) {
            Some(nanos) => nanos,
            None => u64::MAX,
        };
        Self {
            cost_nanos,
            burst_nanos: burst.saturating_mul(cost_nanos),
            full_at: Instant::ZERO,
        }
    }

    /// Whether it holds one datagram's worth.
    fn holds(&self, now: Instant) -> bool {
        self.after_one(now).saturating_since(now) <= Duration::from_nanos(self.burst_nanos)
    }

    /// Takes one datagram's worth; false where there is none.
    fn take(&mut self, now: Instant) -> bool {
        let holds = self.holds(now);
        if holds {
            self.full_at = self.after_one(now);
        }
        holds
    }

    /// When it is full again once one more is taken.
    fn after_one(&self, now: Instant) -> Instant {
        self.full_at.max(now) + Duration::from_nanos(self.cost_nanos)
    }
}
