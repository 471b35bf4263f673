//! The source vector: cheapest ways from one node to all others.

use super::{Graph, NodeIndex, Path, RELAYS_MAX, Route, RouteLimits};
use crate::cost::Cost;

/// The cheapest routes from one node to all others.
#[derive(Clone, Debug)]
pub struct SourceRoutes {
    /// Where they start.
    source: NodeIndex,
    /// Cost of passing a relay.
    relay_cost: Cost,
    /// Round k: cost to each node over at most k relays.
    rounds: Vec<Vec<i16>>,
    /// Matrix rows added so far; a count of the work done.
    rows: usize,
}

impl SourceRoutes {
    /// Computes all routes from `source`.
    #[must_use]
    pub fn compute(graph: &Graph, source: NodeIndex, limits: RouteLimits) -> Self {
        let mut routes = Self {
            source,
            relay_cost: limits.relay_cost,
            rounds: vec![graph.row(source).to_vec()],
            rows: 0,
        };
        for _ in 0..limits.relays_max.min(RELAYS_MAX) {
            let next = routes.next_round(graph);
            let is_last = routes.rounds.last() == Some(&next);
            if is_last {
                break;
            }
            routes.rounds.push(next);
        }
        routes
    }

    /// Returns the cost of the cheapest route, unroutable where there is none.
    #[must_use]
    pub fn cost(&self, destination: NodeIndex) -> Cost {
        self.rounds
            .last()
            .map_or(Cost::UNROUTABLE, |round| lane(round, destination))
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
            .position(|round| lane(round, destination) == cost)?;
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

    /// Returns how many rows of the matrix were added; at most N for each relay allowed.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// One relay more: every row that the round before made cheaper, plus what was.
    fn next_round(&mut self, graph: &Graph) -> Vec<i16> {
        let known = self.rounds.len();
        let newest = self.rounds.last().map_or(&[][..], Vec::as_slice);
        let older = known
            .checked_sub(2)
            .and_then(|round| self.rounds.get(round));
        let mut next = newest.to_vec();
        for (index, &so_far) in newest.iter().enumerate() {
            let is_new = older.is_none_or(|older| older.get(index) != Some(&so_far));
            let relay = NodeIndex(index);
            let through = Cost::from_lane(so_far).plus(self.relay_cost);
            if !is_new || relay == self.source || !graph.may_relay(relay) || !through.is_routable()
            {
                continue;
            }
            add_row(&mut next, graph.row(relay), through.lane());
            self.rows = self.rows.saturating_add(1);
        }
        // No way leads back.
        if let Some(own) = next.get_mut(self.source.0) {
            *own = Cost::UNROUTABLE.lane();
        }
        next
    }

    /// Returns the lowest relay over which `at` is reached at its cost of round `before` + 1.
    fn last_relay(&self, graph: &Graph, before: usize, at: NodeIndex) -> Option<NodeIndex> {
        let cost = lane(self.rounds.get(before + 1)?, at);
        let so_far = self.rounds.get(before)?;
        (0..graph.len()).map(NodeIndex).find(|&relay| {
            relay != self.source
                && graph.may_relay(relay)
                && lane(so_far, relay)
                    .plus(self.relay_cost)
                    .plus(graph.link(relay, at))
                    == cost
        })
    }
}

/// `next` = min(`next`, `row` + `through`), lane by lane; saturates at unroutable.
fn add_row(next: &mut [i16], row: &[i16], through: i16) {
    for (best, &link) in next.iter_mut().zip(row) {
        *best = (*best).min(link.saturating_add(through));
    }
}

fn lane(round: &[i16], index: NodeIndex) -> Cost {
    let lane = round.get(index.0).copied();
    lane.map_or(Cost::UNROUTABLE, Cost::from_lane)
}
