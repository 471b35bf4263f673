//! The routes that a node knows, and when they are recomputed.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::Node;
use crate::cost::{Cost, CostModel};
use crate::link_state::LinkStateTable;
use crate::measure::LinkReport;
use crate::routes::{Graph, NodeIndex, Path, RouteLimits, SourceRoutes, disjoint_routes};

/// The graph of all known links, and the routes on it.
///
/// A change takes effect within [`COALESCE`]. One call computes at most a graph, the costs to all
/// nodes, and the alternatives to one remote end; others wait for the next call.
#[derive(Debug, Default)]
pub(super) struct KnownRoutes {
    newest: Option<Routed>,
    /// Whether links, nodes or roles changed in a way that `newest` does not contain.
    is_stale: bool,
    /// When alternatives were last computed.
    computed_at: Option<Instant>,
    alternatives: BTreeMap<NodeId, Alternatives>,
}

#[derive(Debug)]
pub(super) struct Routed {
    pub(super) graph: Graph,
    /// This node.
    pub(super) own: NodeIndex,
    best: SourceRoutes,
    made_at: Instant,
}

#[derive(Debug)]
struct Alternatives {
    /// Disjoint paths, the best first; if nodes on them are avoided, paths without these follow.
    paths: Vec<Path>,
    avoided: Vec<NodeId>,
    made_at: Instant,
}

impl KnownRoutes {
    pub(super) const fn on_change(&mut self) {
        self.is_stale = true;
    }

    /// Replaces the reports `before` of this node's links by `reports`.
    pub(super) fn on_reports(
        &mut self,
        table: &LinkStateTable,
        (model, limits): (&CostModel, RouteLimits),
        [before, reports]: [&BTreeMap<NodeId, LinkReport>; 2],
    ) {
        let is_same_set = before.keys().eq(reports.keys());
        let Some(newest) = self.newest.as_mut().filter(|_| is_same_set) else {
            self.is_stale = true;
            return;
        };
        let changed = reports.iter();
        let changed = changed.filter(|(id, report)| before.get(*id) != Some(*report));
        let mut ends = Vec::new();
        for (id, report) in changed {
            match table.relink_own(&mut newest.graph, model, (id, *report)) {
                Some(remote) => ends.push(remote),
                None => self.is_stale = true,
            }
        }
        if ends.len() > RELINKS_MAX {
            newest.best = SourceRoutes::compute(&newest.graph, newest.own, limits);
        } else {
            for remote in ends {
                newest.best.relink(&newest.graph, (newest.own, remote));
            }
        }
    }

    pub(super) const fn newest(&self) -> Option<&Routed> {
        self.newest.as_ref()
    }

    /// Returns the best disjoint paths to `remote`, the best first. If `avoided` nodes are on them,
    /// as many paths without these follow. If `remote` is avoided, its direct path is. `None` if
    /// the computation has to wait for the next call.
    pub(super) fn alternatives(
        &mut self,
        now: Instant,
        remote: NodeId,
        avoided: &[NodeId],
    ) -> Option<&[Path]> {
        let Some(newest) = &self.newest else {
            return Some(&[]);
        };
        let held = self.alternatives.get(&remote);
        let is_usable =
            |held: &Alternatives| held.avoided == avoided && newest.is_usable(now, remote, held);
        if !held.is_some_and(is_usable) {
            if self.computed_at == Some(now) {
                return None;
            }
            self.computed_at = Some(now);
            let found = Alternatives {
                paths: newest.disjoint(remote, avoided),
                avoided: avoided.to_vec(),
                made_at: now,
            };
            self.alternatives.insert(remote, found);
        }
        let held = self.alternatives.get(&remote);
        held.map(|held| held.paths.as_slice())
    }

    fn is_due(&self, now: Instant) -> bool {
        let is_old = |newest: &Routed| now.saturating_since(newest.made_at) >= COALESCE;
        let newest = self.newest.as_ref();
        newest.is_none_or(|newest| self.is_stale && is_old(newest))
    }

