//! How many datagrams one shard passes on to others: in all, and of those that come from one prefix.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;

use wire::{Instant, TokenBucket};

/// What one shard may pass on. Takes 24 KiB, whoever sends.
#[derive(Debug)]
pub(super) struct Allowance {
    all: TokenBucket,
    /// Those of the prefixes. Prefixes that meet in a place share it; the hash is keyed, so nobody chooses
    /// whom to meet.
    prefixes: Vec<TokenBucket>,
    hasher: RandomState,
}

/// Datagrams a second: those of 270 clients who have moved and send 60 a second, at a copy of some 0.5
/// microseconds for each of the others.
pub(super) const PER_SECOND: u32 = 16_384;

/// Datagrams at once: as many as may wait for one shard.
pub(super) const BURST: u32 = 1_024;

/// Datagrams a second of one prefix: those of 17 clients who have moved.
pub(super) const PREFIX_PER_SECOND: u32 = 1_024;

/// Of one prefix at once.
pub(super) const PREFIX_BURST: u32 = 128;

/// Buckets of prefixes.
const PREFIXES: usize = 1_024;

impl Default for Allowance {
    fn default() -> Self {
        Self {
            all: TokenBucket::new(PER_SECOND, BURST, Instant::ZERO),
            prefixes: vec![
                TokenBucket::new(PREFIX_PER_SECOND, PREFIX_BURST, Instant::ZERO);
                PREFIXES
            ],
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
        self.all.holds(now, 1) && prefix.take(now, 1) && self.all.take(now, 1)
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
