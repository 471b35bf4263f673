//! Limits on what all sources may spend in a time, and on the share of one network.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use wire::{Generator, Instant, Lookup, NetworkKey, TokenBucket};

/// Rations RETRY, VERSION, REFUSE and repeated ACCEPT datagrams: 256 a second and as many at once,
/// for each of 65,536 groups of prefixes.
///
/// A fixed table of 512 KiB. A keyed multiply-add-shift hash draws the group of a prefix
/// (Dietzfelbinger 1996: two collide with the probability 2^-16). Learning the key gains no more
/// than forging a source.
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

    fn index(&self, source: NetworkKey) -> usize {
        let hash = self
            .factor
            .wrapping_mul(source.bits().into())
            .wrapping_add(self.term);
        usize::try_from(hash >> (u128::BITS - BUCKETS_LOG2)).unwrap_or_default()
    }
}

wire::debug_fields!(AnswerBudget);

/// Binary logarithm of the number of buckets.
const BUCKETS_LOG2: u32 = 16;

/// Nanoseconds for one answer.
const INTERVAL: u64 = 1_000_000_000 / AnswerBudget::RATE as u64;

/// Nanoseconds until an empty bucket is whole again.
const BURST_SPAN: u64 = INTERVAL * AnswerBudget::BURST as u64;

/// Counts what each prefix holds of a limited number of things, and grants it at most an eighth.
/// Only prefixes that hold something are remembered.
#[derive(Debug)]
pub struct PrefixShares {
    held: Lookup<NetworkKey, u32>,
    by_held: BTreeSet<(u32, NetworkKey)>,
    held_sum: u32,
    total: u32,
}

/// Why a prefix is granted nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The total is used up.
    Total,
    /// The prefix has used its share.
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
    /// [`Refusal::Total`] where all is held; [`Refusal::Share`] where the prefix holds
    /// [`Self::share`].
    pub fn take(&mut self, source: NetworkKey) -> Result<(), Refusal> {
        if self.held(source) >= self.share() {
            return Err(Refusal::Share);
        }
        self.take_exempt(source)
    }

    /// Counts one more for `source`; its share is not limited: an exit, or loopback.
    ///
    /// # Errors
    ///
    /// [`Refusal::Total`] where all is held.
    pub fn take_exempt(&mut self, source: NetworkKey) -> Result<(), Refusal> {
        if self.held_sum >= self.total {
            return Err(Refusal::Total);
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

/// A token bucket, and for each prefix one of an eighth of its rate and burst.
///
/// A prefix is remembered only until its own bucket is full again, at most `burst / rate`; in that
/// time the common bucket grants at most twice its burst.
pub struct Rationed {
    common: TokenBucket,
    /// When the bucket of a prefix is full again; those in the past may stand here, too.
    full_at: Lookup<NetworkKey, Instant>,
    /// What was granted, oldest first, with the entry of `full_at` that it made.
    grants: VecDeque<(NetworkKey, Instant)>,
    /// Time in which one prefix earns one grant.
    interval: Duration,
    /// Most that the bucket of a prefix may lack.
    depth: Duration,
    grants_max: usize,
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
    /// [`Refusal::Share`] where the prefix has spent its eighth; [`Refusal::Total`]
    /// where all is spent. Neither costs anything.
    pub fn take(&mut self, now: Instant, source: NetworkKey) -> Result<(), Refusal> {
        self.forget(now);
        let full_at = self.full_at.get(&source).map_or(now, |at| now.max(*at)) + self.interval;
        if full_at.saturating_since(now) > self.depth {
            return Err(Refusal::Share);
        }
        if self.grants.len() == self.grants_max || !self.common.take(now, 1) {
            return Err(Refusal::Total);
        }
        self.full_at.insert(source, full_at);
        self.grants.push_back((source, full_at));
        Ok(())
    }

    /// Takes one for a source with an unlimited share: an exit, or loopback.
    ///
    /// # Errors
    ///
    /// [`Refusal::Total`] where all is spent.
    pub fn take_exempt(&mut self, now: Instant) -> Result<(), Refusal> {
        self.common.take(now, 1).then_some(()).ok_or(Refusal::Total)
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

wire::debug_fields!(
    Rationed,
    this {
        common: this.common,
        prefixes: this.full_at.len()
    }
);

#[cfg(test)]
mod tests;
