//! Changes of games and addresses at run time.

use core::net::SocketAddr;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::flow_table::Flow;
use super::flow_table::Side;
use super::peers::Contact;
use super::{Node, Pending};
use crate::event::Command;
use crate::flow_message::FlowEnd;
use crate::game::Game;
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
    /// Games that this node carries, over UDP and TCP: those of its own configuration, or of the
    /// signed document once there is one. All other code gets the games from here.
    pub(super) fn games_in_force(&self) -> impl Iterator<Item = &Game> {
        let games = self.games.iter().filter(|game| **game != NO_GAME);
        #[cfg(feature = "tcp")]
        let games = games.chain(self.tunnels.iter().flat_map(|held| &held.games));
        games
    }

    pub(super) const fn on_games_changed(&mut self) {
        self.edges.is_current = false;
        self.detours.exits_known = false;
    }

    /// Replaces the games. Unchanged games keep their ports and flows. A changed game keeps the
    /// ports that both versions list; flows end if their side of the game changed or was removed.
    ///
    /// Flows and ports refer to a game by its index, which it keeps. The index of a removed game is
    /// reused.
    pub(super) fn set_games(&mut self, now: Instant, games: Vec<Game>) {
        let mut new_games = games;
        self.on_games_changed();
        for index in 0..self.games.len() {
            let Some(old) = self.games.get(index) else {
                continue;
            };
            let same = new_games.iter().position(|game| game.name == old.name);
            let new = same.map(|same| new_games.swap_remove(same));
            match new {
                Some(new) if new == *old => {}
                Some(new) => self.set_game(now, index, new),
                None if old == &NO_GAME => {}
                None => self.set_game(now, index, NO_GAME),
            }
        }
        new_games.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        for game in new_games {
            let free = self.games.iter().position(|old| *old == NO_GAME);
            let index = free.unwrap_or(self.games.len());
            if free.is_none() {
                self.games.push(NO_GAME);
            }
            self.set_game(now, index, game);
        }
    }

    /// Changes the server of a game; returns false if its current server is not `old`.
    pub(super) fn replace_server(
        &mut self,
        now: Instant,
        name: &str,
        (old, new): (SocketAddr, SocketAddr),
    ) -> bool {
        let mut games = self.games.iter();
        let Some(index) = games.position(|game| game.name == name) else {
            return false;
        };
        let mut game = self.games.get(index).cloned();
        let exit = game.as_mut().and_then(|game| game.exit.as_mut());
        let Some(exit) = exit.filter(|exit| exit.server == old) else {
            return false;
        };
        exit.server = new;
        self.on_games_changed();
        if let Some(game) = game {
            self.set_game(now, index, game);
        }
        true
    }

    fn set_game(&mut self, now: Instant, index: usize, new: Game) {
        let Some(old) = self.games.get(index) else {
            return;
        };
        let has_other_mode = old.mode != new.mode;
        let (entry, exit) = (
            has_other_mode || old.entry != new.entry,
            old.exit != new.exit,
        );
        let is_of_it = |flow: &Flow<P::Aead>| match flow.side {
            Side::Entry { .. } => flow.game == index && entry,
            Side::Exit { .. } => flow.game == index && exit,
            Side::Local { .. } => flow.game == index && (entry || exit),
            #[cfg(feature = "tcp")]
            Side::Tunnel(_) => false,
        };
        let flows = self.flows.iter().filter(|(_, flow)| is_of_it(flow));
        let flows: Vec<u32> = flows.map(|(flow, _)| flow).collect();
        // Before the game's name changes: the close events contain it.
        for flow in flows {
            self.close_flow(now, flow, FlowEnd::Local);
        }
        let listen = new.entry.as_ref().map_or(&[][..], |entry| &entry.listen);
        for socket in self.ports.set(now, index, listen) {
            self.command(Command::Close { socket }, Pending::Close);
        }
        if let Some(game) = self.games.get_mut(index) {
            *game = new;
        }
    }

    /// Replaces the configured address `old` by `new`; returns whether `old` was configured.
    ///
    /// An own address is published with the next record. A bootstrap node without a session is
    /// dialed at once. If a game's server changes, the game's flows and connections end; players
    /// that continue are forwarded to the new server.
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
                #[cfg(feature = "tcp")]
                Protocol::Tcp => self.replace_tcp_server(now, game, (old, new)),
                #[cfg(not(feature = "tcp"))]
                Protocol::Tcp => false,
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
            self.redial_now(now, link);
        }
        is_replaced
    }

    /// Dials a node at once after its address changed; a pending dial uses the old one.
    fn redial_now(&mut self, now: Instant, link: LinkId) {
        match self.peers.get(link).map(|peer| &peer.contact) {
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

/// Replaces one `old` by `new`, if present: it is listed twice while two names resolve to it.
fn replace(addresses: &mut [SocketAddr], old: SocketAddr, new: SocketAddr) -> bool {
    let found = addresses.iter_mut().find(|address| **address == old);
    found.map(|address| *address = new).is_some()
}

/// An unused index. No signed document has a game with an empty name.
const NO_GAME: Game = Game {
    name: String::new(),
    mode: crate::game::Mode::Shadow,
    entry: None,
    exit: None,
};
