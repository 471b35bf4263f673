//! Relays that failed are kept out for a while, longer each time.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NodeId};

use crate::routes::Path;

/// How much each node failed lately, as route flap damping counts it (RFC 2439, section 4).
///
/// A failure adds 1,000; the sum halves each 15 s and is at most 8,000. A node is suppressed from
/// the moment it fails until its sum is below 500: 15 s after one failure, 30 s after two at once,
/// at most 60 s.
#[derive(Clone, Debug)]
pub struct Penalties {
    config: PenaltyConfig,
    /// Sum of each node, and when it was right; bounded, the smallest sum leaves first.
    sums: BTreeMap<NodeId, (u32, Instant)>,
}

/// How failures are held against a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PenaltyConfig {
    /// Added by each failure; 1,000.
    pub failure: u32,
    /// The sum at which a node is used again; 500.
    pub reuse: u32,
    /// The largest sum; 8,000, which is forgiven in four half-lives.
    pub sum_max: u32,
    /// Time in which the sum halves; 15 s.
    pub half_life: Duration,
    /// Nodes remembered; 1,024.
    pub nodes_max: usize,
}

impl Default for PenaltyConfig {
    fn default() -> Self {
        Self {
            failure: 1_000,
            reuse: 500,
            sum_max: 8_000,
            half_life: Duration::from_secs(15),
            nodes_max: 1_024,
        }
    }
}

impl Penalties {
    /// Starts with nothing held against anyone.
    #[must_use]
    pub const fn new(config: PenaltyConfig) -> Self {
        let sums = BTreeMap::new();
        Self { config, sums }
    }

    /// Holds a failure against `node`: the relay that died, or the end of a direct way that did.
    pub fn on_failure(&mut self, now: Instant, node: NodeId) {
        if !self.sums.contains_key(&node) && self.sums.len() >= self.config.nodes_max {
            let least = self.sums.keys().min_by_key(|id| (self.sum(now, id), **id));
            if let Some(least) = least.copied() {
                self.sums.remove(&least);
            }
        }
        let sum = self.sum(now, &node).saturating_add(self.config.failure);
        self.sums.insert(node, (sum.min(self.config.sum_max), now));
    }

    /// Returns whether `path` is to be avoided: a relay of it failed lately, or, where it has no
    /// relay, the direct way.
    #[must_use]
    pub fn is_suppressed(&self, now: Instant, path: &Path) -> bool {
        let is_bad = |node| self.sum(now, node) >= self.config.reuse.max(1);
        if path.relays.is_empty() {
            is_bad(&path.destination)
        } else {
            path.relays.iter().any(is_bad)
        }
    }

    /// Returns what is held against `node`.
    #[must_use]
    pub fn sum(&self, now: Instant, node: &NodeId) -> u32 {
        let Some(&(sum, at)) = self.sums.get(node) else {
            return 0;
        };
        let half_life = self.config.half_life.as_nanos().max(1);
        let elapsed = now.saturating_since(at).as_nanos();
        let halvings = u32::try_from(elapsed / half_life).unwrap_or(u32::MAX);
        let whole = sum.checked_shr(halvings).unwrap_or(0);
        // Straight lines between the halvings: at most 6 % over the exponential.
        let part = u128::from(whole) * (elapsed % half_life) / half_life / 2;
        whole.saturating_sub(u32::try_from(part).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELAY: NodeId = NodeId([1; 32]);
    const EXIT: NodeId = NodeId([2; 32]);

    fn secs(secs: u64) -> Instant {
        Instant::from_millis(secs * 1_000)
    }

    fn path(relays: &[NodeId]) -> Path {
        Path {
            relays: relays.to_vec(),
            destination: EXIT,
        }
    }

    #[test]
    fn each_failure_keeps_a_relay_out_longer_up_to_a_minute() {
        for (failures, out) in [(1, 15), (2, 30), (3, 40), (8, 60), (100, 60)] {
            let mut penalties = Penalties::new(PenaltyConfig::default());
            for _ in 0..failures {
                penalties.on_failure(Instant::ZERO, RELAY);
            }
            let by = path(&[NodeId([9; 32]), RELAY]);
            assert!(penalties.is_suppressed(secs(out - 1), &by), "{failures}");
            assert!(!penalties.is_suppressed(secs(out + 1), &by), "{failures}");
        }
    }

    #[test]
    fn the_direct_way_and_relays_are_told_apart() {
        let mut penalties = Penalties::new(PenaltyConfig::default());
        penalties.on_failure(Instant::ZERO, EXIT);
        assert!(penalties.is_suppressed(Instant::ZERO, &path(&[])));
        assert!(!penalties.is_suppressed(Instant::ZERO, &path(&[RELAY])));
    }

    #[test]
    fn memory_is_bounded_and_the_worst_stay() {
        let config = PenaltyConfig {
            nodes_max: 4,
            ..PenaltyConfig::default()
        };
        let mut penalties = Penalties::new(config);
        penalties.on_failure(Instant::ZERO, RELAY);
        penalties.on_failure(Instant::ZERO, RELAY);
        for number in 10..200 {
            penalties.on_failure(Instant::ZERO, NodeId([number; 32]));
        }
        assert_eq!(penalties.sums.len(), 4);
        assert_eq!(penalties.sum(Instant::ZERO, &RELAY), 2_000);
    }
}
