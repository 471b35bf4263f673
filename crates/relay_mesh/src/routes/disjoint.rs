//! Alternatives that share nothing with each other.

use super::{Graph, NodeIndex, Route, SourceRoutes};

/// Returns up to `count` routes to a node that share no relay and no link, cheapest first.
///
/// Greedy: the cheapest, then the cheapest without what was used, and so on. Each but the first
/// mends a copy of `best`, which belongs to `graph`: about as much work as one changed link.
#[must_use]
pub fn disjoint_routes(
    graph: &Graph,
    best: &SourceRoutes,
    destination: NodeIndex,
    count: usize,
) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::with_capacity(count.min(graph.len()));
    let mut left: Option<SourceRoutes> = None;
    while routes.len() < count {
        let ways = match routes.last() {
            None => best,
            Some(used) => {
                let ways = left.as_ref().unwrap_or(best).without(graph, used);
                left.insert(ways)
            }
        };
        let Some(route) = ways.route(graph, destination) else {
            break;
        };
        routes.push(route);
    }
    routes
}
