//! Configuration, events, errors and counters of a mesh peer.

use core::num::NonZeroU8;
use core::time::Duration;

use wire::Seat;

use super::commitment::CommitSecret;
use crate::config::SavePolicy;
use crate::event::{LeaveReason, Verdict, errors};
use crate::tick::{Repair, Tick, TickRate};

/// Configuration of a [`MeshPeer`](crate::MeshPeer).
///
/// `seats`, `tick_rate`, `hash_interval`, `content`, the presence of `commit`, the match id and the
/// input width must be the same on all peers, which compare them before ticks begin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeshConfig {
    /// Seats of the match, 2 to 16. Default 2. Datagrams, work and memory grow with it.
    pub seats: u16,
    /// Ticks per second. Default 60.
    pub tick_rate: TickRate,
    /// Ticks between reading an input and the tick it is for, 0 to 60. Default 6. Without a window
    /// it must cover the one-way latency and jitter to the slowest peer, or ticks stall; each tick
    /// adds latency. It may differ between peers, and change while ticks run.
    pub input_delay: u8,
    /// Ticks that the game may run ahead of confirmed ticks, on predicted inputs, 0 to 32. Default
    /// 0, which is plain lockstep.
    pub window: u8,
    /// Which states a game with a window saves; [`SavePolicy::Auto`].
    pub save: SavePolicy,
    /// Ticks in each datagram. Default 4.
    pub repair: Repair,
    /// Ticks between state hashes. Default 1. Each hash costs 4 bytes per other peer.
    pub hash_interval: NonZeroU8,
    /// Longest datagram, in bytes. Default 1,100. The transport's overhead then fits the 1,200
    /// bytes that every path carries (RFC 9000, section 14).
    pub datagram_len_max: u16,
    /// Bytes per second that a lagging peer gets in addition to its share. Default 36,000.
    pub catch_up_rate: u32,
    /// Bytes that a lagging peer may get in one burst. Default 16,000.
    pub catch_up_burst: u32,
    /// Silence after which the others continue without a peer. Default 2 s. They wait until then.
    pub peer_timeout: Duration,
    /// If set, a peer sees others' inputs for a tick only after it committed to its own; `None`.
    /// Otherwise the peer that sends last sees the others' first.
    ///
    /// Each peer sends heads of a hash chain over its stamped inputs, and reveals the inputs once
    /// the others' heads cover the same ticks (the lockstep protocol of Baughman and Levine,
    /// "Cheat-proof playout for centralized and distributed online games", INFOCOM 2001, without
    /// its turns). Inputs that do not match the commitment never count, and their sender is
    /// removed: [`MeshEvent::CommitViolation`](crate::MeshEvent::CommitViolation).
    ///
    /// Costs: one more one-way latency (the input delay must cover the one-way latency twice, two
    /// ticks, and one tick per datagram lost in a row); 21 bytes per datagram and 8 per tick in it;
    /// one SHA-256 per input and two per own input; 25 kB of memory, plus 13 kB per other seat.
    pub commit: Option<CommitSecret>,
    /// Hash of anything else that must be equal on all peers, such as the build or the level.
    /// Default 0.
    pub content: u64,
}

impl Default for MeshConfig {
    fn default() -> Self {
        Self {
            seats: 2,
            tick_rate: TickRate::DEFAULT,
            input_delay: 6,
            window: 0,
            save: SavePolicy::Auto,
            repair: Repair::DEFAULT,
            hash_interval: NonZeroU8::MIN,
            datagram_len_max: 1_100,
            catch_up_rate: 36_000,
            catch_up_burst: 16_000,
            peer_timeout: Duration::from_secs(2),
            commit: None,
            content: 0,
        }
    }
}

