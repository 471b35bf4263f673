//! Taking leave: no new work, while what runs ends or goes another way.

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::view::Draining;

impl<P: Provider> Node<P> {
    /// Lets in no new player and gives out no new label from now on, and says so: others send what
    /// passes here another way, before anything is lost. Flows of this node's own players and game
    /// servers live until they end by themselves. [`undrain`](Self::undrain) takes it back.
    pub fn drain(&mut self, now: Instant) {
        let now = self.advance(now);
        self.gossip.publisher_mut().leave();
        self.publish(now);
    }

    /// Lets in players and gives out labels as before [`drain`](Self::drain), and says so. Flows that
    /// went another way return only where that is worth it. Ports for TCP, which the driver of a node
    /// that drains has shut, are opened again.
    pub fn undrain(&mut self, now: Instant) {
        let now = self.advance(now);
        if self.draining().is_none() {
            return;
        }
        self.gossip.publisher_mut().stay();
        #[cfg(feature = "tcp")]
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.reopen_ports(now);
        }
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
