//! Routes from one node to all others, over at most three relays.
//!
//! Each node computes its own *source vector*: rounds of min-plus over a dense matrix of 16-bit
//! lanes, one round for each relay allowed. Round k holds, for every node, the cheapest way with
//! at most k relays; only rows that the round before made cheaper are looked at again. One source
//! costs at most 3 N² lane operations, whatever the records say.
//!
//! Ties are decided: the cheaper route wins, then the one with fewer relays, then the one whose
//! last relay has the lower id, then the one before it, so that tests are exact and two nodes with
//! one table agree.

mod all_pairs;
mod disjoint;
mod lanes;
mod source;

use wire::NodeId;

use crate::cost::{Cost, LossCode};

pub use self::all_pairs::AllPairs;
pub use self::disjoint::disjoint_routes;
pub use self::source::SourceRoutes;

/// Most relays of a route.
pub const RELAYS_MAX: usize = 3;

/// The links that a node knows, as a dense matrix.
///
/// 3 bytes for each ordered pair of nodes: 3.6 MB at the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Ascending, so that the order of indices is that of ids.
    nodes: Vec<NodeId>,
    /// Whether each node may be passed.
    relays: Vec<bool>,
    /// Row-major, from row to column; the diagonal is unroutable, so no way stays in place.
    costs: Vec<i16>,
    /// What each loses, which its cost holds as a price.
    losses: Vec<LossCode>,
}

/// Place of a node in a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeIndex(usize);

impl Graph {
    /// Most nodes: a full table of 1,023, ourselves, and 64 neighbours not heard of yet. What comes
    /// after in ascending order is left out.
    pub const NODES_MAX: usize = 1_088;

    /// Makes a graph without links of nodes and whether each may be a relay.
    ///
    /// A node named twice may be a relay only where both say so.
    pub fn new(nodes: impl IntoIterator<Item = (NodeId, bool)>) -> Self {
        let mut named: Vec<(NodeId, bool)> = nodes.into_iter().collect();
        // False sorts first, and the first of equals stays.
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

    /// Returns how many nodes there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns all nodes, ascending.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Returns the place of a node.
    #[must_use]
    pub fn index(&self, id: &NodeId) -> Option<NodeIndex> {
        self.nodes.binary_search(id).ok().map(NodeIndex)
    }

    /// Returns the node at a place; `None` where the place is another graph's.
    #[must_use]
    pub fn node(&self, index: NodeIndex) -> Option<NodeId> {
        self.nodes.get(index.0).copied()
    }

    /// Returns what a path from `source` costs now; unroutable where a link of it is down or
    /// unknown, or a relay may no longer be passed.
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

    /// Returns what each link of a path from `source` loses; of unknown links nothing.
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

    /// Sets the cost of the link between two nodes, both ways; a node has none to itself.
    pub fn set_link(&mut self, a: NodeIndex, b: NodeIndex, cost: Cost) {
        let len = self.len();
        set_both(&mut self.costs, (a, b), len, cost.lane());
    }

    /// Sets what a link loses, both ways; nothing as long as it is not set.
    pub fn set_loss(&mut self, a: NodeIndex, b: NodeIndex, loss: LossCode) {
        let len = self.len();
        set_both(&mut self.losses, (a, b), len, loss);
    }

    /// Returns the cost of the link between two nodes.
    #[must_use]
    pub fn link(&self, from: NodeIndex, to: NodeIndex) -> Cost {
        let lane = self.row(from).get(to.0).copied();
        lane.map_or(Cost::UNROUTABLE, Cost::from_lane)
    }

    /// Lets a node be an end of routes, but not be passed.
    pub fn forbid_relay(&mut self, index: NodeIndex) {
        if let Some(relay) = self.relays.get_mut(index.0) {
            *relay = false;
        }
    }

    /// Returns whether a node may be passed.
    #[must_use]
    pub fn may_relay(&self, index: NodeIndex) -> bool {
        self.relays.get(index.0).copied().unwrap_or(false)
    }

    fn row(&self, from: NodeIndex) -> &[i16] {
        row(&self.costs, from, self.len())
    }
}

/// A row of a matrix with rows of `len`.
fn row<T>(matrix: &[T], from: NodeIndex, len: usize) -> &[T] {
    let start = from.0.saturating_mul(len);
    let end = start.saturating_add(len);
    matrix.get(start..end).unwrap_or_default()
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

/// How routes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteLimits {
    /// Most relays of a route, at most [`RELAYS_MAX`]; 3. One is enough in most networks.
    pub relays_max: usize,
    /// Cost of passing one relay; 1 ms.
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

/// A way to a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// Nodes to pass, in order from the source; empty where the way is direct.
    pub relays: Vec<NodeId>,
    /// Where it ends.
    pub destination: NodeId,
}

impl Path {
    /// Returns the first node behind the source.
    #[must_use]
    pub fn next_hop(&self) -> NodeId {
        self.relays.first().copied().unwrap_or(self.destination)
    }
}

/// A path and what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Links and relays together.
    pub cost: Cost,
    /// The way.
    pub path: Path,
}

#[cfg(test)]
mod tests;
