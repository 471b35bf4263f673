//! Operator queries: this node, and the mesh as far as it is known.

use core::time::Duration;

use crypto::Provider;
use wire::NodeId;

use super::Node;
use super::edges::Reach;
use crate::cost::{Cost, Loss};
use crate::gossip::GossipStats;
use crate::link::LinkId;
use crate::link_state::{Roles, TableStats};
use crate::routes::{Graph, NodeIndex, Path, Route, SourceRoutes};
use crate::signed_config::Protocol;
use crate::view::{EdgeView, LinkView, MeshView, NodeView, RouteView};

impl<P: Provider> Node<P> {
    /// Returns the counters of received records and deltas.
    pub const fn table_stats(&self) -> TableStats {
        self.gossip.table().stats()
    }

    /// Returns the gossip counters.
    pub const fn gossip_stats(&self) -> &GossipStats {
        self.gossip.stats()
    }

    /// Returns the neighbours with an open session, in the order in which they became known.
    pub fn links(&self) -> impl Iterator<Item = LinkView> {
        self.peers.up().filter_map(|(link, peer, up)| {
            let relay = self.detours.relay(link);
            let relay = relay.and_then(|relay| self.peers.get(relay));
            Some(LinkView {
                node: peer.node,
                address: self.endpoint.peer_address(up.session)?,
                carries: up.carries,
                detour: relay.map(|relay| relay.node),
                report: self.reports.get(&peer.node).copied(),
            })
        })
    }

    /// Returns the paths to the remote ends of flows, and to this node as the exit of its own
    /// players.
    pub fn routes(&self) -> impl Iterator<Item = RouteView> {
        let path_sets = self.path_sets.iter().filter_map(|(&link, path_set)| {
            let current = path_set.paths.active();
            Some(RouteView {
                remote_end: self.peers.get(link)?.node,
                path: current.map(|path| path.path.clone()),
                round_trip: current.and_then(|path| path.watch.round_trip()),
                lost_thousandths: current.map_or(0, |path| {
                    let (lost, decided) = path.watch.lost(self.now);
                    Loss::of(lost, decided).ppm() / 1_000
                }),
                data_lost_thousandths: current
                    .and_then(|path| path.quality.figures().lost_thousandths()),
                data_round_trip: current.and_then(|path| {
                    let trip = path.watch.round_trip()?;
                    Some(trip.saturating_add(path.quality.figures().later()?))
                }),
                standby: path_set.paths.standby().map(|path| path.path.clone()),
                flows: self.flows.with(link).count(),
            })
        });
        let flows = self.flows.with(LinkId::OWN).count();
        let local = (flows > 0).then(|| RouteView {
            remote_end: self.own,
            path: Some(Path {
                relays: Vec::new(),
                destination: self.own,
            }),
            round_trip: Some(Duration::ZERO),
            lost_thousandths: 0,
            data_lost_thousandths: None,
            data_round_trip: None,
            standby: None,
            flows,
        });
        path_sets.chain(local)
    }

    /// Returns all known nodes and links. Takes time quadratic in the number of nodes.
    #[must_use]
    pub fn mesh(&self) -> MeshView {
        let graph = self.whole_graph();
        let nodes = graph.nodes().iter().map(|&node| {
            let profile = self.gossip.table().profile(&node);
            NodeView {
                node,
                name: profile.map_or_else(String::new, |(profile, _)| profile.name.clone()),
                roles: profile.map_or(Roles::NONE, |(_, roles)| roles),
                addresses: profile.map_or_else(Vec::new, |(profile, _)| profile.addresses.clone()),
                may_relay: graph
                    .index(&node)
                    .is_some_and(|index| graph.may_relay(index)),
            }
        });
        MeshView {
            links: edges(&graph).collect(),
            games: self.game_edges().collect(),
            nodes: nodes.collect(),
        }
    }

