//! Route targets: exits of this node's games, and relays towards remote ends.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::Provider;
use wire::{Instant, NodeId};

use super::Node;
use crate::cost::{Cost, LossCode};
use crate::game::Game;
use crate::link::LinkId;
use crate::measure::LinkReport;
use crate::routes::{Graph, NodeIndex, SourceRoutes, disjoint_routes};

impl<P: Provider> Node<P> {
    /// Every 10 s, estimates the cost to each node, and finds the relays that routes would use if
    /// this node had links with all nodes it has measured.
    pub(super) fn survey_links(&mut self, now: Instant) {
        let is_young = |at: Instant| now.saturating_since(at) < SURVEY;
        if self.selecting.survey.taken_at.is_some_and(is_young) {
            return;
        }
        self.selecting.survey.taken_at = Some(now);
        self.selecting.survey.count = self.selecting.survey.count.wrapping_add(1);
        let reports = self.remembered(now);
        let graph = self.gossip.table().graph(&self.config.cost, &reports);
        let Some(own) = graph.index(&self.own) else {
            return;
        };
        let routes = SourceRoutes::compute(&graph, own, self.route_limits());
        self.selecting.survey.estimates = self.costs(|node| Some(routes.cost(graph.index(node)?)));
        let exits = self.target_exits().into_iter();
        let mut exits: Vec<(Cost, LinkId)> = exits
            .filter_map(|node| {
                let cost = graph.index(&node).map(|index| routes.cost(index));
                Some((cost.unwrap_or(Cost::UNROUTABLE), self.peers.find(&node)?))
            })
            .collect();
        exits.sort_unstable();
        self.selecting.survey.remote_ends = exits.into_iter().map(|(_, link)| link).collect();
        let mut ends = self.used_remote_ends();
        ends.extend(
            self.selecting
                .survey
                .remote_ends
                .iter()
                .take(self.selecting.slots.remote_ends),
        );
        ends.truncate(SURVEYED_MAX);
        let node = |link: &LinkId| self.peers.get(*link).map(|peer| peer.node);
        let ends: Vec<NodeIndex> = ends
            .iter()
            .filter_map(|link| graph.index(&node(link)?))
            .collect();
        self.selecting.survey.relays = self.relays_to(&ends, &graph, &routes);
        let turn = self
            .selecting
            .survey
            .count
            .checked_rem(ends.len())
            .unwrap_or(0);
        let back = ends
            .get(turn)
            .map(|end| SourceRoutes::compute(&graph, *end, self.route_limits()));
        self.selecting.survey.via_costs = self.costs(|node| {
            let index = graph.index(node)?;
            Some(routes.cost(index).plus(back.as_ref()?.cost(index)))
        });
    }

    /// Returns the current link reports, and recent measurements of live nodes without a link.
    fn remembered(&self, now: Instant) -> BTreeMap<NodeId, LinkReport> {
        let mut reports = self.reports.clone();
        for (_, peer) in self.peers.iter() {
            let measured = peer
                .measured
                .filter(|(cost, until)| cost.is_routable() && now < *until);
            if let Some((delay, _)) = measured.filter(|_| self.gossip.table().is_live(&peer.node)) {
                let loss = LossCode::default();
                let report = LinkReport { delay, loss };
                reports.entry(peer.node).or_insert(report);
            }
        }
        reports
    }

    /// Maps each node's link to its cost, if it has one.
    fn costs(&self, cost: impl Fn(&NodeId) -> Option<Cost>) -> BTreeMap<LinkId, Cost> {
        let all = self.peers.iter();
        all.filter_map(|(link, peer)| Some((link, cost(&peer.node)?)))
            .collect()
    }

    /// Returns the relays of the two best disjoint routes to each remote end, those of first
    /// routes, then of earlier remote ends, first.
    fn relays_to(&self, ends: &[NodeIndex], graph: &Graph, routes: &SourceRoutes) -> Vec<LinkId> {
        let mut ranks: BTreeMap<LinkId, (usize, usize)> = BTreeMap::new();
        for (rank, &end) in ends.iter().enumerate() {
            let ways = disjoint_routes(graph, routes, end, 2);
            for (place, way) in ways.iter().enumerate() {
                let relays = way.path.relays.iter();
                for relay in relays.filter_map(|relay| self.peers.find(relay)) {
                    let held = ranks.entry(relay).or_insert((place, rank));
                    *held = (*held).min((place, rank));
                }
            }
        }
        let mut relays: Vec<_> = ranks.into_iter().map(|(link, rank)| (rank, link)).collect();
        relays.sort_unstable();
        relays.into_iter().map(|(_, link)| link).collect()
    }

    /// Returns the remote ends of flows, those with the most flows first.
    fn used_remote_ends(&self) -> Vec<LinkId> {
        let counted = self.path_sets.keys().map(|&link| {
            let flows = self.flows.with(link).take(FLOWS_COUNTED).count();
            (flows, link)
        });
        let mut counted: Vec<_> = counted.filter(|(flows, _)| *flows > 0).collect();
        counted.sort_unstable_by(|one, other| other.cmp(one));
        counted.into_iter().map(|(_, link)| link).collect()
    }

    /// Returns the exits that players of this node may be sent to.
    pub(super) fn target_exits(&self) -> BTreeSet<NodeId> {
        let games = self.games_in_force().filter(|game| game.entry.is_some());
        let games: Vec<&Game> = games.collect();
        let Some(document) = self.document() else {
            let named = games.iter().filter_map(|game| game.entry.as_ref());
            return named.flat_map(|entry| &entry.exits).copied().collect();
        };
        let is_exit = |node: &NodeId| {
            let mut games = games.iter();
            self.is_exit_by_record(node) && games.any(|game| document.may_exit(&game.name, node))
        };
        let live = self.gossip.table().nodes().filter(|(_, is_live)| *is_live);
        live.map(|(node, _)| node).filter(is_exit).collect()
    }
}

/// Interval between two surveys of link state.
const SURVEY: Duration = Duration::from_secs(10);
/// Maximum number of remote ends to find routes to.
const SURVEYED_MAX: usize = 16;
/// Maximum number of flows counted per remote end.
const FLOWS_COUNTED: usize = 64;
