//! The source vector: cheapest ways from one node to all others.

use super::lanes::{add_row, add_rows, find_sum, least, mark, sum};
use super::{Graph, NodeIndex, Path, RELAYS_MAX, Route, RouteLimits};
use crate::cost::Cost;

/// The cheapest routes from one node to all others.
///
/// It belongs to one graph. When a link of that graph changes, [`relink`](Self::relink) mends it;
/// after any other change it is computed anew.
#[derive(Clone, Debug)]
pub struct SourceRoutes {
    /// Where they start.
    source: NodeIndex,
    /// Cost of passing each node; unroutable where it may not be passed.
    passing: Vec<i16>,
    /// Round k: over at most k relays.
    rounds: Vec<Round>,
    /// Matrix rows looked at so far; a count of the work done.
    rows: usize,
}

/// Ways over at most so many relays.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Round {
    /// Cost to each node.
    costs: Vec<i16>,
    /// The same and passing it.
    through: Vec<i16>,
}

/// A relay that became dearer or cheaper to pass.
struct Change {
    relay: usize,
    before: i16,
    after: i16,
}

impl SourceRoutes {
    /// Computes all routes from `source`.
    #[must_use]
    pub fn compute(graph: &Graph, source: NodeIndex, limits: RouteLimits) -> Self {
        let passing = graph.relays.iter().enumerate();
        let passing = passing.map(|(index, &may_pass)| {
            let cost = if may_pass && index != source.0 {
                limits.relay_cost
            } else {
                Cost::UNROUTABLE
            };
            cost.lane()
        });
        let mut routes = Self {
            source,
            passing: passing.collect(),
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

    /// Takes the change of the link between `a` and `b`, which `graph` has already.
    ///
    /// The outcome is that of [`compute`](Self::compute), for less: what changed before is looked
    /// at again, and no more. Where that is much, the rounds are made anew.
    pub fn relink(&mut self, graph: &Graph, (a, b): (NodeIndex, NodeIndex)) {
        let far = match self.source {
            source if source == a => Some(b),
            source if source == b => Some(a),
            _ => None,
        };
        if let Some(far) = far {
            self.set_direct(far, graph.link(self.source, far));
        }
        self.mend(graph, &[a, b]);
    }

    /// Returns the routes that are left without the relays of `route`, or, where it has none,
    /// without the link that it is.
    #[must_use]
    pub fn without(&self, graph: &Graph, route: &Route) -> Self {
        let mut left = self.clone();
        let relays = route.path.relays.iter();
        for relay in relays.filter_map(|relay| graph.index(relay)) {
            if let Some(passing) = left.passing.get_mut(relay.0) {
                *passing = Cost::UNROUTABLE.lane();
            }
        }
        let end = graph.index(&route.path.destination);
        let end = end.filter(|_| route.path.relays.is_empty());
        if let Some(end) = end {
            left.set_direct(end, Cost::UNROUTABLE);
        }
        left.mend(graph, end.as_slice());
        left
    }

    /// Returns the cost of the cheapest route, unroutable where there is none.
    #[must_use]
    pub fn cost(&self, destination: NodeIndex) -> Cost {
        self.rounds
            .last()
            .map_or(Cost::UNROUTABLE, |round| lane(&round.costs, destination))
    }

    /// Returns the cheapest route, `None` where there is none.
    ///
    /// Looks for the relays again instead of having stored them: one scan of the nodes each.
    #[must_use]
    pub fn route(&self, graph: &Graph, destination: NodeIndex) -> Option<Route> {
        let cost = self.cost(destination);
        if !cost.is_routable() {
            return None;
        }
        // The first round with the final cost has the fewest relays. What is left of the way is
        // then cheapest in exactly one round less, else fewer relays would have done.
        let mut round = self
            .rounds
            .iter()
            .position(|round| lane(&round.costs, destination) == cost)?;
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

    /// Returns how many rows of the matrix were looked at; computing takes at most N for each
    /// relay allowed.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Whether both know the same ways, whatever work they took.
    #[cfg(test)]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.rounds == other.rounds && self.passing == other.passing
    }

    fn push_round(&mut self, costs: Vec<i16>) {
        let through = sum(&costs, &self.passing);
        self.rounds.push(Round { costs, through });
    }

    /// Costs of round `index`: one relay more, over every row that the round before made cheaper.
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
        // No way leads back.
        set(&mut next, self.source, Cost::UNROUTABLE);
        next
    }

    fn set_direct(&mut self, far: NodeIndex, cost: Cost) {
        if let Some(round) = self.rounds.first_mut() {
            set(&mut round.costs, far, cost);
        }
    }

    /// Mends all rounds after a change of what may be passed, or of round 0 or links at `ends`.
    fn mend(&mut self, graph: &Graph, ends: &[NodeIndex]) {
        let mut changes = self.renew_through(0);
        for index in 1..self.rounds.len() {
            if changes.is_empty() && ends.is_empty() {
                // Its costs depend on nothing else; its sums do, on what may be passed.
                changes = self.renew_through(index);
                continue;
            }
            let is_mended =
                changes.len() <= graph.len() / 4 && self.mend_round(graph, index, (&changes, ends));
            if !is_mended {
                let costs = self.next_costs(graph, index);
                if let Some(round) = self.rounds.get_mut(index) {
                    round.costs = costs;
                }
            }
            changes = self.renew_through(index);
        }
    }

    /// Makes the sums of a round anew; returns where they changed.
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

    /// Mends the costs of one round; false, and nothing done, where too many would have to be
    /// looked for again.
    ///
    /// A node that was reached over what became dearer, or that is an end of the link, is looked
    /// for over all relays again. What became cheaper is one more row.
    fn mend_round(
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
        let dearer = changes.iter().filter(|change| change.after > change.before);
        for change in dearer {
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

    /// Returns the lowest relay over which `at` is reached at its cost of round `before` + 1.
    fn last_relay(&self, graph: &Graph, before: usize, at: NodeIndex) -> Option<NodeIndex> {
        let cost = lane(&self.rounds.get(before.checked_add(1)?)?.costs, at);
        let through = &self.rounds.get(before)?.through;
        // Links cost the same both ways.
        find_sum(through, graph.row(at), cost.lane()).map(NodeIndex)
    }
}

fn set(lanes: &mut [i16], index: NodeIndex, cost: Cost) {
    if let Some(lane) = lanes.get_mut(index.0) {
        *lane = cost.lane();
    }
}

fn lane(lanes: &[i16], index: NodeIndex) -> Cost {
    let lane = lanes.get(index.0).copied();
    lane.map_or(Cost::UNROUTABLE, Cost::from_lane)
}
