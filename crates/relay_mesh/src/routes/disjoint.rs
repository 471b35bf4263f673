//! Disjoint alternative routes.

use super::{Graph, NodeIndex, Route, SourceRoutes};

/// Returns up to `count` routes to a node that share no relay and no link, cheapest first.
///
/// Greedy: the cheapest route, then the cheapest without what earlier ones use, and so on. Each one
/// after the first updates a copy of `best`, which must belong to `graph`. That costs about as much
/// as one changed link.
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
