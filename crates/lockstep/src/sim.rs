//! Interface of a simulated game.

use crate::checksum::StateHasher;
use crate::input::Input;
use crate::turn::Turn;

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
