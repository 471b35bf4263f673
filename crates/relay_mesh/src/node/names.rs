//! Names of nodes, which are given back once a node has been gone for long.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::peers::Contact;
use super::{Node, Pending};
use crate::link::LinkId;
use crate::link::LinkSet;

impl<P: Provider> Node<P> {
    /// Notes who is there, and forgets some of those who were not for 10 minutes: nodes come and go, and
    /// [`Config::peers_max`](crate::Config::peers_max) of them have a name at a time.
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
                // So that it keeps no other from its turn.
                peer.seen = now;
            }
        }
    }

    /// The links that something still names, detours aside. What ends with a session, or within seconds
    /// of it, does not.
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

/// Records of a node are forgotten after 90 s, and what was measured of it after 10 min.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Nodes that one look forgets.
const AT_ONCE: usize = 32;
