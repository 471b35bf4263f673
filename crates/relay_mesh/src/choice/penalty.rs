//! Penalties: relays that failed are suppressed for a while, longer after repeated failures.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NodeId};

use crate::routes::Path;

/// Failure penalty of each node, as in route flap damping (RFC 2439, section 4).
///
/// A failure adds 1,000. The sum halves every 15 s and is at most 8,000. A node is suppressed until
/// its sum is below 500: for 15 s after one failure, 30 s after two at once, and 60 s at most.
#[derive(Clone, Debug)]
pub struct Penalties {
    config: PenaltyConfig,
    /// Sum of each node, and its time. Bounded; the smallest sum is evicted first.
    sums: BTreeMap<NodeId, (u32, Instant)>,
}

/// Parameters of the failure penalty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PenaltyConfig {
    /// Added by each failure; 1,000.
    pub failure: u32,
    /// A node is suppressed while its sum is at least this; 500.
    pub reuse: u32,
    /// Maximum sum; 8,000, which takes four half-lives to drop to `reuse`.
    pub sum_max: u32,
    /// Time in which the sum halves; 15 s.
    pub half_life: Duration,
    /// Maximum number of nodes tracked; 1,024.
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
    /// Starts without penalties.
    #[must_use]
    pub const fn new(config: PenaltyConfig) -> Self {
        let sums = BTreeMap::new();
        Self { config, sums }
    }

    /// Records a failure of a relay, or of the destination of a direct path.
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

    /// Records the failure of a path: its relays are blamed or, if it has none, its destination.
    pub(crate) fn on_path_failure(&mut self, now: Instant, path: &Path) {
        for node in path.relays_or_destination() {
            self.on_failure(now, *node);
        }
    }

    /// Returns whether to avoid `path`, since a relay, or the destination of a direct path, failed.
    #[must_use]
    pub fn is_suppressed(&self, now: Instant, path: &Path) -> bool {
        let is_bad = |node| self.sum(now, node) >= self.config.reuse.max(1);
        path.relays_or_destination().any(is_bad)
    }

    /// Returns the current penalty of `node`.
    #[must_use]
    pub fn sum(&self, now: Instant, node: &NodeId) -> u32 {
        let Some(&(sum, at)) = self.sums.get(node) else {
            return 0;
        };
        super::faded(sum, now.saturating_since(at), self.config.half_life)
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

    /// Seconds after `failures` until the relay is usable again.
    fn out(config: PenaltyConfig, failures: u32) -> u64 {
        let mut penalties = Penalties::new(config);
        for _ in 0..failures {
            penalties.on_failure(Instant::ZERO, RELAY);
        }
        let by = path(&[RELAY]);
        let is_free = |at: &u64| !penalties.is_suppressed(secs(*at), &by);
        (0..10_000).find(is_free).expect("forgiven some day")
    }

    #[test]
    fn failure_and_reuse_say_how_long_one_failure_counts() {
        let of = |failure, reuse| {
            let config = PenaltyConfig {
                failure,
                reuse,
                ..PenaltyConfig::default()
            };
            out(config, 1)
        };
        // With a half-life of 15 s, the sum is below the limit a second after reaching it.
        assert_eq!(of(1_000, 500), 16);
        assert_eq!(of(2_000, 500), 31);
        assert_eq!(of(4_000, 500), 46);
        assert_eq!(of(1_000, 250), 31);
        assert_eq!(of(1_000, 1_000), 1);
        assert_eq!(of(1_000, 1_001), 0, "never kept out");
        assert_eq!(of(1_000, 0), of(1_000, 1), "no mark is the lowest one");
    }

    #[test]
    fn sum_max_bounds_how_long_any_number_of_failures_counts() {
        for (sum_max, seconds) in [(1_000, 16), (2_000, 31), (8_000, 61)] {
            let config = PenaltyConfig {
                sum_max,
                ..PenaltyConfig::default()
            };
            assert_eq!(out(config, 10_000), seconds, "{sum_max}");
            let mut penalties = Penalties::new(config);
            (0..100).for_each(|_| penalties.on_failure(Instant::ZERO, RELAY));
            assert_eq!(penalties.sum(Instant::ZERO, &RELAY), sum_max);
        }
    }

    #[test]
    fn half_life_is_the_time_in_which_a_sum_halves() {
        for half_life in [1, 15, 600] {
            let config = PenaltyConfig {
                half_life: Duration::from_secs(half_life),
                ..PenaltyConfig::default()
            };
            let mut penalties = Penalties::new(config);
            penalties.on_failure(Instant::ZERO, RELAY);
            for (halvings, left) in [(0, 1_000), (1, 500), (2, 250), (3, 125)] {
                let sum = penalties.sum(secs(half_life * halvings), &RELAY);
                assert_eq!(sum, left, "{half_life}");
            }
            // Integer rounding extends the suppression slightly.
            let out = out(config, 2).saturating_sub(2 * half_life);
            assert!(
                (1..=1 + half_life / 100).contains(&out),
                "{half_life}: {out}"
            );
        }
    }

    #[test]
    fn the_direct_path_and_relays_are_distinguished() {
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