    fn renew(&mut self, now: Instant, graph: Graph, own: &NodeId, limits: RouteLimits) {
        self.is_stale = false;
        self.alternatives
            .retain(|_, held| now.saturating_since(held.made_at) < FORGET);
        self.newest = graph.index(own).map(|own| Routed {
            best: SourceRoutes::compute(&graph, own, limits),
            graph,
            own,
            made_at: now,
        });
    }
}

impl Routed {
    fn disjoint(&self, remote: NodeId, avoided: &[NodeId]) -> Vec<Path> {
        let Some(end) = self.graph.index(&remote) else {
            return Vec::new();
        };
        let routes = disjoint_routes(&self.graph, &self.best, end, ROUTES);
        let mut paths: Vec<Path> = routes.into_iter().map(|route| route.path).collect();
        let is_avoided = |path: &Path| {
            let is_direct = path.relays.is_empty();
            path.relays.iter().any(|relay| avoided.contains(relay))
                || (is_direct && avoided.contains(&remote))
        };
        if !paths.iter().any(is_avoided) {
            return paths;
        }
        let left = self.without(remote, avoided);
        let others = disjoint_routes(&self.graph, &left, end, ROUTES);
        let others = others.into_iter().map(|route| route.path);
        paths.extend(others.filter(|path| !is_avoided(path)));
        let mut known: Vec<Path> = Vec::with_capacity(paths.len());
        for path in paths {
            if !known.contains(&path) {
                known.push(path);
            }
        }
        known
    }

    /// The routes without the avoided relays, and without the direct path if `remote` is avoided.
    fn without(&self, remote: NodeId, avoided: &[NodeId]) -> SourceRoutes {
        let path = |relays: Vec<NodeId>| Path {
            relays,
            destination: remote,
        };
        let relays = avoided.iter().copied().filter(|node| *node != remote);
        let relays: Vec<NodeId> = relays.collect();
        let has_direct = relays.len() < avoided.len();
        let mut left = self.best.clone();
        if !relays.is_empty() {
            left = left.without(&self.graph, &path(relays));
        }
        if has_direct {
            left = left.without(&self.graph, &path(Vec::new()));
        }
        left
    }

    /// Whether alternatives are valid: the best path is the same, all are routable, and they are
    /// younger than [`ALTERNATIVES_AGE_MAX`].
    fn is_usable(&self, now: Instant, remote: NodeId, held: &Alternatives) -> bool {
        let best = self.graph.index(&remote);
        let best = best.and_then(|remote| self.best.route(&self.graph, remote));
        let is_way = |path: &Path| {
            let cost = self.graph.path_cost(self.own, path, Cost::ZERO);
            cost.is_routable()
        };
        now.saturating_since(held.made_at) < ALTERNATIVES_AGE_MAX
            && best.as_ref().map(|best| &best.path) == held.paths.first()
            && held.paths.iter().all(is_way)
    }
}

impl<P: Provider> Node<P> {
    /// Recomputes the graph and the costs to all nodes if that is due.
    pub(super) fn renew_routes(&mut self, now: Instant) {
        if self.known_routes.is_due(now) {
            let graph = self.make_graph();
            let limits = self.route_limits();
            self.known_routes.renew(now, graph, &self.own, limits);
        }
    }

    /// The cost of the cheapest route to a node. It is a lookup, so remote nodes may cause it at
    /// any rate.
    pub(super) fn cost_to(&mut self, now: Instant, remote: NodeId) -> Cost {
        self.renew_routes(now);
        let newest = self.known_routes.newest();
        let cost = newest.and_then(|newest| Some(newest.best.cost(newest.graph.index(&remote)?)));
        cost.unwrap_or(Cost::UNROUTABLE)
    }

    pub(super) fn route_limits(&self) -> RouteLimits {
        RouteLimits {
            relay_cost: self.config.cost.relay(),
            ..RouteLimits::default()
        }
    }
}

