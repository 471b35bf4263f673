//! Replacement of configured addresses at run time, when a host name resolves to another one.

use core::net::SocketAddr;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::Node;
use super::peers::Contact;
use crate::link::LinkId;
use crate::signed_config::Protocol;

/// Use of a configured address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// Published in this node's record.
    Own,
    /// Dialed for a node of the bootstrap list.
    Bootstrap(NodeId),
    /// Server of a game at this exit.
    Server {
        /// The game's transport protocol.
        protocol: Protocol,
        /// The game.
        game: String,
    },
}

impl<P: Provider> Node<P> {
    /// Replaces the configured address `old` by `new`; returns whether `old` was configured.
    ///
    /// An own address is published with the node's next record. A bootstrap node is dialed at the
    /// new address, at once if there is no session with it. If a game's server changes, the game's
    /// flows and connections end; players that continue are forwarded to the new server.
    pub fn replace_address(
        &mut self,
        now: Instant,
        of: &AddressUse,
        (old, new): (SocketAddr, SocketAddr),
    ) -> bool {
        let now = self.advance(now);
        match of {
            AddressUse::Own => self.replace_own_address(old, new),
            AddressUse::Bootstrap(node) => self.replace_bootstrap(now, *node, (old, new)),
            AddressUse::Server { protocol, game } => match protocol {
                Protocol::Udp => self.replace_server(now, game, (old, new)),
                Protocol::Tcp => self.replace_tcp_server(now, game, (old, new)),
            },
        }
    }

    fn replace_own_address(&mut self, old: SocketAddr, new: SocketAddr) -> bool {
        let is_replaced = replace(&mut self.config.profile.addresses, old, new);
        if is_replaced {
            let mut addresses: Vec<SocketAddr> = Vec::new();
            for &address in &self.config.profile.addresses {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            self.gossip.publisher_mut().set_addresses(addresses);
        }
        is_replaced
    }

    fn replace_bootstrap(
        &mut self,
        now: Instant,
        node: NodeId,
        (old, new): (SocketAddr, SocketAddr),
    ) -> bool {
        let mut is_replaced = false;
        for (listed, address) in &mut self.config.bootstrap.nodes {
            if *listed == node && *address == old {
                *address = new;
                is_replaced = true;
            }
        }
        if let Some(link) = self.peers.find(&node)
            && let Some(peer) = self.peers.get_mut(link)
            && replace(&mut peer.bootstrap, old, new)
        {
            peer.reached = peer.reached.filter(|reached| *reached != old);
            self.dial_anew(now, link);
        }
        is_replaced
    }

    /// Dials a node at once after its address changed; a pending dial uses the old one.
    fn dial_anew(&mut self, now: Instant, link: LinkId) {
        let contact = self.peers.get(link).map(|peer| &peer.contact);
        match contact {
            None | Some(Contact::Up(_)) => return,
            Some(&Contact::Dialling(dial)) => {
                self.peers.set_contact(link, Contact::None);
                self.close(now, dial);
            }
            Some(Contact::None) => {}
        }
        if let Some(peer) = self.peers.get_mut(link) {
            (peer.failures, peer.next_dial) = (0, now);
        }
    }

    #[cfg(not(feature = "tcp"))]
    fn replace_tcp_server(&mut self, _: Instant, _: &str, _: (SocketAddr, SocketAddr)) -> bool {
        false
    }

    #[cfg(feature = "tcp")]
    fn replace_tcp_server(
        &mut self,
        now: Instant,
        name: &str,
        (old, new): (SocketAddr, SocketAddr),
    ) -> bool {
        let Some(tunnels) = &self.tunnels else {
            return false;
        };
        let mut games = tunnels.games.clone();
        let mut exits = games
            .iter_mut()
            .filter(|game| game.name == name)
            .filter_map(|game| game.exit.as_mut());
        let Some(exit) = exits.find(|exit| exit.server == old) else {
            return false;
        };
        exit.server = new;
        self.apply_tcp_games(now, games);
        true
    }
}

/// Replaces `old` by `new`; returns whether `old` was present. Two names may resolve to one address
/// for a while: it is then listed twice, so that each name keeps its own.
fn replace(addresses: &mut [SocketAddr], old: SocketAddr, new: SocketAddr) -> bool {
    let place = addresses.iter_mut().find(|address| **address == old);
    place.map(|place| *place = new).is_some()
}
