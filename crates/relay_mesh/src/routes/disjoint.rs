//! Alternatives that share nothing with each other.

use super::{Graph, NodeIndex, Route, RouteLimits, SourceRoutes};
use crate::cost::Cost;

/// Returns up to `count` routes that share no relay and no link, cheapest first.
///
/// Greedy: the cheapest, then the cheapest without what was used, and so on. Each costs one source
/// vector, so it belongs off the packet path. The graph is changed meanwhile and restored.
pub fn disjoint_routes(
    graph: &mut Graph,
    source: NodeIndex,
    destination: NodeIndex,
    limits: RouteLimits,
    count: usize,
) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::with_capacity(count.min(graph.len()));
    let mut masked: Vec<NodeIndex> = Vec::new();
    let direct = graph.link(source, destination);
    while routes.len() < count {
        let found = SourceRoutes::compute(graph, source, limits).route(graph, destination);
        let Some(route) = found else {
            break;
        };
        // A relay that is masked takes its links along; the direct way has no relay.
        if route.path.relays.is_empty() {
            graph.set_link(source, destination, Cost::UNROUTABLE);
        }
        for relay in &route.path.relays {
            if let Some(index) = graph.index(relay) {
                graph.forbid_relay(index);
                masked.push(index);
            }
        }
        routes.push(route);
    }
    for index in masked {
        graph.allow_relay(index);
    }
    graph.set_link(source, destination, direct);
    routes
}
