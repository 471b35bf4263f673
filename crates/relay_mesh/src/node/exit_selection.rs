//! Selects the exit for a new player, and moves players if theirs is unreachable.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::Node;
use super::flow_table::Side;
use super::measuring::GameKey;
use crate::cost::Cost;
use crate::event::Event;
use crate::flow_message::FlowEnd;
use crate::game::Game;
use crate::link::LinkId;
use crate::link_state::Roles;
use crate::signed_config::Protocol;

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
    /// The cheapest exit of a UDP game, including the cost from the exit to the server. If no exit
    /// is reachable, emits an event.
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
        let of = self.games.get(game).ok_or(NoExit::NotOurs)?;
        let here = self.admit(self.own, &of.name).map(|_| self.own);
        let exits = self.exits_of_game(of, here).ok_or(NoExit::NotOurs)?;
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
    /// the server are first, then those that have not reported.
    fn cheapest_exit(
        &mut self,
        now: Instant,
        key: &GameKey,
        (exits, game): (Vec<NodeId>, usize),
    ) -> Result<LinkId, NoExit> {
        let mut best = None;
        let mut why = NoExit::Unreachable;
        for exit in exits {
            let Some((link, way)) = self.route_to(now, exit) else {
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
    fn route_to(&mut self, now: Instant, exit: NodeId) -> Option<(LinkId, Cost)> {
        if exit == self.own {
            return Some((LinkId::OWN, Cost::ZERO));
        }
        let link = self.peers.find(&exit)?;
        self.peers.session(link)?;
        let cost = self.cost_to(now, exit);
        cost.is_routable().then_some((link, cost))
    }

    /// The exits that may serve a game, with this node only if `here` is set.
    fn exits_of_game(&self, game: &Game, here: Option<NodeId>) -> Option<Vec<NodeId>> {
        let named = &game.entry.as_ref()?.exits;
        let Some(document) = self.document() else {
            let named = named.iter().copied();
            let is_one = |node: &NodeId| *node != self.own || here.is_some();
            return Some(named.filter(is_one).collect());
        };
        let neighbours = self.peers.up().map(|(_, peer, _)| peer.node);
        let exits = neighbours
            .filter(|node| document.may_exit(&game.name, node) && self.is_exit_by_record(node));
        Some(exits.chain(here).collect())
    }

    /// Whether a node's record has the exit role.
    pub(super) fn is_exit_by_record(&self, node: &NodeId) -> bool {
        let profile = self.gossip.table().profile(node);
        profile.is_some_and(|(_, roles)| roles.contains(Roles::EXIT))
    }

    /// Ends the players' flows to a remote node if no path has answered for [`LOST_AFTER`], no
    /// route leads there, and another exit of their game is reachable. Each player's next datagram
    /// uses that exit. A route that link state shows briefly does not reset the time.
    pub(super) fn end_flows_of_lost_exit(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        if path_set.poll_lost(now) < LOST_AFTER {
            return;
        }
        let remote = self.node_of(link);
        let has_route = remote.is_none_or(|remote| self.cost_to(now, remote).is_routable());
        if !has_route {
            for flow in self.players_with_another_exit(now, link) {
                self.close_flow(now, flow, FlowEnd::SessionLost);
            }
        }
    }

    /// The flows of players to a remote node, if their game has another reachable exit.
    fn players_with_another_exit(&mut self, now: Instant, link: LinkId) -> Vec<u32> {
        let flows = self.flows.with(link);
        let players = flows.filter(|(_, flow)| matches!(flow.side, Side::Entry { .. }));
        let players: Vec<_> = players.map(|(index, flow)| (index, flow.game)).collect();
        let mut has_another: BTreeMap<usize, bool> = BTreeMap::new();
        let is_movable = |&(_, game): &(u32, usize)| {
            let has_another = has_another.entry(game);
            *has_another.or_insert_with(|| self.exit_for(now, game).is_ok())
        };
        let movable = players.into_iter().filter(is_movable);
        movable.map(|(index, _)| index).collect()
    }
}

/// How long no flow is moved, since a paused or restarted exit returns. With the second until an
/// exit's links are known as down, it is half of the 10 s timeout of `udp_proto`'s sessions.
const LOST_AFTER: Duration = Duration::from_secs(4);
