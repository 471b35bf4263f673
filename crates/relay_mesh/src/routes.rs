//! Routes from one node to all others, over at most three relays.
//!
//! Each node computes its own *source vector*: rounds of min-plus over a dense matrix of 16-bit
//! lanes, one round per relay allowed. Round k holds, for every node, the cheapest path with at
//! most k relays. One source costs at most 3 N² lane operations, whatever the records contain.
//!
//! Ties are deterministic: the cheaper route wins, then the one with fewer relays, then the one
//! with the lower ID of the last relay, or of the relay before that.

mod all_pairs;
mod source;

use wire::NodeId;

use crate::cost::{Cost, LossCode};

pub use self::all_pairs::AllPairs;
pub use self::source::SourceRoutes;

/// The links that a node knows, as a dense matrix.
///
/// Takes 3 bytes per ordered pair of nodes: 3.6 MB at the maximum size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Ascending, so that indices have the order of IDs.
    nodes: Vec<NodeId>,
    /// Whether each node may be a relay.
    relays: Vec<bool>,
    /// Row-major, from row to column. The diagonal is unroutable, so a path never stays at a node.
    costs: Vec<i16>,
    /// Loss of each link; its price is part of the cost.
    losses: Vec<LossCode>,
}

/// Index of a node in a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeIndex(usize);

impl Graph {
    /// Maximum number of nodes: a full table of 1,023, this node, and 64 neighbours without a
    /// record. Further nodes in ascending order are left out.
    pub const NODES_MAX: usize = 1_088;

    /// Creates a graph without links. Each item is a node and whether it may be a relay.
    ///
    /// A node listed twice may be a relay only if both items allow it.
    pub fn new(nodes: impl IntoIterator<Item = (NodeId, bool)>) -> Self {
        let mut named: Vec<(NodeId, bool)> = nodes.into_iter().collect();
        // False sorts first, and dedup keeps the first of equal nodes.
        named.sort_unstable();
        named.dedup_by_key(|(id, _)| *id);
        named.truncate(Self::NODES_MAX);
        let (nodes, relays): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let pairs = nodes.len().saturating_mul(nodes.len());
        Self {
            nodes,
            relays,
            costs: vec![Cost::UNROUTABLE.lane(); pairs],
            losses: vec![LossCode::default(); pairs],
        }
    }

    /// Returns the number of nodes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there are no nodes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns all nodes, ascending.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Returns the index of a node.
    #[must_use]
    pub fn index(&self, id: &NodeId) -> Option<NodeIndex> {
        self.nodes.binary_search(id).ok().map(NodeIndex)
    }

    /// Returns the node at an index, or `None` if it is out of range.
    #[must_use]
    pub fn node(&self, index: NodeIndex) -> Option<NodeId> {
        self.nodes.get(index.0).copied()
    }

    /// Returns the current cost of a path from `source`. It is unroutable if one of its links is
    /// down or unknown, or if one of its relays may no longer relay.
    #[must_use]
    pub fn path_cost(&self, source: NodeIndex, path: &Path, relay_cost: Cost) -> Cost {
        let (mut at, mut cost) = (source, Cost::ZERO);
        for relay in &path.relays {
            let Some(next) = self.index(relay).filter(|next| self.may_relay(*next)) else {
                return Cost::UNROUTABLE;
            };
            cost = cost.plus(self.link(at, next)).plus(relay_cost);
            at = next;
        }
        let end = self.index(&path.destination);
        end.map_or(Cost::UNROUTABLE, |end| cost.plus(self.link(at, end)))
    }

    /// Returns the loss of each link of a path from `source`; none for unknown links.
    pub fn path_losses(&self, source: NodeIndex, path: &Path) -> impl Iterator<Item = LossCode> {
        let nodes = path.relays.iter().chain([&path.destination]);
        nodes.scan(Some(source), |at, node| {
            let (from, to) = (*at, self.index(node));
            *at = to;
            let link = from.zip(to);
            let code = link.and_then(|(from, to)| row(&self.losses, from, self.len()).get(to.0));
            Some(code.copied().unwrap_or_default())
        })
    }

