//! Cost of the route computation in a mesh of 1,000 nodes.

use std::hint::black_box;
use std::time::Duration;

use relay_mesh::cost::Cost;
use relay_mesh::routes::{AllPairs, Graph, NodeIndex, RouteLimits, SourceRoutes, disjoint_routes};
use wire::{Generator, Seed};

use super::map;
use crate::measure::cpu_time_of;

/// A mesh and one node's routes in it.
#[derive(Debug)]
pub struct Routing {
    graph: Graph,
    nodes: Vec<NodeIndex>,
    source: NodeIndex,
    routes: SourceRoutes,
    generator: Generator,
}

impl Routing {
    /// Creates a full mesh of `len` nodes.
    #[must_use]
    pub fn new(seed: u64, len: usize) -> Self {
        let graph = map::draw(seed, len);
        let nodes = map::indices(&graph);
        let source = *nodes.first().expect("a mesh has nodes");
        let routes = SourceRoutes::compute(&graph, source, RouteLimits::default());
        Self {
            graph,
            nodes,
            source,
            routes,
            generator: Seed::from_number(seed).generator(1),
        }
    }

    /// Computes one node's costs and best routes to all others.
    pub fn own(&mut self) -> Duration {
        cpu_time_of(|| {
            self.routes = SourceRoutes::compute(&self.graph, self.source, RouteLimits::default());
            for &node in &self.nodes {
                black_box(self.routes.route(&self.graph, node));
            }
        })
    }

    /// Computes one node's costs to all others, without the relays.
    pub fn costs(&mut self) -> Duration {
        cpu_time_of(|| {
            self.routes = SourceRoutes::compute(&self.graph, self.source, RouteLimits::default());
        })
    }

    /// Computes three disjoint routes to each of 16 exits.
    pub fn alternatives(&mut self) -> Duration {
        let exits: Vec<NodeIndex> = (0..16).map(|_| self.any()).collect();
        cpu_time_of(|| {
            for exit in exits {
                black_box(disjoint_routes(&self.graph, &self.routes, exit, 3));
            }
        })
    }

    /// Updates the routes after one remote link's cost has halved or doubled.
    pub fn link_change(&mut self) -> Duration {
        let ends = (self.any(), self.any());
        self.change(ends)
    }

    /// Updates the routes after the cost of one of the node's own links has changed.
    pub fn own_link_change(&mut self) -> Duration {
        let ends = (self.source, self.any());
        self.change(ends)
    }

    /// Computes all pairs over at most one relay.
    pub fn all_pairs(&mut self) -> Duration {
        cpu_time_of(|| {
            black_box(AllPairs::compute(&self.graph, Cost::from_millis(1)));
        })
    }

    fn change(&mut self, (a, b): (NodeIndex, NodeIndex)) -> Duration {
        let before = self.graph.link(a, b);
        let changed = if self.generator.chance(500_000) {
            before.units() / 2
        } else {
            before.units().saturating_mul(2)
        };
        self.graph.set_link(a, b, Cost::from_units(changed));
        let time = cpu_time_of(|| self.routes.relink(&self.graph, (a, b)));
        // Restores the mesh.
        self.graph.set_link(a, b, before);
        self.routes.relink(&self.graph, (a, b));
        time
    }

    fn any(&mut self) -> NodeIndex {
        let len = u64::try_from(self.nodes.len()).unwrap_or(u64::MAX);
        let place = usize::try_from(self.generator.below(len)).unwrap_or(0);
        self.nodes.get(place).copied().unwrap_or(self.source)
    }
}

/// Returns median and maximum of `count` runs, in milliseconds.
pub fn times(count: u32, mut run: impl FnMut() -> Duration) -> (f64, f64) {
    let mut times: Vec<f64> = (0..count.max(1))
        .map(|_| run().as_secs_f64() * 1e3)
        .collect();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied();
    let largest = times.last().copied();
    (median.unwrap_or(f64::NAN), largest.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_link_leaves_the_routes_unchanged() {
        let mut routing = Routing::new(1, 60);
        let costs = |routing: &Routing| -> Vec<Cost> {
            let nodes = routing.nodes.iter();
            nodes.map(|node| routing.routes.cost(*node)).collect()
        };
        let before = costs(&routing);
        assert!(before.iter().skip(1).all(|cost| cost.is_routable()));
        for _ in 0..20 {
            routing.link_change();
            routing.own_link_change();
        }
        assert_eq!(costs(&routing), before);
    }
}
