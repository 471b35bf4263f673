//! Interface of a simulated game.

use core::time::Duration;

use wire::{Instant, MatchId};

use crate::checksum::StateHasher;
use crate::event::ReportError;
use crate::input::{Input, Turn};
use crate::tick::Tick;

/// A deterministic game: the same turns from the same state lead to the same state.
///
/// What drives it (rollback, a replay, a spectator, a sync test) steps, saves and loads it; a game
/// that only plays lockstep needs none of this and takes its turns from
/// [`ClientPeer::poll_turn`](crate::ClientPeer::poll_turn).
///
/// ```
/// use lockstep::{Sim, StateHasher, Turn};
///
/// #[derive(Clone, Default)]
/// struct Score(Vec<u64>);
///
/// impl Sim for Score {
///     type Input = u16;
///     type Snapshot = Vec<u64>;
///
///     fn step(&mut self, turn: &Turn<'_, u16>) {
///         self.0.resize(turn.seat_count(), 0);
///         for (points, (_, buttons, _)) in self.0.iter_mut().zip(turn.inputs()) {
///             *points += u64::from(buttons.count_ones());
///         }
///     }
///     fn save(&self, into: &mut Vec<u64>) {
///         into.clone_from(&self.0);
///     }
///     fn load(&mut self, from: &Vec<u64>) {
///         self.0.clone_from(from);
///     }
///     fn hash(&self, hasher: &mut StateHasher) {
///         hasher.section("score");
///         self.0.iter().for_each(|points| hasher.u64(*points));
///     }
/// }
/// ```
pub trait Sim {
    /// Input of one player in one tick.
    type Input: Input;

    /// All that a step depends on and changes; the default is overwritten before it is read.
    type Snapshot: Default;

    /// Runs one tick.
    ///
    /// A predicted turn looks like the closed one will if the prediction is right: the game cannot
    /// tell them apart, and so cannot depend on it.
    fn step(&mut self, turn: &Turn<'_, Self::Input>);

    /// Overwrites `into` with the state; may reuse its memory.
    fn save(&self, into: &mut Self::Snapshot);

    /// Restores the state that `save` stored.
    fn load(&mut self, from: &Self::Snapshot);

    /// Writes the state into `hasher`: all that a step depends on, in an order that all
    /// participants share, divided into [sections](StateHasher#sections) to locate desyncs.
    fn hash(&self, hasher: &mut StateHasher);
}

/// A snapshot that leaves the process, for a replay file or a joining player.
///
/// Bytes may be hostile: `read` must bound its allocations and check every value, since the game
/// steps on from it.
///
/// ```
/// use lockstep::SnapshotBytes;
///
/// #[derive(Debug, Default, PartialEq)]
/// struct Score([u32; 2]);
///
/// impl SnapshotBytes for Score {
///     fn write(&self, out: &mut Vec<u8>) {
///         self.0.iter().for_each(|points| out.extend(points.to_be_bytes()));
///     }
///     fn read(bytes: &[u8]) -> Option<Self> {
///         let (one, other) = bytes.split_first_chunk()?;
///         let points = [*one, other.try_into().ok()?];
///         Some(Self(points.map(u32::from_be_bytes)))
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Score([3, 1]).write(&mut bytes);
/// assert_eq!(Score::read(&bytes), Some(Score([3, 1])));
/// assert_eq!(Score::read(&bytes[1..]), None);
/// ```
pub trait SnapshotBytes: Sized {
    /// Appends the snapshot to `out`; equal snapshots give equal bytes on every platform.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads what `write` wrote; `None` for anything else.
    fn read(bytes: &[u8]) -> Option<Self>;
}

impl SnapshotBytes for Vec<u8> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

/// The game's next step. State number `t` is the one before the step of tick `t`.
///
/// Every tick becomes final once, in order: by an [`Advance`](Self::Advance) that is last, or by
/// [`Settled`](Self::Settled). No later [`Load`](Self::Load) returns to it or before it.
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

#[derive(Debug)]
pub(crate) struct Saves<T> {
    /// Tick plus 1 and state of each; 0 for an empty slot.
    slots: Vec<(u32, T)>,
}

impl<T: Default> Saves<T> {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            slots: (0..count).map(|_| (0, T::default())).collect(),
        }
    }

    /// The oldest slot; newer saves are void after a rollback.
    pub(crate) fn slot(&mut self, tick: Tick) -> Option<&mut T> {
        self.forget_after(tick);
        let (tag, state) = self.slots.iter_mut().min_by_key(|(tag, _)| *tag)?;
        *tag = tick.0.saturating_add(1);
        Some(state)
    }

    pub(crate) fn rewind(&mut self, tick: Tick) -> Option<&T> {
        self.forget_after(tick);
        self.find(tick)
    }

    pub(crate) fn newest(&self, tick: Tick) -> Option<(Tick, &T)> {
        let most = tick.0.saturating_add(1);
        let slots = self.slots.iter().filter(|(tag, _)| *tag <= most);
        let (tag, state) = slots.max_by_key(|(tag, _)| *tag)?;
        Some((Tick(tag.checked_sub(1)?), state))
    }

    fn forget_after(&mut self, tick: Tick) {
        let most = tick.0.saturating_add(1);
        for (tag, _) in &mut self.slots {
            if *tag > most {
                *tag = 0;
            }
        }
    }

    pub(crate) fn find(&self, tick: Tick) -> Option<&T> {
        let wanted = tick.0.saturating_add(1);
        let (_, state) = self.slots.iter().find(|(tag, _)| *tag == wanted)?;
        Some(state)
    }
}

#[cfg(test)]
mod tests;
