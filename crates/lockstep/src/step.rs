//! What a game with rollback does next, and who says so.

use core::time::Duration;

use wire::{Instant, MatchId};

use crate::checksum::StateHasher;
use crate::event::ReportError;
use crate::input::Input;
use crate::tick::Tick;
use crate::turn::Turn;

/// What the game does next. State number `t` is the one before the step of tick `t`.
///
/// Every tick becomes final once, in order: by an [`Advance`](Self::Advance) that is last, or by
/// [`Settled`](Self::Settled). After that no [`Load`](Self::Load) goes back to it or before it.
#[derive(Clone, Copy, Debug)]
#[must_use = "the game must do it before the next is asked for"]
pub enum Step<'a, I> {
    /// Nothing for now.
    Wait {
        /// When to ask again, if nothing arrives before; the machine's timeout comes first. `None`
        /// where only an arrival helps.
        until: Option<Instant>,
    },
    /// Save the state, which has this number. Of all saves only the newest are ever loaded, as
    /// many as the window has ticks and one: where there are more, the one with the lowest number
    /// makes room.
    Save(Tick),
    /// Go back to the state that was saved under this number. Saves with a higher one are void.
    Load(Tick),
    /// Make the step of one tick.
    Advance {
        /// The inputs of all; predicted where they are not closed, which does not show.
        turn: Turn<'a, I>,
        /// Whether they are closed, and the tick final: report its hash.
        is_last: bool,
    },
    /// The inputs predicted for this tick proved right: it is final as it was simulated last.
    /// Report the hash of that state, the one after its step.
    Settled(Tick),
}

/// A machine that says what a game with rollback does next.
pub trait Steps {
    /// What a player does in one tick.
    type Input: Input;

    /// Returns what the game does next. The game does it before it asks again.
    fn next_step(&mut self, now: Instant) -> Step<'_, Self::Input>;

    /// Takes the hash of the state after the step of `tick`, which became final last.
    ///
    /// # Errors
    ///
    /// [`ReportError`] where it is of another tick, or was reported.
    fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError>;

    /// Returns whether the hash of `tick` is of use; others need not be computed.
    fn wants_hash(&self, tick: Tick) -> bool;

    /// Returns the match that state hashes are keyed by, once it is known; it is before any tick.
    fn match_id(&self) -> Option<MatchId>;

    /// Returns how many ticks may be predicted; what [`Step::Save`] says of saves goes by it.
    fn window(&self) -> u8;

    /// Takes what one save and one step of the game take, for
    /// [`SavePolicy::Auto`](crate::SavePolicy::Auto).
    fn set_costs(&mut self, save: Duration, step: Duration);
}
