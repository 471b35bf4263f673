//! Link IDs of nodes, which are freed 10 minutes after the node was last seen.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::peers::Contact;
use super::{Node, Pending};
use crate::link::LinkId;
use crate::link::LinkSet;

impl<P: Provider> Node<P> {
    /// Updates when each node was last seen, and removes some that were not seen for 10 minutes. At
    /// most [`Config::peers_max`](crate::Config::peers_max) nodes have an ID at a time.
    pub(super) fn forget_nodes(&mut self, now: Instant) {
        let mut gone: Vec<LinkId> = Vec::new();
        let links: Vec<LinkId> = self.peers.iter().map(|(link, _)| link).collect();
        for link in links {
            let table = self.gossip.table();
            let Some(peer) = self.peers.get_mut(link) else {
                continue;
            };
            let has_contact = !matches!(peer.contact, Contact::None);
            if has_contact || !peer.bootstrap.is_empty() || table.is_live(&peer.node) {
                peer.seen = now;
            } else if now.saturating_since(peer.seen) >= FORGOTTEN && gone.len() < AT_ONCE {
                gone.push(link);
            }
        }
        if gone.is_empty() {
            return;
        }
        let named = self.named();
        for link in gone {
            if !named.contains(link) && !self.detours.names(link) {
                self.peers.forget(now, link);
                self.stats.nodes_forgotten = self.stats.nodes_forgotten.saturating_add(1);
            } else if let Some(peer) = self.peers.get_mut(link) {
                // Restart its timer, so that it does not block the removal of others.
                peer.seen = now;
            }
        }
    }

    /// Returns the links that are still referenced, except by detours. References that end with a
    /// session, or within seconds of it, do not count.
    fn named(&self) -> LinkSet {
        let mut named = self.links_in_use();
        named.add_all(&self.links_named());
        named.extend(self.pending.values().filter_map(|pending| match pending {
            Pending::Upstream(_, far, _) => Some(*far),
            Pending::Port(_) | Pending::Measure | Pending::Close => None,
        }));
        named
    }
}

/// Exceeds the 90 s for which a node's records are kept, and equals the 10 min for which
/// measurements are kept.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Maximum number of nodes removed per call.
const AT_ONCE: usize = 32;
