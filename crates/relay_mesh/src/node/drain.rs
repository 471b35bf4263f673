//! Taking leave: no new work, while what runs ends or goes another way.

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::view::Draining;

impl<P: Provider> Node<P> {
    /// Lets in no new player and gives out no new label from now on, and says so: others send what
    /// passes here another way, before anything is lost. Flows of this node's own players and game
    /// servers live until they end by themselves. There is no way back but a new start.
    pub fn drain(&mut self, now: Instant) {
        let now = self.advance(now);
        self.gossip.publisher_mut().leave();
        self.publish(now);
    }

    /// Returns what is left to carry; `None` where the node does not drain.
    #[must_use]
    pub fn draining(&self) -> Option<Draining> {
        self.gossip.publisher().is_leaving().then(|| Draining {
            flows: self.flows.len(),
            labels: self.transit_labels(),
        })
    }
}
