//! Limits of the datagrams that one shard forwards to others: total and per source prefix.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;

use wire::{Instant, TokenBucket};

/// The forwarding limiter of a shard. Its size is fixed, 24 KiB.
#[derive(Debug)]
pub(super) struct Allowance {
    all: TokenBucket,
    /// Buckets of the prefixes. Prefixes with the same hash share a bucket. The hash is keyed, so a
    /// sender cannot choose a collision.
    prefixes: Vec<TokenBucket>,
    hasher: RandomState,
}

/// Datagrams per second: those of 270 migrated clients at 60 per second. Each costs a copy of about
/// 0.5 us per shard.
pub(super) const PER_SECOND: u32 = 16_384;

/// Burst: the queue length of one shard.
pub(super) const BURST: u32 = 1_024;

/// Datagrams per second of one prefix: those of 17 migrated clients.
pub(super) const PREFIX_PER_SECOND: u32 = 1_024;

/// Burst of one prefix.
pub(super) const PREFIX_BURST: u32 = 128;

/// Number of prefix buckets.
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
    /// Takes a token for one datagram from `source`. Returns false if the total or the prefix limit
    /// is reached.
    pub(super) fn take(&mut self, now: Instant, source: IpAddr) -> bool {
        let place = self.place(source);
        let Some(prefix) = self.prefixes.get_mut(place) else {
            return false;
        };
        // A datagram that one bucket rejects takes no token of the other.
        self.all.holds(now, 1) && prefix.take(now, 1) && self.all.take(now, 1)
    }

    /// Bucket index of a source's prefix.
    pub(super) fn place(&self, source: IpAddr) -> usize {
        let hash = self.hasher.hash_one(prefix_of(source));
        let place = hash.checked_rem(PREFIXES as u64).unwrap_or(0);
        usize::try_from(place).unwrap_or(0)
    }
}

/// The /24 of an IPv4 address, or the /56 of an IPv6 address: what one household or host is
/// assigned.
fn prefix_of(source: IpAddr) -> (bool, u64) {
    match source.to_canonical() {
        IpAddr::V4(address) => (false, u64::from(address.to_bits() >> 8)),
        IpAddr::V6(address) => {
            let high = u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX);
            (true, high >> 8)
        }
    }
}
