//! The source vector: the cheapest paths from one node to all others.

use super::{
    Graph, NodeIndex, Path, RELAYS_MAX, Route, RouteLimits, add_row, add_rows, find_sum, lane,
    least, mark, sum,
};
use crate::cost::Cost;

/// The cheapest routes from one node to all others in one graph.
///
/// If a link of the graph changes, call [`relink`](Self::relink). After any other change, compute
/// the routes again.
#[derive(Clone, Debug)]
pub struct SourceRoutes {
    source: NodeIndex,
    /// Cost of each node as a relay; unroutable if it may not be one.
    passing: Vec<i16>,
    /// Round k: paths over at most k relays.
    rounds: Vec<Round>,
    /// Matrix rows processed so far.
    rows: usize,
}

/// Paths over at most a given number of relays.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Round {
    costs: Vec<i16>,
    through: Vec<i16>,
}

/// A relay with a changed cost.
struct Change {
    relay: usize,
    before: i16,
    after: i16,
}

impl SourceRoutes {
    /// Computes all routes from `source`.
    #[must_use]
    pub fn compute(graph: &Graph, source: NodeIndex, limits: RouteLimits) -> Self {
        let mut routes = Self {
            source,
            passing: graph.passing(source, limits.relay_cost),
            rounds: Vec::new(),
            rows: 0,
        };
        routes.push_round(graph.row(source).to_vec());
        for _ in 0..limits.relays_max.min(RELAYS_MAX) {
            let next = routes.next_costs(graph, routes.rounds.len());
            routes.push_round(next);
        }
        routes
    }

    /// Updates the routes after the link between `a` and `b` changed in `graph`.
    ///
    /// The result equals that of [`compute`](Self::compute), with less work for a small change.
    pub fn relink(&mut self, graph: &Graph, (a, b): (NodeIndex, NodeIndex)) {
        let remote = match self.source {
            source if source == a => Some(b),
            source if source == b => Some(a),
            _ => None,
        };
        if let Some(remote) = remote {
            self.set_direct(remote, graph.link(self.source, remote));
        }
        self.repair(graph, &[a, b]);
    }

    /// Returns the routes that remain without the relays of `path`, or without its link if it has
    /// no relay.
    #[must_use]
    pub fn without(&self, graph: &Graph, path: &Path) -> Self {
        let mut left = self.clone();
        let relays = path.relays.iter();
        for relay in relays.filter_map(|relay| graph.index(relay)) {
            if let Some(passing) = left.passing.get_mut(relay.0) {
                *passing = Cost::UNROUTABLE.lane();
            }
        }
        let end = graph.index(&path.destination);
        let end = end.filter(|_| path.relays.is_empty());
        if let Some(end) = end {
            left.set_direct(end, Cost::UNROUTABLE);
        }
        left.repair(graph, end.as_slice());
        left
    }

    /// Returns the cost of the cheapest route; unroutable if there is none.
    #[must_use]
    pub fn cost(&self, destination: NodeIndex) -> Cost {
        let last = self.rounds.last();
        last.map_or(Cost::UNROUTABLE, |round| lane(&round.costs, destination))
    }

    /// Returns the cheapest route, if there is one. Scans all nodes once per relay.
    #[must_use]
    pub fn route(&self, graph: &Graph, destination: NodeIndex) -> Option<Route> {
        let cost = self.cost(destination);
        if !cost.is_routable() {
            return None;
        }
        // The first round with the final cost has the fewest relays. The remaining path then has
        // its lowest cost in exactly the round before; otherwise fewer relays would have sufficed.
        let mut rounds = self.rounds.iter();
        let mut round = rounds.position(|round| lane(&round.costs, destination) == cost)?;
        let (mut at, mut relays) = (destination, Vec::with_capacity(round));
        while let Some(before) = round.checked_sub(1) {
            at = self.last_relay(graph, before, at)?;
            relays.push(graph.node(at)?);
            round = before;
        }
        relays.reverse();
        let destination = graph.node(destination)?;
        Some(Route {
            cost,
            path: Path {
                relays,
                destination,
            },
        })
    }

