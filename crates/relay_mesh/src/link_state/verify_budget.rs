//! How many signatures each neighbour may have checked.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NodeId};

/// A token bucket for each neighbour.
#[derive(Debug)]
pub(super) struct VerifyBudget {
    /// Checks saved up at most.
    burst: u32,
    /// Checks a second.
    rate: u32,
    /// What each neighbour has left; a missing one has a full bucket.
    buckets: BTreeMap<NodeId, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Thousandths of a check; below zero after a fine.
    left: i64,
    /// When `left` was right.
    at: Instant,
}

impl VerifyBudget {
    pub(super) const fn new(burst: u32, rate: u32) -> Self {
        Self {
            burst,
            rate,
            buckets: BTreeMap::new(),
        }
    }

    /// Takes one check from `neighbour`'s bucket; false where it is empty.
    pub(super) fn take(&mut self, now: Instant, neighbour: NodeId) -> bool {
        if self.buckets.len() >= BUCKETS_MAX && !self.buckets.contains_key(&neighbour) {
            self.forget_full(now);
            if self.buckets.len() >= BUCKETS_MAX {
                return false;
            }
        }
        let (full, rate) = (self.full(), self.rate);
        let bucket = self.buckets.entry(neighbour).or_insert(Bucket {
            left: full,
            at: now,
        });
        bucket.refill(now, full, rate);
        let affords = bucket.left >= CHECK;
        if affords {
            bucket.left = bucket.left.saturating_sub(CHECK);
        }
        affords
    }

    /// Takes the price of a check that failed; the bucket may go into debt by that much.
    pub(super) fn fine(&mut self, neighbour: NodeId) {
        if let Some(bucket) = self.buckets.get_mut(&neighbour) {
            bucket.left = bucket.left.saturating_sub(CHECK * FINE);
        }
    }

    /// Drops buckets that time has filled, which says as much as having none.
    pub(super) fn forget_full(&mut self, now: Instant) {
        let (full, rate) = (self.full(), self.rate);
        self.buckets.retain(|_, bucket| {
            bucket.refill(now, full, rate);
            bucket.left < full
        });
    }

    fn full(&self) -> i64 {
        i64::from(self.burst).saturating_mul(CHECK)
    }
}

impl Bucket {
    fn refill(&mut self, now: Instant, full: i64, rate: u32) {
        let elapsed: Duration = now.saturating_since(self.at);
        let millis = u32::try_from(elapsed.as_millis()).unwrap_or(u32::MAX);
        self.left = self
            .left
            .saturating_add(i64::from(millis).saturating_mul(rate.into()))
            .min(full);
        // What is left of a millisecond counts next time.
        self.at += Duration::from_millis(millis.into());
    }
}

/// One check, in the unit of a bucket.
const CHECK: i64 = 1_000;
/// Checks that a failed one costs besides itself: a neighbour passes on only what it has checked,
/// so it made the bad record itself, and gets few more.
const FINE: i64 = 31;
/// Neighbours with a bucket that is not full; sessions bound neighbours far below.
const BUCKETS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId([1; 32]);
    const B: NodeId = NodeId([2; 32]);

    #[test]
    fn a_bucket_holds_its_burst_and_fills_at_its_rate() {
        let mut budget = VerifyBudget::new(10, 100);
        let taken = |budget: &mut VerifyBudget, now, from| {
            (0..50).filter(|_| budget.take(now, from)).count()
        };
        assert_eq!(taken(&mut budget, Instant::ZERO, A), 10);
        assert_eq!(taken(&mut budget, Instant::ZERO, B), 10, "each has its own");
        assert_eq!(taken(&mut budget, Instant::from_millis(45), A), 4);
        assert_eq!(taken(&mut budget, Instant::from_millis(50), A), 1);
        assert_eq!(taken(&mut budget, Instant::from_millis(9_999), A), 10);
        budget.forget_full(Instant::from_millis(99_999));
        assert!(budget.buckets.is_empty());
    }

    #[test]
    fn a_forger_gets_few_checks() {
        let mut budget = VerifyBudget::new(256, 100);
        let mut checks = 0;
        for millis in 0..10_000 {
            if budget.take(Instant::from_millis(millis), A) {
                checks += 1;
                budget.fine(A);
            }
        }
        assert!(checks <= 8 + 100 * 10 / 32 + 1, "{checks}");
    }

    #[test]
    fn buckets_are_bounded() {
        let mut budget = VerifyBudget::new(2, 1);
        for number in 0..5_000_u64 {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&number.to_be_bytes());
            budget.take(Instant::ZERO, NodeId(id));
        }
        assert_eq!(budget.buckets.len(), BUCKETS_MAX);
        assert!(
            budget.take(Instant::from_millis(60_000), A),
            "full ones leave"
        );
    }
}
