//! Which path the packets to one remote node are to use, and which one is the spare.

use core::time::Duration;

use wire::Instant;

use super::path_cost::PathCost;
use crate::choice::{Candidate, Choice, ChoiceConfig, Penalties, Reason};
use crate::event::RouteCause;
use crate::routes::Path;

#[derive(Debug)]
pub(super) struct PathSelector {
    choice: Choice,
    /// Why the choice changed last.
    cause: RouteCause,
    /// The second-best path.
    spare: Option<Path>,
    /// When the choice is evaluated next.
    evaluate_at: Instant,
    /// Until then a second path is kept, since data on the active one was suspect.
    suspect_until: Instant,
}

impl PathSelector {
    pub(super) const fn new(now: Instant, choice: Choice) -> Self {
        Self {
            choice,
            cause: RouteCause::First,
            spare: None,
            evaluate_at: now,
            suspect_until: now,
        }
    }

    pub(super) const fn config(&self) -> &ChoiceConfig {
        self.choice.config()
    }

    /// The path that packets are to move to, or already use.
    pub(super) const fn chosen(&self) -> Option<&Path> {
        self.choice.current()
    }

    /// The chosen path's entry in `candidates`.
    pub(super) fn chosen_of<'a>(&self, candidates: &'a [PathCost]) -> Option<&'a PathCost> {
        let mut candidates = candidates.iter();
        candidates.find(|path_cost| Some(&path_cost.path) == self.chosen())
    }

    pub(super) const fn cause(&self) -> RouteCause {
        self.cause
    }

    pub(super) const fn spare(&self) -> Option<&Path> {
        self.spare.as_ref()
    }

    pub(super) fn set_spare(&mut self, spare: Option<Path>) {
        self.spare = spare;
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.evaluate_at
    }

    /// Schedules the next evaluation.
    pub(super) const fn schedule_evaluation(&mut self, at: Instant) {
        self.evaluate_at = at;
    }

    /// Schedules the next evaluation after one at `now`.
    pub(super) fn on_evaluated(&mut self, now: Instant) {
        self.evaluate_at = now + DECIDE_INTERVAL;
    }

    /// Chooses one of `candidates`; returns the new path if it is another than before.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        candidates: &[PathCost],
        penalties: &Penalties,
    ) -> Option<Path> {
        let before = self.chosen_of(candidates);
        let offers = candidates.iter().map(|path_cost| path_cost.offer(before));
        let offers: Vec<Candidate<'_>> = offers.collect();
        let change = self.choice.decide(now, &offers, penalties)?;
        self.cause = match change.reason {
            Reason::First => RouteCause::First,
            Reason::Dead if before.is_some_and(|before| before.is_draining) => RouteCause::Drained,
            Reason::Dead => RouteCause::Killed,
            Reason::Degraded => RouteCause::Degraded,
            Reason::Better => RouteCause::Better,
        };
        Some(change.to)
    }

    /// Keeps a second path for [`SUSPECT`], since a path may carry data worse than probes. The
    /// choice is evaluated now, unless a second path is kept already.
    pub(super) fn on_suspect_data(&mut self, now: Instant) {
        if now >= self.suspect_until {
            (self.suspect_until, self.evaluate_at) = (now + SUSPECT, now);
        }
    }

    pub(super) fn is_data_suspect(&self, now: Instant) -> bool {
        now < self.suspect_until
    }
}

/// Time between two evaluations of the routes.
const DECIDE_INTERVAL: Duration = Duration::from_millis(200);
/// How long a second path is kept ready after one path's data was suspect.
const SUSPECT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspect_data_keeps_a_second_path_for_10_s_and_causes_one_decision() {
        let at = Instant::from_millis;
        let choice = Choice::new(at(0), ChoiceConfig::default(), 0);
        let mut selector = PathSelector::new(at(0), choice);
        assert!(!selector.is_data_suspect(at(0)));
        selector.on_evaluated(at(0));
        selector.on_suspect_data(at(100));
        assert!(selector.is_due(at(100)) && selector.is_data_suspect(at(10_099)));
        selector.on_evaluated(at(100));
        selector.on_suspect_data(at(101));
        assert!(!selector.is_due(at(299)) && selector.is_due(at(300)));
        assert!(!selector.is_data_suspect(at(10_100)), "not extended");
    }
}
