//! Election of the tree's root.

use core::time::Duration;

use wire::{Instant, NodeId};

/// The current root, as far as this node knows.
///
/// A root renews its record every 3 s and marks it. If several do, the one with the lowest id
/// counts. The node with the lowest id becomes root at once if there is none; each of the next four
/// ids waits 10 s longer than the one before, so that a dead root is soon replaced.
#[derive(Debug)]
pub(super) struct Root {
    id: Option<NodeId>,
    /// When its last record arrived, or the start of the search.
    at: Instant,
}

impl Root {
    /// Nodes that may become root, lowest ids first.
    pub(super) const CANDIDATES: usize = 5;

    pub(super) const fn new(now: Instant) -> Self {
        Self { id: None, at: now }
    }

    /// Notes a root's record; returns whether it is the root that counts.
    pub(super) fn on_record(&mut self, now: Instant, id: NodeId) -> bool {
        let is_silent = now.saturating_since(self.at) > ROOT_TIMEOUT;
        let counts = is_silent || self.id.is_none_or(|held| id <= held);
        if counts {
            self.id = Some(id);
            self.at = now;
        }
        counts
    }

    /// Whether `id` is the root.
    pub(super) fn is(&self, id: &NodeId) -> bool {
        self.id.as_ref() == Some(id)
    }

    /// Whether this node must be root; `below` live nodes have lower ids.
    pub(super) fn is_due(&self, now: Instant, own: NodeId, below: usize) -> bool {
        if self.is(&own) {
            return true;
        }
        if below >= Self::CANDIDATES {
            return false;
        }
        let silent = now.saturating_since(self.at);
        let turns = u32::try_from(below).unwrap_or(u32::MAX).saturating_add(1);
        let wait = ROOT_TIMEOUT.saturating_mul(turns);
        let nobody = self.id.is_none() && below == 0;
        let higher = self.id.is_some_and(|held| own < held) && below == 0;
        nobody || higher || silent > wait
    }
}

/// A root without a record for this long counts as dead: three of its records.
const ROOT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: NodeId = NodeId([1; 32]);
    const MIDDLE: NodeId = NodeId([2; 32]);
    const HIGH: NodeId = NodeId([3; 32]);

    #[test]
    fn the_lowest_is_root_at_once_and_others_follow_when_it_is_silent() {
        let at = Instant::from_millis;
        let mut root = Root::new(at(0));
        assert!(root.is_due(at(0), LOW, 0));
        assert!(!root.is_due(at(0), MIDDLE, 1));
        assert!(root.on_record(at(0), LOW));
        assert!(!root.on_record(at(10_000), MIDDLE), "the lower one counts");
        assert!(!root.is_due(at(20_000), MIDDLE, 1));
        assert!(root.is_due(at(20_001), MIDDLE, 1));
        assert!(
            !root.is_due(at(1_000_000), HIGH, 5),
            "too many are before it"
        );
        assert!(root.on_record(at(20_002), MIDDLE));
        assert!(root.is(&MIDDLE) && root.is_due(at(20_003), MIDDLE, 1));
        assert!(
            root.is_due(at(20_003), LOW, 0),
            "who comes back takes it back"
        );
        assert!(root.on_record(at(20_004), LOW) && !root.is(&MIDDLE));
    }
}
