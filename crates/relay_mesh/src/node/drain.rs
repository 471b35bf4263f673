//! Draining: no new work, while current flows end or move to other paths.

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::view::Draining;

impl<P: Provider> Node<P> {
    /// Stops accepting players and granting labels, and announces it. Other nodes move the traffic
    /// that this node relays before anything is lost. Flows of this node's own players and game
    /// servers continue until they end by themselves. [`undrain`](Self::undrain) reverts it.
    pub fn drain(&mut self, now: Instant) {
        let now = self.advance(now);
        self.gossip.publisher_mut().leave();
        self.publish(now);
    }

    /// Reverts [`drain`](Self::drain) and announces it. Flows that moved return only if that
    /// improves their path. Reopens the TCP ports that the driver closed.
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

    /// Returns the remaining flows and labels, or `None` if the node is not draining.
    #[must_use]
    pub fn draining(&self) -> Option<Draining> {
        self.gossip.publisher().is_leaving().then(|| Draining {
            flows: self.flows.len(),
            labels: self.transit_labels(),
        })
    }
}
