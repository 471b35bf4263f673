//! Routes between all pairs of nodes, to inspect a whole mesh.

use super::{Graph, NodeIndex, add_rows, find_sum, lane, row, sum};
use crate::cost::Cost;

/// The cheapest paths between all nodes over at most one relay.
///
/// Only for tools that show a mesh. Takes 2 bytes per ordered pair: 2.4 MB at the maximum size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllPairs {
    len: usize,
    relay_cost: Cost,
    /// Row-major, as in the graph.
    costs: Vec<i16>,
}

impl AllPairs {
    /// Computes all paths with N³ / 2 lane operations, far too many for a forwarding thread.
    #[must_use]
    pub fn compute(graph: &Graph, relay_cost: Cost) -> Self {
        let len = graph.len();
        let mut costs = graph.costs.clone();
        for source in 0..len {
            let from = NodeIndex(source);
            let through = sum(graph.row(from), &graph.passing(from, relay_cost));
            // Costs are symmetric, so each pair is computed once.
            let ways = through.iter().enumerate().filter_map(|(relay, &through)| {
                let row = graph.row(NodeIndex(relay)).get(source..)?;
                let is_way = Cost::from_lane(through).is_routable();
                is_way.then_some((row, through))
            });
            let own = own_row(&mut costs, source, len);
            add_rows(own.get_mut(source..).unwrap_or_default(), ways);
            if let Some(own) = own.get_mut(source) {
                *own = Cost::UNROUTABLE.lane();
            }
        }
        mirror(&mut costs, len);
        Self {
            len,
            relay_cost,
            costs,
        }
    }

    /// Returns the cost of the cheapest path; unroutable if there is none.
    #[must_use]
    pub fn cost(&self, from: NodeIndex, to: NodeIndex) -> Cost {
        lane(row(&self.costs, from, self.len), to)
    }

    /// Returns the relay of the cheapest path, the lowest if several are equally cheap. `None` if
    /// the direct path is as cheap, or there is none. `graph` must be the one of the computation.
    #[must_use]
    pub fn relay(&self, graph: &Graph, from: NodeIndex, to: NodeIndex) -> Option<NodeIndex> {
        let cost = self.cost(from, to);
        if !cost.is_routable() || graph.link(from, to) == cost {
            return None;
        }
        let through = sum(graph.row(from), &graph.passing(from, self.relay_cost));
        find_sum(&through, graph.row(to), cost.lane()).map(NodeIndex)
    }
}

fn own_row(costs: &mut [i16], source: usize, len: usize) -> &mut [i16] {
    let start = source.saturating_mul(len);
    let end = start.saturating_add(len);
    costs.get_mut(start..end).unwrap_or_default()
}

/// Copies the half above the diagonal to the half below, in tiles that fit in the cache.
fn mirror(costs: &mut [i16], len: usize) {
    for (rows, columns) in tiles(len) {
        for row in rows {
            for column in columns.clone().filter(|column| *column < row) {
                let from = column.saturating_mul(len).saturating_add(row);
                let to = row.saturating_mul(len).saturating_add(column);
                if let Some(&cost) = costs.get(from)
                    && let Some(place) = costs.get_mut(to)
                {
                    *place = cost;
                }
            }
        }
    }
}

type Tile = (core::ops::Range<usize>, core::ops::Range<usize>);

/// Tiles on and below the diagonal.
fn tiles(len: usize) -> impl Iterator<Item = Tile> {
    let span = move |start: usize| start..start.saturating_add(TILE).min(len);
    let starts = (0..len).step_by(TILE);
    starts.flat_map(move |row| {
        let columns = (0..=row).step_by(TILE);
        columns.map(move |column| (span(row), span(column)))
    })
}

/// Side of a tile, in lanes. Two tiles are 16 KiB.
const TILE: usize = 64;