    /// Returns how many rows of the matrix were processed: at most N per relay and computation.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Returns whether both hold the same paths, regardless of the work.
    #[cfg(test)]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.rounds == other.rounds && self.passing == other.passing
    }

    fn push_round(&mut self, costs: Vec<i16>) {
        let through = sum(&costs, &self.passing);
        self.rounds.push(Round { costs, through });
    }

    /// Computes the costs of round `index`, over every row that the previous round made cheaper.
    fn next_costs(&mut self, graph: &Graph, index: usize) -> Vec<i16> {
        let round = |back: usize| self.rounds.get(index.checked_sub(back)?);
        let Some(newest) = round(1) else {
            return Vec::new();
        };
        let older = round(2).map(|round| round.through.as_slice());
        let mut next = newest.costs.clone();
        let through = newest.through.iter().enumerate();
        let ways = through.filter_map(|(relay, &through)| {
            let is_new = older.is_none_or(|older| older.get(relay) != Some(&through));
            let is_way = is_new && Cost::from_lane(through).is_routable();
            is_way.then(|| (graph.row(NodeIndex(relay)), through))
        });
        self.rows = self.rows.saturating_add(add_rows(&mut next, ways));
        // A path never returns to the source.
        set(&mut next, self.source, Cost::UNROUTABLE);
        next
    }

    fn set_direct(&mut self, remote: NodeIndex, cost: Cost) {
        if let Some(round) = self.rounds.first_mut() {
            set(&mut round.costs, remote, cost);
        }
    }

    /// Updates all rounds after relays were excluded, or after round 0 or the links at `ends`
    /// changed.
    fn repair(&mut self, graph: &Graph, ends: &[NodeIndex]) {
        let mut changes = self.renew_through(0);
        for index in 1..self.rounds.len() {
            if changes.is_empty() && ends.is_empty() {
                // Its costs do not change, but its sums depend on the allowed relays.
                changes = self.renew_through(index);
                continue;
            }
            let is_repaired = changes.len() <= graph.len() / 4
                && self.repair_round(graph, index, (&changes, ends));
            if !is_repaired {
                let costs = self.next_costs(graph, index);
                if let Some(round) = self.rounds.get_mut(index) {
                    round.costs = costs;
                }
            }
            changes = self.renew_through(index);
        }
    }

    /// Returns the changed sums of a round.
    fn renew_through(&mut self, index: usize) -> Vec<Change> {
        let Some(round) = self.rounds.get_mut(index) else {
            return Vec::new();
        };
        let after = sum(&round.costs, &self.passing);
        let before = core::mem::replace(&mut round.through, after);
        let lanes = before.iter().zip(&round.through).enumerate();
        lanes
            .filter(|(_, (before, after))| before != after)
            .map(|(relay, (&before, &after))| Change {
                relay,
                before,
                after,
            })
            .collect()
    }

    /// Updates the costs of one round. Returns false without any change if too many nodes need a
    /// full search: those reached over a relay that became more expensive, and the ends of the
    /// link. A relay that became cheaper adds one row.
    fn repair_round(
        &mut self,
        graph: &Graph,
        index: usize,
        (changes, ends): (&[Change], &[NodeIndex]),
    ) -> bool {
        let (before, rest) = self.rounds.split_at_mut(index);
        let (Some(direct), Some(last), Some(round)) =
            (before.first(), before.last(), rest.first_mut())
        else {
            return false;
        };
        let row = |relay: usize| graph.row(NodeIndex(relay));
        let mut marks = vec![0_i16; graph.len()];
        let increased = changes.iter().filter(|change| change.after > change.before);
        for change in increased {
            mark(&mut marks, &round.costs, row(change.relay), change.before);
            self.rows = self.rows.saturating_add(1);
        }
        for end in ends {
            if let Some(mark) = marks.get_mut(end.0) {
                *mark = -1;
            }
        }
        let lost = || marks.iter().enumerate().filter(|(_, mark)| **mark != 0);
        if lost().count() > graph.len() / 2 {
            return false;
        }
        for (node, _) in lost() {
            let direct = lane(&direct.costs, NodeIndex(node)).lane();
            if let Some(cost) = round.costs.get_mut(node) {
                *cost = least(direct, &last.through, row(node));
            }
            self.rows = self.rows.saturating_add(1);
        }
        let cheaper = changes.iter().filter(|change| change.after < change.before);
        for change in cheaper {
            add_row(&mut round.costs, row(change.relay), change.after);
            self.rows = self.rows.saturating_add(1);
        }
        set(&mut round.costs, self.source, Cost::UNROUTABLE);
        true
    }

    /// Returns the lowest relay over which `at` has its cost of round `before` + 1.
    fn last_relay(&self, graph: &Graph, before: usize, at: NodeIndex) -> Option<NodeIndex> {
        let cost = lane(&self.rounds.get(before.checked_add(1)?)?.costs, at);
        let through = &self.rounds.get(before)?.through;
        // Link costs are symmetric.
        find_sum(through, graph.row(at), cost.lane()).map(NodeIndex)
    }
}

fn set(lanes: &mut [i16], index: NodeIndex, cost: Cost) {
    if let Some(lane) = lanes.get_mut(index.0) {
        *lane = cost.lane();
    }
}