/// Events of a [`MeshPeer`](crate::MeshPeer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeshEvent {
    /// Ticks begin.
    Started,
    /// The peer of `seat` has different match parameters: its version, seats, input width, tick
    /// rate, hash interval, match id or content is not ours. Ticks do not begin.
    Mismatch {
        /// Its seat.
        seat: Seat,
    },
    /// The game waits: `tick` lacks the input of `seat`, and the clock is stopped. With
    /// commitments, a peer that commits towards only some others causes those others, which may not
    /// reveal their inputs, to be reported.
    Stalled {
        /// The awaited seat; the lowest one if there are several.
        seat: Seat,
        /// First tick that is not confirmed.
        tick: Tick,
    },
    /// The clock continues.
    Resumed {
        /// First tick that is not confirmed.
        tick: Tick,
    },
    /// A player's revealed inputs do not match its commitment; it is removed, and they do not
    /// count. If the others receive both of us well and its seat is lower, we are the one that is
    /// removed: there is no proof of what it sent us.
    CommitViolation {
        /// Its seat.
        seat: Seat,
        /// First tick that is not proved.
        tick: Tick,
    },
    /// The others agreed that a player is out; from `tick` on, its seat is absent.
    Left {
        /// Its seat.
        seat: Seat,
        /// First tick without the player.
        tick: Tick,
        /// [`LeaveReason::Quit`] if it left, else [`LeaveReason::Removed`]: it was silent, violated
        /// a commitment, or was removed by the application.
        reason: LeaveReason,
    },
    /// The input delay changed. An input submitted now is for `tick`.
    InputDelay {
        /// The new delay, in ticks.
        delay: u8,
        /// The tick that the next boundary stamps.
        tick: Tick,
        /// Ticks before it that repeat the last input.
        repeated: u32,
        /// Boundaries at which the input is dropped.
        dropped: u32,
    },
    /// A player did not report the state hash of `tick` within about 2 s. The others' hashes are
    /// compared without it until it reports again.
    Silent {
        /// Its seat; may be our own.
        seat: Seat,
        /// First hash step that did not arrive in time.
        tick: Tick,
    },
    /// State hashes of `tick` differ; those of all earlier compared hash steps of these players
    /// matched. Comparison goes on without `seats`; each seat is reported once.
    Desync {
        /// First hash step that differs.
        tick: Tick,
        /// The seats found wrong, in seat order; may include our own.
        seats: Vec<Seat>,
        /// How they were found.
        verdict: Verdict,
    },
    /// We are out of the match. The machine has ended.
    Closed(MeshClose),
}

/// Why a peer's match ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeshClose {
    /// Too few others are reachable: no more than half, and not half including the lowest seat.
    /// They may play on without us. Up to
    /// [`MeshPeer::ticks_confirmed`](crate::MeshPeer::ticks_confirmed) minus a round trip, our
    /// simulation most likely matches theirs.
    TooFew,
    /// The others play on without us.
    Excluded {
        /// First tick without us, or without another peer whose removal we missed: before it,
        /// histories are equal. They may be equal for fewer ticks if the others also lose a member
        /// that alone held inputs of ours and had not yet forwarded them.
        tick: Tick,
    },
    /// Inputs of a removed peer count, and no remaining peer sends them. Honest peers do.
    Unserved,
}

errors! {
    /// Why a mesh is refused.
    MeshConfigError {
        /// A mesh has 2 to 16 seats.
        Seats => "a mesh has 2 to 16 seats",
        /// The peers are not one per other seat, each with its own id.
        Peers => "the peers are not one for each other seat",
        /// The input delay is over 60 ticks.
        DelayOutOfRange => "the input delay is over 60 ticks",
        /// The window is over 32 ticks.
        WindowOutOfRange => "the window is over 32 ticks",
        /// The inputs of one tick, or a statement, may not fit a datagram.
        DatagramTooShort => "the datagram limit is below 200 bytes, or one input",
    }
}

/// Counters of a [`MeshPeer`](crate::MeshPeer); they never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeshStats {
    /// Inputs stamped; each is encoded once for all peers.
    pub inputs: u64,
    /// Bundles put into datagrams, copies included.
    pub bundles_sent: u64,
    /// Bundles that arrived again.
    pub bundles_repeated: u64,
    /// Bundles too far ahead to be kept.
    pub bundles_early: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Datagrams filled with old ticks for a lagging peer.
    pub catch_up_datagrams: u64,
    /// Datagrams that forwarded inputs of a removed peer.
    pub forwards_sent: u64,
    /// Times that a boundary was due and the clock was stopped, once per tick length.
    pub holds: u64,
    /// State hashes compared.
    pub hashes_compared: u64,
    /// State hashes that did not arrive in time.
    pub hashes_missing: u64,
    /// State hashes too far ahead, or of a peer that is no longer compared.
    pub hashes_refused: u64,
    /// Datagrams dropped: malformed, or of a kind for matches with commitments if ours has none,
    /// and vice versa.
    pub dropped_malformed: u64,
    /// Datagrams dropped: sender is no player, or was removed.
    pub dropped_unknown_peer: u64,
    /// Datagrams dropped: numbers outside every window, or an invalid decision.
    pub dropped_window: u64,
}
