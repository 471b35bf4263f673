//! A budget of which one prefix gets at most an eighth.

use std::collections::VecDeque;

use core::fmt;
use core::time::Duration;

use wire::{Generator, Instant, Lookup, NetworkKey, TokenBucket};

/// A token bucket, and for each prefix one of an eighth of its rate and burst.
///
/// Counts exactly, with bounded memory: a prefix is remembered only until its own bucket is full
/// again, which takes at most the time `burst / rate`, and in that time the common bucket grants
/// at most twice its burst.
pub struct Rationed {
    /// What all may take together.
    common: TokenBucket,
    /// When the bucket of a prefix is full again; those in the past may stand here, too.
    full_at: Lookup<NetworkKey, Instant>,
    /// What was granted, oldest first, with the entry of `full_at` that it made.
    grants: VecDeque<(NetworkKey, Instant)>,
    /// Time in which one prefix earns one grant.
    interval: Duration,
    /// Most that the bucket of a prefix may lack.
    depth: Duration,
    /// Most grants remembered.
    grants_max: usize,
}

/// Why nothing is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RationRefusal {
    /// All is spent.
    Total,
    /// The prefix has spent its share.
    Share,
}

impl Rationed {
    /// Part of the budget that one prefix gets.
    pub const PARTS: u32 = 8;

    /// Makes a full budget of `rate` a second and `burst` at once, both at least 1.
    #[must_use]
    pub fn new(rate: u32, burst: u32, now: Instant, generator: &mut Generator) -> Self {
        let (rate, burst) = (rate.max(1), burst.max(1));
        let interval = Duration::from_secs(Self::PARTS.into())
            .checked_div(rate)
            .unwrap_or_default();
        let share = (burst / Self::PARTS).max(1);
        // Grants within the time that a prefix is remembered, and a few for rounding.
        let depth = interval.saturating_mul(share);
        let gained = depth.as_nanos().saturating_mul(rate.into()) / 1_000_000_000;
        let grants_max = usize::try_from(gained)
            .unwrap_or(usize::MAX)
            .saturating_add(usize::try_from(burst).unwrap_or(usize::MAX))
            .saturating_add(8);
        Self {
            common: TokenBucket::new(rate, burst, now),
            full_at: Lookup::new(generator),
            grants: VecDeque::with_capacity(grants_max),
            interval,
            depth,
            grants_max,
        }
    }

    /// Takes one for `source`.
    ///
    /// # Errors
    ///
    /// [`RationRefusal::Share`] where the prefix has spent its eighth; [`RationRefusal::Total`]
    /// where all is spent. Neither costs anything.
    pub fn take(&mut self, now: Instant, source: NetworkKey) -> Result<(), RationRefusal> {
        self.forget(now);
        let full_at = self.full_at.get(&source).map_or(now, |at| now.max(*at)) + self.interval;
        if full_at.saturating_since(now) > self.depth {
            return Err(RationRefusal::Share);
        }
        if self.grants.len() == self.grants_max || !self.common.take(now, 1) {
            return Err(RationRefusal::Total);
        }
        self.full_at.insert(source, full_at);
        self.grants.push_back((source, full_at));
        Ok(())
    }

    /// Takes one for a source with an unlimited share: an exit, or loopback.
    ///
    /// # Errors
    ///
    /// [`RationRefusal::Total`] where all is spent.
    pub fn take_exempt(&mut self, now: Instant) -> Result<(), RationRefusal> {
        if self.common.take(now, 1) {
            Ok(())
        } else {
            Err(RationRefusal::Total)
        }
    }

    /// Returns the whole units that all together may take.
    #[must_use]
    pub fn available(&self, now: Instant) -> u32 {
        self.common.available(now)
    }

    /// Returns how many prefixes are remembered.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        self.full_at.len()
    }

    /// Removes prefixes when their bucket is full again.
    fn forget(&mut self, now: Instant) {
        while let Some((source, full_at)) = self.grants.front().copied() {
            if full_at > now {
                return;
            }
            self.grants.pop_front();
            // A later grant to the same prefix has an entry of its own behind this one.
            if self.full_at.get(&source) == Some(&full_at) {
                self.full_at.remove(&source);
            }
        }
    }
}

impl fmt::Debug for Rationed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rationed")
            .field("common", &self.common)
            .field("prefixes", &self.full_at.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use wire::Seed;

    use super::*;

    fn net(index: u16) -> NetworkKey {
        let [high, low] = index.to_be_bytes();
        NetworkKey::of([10, high, low, 1].into())
    }

    fn fresh(rate: u32, burst: u32) -> Rationed {
        Rationed::new(
            rate,
            burst,
            Instant::ZERO,
            &mut Seed::from_number(1).generator(0),
        )
    }

    #[test]
    fn twp_f1_one_prefix_gets_an_eighth_at_once_and_over_time() {
        let mut budget = fresh(1_000, 100);
        let at_once = (0..500)
            .filter(|_| budget.take(Instant::ZERO, net(1)).is_ok())
            .count();
        assert_eq!(at_once, 12);
        assert_eq!(
            budget.take(Instant::ZERO, net(1)),
            Err(RationRefusal::Share)
        );
        assert_eq!(budget.take(Instant::ZERO, net(2)), Ok(()));
        let flood = (0..100_000_u64)
            .filter(|step| {
                let now = Instant::from_nanos(step * 100_000);
                budget.take(now, net(1)).is_ok()
            })
            .count();
        // 10 s at 125 a second.
        assert!((1_249..=1_250).contains(&flood), "{flood}");
    }

    #[test]
    fn all_prefixes_together_get_the_whole() {
        let mut budget = fresh(500, 100);
        let mut granted = 0;
        let mut remembered = 0;
        for step in 0..200_000_u64 {
            let now = Instant::from_nanos(step * 50_000);
            let source = net(u16::try_from(step % 65_536).unwrap());
            granted += u32::from(budget.take(now, source).is_ok());
            remembered = remembered.max(budget.prefixes());
        }
        // 10 s and the burst.
        assert!((5_098..=5_100).contains(&granted), "{granted}");
        assert!(remembered <= 208, "{remembered}");
        assert!(budget.grants.capacity() >= budget.grants_max);
        assert_eq!(budget.take_exempt(Instant::from_millis(10_000)), Ok(()));
    }

    proptest! {
        #[test]
        fn grants_agree_with_buckets_that_are_never_forgotten(
            rate in 1_u32..3_000,
            burst in 1_u32..300,
            steps in prop::collection::vec((0_u64..20_000_000, 0_u16..12), 1..600),
        ) {
            let mut budget = fresh(rate, burst);
            let mut common = TokenBucket::new(rate, burst, Instant::ZERO);
            let interval = 8_000_000_000 / u64::from(rate);
            let depth = interval * u64::from((burst / 8).max(1));
            let mut full_at: BTreeMap<u16, u64> = BTreeMap::new();
            let mut now = 0;
            for (wait, source) in steps {
                now += wait / 8;
                let after = full_at.get(&source).map_or(now, |at| now.max(*at)) + interval;
                let expected = if after - now > depth {
                    Err(RationRefusal::Share)
                } else if common.take(Instant::from_nanos(now), 1) {
                    full_at.insert(source, after);
                    Ok(())
                } else {
                    Err(RationRefusal::Total)
                };
                prop_assert_eq!(budget.take(Instant::from_nanos(now), net(source)), expected);
                prop_assert!(budget.grants.len() < budget.grants_max);
            }
        }
    }
}
