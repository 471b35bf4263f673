//! Answers to sources with an unproved address.

use core::fmt;

use wire::{Generator, Instant, NetworkKey};

/// Rations RETRY, VERSION, REFUSE and repeated ACCEPT datagrams: 256 a second and as many at once,
/// for each of 65,536 groups of prefixes.
///
/// A fixed table of 512 KiB, whatever is sent to it. Which group a prefix falls in is drawn by a
/// keyed multiply-add-shift hash (Dietzfelbinger 1996: any two prefixes collide with the
/// probability 2^-16). An attacker that learned the key from the answers gains no more than by
/// forging the prefix itself as a source.
pub struct AnswerBudget {
    /// For each group, when its burst is whole again, in nanoseconds of [`Instant`].
    full_at: Box<[u64]>,
    /// Odd factor of the hash.
    factor: u128,
    /// Term of the hash.
    term: u128,
}

impl AnswerBudget {
    /// Groups of prefixes.
    pub const BUCKETS: usize = 1 << BUCKETS_LOG2;
    /// Answers a second for each.
    pub const RATE: u32 = 256;
    /// Answers at once for each.
    pub const BURST: u32 = 256;

    /// Makes a table of full buckets, with a hash key drawn from `generator`.
    #[must_use]
    pub fn new(generator: &mut Generator) -> Self {
        let mut wide = || u128::from(generator.next_u64()) << 64 | u128::from(generator.next_u64());
        Self {
            full_at: vec![0; Self::BUCKETS].into_boxed_slice(),
            factor: wide() | 1,
            term: wide(),
        }
    }

    /// Takes one answer to `source` where its group has one left.
    pub fn take(&mut self, now: Instant, source: NetworkKey) -> bool {
        let index = self.index(source);
        let Some(full_at) = self.full_at.get_mut(index) else {
            return false;
        };
        // What is missing of the burst is the time until it is whole again.
        let now = now.as_nanos();
        let after = now.max(*full_at).saturating_add(INTERVAL);
        if after.saturating_sub(now) > BURST_SPAN {
            return false;
        }
        *full_at = after;
        true
    }

    /// The bucket of `source`.
    fn index(&self, source: NetworkKey) -> usize {
        let hash = self
            .factor
            .wrapping_mul(source.bits().into())
            .wrapping_add(self.term);
        usize::try_from(hash >> (u128::BITS - BUCKETS_LOG2)).unwrap_or_default()
    }
}

impl fmt::Debug for AnswerBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBudget").finish_non_exhaustive()
    }
}

/// Binary logarithm of the number of buckets.
const BUCKETS_LOG2: u32 = 16;

/// Nanoseconds for one answer.
const INTERVAL: u64 = 1_000_000_000 / AnswerBudget::RATE as u64;

/// Nanoseconds until an empty bucket is whole again.
const BURST_SPAN: u64 = INTERVAL * AnswerBudget::BURST as u64;

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};
    use core::time::Duration;

    use wire::Seed;

    use super::*;

    fn net(index: u32) -> NetworkKey {
        NetworkKey::of(IpAddr::V4(Ipv4Addr::from(index << 8 | 7)))
    }

    fn fresh() -> AnswerBudget {
        AnswerBudget::new(&mut Seed::from_number(1).generator(0))
    }

    #[test]
    fn a_prefix_gets_its_burst_and_then_its_rate() {
        let mut budget = fresh();
        let start = Instant::from_millis(7);
        let at_once = (0..10_000).filter(|_| budget.take(start, net(1))).count();
        assert_eq!(at_once, 256);
        let mut later = 0;
        for micros in 0..100_000 {
            if budget.take(start + Duration::from_micros(micros * 100), net(1)) {
                later += 1;
            }
        }
        // 10 s less the last step.
        assert_eq!(later, 2_559);
        let rested = start + Duration::from_secs(60);
        let at_once = (0..10_000).filter(|_| budget.take(rested, net(1))).count();
        assert_eq!(at_once, 256);
    }

    #[test]
    fn twp_f1_a_flood_from_all_prefixes_spends_no_more_than_the_table_holds() {
        let mut budget = fresh();
        let mut used = vec![0_u32; AnswerBudget::BUCKETS];
        for index in 0..200_000 {
            assert!(budget.take(Instant::ZERO, net(index)));
            used[budget.index(net(index))] += 1;
        }
        // 200,000 neighbouring prefixes spread over the table: about 3 for each bucket.
        assert!(used.iter().filter(|count| **count > 0).count() > AnswerBudget::BUCKETS / 2);
        assert!(used.iter().max() < Some(&100));
        assert_eq!(budget.full_at.len() * 8, 512 * 1_024);
    }

    #[test]
    fn the_last_instant_does_not_overflow() {
        let mut budget = fresh();
        assert!(budget.take(Instant::from_nanos(u64::MAX), net(1)));
        assert!(budget.take(Instant::from_nanos(u64::MAX - INTERVAL * 300), net(2)));
    }
}
