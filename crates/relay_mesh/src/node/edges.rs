//! Costs from exits to game servers: sent to entries, received from exits.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use udp_proto::SessionId;
use wire::{Instant, NodeId};

use super::measuring::{GameKey, Server};
use super::{Node, RELIABLE};
use crate::cost::Cost;
use crate::game::Game;
use crate::game_edge::GameEdge;
use crate::link::LinkId;
use crate::link_state::Roles;
use crate::signed_config::Protocol;
use crate::view::GameEdgeView;

#[derive(Debug, Default)]
pub(super) struct Edges {
    pub(super) servers: BTreeMap<GameKey, Server>,
    /// Whether `servers` is that of the current games.
    pub(super) is_current: bool,
    /// What each neighbour was sent in its current session.
    advertised: BTreeMap<LinkId, (SessionId, BTreeMap<GameKey, AdvertisedCost>)>,
    /// Reports of exits for games that this node is an entry of.
    received: BTreeMap<GameKey, BTreeMap<LinkId, ReceivedCost>>,
}

#[derive(Clone, Copy, Debug)]
struct AdvertisedCost {
    /// `None` if withheld: the neighbour may not send players of this game here.
    cost: Option<Cost>,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct ReceivedCost {
    /// The session it arrived in; if that has ended, the report no longer counts.
    session: SessionId,
    cost: Cost,
    at: Instant,
}

/// Whether an exit reaches the server of a game; the best comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    Reached,
    Unknown,
    Lost,
}

impl Reach {
    const fn of(cost: Option<Cost>) -> (Self, Cost) {
        match cost {
            None => (Self::Unknown, Cost::ZERO),
            Some(cost) if cost.is_routable() => (Self::Reached, cost),
            Some(_) => (Self::Lost, Cost::ZERO),
        }
    }
}

impl AdvertisedCost {
    /// Whether to send the cost again: after [`REPEAT`], or if it changed by more than half a
    /// millisecond and an eighth. A withheld cost is only checked again after [`REPEAT`].
    fn is_due(self, now: Instant, cost: Cost) -> bool {
        let is_other = self.cost.is_some_and(|advertised| {
            let change = advertised.units().abs_diff(cost.units());
            change > CHANGE_MIN.max(advertised.units() / 8)
        });
        is_other || now.saturating_since(self.at) >= REPEAT
    }
}

impl Edges {
    fn advertised_to(
        &mut self,
        link: LinkId,
        session: SessionId,
    ) -> &mut (SessionId, BTreeMap<GameKey, AdvertisedCost>) {
        self.advertised
            .entry(link)
            .or_insert_with(|| (session, BTreeMap::new()))
    }

    /// Forgets which costs are withheld, since games or their entries may have changed.
    pub(super) fn refresh(&mut self) {
        for (_, advertised) in self.advertised.values_mut() {
            advertised.retain(|_, advertised| advertised.cost.is_some());
        }
    }
}

impl<P: Provider> Node<P> {
    /// Returns the known costs from exits to game servers, measured here or by other exits.
    pub fn game_edges(&self) -> impl Iterator<Item = GameEdgeView> {
        let view = |(protocol, game): &GameKey, exit, cost: Cost| GameEdgeView {
            game: game.clone(),
            protocol: *protocol,
            exit,
            cost: cost.is_routable().then_some(cost),
        };
        let servers = self.edges.servers.iter();
        let own =
            servers.filter_map(move |(key, server)| Some(view(key, self.own, server.cost()?)));
        let received = self.edges.received.iter().flat_map(move |(key, exits)| {
            exits.iter().filter_map(move |(link, received)| {
                let node = self.peers.get(*link)?.node;
                self.is_current(*link, received)
                    .then(|| view(key, node, received.cost))
            })
        });
        own.chain(received)
    }

    pub(super) fn run_edges(&mut self, now: Instant) {
        self.measure_servers(now);
        if self.ticks.is_multiple_of(10) {
            self.send_edges(now);
        }
        if self.ticks.is_multiple_of(100) {
            self.forget_edges();
        }
    }

    pub(super) fn on_game_edges(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Ok(edges) = GameEdge::decode(message) else {
            self.count_malformed();
            return;
        };
        let node = self.peers.get(link).map(|peer| peer.node);
        let (Some(node), Some(session)) = (node, self.peers.session(link)) else {
            return;
        };
        for edge in edges {
            let key = (edge.protocol, edge.game);
            let Some(game) = self.game_entered(&key) else {
                self.stats.edges_unknown = self.stats.edges_unknown.saturating_add(1);
                continue;
            };
            if !self.may_serve(game, &node) {
                self.stats.edges_refused = self.stats.edges_refused.saturating_add(1);
                continue;
            }
            self.stats.edges_received = self.stats.edges_received.saturating_add(1);
            let received = ReceivedCost {
                session,
                cost: edge.cost,
                at: now,
            };
            let exits = self.edges.received.entry(key).or_default();
            exits.insert(link, received);
        }
    }

    /// Whether an exit reaches the server of a game, and at which cost, as far as is known.
    pub(super) fn reach(&self, key: &GameKey, exit: LinkId) -> (Reach, Cost) {
        Reach::of(if exit == LinkId::OWN {
            self.edges.servers.get(key).and_then(Server::cost)
        } else {
            let exits = self.edges.received.get(key);
            let received = exits.and_then(|exits| exits.get(&exit));
            received
                .filter(|received| self.is_current(exit, received))
                .map(|received| received.cost)
        })
    }