    /// Returns the cheapest route between two nodes over at most three relays, as a node with a
    /// session to all of them computes it; `None` if there is no route or a node is unknown.
    #[must_use]
    pub fn route_between(&self, from: &NodeId, to: &NodeId) -> Option<Route> {
        let graph = self.whole_graph();
        let (source, end) = (graph.index(from)?, graph.index(to)?);
        if source == end {
            return Some(route_to_self(*to));
        }
        self.routes_from(&graph, source).route(&graph, end)
    }

    /// Returns the cheapest route from a node to an exit of a game: one that the signed document
    /// allows or, without a document, that this node's configuration names.
    ///
    /// The choice of exit includes the exit's known cost to the server; the returned cost does not.
    #[must_use]
    pub fn route_to_game(&self, from: &NodeId, game: &str) -> Option<Route> {
        let graph = self.whole_graph();
        let source = graph.index(from)?;
        let routes = self.routes_from(&graph, source);
        let exits = graph
            .nodes()
            .iter()
            .filter(|node| self.is_exit_of(game, node));
        let key = (self.protocol_of(game), game.to_owned());
        let routes = exits.filter_map(|node| {
            let route = if node == from {
                route_to_self(*node)
            } else {
                routes.route(&graph, graph.index(node)?)?
            };
            let link = if *node == self.own {
                Some(LinkId::OWN)
            } else {
                self.peers.find(node)
            };
            let (reach, edge) =
                link.map_or((Reach::Unknown, Cost::ZERO), |link| self.reach(&key, link));
            Some(((reach, route.cost.plus(edge), route.path.clone()), route))
        });
        let best = routes.min_by(|(one, _), (other, _)| one.cmp(other));
        best.map(|(_, route)| route)
    }

    /// Returns whether a game is carried, by the signed document or else by this node. If it is,
    /// and [`route_to_game`](Self::route_to_game) returns `None`, no exit is reachable.
    #[must_use]
    pub fn carries_game(&self, game: &str) -> bool {
        let of_document = self
            .document()
            .map(|document| document.games.contains_key(game));
        of_document.unwrap_or_else(|| self.games_in_force().any(|of| of.name == game))
    }

    fn protocol_of(&self, game: &str) -> Protocol {
        let mut over_udp = self.games.iter();
        if over_udp.any(|of| of.name == game) {
            Protocol::Udp
        } else {
            Protocol::Tcp
        }
    }

    fn routes_from(&self, graph: &Graph, source: NodeIndex) -> SourceRoutes {
        SourceRoutes::compute(graph, source, self.route_limits())
    }

    fn is_exit_of(&self, game: &str, node: &NodeId) -> bool {
        let Some((_, roles)) = self.gossip.table().profile(node) else {
            return false;
        };
        if !roles.contains(Roles::EXIT) {
            return false;
        }
        if let Some(document) = self.document() {
            return document.may_exit(game, node);
        }
        let mut games = self.games_in_force().filter(|of| of.name == game);
        games.any(|game| {
            let named = game.entry.iter().flat_map(|entry| &entry.exits);
            let is_ours = game.exit.is_some() && *node == self.own;
            is_ours || named.into_iter().any(|exit| exit == node)
        })
    }

    fn whole_graph(&self) -> Graph {
        self.gossip.table().graph(&self.config.cost, &self.reports)
    }
}

const fn route_to_self(node: NodeId) -> Route {
    Route {
        cost: Cost::ZERO,
        path: Path {
            relays: Vec::new(),
            destination: node,
        },
    }
}

/// All links of a graph, each once.
fn edges(graph: &Graph) -> impl Iterator<Item = EdgeView> + '_ {
    let nodes = || {
        graph
            .nodes()
            .iter()
            .filter_map(|id| Some((*id, graph.index(id)?)))
    };
    nodes().flat_map(move |(low, from)| {
        let higher = nodes().filter(move |(_, to)| *to > from);
        higher.filter_map(move |(high, to)| {
            let cost = graph.link(from, to);
            cost.is_routable().then(|| EdgeView {
                low,
                high,
                cost,
                loss: graph
                    .path_losses(from, &route_to_self(high).path)
                    .next()
                    .unwrap_or_default(),
            })
        })
    })
}
