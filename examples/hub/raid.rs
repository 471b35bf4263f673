//! The rules of a raid: players gather, fight until the time is over, and are ranked by damage.

use std::time::Duration;

use hub::game::timed_states::{Rules, Timed};
use wire::Instant;

/// Time to gather.
pub(crate) const GATHERING: Duration = Duration::from_millis(100);

/// Time to fight.
pub(crate) const FIGHT: Duration = Duration::from_millis(200);

/// The state of one player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for the fight.
    Gathering,
    /// Fights, with the damage so far.
    Fighting(i64),
    /// The fight is over.
    Done(i64),
}

/// A hit with its damage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit(pub(crate) i64);

/// Why a hit has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotFighting;

/// The rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raid;

impl Rules for Raid {
    type State = State;
    type Event = Hit;
    type Refusal = NotFighting;

    fn on_event(
        &self,
        _: Instant,
        current: &Timed<State>,
        hit: &Hit,
    ) -> Result<Timed<State>, NotFighting> {
        match current.state {
            State::Fighting(damage) => Ok(Timed {
                state: State::Fighting(damage.saturating_add(hit.0)),
                deadline: current.deadline,
            }),
            State::Gathering | State::Done(_) => Err(NotFighting),
        }
    }

    fn on_deadline(&self, at: Instant, ended: &State) -> Timed<State> {
        match *ended {
            State::Gathering => Timed::until(State::Fighting(0), at + FIGHT),
            State::Fighting(damage) | State::Done(damage) => Timed::lasting(State::Done(damage)),
        }
    }
}