    fn is_current(&self, link: LinkId, received: &ReceivedCost) -> bool {
        self.peers.session(link) == Some(received.session)
            && self.now.saturating_since(received.at) < REPORT_LIFETIME
    }

    /// The game of that key, if this node is an entry of it.
    fn game_entered(&self, (protocol, name): &GameKey) -> Option<&Game> {
        let game = match protocol {
            Protocol::Udp => self.games.iter().find(|game| game.name == *name),
            #[cfg(feature = "tcp")]
            Protocol::Tcp => self.tunnels.as_ref()?.game(name),
            #[cfg(not(feature = "tcp"))]
            Protocol::Tcp => None,
        };
        game.filter(|game| game.entry.is_some())
    }

    /// Whether a node may be an exit of a game that this node is an entry of.
    fn may_serve(&self, game: &Game, node: &NodeId) -> bool {
        if let Some(document) = self.document() {
            return document.may_exit(&game.name, node);
        }
        let mut named = game.entry.iter().flat_map(|entry| &entry.exits);
        self.may_act_as(node, &[Roles::EXIT]) && named.any(|exit| exit == node)
    }

    fn may_send_here(&self, (protocol, name): &GameKey, node: NodeId) -> bool {
        match protocol {
            Protocol::Udp => self.admit(node, name).is_some(),
            #[cfg(feature = "tcp")]
            Protocol::Tcp => self.tcp_server(node, name).is_some(),
            #[cfg(not(feature = "tcp"))]
            Protocol::Tcp => false,
        }
    }

    fn send_edges(&mut self, now: Instant) {
        if self.edges.servers.is_empty() {
            return;
        }
        let is_entry = |node: &NodeId| {
            let profile = self.gossip.table().profile(node);
            profile.is_some_and(|(_, roles)| roles.contains(Roles::ENTRY))
        };
        let entries = self.peers.up().filter(|(_, peer, _)| is_entry(&peer.node));
        let entries: Vec<(LinkId, NodeId, SessionId)> = entries
            .map(|(link, peer, up)| (link, peer.node, up.session))
            .collect();
        self.edges.advertised.retain(|link, (session, _)| {
            let mut entries = entries.iter();
            entries.any(|(of, _, with)| of == link && with == session)
        });
        let mut message = Vec::new();
        for (link, node, session) in entries {
            let (due, withheld) = self.edges_due(now, (link, node));
            let (_, advertised) = self.edges.advertised_to(link, session);
            let (cost, at) = (None, now);
            advertised.extend(
                withheld
                    .into_iter()
                    .map(|key| (key, AdvertisedCost { cost, at })),
            );
            for edges in due.chunks(GameEdge::COUNT_MAX) {
                message.clear();
                GameEdge::encode(edges, &mut message);
                if !self.send(now, link, RELIABLE, &message) {
                    break;
                }
                let (_, advertised) = self.edges.advertised_to(link, session);
                for edge in edges {
                    let key = (edge.protocol, edge.game.clone());
                    let (cost, at) = (Some(edge.cost), now);
                    advertised.insert(key, AdvertisedCost { cost, at });
                }
            }
        }
    }

    /// The edges to send to a neighbour now, and those that are due but withheld from it: at most
    /// [`SENT_MAX`] together, which bounds the permission checks.
    fn edges_due(
        &self,
        now: Instant,
        (link, node): (LinkId, NodeId),
    ) -> (Vec<GameEdge>, Vec<GameKey>) {
        let advertised = self.edges.advertised.get(&link);
        let due = self.edges.servers.iter().filter_map(|(key, server)| {
            let cost = server.cost()?;
            let last = advertised.and_then(|(_, advertised)| advertised.get(key));
            let is_due = last.is_none_or(|last| last.is_due(now, cost));
            is_due.then_some((key, cost))
        });
        let (mut edges, mut withheld) = (Vec::new(), Vec::new());
        for (key, cost) in due.take(SENT_MAX) {
            if self.may_send_here(key, node) {
                edges.push(GameEdge {
                    protocol: key.0,
                    game: key.1.clone(),
                    cost,
                });
            } else {
                withheld.push(key.clone());
            }
        }
        (edges, withheld)
    }

    fn forget_edges(&mut self) {
        let mut received = core::mem::take(&mut self.edges.received);
        received.retain(|key, exits| {
            exits.retain(|link, received| self.is_current(*link, received));
            !exits.is_empty() && self.game_entered(key).is_some()
        });
        self.edges.received = received;
        let servers = &self.edges.servers;
        for (_, advertised) in self.edges.advertised.values_mut() {
            advertised.retain(|key, _| servers.contains_key(key));
        }
    }
}

const CHANGE_MIN: u16 = 5;
/// Repetition for entries that have added the game since.
const REPEAT: Duration = Duration::from_secs(30);
/// Edges sent to a neighbour per second: 1,024 are sent before they are due again.
const SENT_MAX: usize = 4 * GameEdge::COUNT_MAX;
/// How long a report counts if it is not repeated.
const REPORT_LIFETIME: Duration = Duration::from_secs(100);
