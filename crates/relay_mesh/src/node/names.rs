//! Names of nodes, which are given back once a node has been gone for long.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::peers::Contact;
use super::{Node, Pending};
use crate::link::LinkId;

impl<P: Provider> Node<P> {
    /// Notes who is there, and forgets who was not for 10 minutes: nodes come and go, and
    /// [`Config::peers_max`](crate::Config::peers_max) of them have a name at a time.
    pub(super) fn forget_nodes(&mut self, now: Instant) {
        let mut gone = Vec::new();
        let links: Vec<LinkId> = self.peers.iter().map(|(link, _)| link).collect();
        for link in links {
            let table = self.gossip.table();
            let Some(peer) = self.peers.get_mut(link) else {
                continue;
            };
            let has_contact = !matches!(peer.contact, Contact::None);
            if has_contact || !peer.bootstrap.is_empty() || table.is_live(&peer.node) {
                peer.seen = now;
            } else if now.saturating_since(peer.seen) >= FORGOTTEN {
                gone.push(link);
            }
        }
        for link in gone {
            if !self.is_named(link) {
                self.peers.forget(now, link);
                self.stats.nodes_forgotten = self.stats.nodes_forgotten.saturating_add(1);
            }
        }
    }

    /// Whether anything still names a link. What ends with a session, or within seconds of it, does not.
    fn is_named(&self, link: LinkId) -> bool {
        let is_opened =
            |pending: &Pending| matches!(pending, Pending::Upstream(_, far, _) if *far == link);
        self.courses.contains_key(&link)
            || self.is_in_use(link)
            || self.detours.names(link)
            || self.pending.values().any(is_opened)
    }
}

/// Records of a node are forgotten after 90 s, and what was measured of it after 10 min.
const FORGOTTEN: Duration = Duration::from_secs(600);
