//! Addresses of the configuration, changed while the node runs: those that host names stand for.

use core::net::SocketAddr;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::Node;
use super::peers::Contact;
use crate::link::LinkId;
use crate::signed_config::Protocol;

/// What an address of the configuration is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// This node's record advertises it.
    Own,
    /// A node of the bootstrap list is dialled there.
    Bootstrap(NodeId),
    /// The server of a game at this exit listens there.
    Server {
        /// Over what the game is played.
        protocol: Protocol,
        /// The game.
        game: String,
    },
}

impl<P: Provider> Node<P> {
    /// Replaces the address `old` of the configuration by `new`; returns whether it was there.
    ///
    /// The node's next record advertises an own address. A node of the bootstrap list is dialled at the
    /// new one, at once if there is no session with it. Flows and connections of a game whose server has
    /// another address end; players of those that go on are carried to the new one.
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

    /// Dials a node at once that has another address now; a dial under way does not know it.
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

/// Replaces `old` by `new`; returns whether it was there. Two names may lead to one address for a while: it stands
/// there twice then, so that neither name loses its own.
fn replace(addresses: &mut [SocketAddr], old: SocketAddr, new: SocketAddr) -> bool {
    let place = addresses.iter_mut().find(|address| **address == old);
    place.map(|place| *place = new).is_some()
}
