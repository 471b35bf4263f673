//! The state of the network over the match.

use std::time::Duration;

use wire::Seat;

use super::plan::{Damage, Plan};

/// The states of the network, in order.
#[derive(Debug)]
pub(super) struct History {
    /// Start of each state since the start of the match; the first one at zero.
    states: Vec<(Duration, Damage)>,
}

impl History {
    /// Starts with an undamaged network.
    pub(super) fn new() -> Self {
        Self {
            states: vec![(Duration::ZERO, Damage::default())],
        }
    }

    /// Returns the current damage.
    pub(super) fn damage(&self) -> Damage {
        let last = self.states.last();
        last.map(|(_, damage)| damage.clone()).unwrap_or_default()
    }

    /// Adds the state from `at` on.
    pub(super) fn push(&mut self, at: Duration, damage: Damage) {
        self.states.push((at, damage));
    }

    /// Returns the time-weighted median over the match of the best route's round trip.
    pub(super) fn optimum(&self, plan: &Plan, seat: Seat) -> Duration {
        self.median(plan, |damage| plan.optimum(seat, damage))
    }

    /// Returns the same for the best route over an entry, while there was one.
    pub(super) fn best_over(&self, plan: &Plan, seat: Seat, entry: u8) -> Duration {
        self.median(plan, |damage| {
            let path = plan.best_path(entry, damage);
            path.map_or(Duration::MAX, |path| plan.over(seat, entry, &path, damage))
        })
    }

    /// Returns the time-weighted median of `route` over the match.
    fn median(&self, plan: &Plan, route: impl Fn(&Damage) -> Duration) -> Duration {
        let ends = self.states.iter().skip(1).map(|(at, _)| *at);
        let mut spans: Vec<(Duration, Duration)> = self
            .states
            .iter()
            .zip(ends.chain([plan.length()]))
            .map(|((from, damage), to)| (route(damage), to.saturating_sub(*from)))
            .collect();
        spans.sort_unstable();
        let mut passed = Duration::ZERO;
        let half = plan.length().checked_div(2).unwrap_or_default();
        let at_half = spans.iter().find(|(_, span)| {
            passed = passed.saturating_add(*span);
            passed >= half
        });
        at_half
            .or_else(|| spans.last())
            .map_or(Duration::ZERO, |(route, _)| *route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{NodeRole, PlanOptions};

    #[test]
    fn the_optimum_is_weighted_by_time() {
        let options = PlanOptions::default();
        let plan = Plan::new(options, "127.70.1".parse().unwrap());
        let whole = Damage::default();
        let carried = |seat: &Seat| plan.optimum(*seat, &whole) < plan.direct(*seat);
        let seat = plan.seats().find(carried).unwrap();
        let mut dead = Damage::default();
        for entry in plan.on_duty(NodeRole::Entry) {
            dead.kill(entry);
        }
        let after = |seconds| {
            let mut history = History::new();
            assert_eq!(history.damage(), whole);
            history.push(Duration::from_secs(seconds), dead.clone());
            assert_eq!(history.damage(), dead);
            history.optimum(&plan, seat)
        };
        assert_eq!(after(16), plan.optimum(seat, &whole));
        assert_eq!(after(14), plan.direct(seat));
    }
}