    /// Sets the cost of the link between two nodes, in both directions. Ignored if both are the
    /// same node.
    pub fn set_link(&mut self, a: NodeIndex, b: NodeIndex, cost: Cost) {
        let len = self.len();
        set_both(&mut self.costs, (a, b), len, cost.lane());
    }

    /// Sets the loss of a link, in both directions. The default is none.
    pub fn set_loss(&mut self, a: NodeIndex, b: NodeIndex, loss: LossCode) {
        let len = self.len();
        set_both(&mut self.losses, (a, b), len, loss);
    }

    /// Returns the cost of the link between two nodes.
    #[must_use]
    pub fn link(&self, from: NodeIndex, to: NodeIndex) -> Cost {
        lane(self.row(from), to)
    }

    /// Excludes a node as a relay; it may still be an end of routes.
    pub fn forbid_relay(&mut self, index: NodeIndex) {
        if let Some(relay) = self.relays.get_mut(index.0) {
            *relay = false;
        }
    }

    /// Returns whether a node may be a relay.
    #[must_use]
    pub fn may_relay(&self, index: NodeIndex) -> bool {
        self.relays.get(index.0).copied().unwrap_or(false)
    }

    fn row(&self, from: NodeIndex) -> &[i16] {
        row(&self.costs, from, self.len())
    }

    /// Cost of each node as a relay on a path from `source`.
    fn passing(&self, source: NodeIndex, relay_cost: Cost) -> Vec<i16> {
        let relays = self.relays.iter().enumerate();
        let cost = relays.map(|(index, &may_relay)| {
            if may_relay && index != source.0 {
                relay_cost
            } else {
                Cost::UNROUTABLE
            }
        });
        cost.map(Cost::lane).collect()
    }
}

/// Returns a row of a matrix with rows of `len`.
fn row<T>(matrix: &[T], from: NodeIndex, len: usize) -> &[T] {
    let start = from.0.saturating_mul(len);
    let end = start.saturating_add(len);
    matrix.get(start..end).unwrap_or_default()
}

/// Returns one lane of a row as a cost.
fn lane(lanes: &[i16], index: NodeIndex) -> Cost {
    let lane = lanes.get(index.0).copied();
    lane.map_or(Cost::UNROUTABLE, Cost::from_lane)
}

fn set_both<T: Copy>(matrix: &mut [T], (a, b): (NodeIndex, NodeIndex), len: usize, value: T) {
    for (from, to) in [(a, b), (b, a)] {
        let place = from.0.saturating_mul(len).saturating_add(to.0);
        if from != to
            && to.0 < len
            && let Some(held) = matrix.get_mut(place)
        {
            *held = value;
        }
    }
}

/// Limits for computing routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteLimits {
    /// Maximum number of relays of a route, at most [`RELAYS_MAX`]; 3. One suffices in most
    /// networks.
    pub relays_max: usize,
    /// Cost of each relay; 1 ms.
    pub relay_cost: Cost,
}

impl Default for RouteLimits {
    fn default() -> Self {
        Self {
            relays_max: RELAYS_MAX,
            relay_cost: Cost::from_millis(1),
        }
    }
}

/// A path to a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// Relays in order from the source; empty if the path is direct.
    pub relays: Vec<NodeId>,
    /// The last node.
    pub destination: NodeId,
}

impl Path {
    /// Returns the first node after the source.
    #[must_use]
    pub fn next_hop(&self) -> NodeId {
        self.relays.first().copied().unwrap_or(self.destination)
    }

    /// Returns the relays or, if the path is direct, its destination.
    pub(crate) fn relays_or_destination(&self) -> impl Iterator<Item = &NodeId> {
        let direct = self.relays.is_empty().then_some(&self.destination);
        self.relays.iter().chain(direct)
    }
}

/// A path and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Cost of links and relays.
    pub cost: Cost,
    /// The path.
    pub path: Path,
}

