//! Networks of sources, and how much of a total each of them holds.

use std::collections::BTreeSet;

use wire::{Generator, Lookup, NetworkKey};

/// Counts what each prefix holds of a limited number of things, and grants it at most an eighth.
///
/// Counts exactly. Memory is bounded by the total, since only prefixes that hold something are
/// remembered.
#[derive(Debug)]
pub struct PrefixShares {
    /// What each prefix holds; none holds 0.
    held: Lookup<NetworkKey, u32>,
    /// The same, by what they hold.
    by_held: BTreeSet<(u32, NetworkKey)>,
    /// What all hold together.
    held_sum: u32,
    /// What all may hold together.
    total: u32,
}

/// Why a prefix is granted nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRefusal {
    /// All is held.
    Total,
    /// The prefix holds its share.
    Share,
}

impl PrefixShares {
    /// Part of the total that one prefix may hold.
    pub const PARTS: u32 = 8;

    /// Makes a count of nothing held, out of `total`.
    #[must_use]
    pub fn new(total: u32, generator: &mut Generator) -> Self {
        Self {
            held: Lookup::new(generator),
            by_held: BTreeSet::new(),
            held_sum: 0,
            total,
        }
    }

    /// Counts one more for `source`.
    ///
    /// # Errors
    ///
    /// [`ShareRefusal::Total`] where all is held; [`ShareRefusal::Share`] where the prefix holds
    /// [`Self::share`].
    pub fn take(&mut self, source: NetworkKey) -> Result<(), ShareRefusal> {
        if self.held(source) >= self.share() {
            return Err(ShareRefusal::Share);
        }
        self.take_exempt(source)
    }

    /// Counts one more for `source`; its share is not limited: an exit, or loopback.
    ///
    /// # Errors
    ///
    /// [`ShareRefusal::Total`] where all is held.
    pub fn take_exempt(&mut self, source: NetworkKey) -> Result<(), ShareRefusal> {
        if self.held_sum >= self.total {
            return Err(ShareRefusal::Total);
        }
        self.held_sum = self.held_sum.saturating_add(1);
        let before = self.held(source);
        self.by_held.remove(&(before, source));
        self.by_held.insert((before.saturating_add(1), source));
        match self.held.get_mut(&source) {
            Some(held) => *held = held.saturating_add(1),
            None => {
                self.held.insert(source, 1);
            }
        }
        Ok(())
    }

    /// Counts one less for `source`; nothing changes where it holds nothing.
    pub fn release(&mut self, source: NetworkKey) {
        let Some(held) = self.held.get_mut(&source) else {
            return;
        };
        self.by_held.remove(&(*held, source));
        *held = held.saturating_sub(1);
        if *held > 0 {
            self.by_held.insert((*held, source));
        }
        self.held_sum = self.held_sum.saturating_sub(1);
        if *held == 0 {
            self.held.remove(&source);
        }
    }

    /// Returns what `source` holds.
    #[must_use]
    pub fn held(&self, source: NetworkKey) -> u32 {
        self.held.get(&source).copied().unwrap_or_default()
    }

    /// Returns what all hold together.
    #[must_use]
    pub const fn held_sum(&self) -> u32 {
        self.held_sum
    }

    /// Returns whether more than half of the total is held.
    #[must_use]
    pub const fn is_above_half(&self) -> bool {
        self.held_sum > self.total / 2
    }

    /// Returns the prefixes, those that hold most first.
    pub fn fullest(&self) -> impl Iterator<Item = NetworkKey> {
        self.by_held.iter().rev().map(|(_, source)| *source)
    }

    /// Returns what one prefix may hold: an eighth of the total, at least 1.
    #[must_use]
    pub const fn share(&self) -> u32 {
        match self.total / Self::PARTS {
            0 => 1,
            share => share,
        }
    }

    /// Returns how many prefixes are remembered; at most the total.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use wire::Seed;

    use super::*;

    fn network(number: u64) -> NetworkKey {
        let [.., a, b] = number.to_be_bytes();
        NetworkKey::of([10, a, b, 0].into())
    }

    #[test]
    fn twp_f1_one_prefix_holds_an_eighth() {
        let mut shares = PrefixShares::new(1_024, &mut Seed::from_number(1).generator(0));
        let (one, other) = (network(1), network(2));
        let granted = (0..5_000).filter(|_| shares.take(one).is_ok()).count();
        assert_eq!(granted, 128);
        assert_eq!(shares.take(one), Err(ShareRefusal::Share));
        assert_eq!(shares.take(other), Ok(()));
        for _ in 0..895 {
            assert_eq!(shares.take_exempt(one), Ok(()));
        }
        assert_eq!(shares.take(other), Err(ShareRefusal::Total));
        assert_eq!(shares.take_exempt(one), Err(ShareRefusal::Total));
        shares.release(one);
        assert_eq!(shares.take(other), Ok(()));
    }

    proptest! {
        #[test]
        fn counts_agree_with_a_map_and_memory_with_the_total(
            total in 0_u32..40,
            steps in prop::collection::vec((0_u64..60, 0_u8..3), 0..600),
        ) {
            let mut shares = PrefixShares::new(total, &mut Seed::from_number(1).generator(0));
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (source, action) in steps {
                let sum: u32 = model.values().sum();
                let held = model.get(&source).copied().unwrap_or(0);
                match action {
                    0 => {
                        let granted = shares.take(network(source)).is_ok();
                        prop_assert_eq!(granted, sum < total && held < (total / 8).max(1));
                        if granted {
                            *model.entry(source).or_default() += 1;
                        }
                    }
                    1 => {
                        let granted = shares.take_exempt(network(source)).is_ok();
                        prop_assert_eq!(granted, sum < total);
                        if granted {
                            *model.entry(source).or_default() += 1;
                        }
                    }
                    _ => {
                        shares.release(network(source));
                        if let Some(held) = model.get_mut(&source) {
                            *held = held.saturating_sub(1);
                        }
                        model.retain(|_, held| *held > 0);
                    }
                }
                prop_assert_eq!(shares.prefixes(), model.len());
                prop_assert!(shares.prefixes() <= usize::try_from(total).unwrap());
                prop_assert_eq!(shares.held_sum(), model.values().sum::<u32>());
                let held: Vec<u32> = shares.fullest().map(|source| shares.held(source)).collect();
                let mut expected: Vec<u32> = model.values().copied().collect();
                expected.sort_unstable_by(|a, b| b.cmp(a));
                prop_assert_eq!(held, expected);
            }
        }
    }
}
