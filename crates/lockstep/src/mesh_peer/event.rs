//! What a mesh peer tells the application, and why it refuses.

use core::fmt;

use wire::Seat;

use crate::event::{LeaveReason, Verdict};
use crate::tick::Tick;

/// What a [`MeshPeer`](crate::MeshPeer) tells the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeshEvent {
    /// Ticks begin.
    Started,
    /// The peer of `seat` means another match: its version, seats, input width, tick rate, hash
    /// interval, match id or content is not ours. Ticks do not begin.
    Mismatch {
        /// Whose.
        seat: Seat,
    },
    /// The game waits: `tick` lacks the input of `seat`, and the clock stands. With commitments one who
    /// commits to some and not to others has those named who may therefore show nothing.
    Stalled {
        /// Who is waited for; the lowest seat where it is several.
        seat: Seat,
        /// First tick that is not confirmed.
        tick: Tick,
    },
    /// The clock goes on.
    Resumed {
        /// First tick that is not confirmed.
        tick: Tick,
    },
    /// Inputs that a player showed are not the ones it had committed to; it is given up, and they do
    /// not count. Where the others hear both of us well and its seat is the lower, it is we who are left
    /// out: nobody can show them what it said to us.
    CommitViolation {
        /// Whose.
        seat: Seat,
        /// First tick that is not proved.
        tick: Tick,
    },
    /// Those who stay have agreed that a player is out; from `tick` on, the seat is absent.
    Left {
        /// Who.
        seat: Seat,
        /// First tick without the player.
        tick: Tick,
        /// [`LeaveReason::Quit`] where it said so, else [`LeaveReason::Removed`]: it fell silent,
        /// broke its word, or the application gave it up.
        reason: LeaveReason,
    },
    /// The input delay was changed. An input that is given now is for `tick`.
    InputDelay {
        /// Ticks, from now on.
        delay: u8,
        /// What the next boundary stamps.
        tick: Tick,
        /// Ticks before it that repeat the last input.
        repeated: u32,
        /// Boundaries whose input is dropped.
        dropped: u32,
    },
    /// A player let the state hash of `tick` be waited for in vain, some 2 s. Others' hashes are
    /// compared without this player's, until reports come again.
    Silent {
        /// Who; may be ourselves.
        seat: Seat,
        /// First hash step that did not come in time.
        tick: Tick,
    },
    /// State hashes of `tick` differ, and those of all earlier hash steps of these players that
    /// were compared did not. Comparison goes on without `seats`; each seat is named once.
    Desync {
        /// First hash step that differs.
        tick: Tick,
        /// Who is named, in seat order; may hold ourselves.
        seats: Vec<Seat>,
        /// How they were found.
        verdict: Verdict,
    },
    /// We are out of the match. The machine is at its end.
    Closed(MeshClose),
}

/// Why a peer's match ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeshClose {
    /// Too few others can be heard: no more than half, and not half with the lowest seat among
    /// us. Others may play on without us, whom we cannot hear; up to
    /// [`MeshPeer::ticks_confirmed`](crate::MeshPeer::ticks_confirmed) less a round trip, what we
    /// simulated is most likely theirs too.
    TooFew,
    /// The others play on without us.
    Excluded {
        /// First tick without us, or without another one whose leave we did not hear of: up to it our
        /// history is theirs. Less of it is where they lose another member before that has passed on
        /// inputs of ours that it alone held.
        tick: Tick,
    },
    /// Inputs of one who left count, and none of those who stay serves them. Honest peers do.
    Unserved,
}

/// Why a mesh is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeshConfigError {
    /// A mesh has 2 to 16 seats.
    Seats,
    /// The peers are not one for each seat but ours, each with a number of its own.
    Peers,
    /// The input delay is over 60 ticks.
    DelayOutOfRange,
    /// The window is over 32 ticks.
    WindowOutOfRange,
    /// Inputs of one tick, or what is told when somebody leaves, may not fit a datagram.
    DatagramTooShort,
}

impl fmt::Display for MeshConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seats => "a mesh has 2 to 16 seats",
            Self::Peers => "the peers are not one for each other seat",
            Self::DelayOutOfRange => "the input delay is over 60 ticks",
            Self::WindowOutOfRange => "the window is over 32 ticks",
            Self::DatagramTooShort => "the datagram limit is below 200 bytes, or one input",
        })
    }
}

impl core::error::Error for MeshConfigError {}

/// What a [`MeshPeer`](crate::MeshPeer) counted; none of it ever goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeshStats {
    /// Inputs stamped; each is encoded once, however many peers there are.
    pub inputs: u64,
    /// Bundles put into datagrams, copies included.
    pub bundles_sent: u64,
    /// Bundles that arrived and were there already.
    pub bundles_repeated: u64,
    /// Bundles too far ahead to be kept.
    pub bundles_early: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Datagrams that were filled with old ticks for a peer behind.
    pub catch_up_datagrams: u64,
    /// Datagrams with inputs of one who left, sent to one who lacked them.
    pub forwards_sent: u64,
    /// Times that a boundary was due and the clock stood, one for each tick's length of it.
    pub holds: u64,
    /// State hashes that were compared.
    pub hashes_compared: u64,
    /// State hashes that were waited for and did not come in time.
    pub hashes_missing: u64,
    /// State hashes too far ahead, or of a peer that is not compared any more.
    pub hashes_refused: u64,
    /// Datagrams dropped: not of this format, or of the one for matches that commit where ours does
    /// not, and the other way round.
    pub dropped_malformed: u64,
    /// Datagrams dropped: from nobody who plays, or from one who is given up.
    pub dropped_unknown_peer: u64,
    /// Datagrams whose numbers lie outside every window, and decisions that are none.
    pub dropped_window: u64,
}
