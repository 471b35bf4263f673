//! Steps of a game with rollback, and the machines that issue them.

use core::time::Duration;

use wire::{Instant, MatchId};

use crate::checksum::StateHasher;
use crate::event::ReportError;
use crate::input::Input;
use crate::tick::Tick;
use crate::turn::Turn;

/// The game's next step. State number `t` is the one before the step of tick `t`.
///
/// Every tick becomes final once, in order: by an [`Advance`](Self::Advance) that is last, or by
/// [`Settled`](Self::Settled). After that no [`Load`](Self::Load) returns to it or before it.
#[derive(Clone, Copy, Debug)]
#[must_use = "the game must do it before the next is asked for"]
pub enum Step<'a, I> {
    /// Nothing to do for now.
    Wait {
        /// When to call again, if nothing arrives before; the machine's timeout applies too. `None`
        /// if only an arrival helps.
        until: Option<Instant>,
    },
    /// Save the state under this number. Only the newest saves are ever loaded, one more than the
    /// window has ticks: beyond that, the save with the lowest number is replaced.
    Save(Tick),
    /// Load the state saved under this number. Saves with a higher one are void.
    Load(Tick),
    /// Run the step of one tick.
    Advance {
        /// All inputs; predicted ones are not marked.
        turn: Turn<'a, I>,
        /// Whether they are closed, and the tick final: report its hash.
        is_last: bool,
    },
    /// The inputs predicted for this tick proved right: it is final as last simulated. Report the
    /// hash of the state after its step.
    Settled(Tick),
}

/// A machine that issues the steps of a game with rollback.
pub trait Steps {
    /// Input of one player in one tick.
    type Input: Input;

    /// Returns the next step. Execute it before calling again.
    fn next_step(&mut self, now: Instant) -> Step<'_, Self::Input>;

    /// Takes the hash of the state after the step of `tick`, which became final last.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick, or was already reported.
    fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError>;

    /// Returns whether the hash of `tick` is needed.
    fn wants_hash(&self, tick: Tick) -> bool;

    /// Returns the match that keys state hashes, once known; it is known before any tick.
    fn match_id(&self) -> Option<MatchId>;

    /// Returns the prediction window, in ticks, which determines the number of saves; see
    /// [`Step::Save`].
    fn window(&self) -> u8;

    /// Sets the cost of one save and one step of the game, for
    /// [`SavePolicy::Auto`](crate::SavePolicy::Auto).
    fn set_costs(&mut self, save: Duration, step: Duration);
}
