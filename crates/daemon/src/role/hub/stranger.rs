//! What the hub's log says of nodes that the join file does not list: who comes first at once, and
//! no more lines than a disk bears, however many come.

use core::time::Duration;

use wire::{Instant, NodeId};

/// The log of nodes that were turned away.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    told: Option<(NodeId, Instant)>,
    /// Handshakes since then that were not told of.
    withheld: u64,
}

impl Strangers {
    /// A node that is not listed was turned away.
    pub(super) fn on_stranger(&mut self, now: Instant, node: NodeId) {
        if let Some(withheld) = self.tell(now, node) {
            tracing::warn!(
                %node,
                withheld,
                "a node was turned away that the join file does not list"
            );
        }
    }

    /// Returns how many were not told of before, where this one shall be.
    fn tell(&mut self, now: Instant, node: NodeId) -> Option<u64> {
        if let Some((told, at)) = self.told {
            let pause = if told == node { REMINDER } else { PAUSE };
            if now.saturating_since(at) < pause {
                self.withheld = self.withheld.saturating_add(1);
                return None;
            }
        }
        self.told = Some((node, now));
        Some(core::mem::take(&mut self.withheld))
    }
}

/// Between lines about different nodes.
const PAUSE: Duration = Duration::from_secs(10);

/// Between lines about the same.
const REMINDER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_told_of_at_a_bounded_rate_and_counted() {
        let mut strangers = Strangers::default();
        let [one, other] = [1, 2].map(|byte| NodeId([byte; 32]));
        let mut at =
            |seconds, node| strangers.tell(Instant::ZERO + Duration::from_secs(seconds), node);
        assert_eq!(at(0, one), Some(0));
        assert_eq!(at(59, one), None);
        assert_eq!(at(60, one), Some(1));
        assert_eq!(at(69, other), None);
        assert_eq!(at(69, one), None);
        assert_eq!(at(70, other), Some(2));
        let lines = (71..3_671).filter_map(|second| {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&u64::to_be_bytes(second));
            at(second, NodeId(id))
        });
        assert_eq!(lines.count(), 360, "ten seconds between any two");
    }
}
