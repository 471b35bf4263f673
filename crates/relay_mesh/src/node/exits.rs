//! Selects the exit for a new player of a game.

use crypto::Provider;
use wire::{Instant, NodeId};

use super::Node;
use super::measuring::GameKey;
use crate::config::Game;
use crate::cost::Cost;
use crate::event::Event;
use crate::link::LinkId;
use crate::link_state::Roles;
use crate::signed_config::Protocol;

/// Why there is no exit for a new player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoExit {
    /// This node is not an entry of the game.
    NotOurs,
    /// No exit has both a session with this node and a route.
    Unreachable,
    /// The reachable exits refused a flow recently.
    Refused,
}

impl<P: Provider> Node<P> {
    /// The exit of a UDP game with the lowest cost, including that from the exit to the server. If
    /// no exit is reachable, emits an event.
    pub(super) fn best_exit(&mut self, now: Instant, game: usize) -> Option<LinkId> {
        let best = self.exit_for(now, game);
        if best == Err(NoExit::Unreachable) {
            self.stats.no_exit = self.stats.no_exit.saturating_add(1);
            if self.ports.is_unreachable_news(now, game) {
                let game = self.game_name(game);
                self.emit(Event::NoExit { game });
            }
        }
        best.ok()
    }

    /// As `best_exit`, without an event.
    pub(super) fn exit_for(&mut self, now: Instant, game: usize) -> Result<LinkId, NoExit> {
        let Some(of) = self.games.get(game) else {
            return Err(NoExit::NotOurs);
        };
        let here = self.admit(self.own, &of.name).map(|_| self.own);
        let Some(exits) = self.exits_of_game(of, here) else {
            return Err(NoExit::NotOurs);
        };
        let key = (Protocol::Udp, of.name.clone());
        self.cheapest_exit(now, &key, (exits, game))
    }

    /// As `exit_for`, for a TCP game.
    #[cfg(feature = "tcp")]
    pub(super) fn best_tcp_exit(&mut self, now: Instant, game: &Game) -> Option<LinkId> {
        let here = self.tcp_server(self.own, &game.name).map(|_| self.own);
        let exits = self.exits_of_game(game, here)?;
        let key = (Protocol::Tcp, game.name.clone());
        let tunnels = super::tunnel_flows::TUNNELS;
        self.cheapest_exit(now, &key, (exits, tunnels)).ok()
    }

    /// The cheapest of these exits that has not just refused a flow of this game. Exits that reach
    /// the server come first, then those that have not reported, then those that do not reach it.
    fn cheapest_exit(
        &mut self,
        now: Instant,
        key: &GameKey,
        (exits, game): (Vec<NodeId>, usize),
    ) -> Result<LinkId, NoExit> {
        let mut best = None;
        let mut why = NoExit::Unreachable;
        for exit in exits {
            let Some((link, way)) = self.way_to(now, exit) else {
                continue;
            };
            if !self.ports.may_ask(now, game, link) {
                why = NoExit::Refused;
                continue;
            }
            let (reach, edge) = self.reach(key, link);
            let this = (reach, way.plus(edge), exit, link);
            if best.is_none_or(|best| this < best) {
                best = Some(this);
            }
        }
        best.map(|(.., link)| link).ok_or(why)
    }

    /// The link and route cost of a node that has a session with this node, or is this node.
    fn way_to(&mut self, now: Instant, exit: NodeId) -> Option<(LinkId, Cost)> {
        if exit == self.own {
            return Some((LinkId::OWN, Cost::ZERO));
        }
        let link = self.peers.find(&exit)?;
        self.peers.session(link)?;
        let cost = self.cost_to(now, exit);
        cost.is_routable().then_some((link, cost))
    }

    /// The exits that may serve a game: those of the configuration or, if there is a signed
    /// document, all neighbours that it allows and that have the exit role in their records.
    /// Includes this node only if `here` is set.
    fn exits_of_game(&self, game: &Game, here: Option<NodeId>) -> Option<Vec<NodeId>> {
        let named = &game.entry.as_ref()?.exits;
        let Some(document) = self.document() else {
            let named = named.iter().copied();
            let is_one = |node: &NodeId| *node != self.own || here.is_some();
            return Some(named.filter(is_one).collect());
        };
        let is_exit = |node: &NodeId| {
            let profile = self.gossip.table().profile(node);
            profile.is_some_and(|(_, roles)| roles.contains(Roles::EXIT))
        };
        let neighbours = self.peers.up().map(|(_, peer, _)| peer.node);
        let neighbours =
            neighbours.filter(|node| document.may_exit(&game.name, node) && is_exit(node));
        Some(neighbours.chain(here).collect())
    }
}