/// Least time between two graphs.
const COALESCE: Duration = Duration::from_millis(100);
/// Age after which alternatives are recomputed even if the best path is the same.
const ALTERNATIVES_AGE_MAX: Duration = Duration::from_secs(1);
/// Age after which unused alternatives are dropped.
const FORGET: Duration = Duration::from_secs(60);
/// Links updated one by one; for more, recomputing all costs is cheaper.
const RELINKS_MAX: usize = 8;
/// Alternatives per remote end.
const ROUTES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Seed;

    fn id(number: u8) -> NodeId {
        NodeId([number; 32])
    }

    /// Node 0 and some others, all of them linked at random costs.
    fn known(now: Instant, len: u8) -> KnownRoutes {
        let mut generator = Seed::from_number(1).generator(0);
        let mut graph = Graph::new((0..len).map(|number| (id(number), true)));
        for a in 0..len {
            for b in 0..a {
                let ends = graph.index(&id(a)).zip(graph.index(&id(b)));
                let (a, b) = ends.unwrap();
                let cost = u16::try_from(generator.between(10, 1_000)).unwrap();
                graph.set_link(a, b, Cost::from_units(cost));
            }
        }
        let mut known = KnownRoutes::default();
        known.renew(now, graph, &id(0), RouteLimits::default());
        known
    }

    #[test]
    fn pgx8_pgd_p19_one_call_looks_for_the_routes_to_one_remote_end() {
        let mut now = Instant::ZERO;
        let mut known = known(now, 20);
        let found = |known: &mut KnownRoutes, now| {
            let remote =
                (1..20).filter(|remote| known.alternatives(now, id(*remote), &[]).is_some());
            remote.count()
        };
        for count in 1..=19 {
            assert_eq!(found(&mut known, now), count, "one more than before");
            now += Duration::from_millis(1);
        }
        assert_eq!(found(&mut known, now), 19, "kept");
        now += ALTERNATIVES_AGE_MAX;
        assert_eq!(found(&mut known, now), 1, "looked for again");
    }

    #[test]
    fn what_changed_is_looked_at_each_100_ms_at_most() {
        let mut now = Instant::ZERO;
        let mut known = known(now, 5);
        now += Duration::from_secs(1);
        assert!(!known.is_due(now), "nothing changed");
        known.on_change();
        assert!(known.is_due(now), "and at once after a pause");
        let again = known.newest.take().unwrap().graph;
        known.renew(now, again, &id(0), RouteLimits::default());
        known.on_change();
        assert!(!known.is_due(now + Duration::from_millis(99)));
        assert!(known.is_due(now + COALESCE));
    }

    #[test]
    fn a_route_that_died_is_looked_for_again() {
        let now = Instant::ZERO;
        let mut known = known(now, 20);
        let before = known.alternatives(now, id(9), &[]).unwrap().to_vec();
        assert_eq!(before.len(), 3);
        let newest = known.newest.as_mut().unwrap();
        let last = before.last().unwrap();
        let hop = newest.graph.index(&last.next_hop()).unwrap();
        newest.graph.set_link(newest.own, hop, Cost::UNROUTABLE);
        newest.best.relink(&newest.graph, (newest.own, hop));
        let later = now + Duration::from_millis(1);
        let after = known.alternatives(later, id(9), &[]).unwrap();
        assert_eq!(after.first(), before.first(), "the best is the same");
        assert!(!after.contains(last), "{after:?}");
    }
    /// All disjoint paths pass avoided nodes, and there are others.
    #[test]
    fn avoided_nodes_are_on_no_alternative_path() {
        let now = Instant::ZERO;
        let mut known = known(now, 20);
        let best = known.alternatives(now, id(9), &[]).unwrap().to_vec();
        let mut avoided: Vec<NodeId> = best.iter().flat_map(|path| path.relays.clone()).collect();
        avoided.push(id(9));
        avoided.sort_unstable();
        let now = now + Duration::from_millis(1);
        let found = known.alternatives(now, id(9), &avoided).unwrap().to_vec();
        assert_eq!(found[..best.len()], best, "as a last resort");
        let others = &found[best.len()..];
        assert_eq!(others.len(), ROUTES);
        for path in others {
            assert!(!path.relays.is_empty(), "the direct way is avoided too");
            assert!(path.relays.iter().all(|relay| !avoided.contains(relay)));
        }
        let again = known
            .alternatives(now, id(9), &avoided)
            .map(<[Path]>::to_vec);
        assert_eq!(again.as_ref(), Some(&found), "kept");
        let later = now + Duration::from_millis(1);
        assert_eq!(known.alternatives(later, id(9), &[]).unwrap(), best);
    }
}