/// Returns up to `count` routes to a node that share no relay and no link, cheapest first.
///
/// Greedy: each one is the cheapest without the relays and links of those before. `best` must belong
/// to `graph`. Each route after the first costs about as much as one changed link.
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
                let ways = left.as_ref().unwrap_or(best).without(graph, &used.path);
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

/// A row of the matrix, and the cost to its first node.
type Way<'a> = (&'a [i16], i16);

// Loops over 16-bit lanes, which the compiler vectorizes. A lane is never negative, and
// `Cost::UNROUTABLE` is the largest value, so every sum saturates there. Baseline x86-64 has the
// saturating sum, the signed minimum and the comparison of eight lanes each.

/// `next` = min(`next`, row + cost), lane by lane, over all `ways`. Returns the number of rows.
///
/// Processes four rows at a time, so that `next` is loaded and stored once for four.
fn add_rows<'a>(next: &mut [i16], ways: impl Iterator<Item = Way<'a>>) -> usize {
    let mut held: [Way<'a>; 4] = [(&[], 0); 4];
    let (mut count, mut rows) = (0_usize, 0_usize);
    for way in ways {
        if let Some(place) = held.get_mut(count) {
            *place = way;
        }
        count = count.saturating_add(1);
        rows = rows.saturating_add(1);
        if count == held.len() {
            add_four(next, held);
            count = 0;
        }
    }
    for &(row, cost) in held.iter().take(count) {
        add_row(next, row, cost);
    }
    rows
}

fn add_four(next: &mut [i16], [(a, to_a), (b, to_b), (c, to_c), (d, to_d)]: [Way<'_>; 4]) {
    let rows = a.iter().zip(b).zip(c).zip(d);
    for (best, (((&a, &b), &c), &d)) in next.iter_mut().zip(rows) {
        let ab = a.saturating_add(to_a).min(b.saturating_add(to_b));
        let cd = c.saturating_add(to_c).min(d.saturating_add(to_d));
        *best = (*best).min(ab.min(cd));
    }
}

/// `next` = min(`next`, `row` + `cost`), lane by lane.
fn add_row(next: &mut [i16], row: &[i16], cost: i16) {
    for (best, &link) in next.iter_mut().zip(row) {
        *best = (*best).min(link.saturating_add(cost));
    }
}

/// The sum of two rows.
fn sum(a: &[i16], b: &[i16]) -> Vec<i16> {
    let lanes = a.iter().zip(b);
    lanes.map(|(&a, &b)| a.saturating_add(b)).collect()
}

/// The minimum of `start` and of the sums of both rows.
fn least(start: i16, a: &[i16], b: &[i16]) -> i16 {
    let lanes = a.iter().zip(b);
    lanes.fold(start, |least, (&a, &b)| least.min(a.saturating_add(b)))
}

/// The first index at which the sum of both rows is `wanted`.
fn find_sum(a: &[i16], b: &[i16], wanted: i16) -> Option<usize> {
    let mut start = 0_usize;
    for (a, b) in a.chunks(CHUNK).zip(b.chunks(CHUNK)) {
        let lanes = || a.iter().zip(b);
        // Without an early exit, the loop is vectorized.
        let hits = lanes().fold(0, |hits: i16, (&a, &b)| {
            hits | i16::from(a.saturating_add(b) == wanted).wrapping_neg()
        });
        if hits != 0 {
            let place = lanes().position(|(&a, &b)| a.saturating_add(b) == wanted);
            return place.map(|place| start.saturating_add(place));
        }
        start = start.saturating_add(CHUNK);
    }
    None
}

/// Marks the lanes in which `row` + `cost` equals `reached`.
fn mark(marks: &mut [i16], reached: &[i16], row: &[i16], cost: i16) {
    let lanes = reached.iter().zip(row);
    for (mark, (&reached, &link)) in marks.iter_mut().zip(lanes) {
        *mark |= i16::from(link.saturating_add(cost) == reached).wrapping_neg();
    }
}

/// Maximum number of relays of a route.
pub const RELAYS_MAX: usize = 3;
/// Lanes compared between two checks for a hit.
const CHUNK: usize = 128;

#[cfg(test)]
mod tests;
