//! Configuration of servers and clients.

use core::num::NonZeroU8;
use core::time::Duration;

use crate::bundle::Shape;
use crate::playout::Playout;
use crate::tick::{InputDelay, Repair, TickRate};
use crate::transfer::TransferLimits;

/// Configuration of a [`MatchServer`](crate::MatchServer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Seats of the match. Default 2. Memory and bytes per tick grow with it.
    pub seats: u16,
    /// Ticks per second. Default 60.
    pub tick_rate: TickRate,
    /// Ticks between the newest tick that a client can have received and the tick its input is for;
    /// fixed at 6, which at 60 Hz covers a round trip of 100 ms including jitter.
    pub input_delay: InputDelay,
    /// Ticks in each datagram. Default 4. At 5 % loss, 6 in a million ticks then need a request.
    pub repair: Repair,
    /// When a tick closes; by the clock, without grace.
    pub close: ClosePolicy,
    /// Replacement for an input that did not arrive in time; repeats the last one.
    pub substitute: Substitute,
    /// Ticks between state hashes. Default 1. Each hash costs a client 4 bytes of upload.
    pub hash_interval: NonZeroU8,
    /// Ticks for which a simulating server keeps its own hashes, to bisect desyncs. Default 1,024,
    /// which is 17 s at 60 Hz. Each takes 16 bytes, plus 4 per section.
    pub hashes_kept: u16,
    /// Longest datagram, in bytes. Default 1,100. The transport's overhead then fits the 1,200
    /// bytes that every path carries (RFC 9000, section 14).
    pub datagram_len_max: u16,
    /// Bytes per second that a lagging client gets in addition to its share. Default 72,000, which
    /// is one 1,200-byte datagram per tick at 60 Hz.
    pub catch_up_rate: u32,
    /// Bytes that a lagging client may get in one burst. Default 64,000.
    pub catch_up_burst: u32,
    /// Source of snapshots for players that join when the chain no longer holds the ticks they
    /// need; the server.
    pub snapshots: SnapshotSource,
    /// Longest state of a snapshot, in bytes. Default 6 MiB. It also limits snapshots from players.
    /// A snapshot is always refused if its [`transfer`](Self::transfer) takes longer than the 768
    /// ticks that a new player may lack.
    pub snapshot_len_max: u32,
    /// Send rate of snapshots, per recipient.
    pub transfer: TransferLimits,
    /// What happens to players whose state diverged; they are reported.
    pub recovery: Recovery,
    /// What happens to players whose simulation does not keep up; they are reported.
    pub slow: SlowPolicy,
    /// Most spectators. Default 64. Each costs about 200 bytes, and one datagram per tick.
    pub spectators_max: u32,
    /// Ticks by which spectators lag behind players, so that no spectator can tell a player what
    /// others do. Default 0. They also see the end of the match that much later. Each tick costs
    /// one bundle of memory.
    pub spectator_delay: u16,
    /// When the first tick begins; when all players are ready.
    pub start: StartPolicy,
    /// With [`StartPolicy::AllReady`], how long the first ready player waits for the others.
    /// Default 30 s. Then the match begins without them: empty seats are absent, and players that
    /// are not ready are removed. [`Duration::MAX`] waits without limit.
    pub start_timeout: Duration,
    /// Whether to forward inputs to other clients before their tick closes; no. Predictions get
    /// better, but each changed input is sent twice, and a modified client can see others' inputs
    /// for a tick before its own is due.
    pub forward_inputs: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seats: 2,
            tick_rate: TickRate::DEFAULT,
            input_delay: InputDelay::DEFAULT,
            repair: Repair::DEFAULT,
            close: ClosePolicy::Clock {
                grace: Duration::ZERO,
            },
            substitute: Substitute::Repeat,
            hash_interval: NonZeroU8::MIN,
            hashes_kept: 1_024,
            datagram_len_max: 1_100,
            catch_up_rate: 72_000,
            catch_up_burst: 64_000,
            snapshots: SnapshotSource::Server,
            snapshot_len_max: SNAPSHOT_LEN_MAX,
            transfer: TransferLimits::default(),
            recovery: Recovery::Report,
            slow: SlowPolicy::Report,
            spectators_max: 64,
            spectator_delay: 0,
            start: StartPolicy::AllReady,
            start_timeout: Duration::from_secs(30),
            forward_inputs: false,
        }
    }
}

impl Config {
    pub(crate) fn takes_snapshot(&self, len: usize) -> bool {
        u32::try_from(len).is_ok_and(|len| len <= self.snapshot_len_max)
    }

    pub(crate) fn snapshot_bytes_max(&self, shape: Shape) -> u32 {
        snapshot_bytes_max(self.snapshot_len_max, shape)
    }
}

/// Longest snapshot for a state of at most `len_max` bytes, header included.
pub(crate) fn snapshot_bytes_max(len_max: u32, shape: Shape) -> u32 {
    let head_len = shape.bundle_len_max().saturating_add(4 + 8);
    len_max.saturating_add(u32::try_from(head_len).unwrap_or(u32::MAX))
}

/// 6 MiB: 5.1 s at 10 Mbit/s. A player's snapshot is uploaded, then downloaded, and one datagram in
/// nine may be lost: 12 s of the 12.8 s that a new player may lack at 60 Hz.
const SNAPSHOT_LEN_MAX: u32 = 6 << 20;

/// Configuration of a [`ClientPeer`](crate::ClientPeer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Most seats of a match to accept. Default 64. With `bundle_len_max` it bounds the memory that
    /// a server can make the client hold: 1,024 bundles and one input per seat.
    pub seats_max: u16,
    /// Longest bundle to accept, in bytes. Default 1,200.
    pub bundle_len_max: u16,
    /// Longest datagram of inputs and hashes, in bytes. Default 1,100. A report that would be
    /// longer omits its oldest inputs. Values below 400 count as 400, which fits the widest input
    /// and 16 hashes. Snapshots have [`transfer`](Self::transfer).
    pub datagram_len_max: u16,
    /// How long turns are delayed to absorb jitter; not at all. Use [`Playout::Adaptive`] only with
    /// servers that close ticks by the clock: it counts ticks that waited for players as late. Has
    /// no effect if there is a `window`.
    pub playout: Playout,
    /// Longest state of a snapshot to accept, in bytes. Default 6 MiB. Memory is allocated as data
    /// arrives.
    pub snapshot_len_max: u32,
    /// Send rate of a snapshot that the server requests. Default 10 Mbit/s.
    pub transfer: TransferLimits,
    /// Ticks for which hashes are kept, so that the server can bisect a desync. Default 1,024,
    /// which is 17 s at 60 Hz. Each takes 16 bytes, plus 4 per section. With 0, a
    /// [`Rollback`](crate::Rollback) hashes no state between hash steps.
    pub hashes_kept: u16,
    /// Prediction window: ticks that the game may run ahead of closed ticks, on predicted inputs
    /// that it rolls back if they prove wrong. Default 0, which is plain lockstep; at most 32. To
    /// show own inputs at once it must be one more than the server's [`Config::input_delay`]; each
    /// tick less shows them one tick later. Each tick costs three inputs per seat, one saved state
    /// in the game, and up to one step per rollback.
    pub window: u8,
    /// Which states to save for rollback; the cheapest spacing.
    pub save_policy: SavePolicy,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            seats_max: 64,
            bundle_len_max: 1_200,
            datagram_len_max: 1_100,
            playout: Playout::NONE,
            snapshot_len_max: SNAPSHOT_LEN_MAX,
            transfer: TransferLimits::default(),
            hashes_kept: 1_024,
            window: 0,
            save_policy: SavePolicy::Auto,
        }
    }
}

impl ClientConfig {
    pub(crate) fn report_len_max(&self) -> usize {
        self.datagram_len_max.max(REPORT_LEN_MIN).into()
    }
}

/// The header, 16 hashes and one 2,048-bit input take at most 388 bytes.
const REPORT_LEN_MIN: u16 = 400;

/// When a tick closes, relative to its nominal end.
///
/// | policy | a player with a bad link | other players |
/// |---|---|---|
/// | `Clock` | has inputs substituted | play at full speed |
/// | `WaitAll` | loses no input, up to the limit | wait for the slowest, up to the limit |
/// | `Quorum` | as `Clock`, once enough others sent theirs | wait for the slowest of the fastest `seats` |
///
/// With the last two, a seat that made a tick wait for the whole limit is not waited for again
/// until one of its inputs arrives in time: an outage costs the others one limit, not one per tick.
/// A tick that waited delays all later ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosePolicy {
    /// By the clock, regardless of inputs: a tick never waits longer than `grace`.
    Clock {
        /// Time after the nominal end.
        grace: Duration,
    },
    /// When the inputs of all awaited players have arrived: pure lockstep.
    WaitAll {
        /// Longest wait.
        cap: Duration,
    },
    /// When the inputs of this many players, or of all awaited ones, have arrived.
    Quorum {
        /// Number of players.
        seats: u16,
        /// Longest wait.
        cap: Duration,
    },
}

impl ClosePolicy {
    /// Earliest close, as a time after the nominal end.
    pub(crate) const fn grace(self) -> Duration {
        match self {
            Self::Clock { grace } => grace,
            Self::WaitAll { .. } | Self::Quorum { .. } => Duration::ZERO,
        }
    }

    pub(crate) const fn cap(self) -> Duration {
        match self {
            Self::Clock { .. } => Duration::ZERO,
            Self::WaitAll { cap } | Self::Quorum { cap, .. } => cap,
        }
    }
}

/// Replacement for an input that did not arrive in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Substitute {
    /// The player's input of the previous tick: held buttons stay held.
    Repeat,
    /// The default input: right if an input stands for a single action.
    Neutral,
}

/// When ticks begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPolicy {
    /// When every seat is taken and its player is ready, at `start`, or after
    /// [`Config::start_timeout`].
    AllReady,
    /// At `start` only.
    ByHand,
}

/// What happens to players whose simulation does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowPolicy {
    /// They are reported by [`ServerEvent::Slow`](crate::ServerEvent::Slow). If ticks close by the
    /// clock, they delay nobody.
    Report,
    /// They are reported and removed.
    Kick,
    /// They are reported, and become spectators, as with
    /// [`MatchServer::watch`](crate::MatchServer::watch). They are removed instead if the spectator
    /// limit is reached, if spectators are delayed, or if a [`HostedPeer`](crate::HostedPeer) hosts
    /// the match.
    Demote,
    /// They are reported, and ticks get longer for everybody while they lag: as much as needed, up
    /// to `percent_max`. Once they keep up, ticks shrink by 1 % per second's worth of ticks.
    /// Spectators do not receive the tick length, so their playout delay helps less meanwhile.
    ///
    /// A seat that used up `hold`, the time of shrinking included, is treated as with
    /// [`Demote`](Self::Demote) the next time it lags; a tenth of the time without lag is given
    /// back. A player that sends nothing for a second does not count as slow. A new player in the
    /// seat inherits the rest of the budget, unless its predecessor was removed for lag: so do not
    /// seat a player again whose [`ServerEvent::Left`](crate::ServerEvent::Left) had
    /// [`LeaveReason::Slow`](crate::LeaveReason::Slow).
    Stretch {
        /// Most by which a tick gets longer, in per cent; more than 100 counts as 100.
        percent_max: u8,
        /// Total time, per player.
        hold: Duration,
    },
}

/// Which states a game with rollback saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavePolicy {
    /// Each state that later inputs may invalidate: one save per tick, and no step is repeated
    /// needlessly. For games with cheap saves.
    Dense,
    /// Only the newest confirmed state: few saves, but each rollback repeats all steps since. For
    /// games with expensive saves. Hashes are reported up to twice the window later.
    Sparse,
    /// The cheapest spacing, from the cost of saves and steps and the length of recent rollbacks;
    /// at most twice the window. Until costs are set, a save counts as much as a step.
    Auto,
}

/// Source of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotSource {
    /// The server simulates: it receives
    /// [`ServerEvent::SnapshotWanted`](crate::ServerEvent::SnapshotWanted) and answers with
    /// [`MatchServer::offer_snapshot`](crate::MatchServer::offer_snapshot).
    Server,
    /// A player, the one with the fewest pending turns, receives
    /// [`ClientEvent::SnapshotWanted`](crate::ClientEvent::SnapshotWanted). Its snapshot is checked
    /// against the other players' state hashes when the recipient reports its own.
    Players,
}

/// What happens to players whose state diverged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// They are reported, and excluded from comparison.
    Report,
    /// They are reported, and load a snapshot once the bisection ends, after one or two round
    /// trips. If nobody can decide which side is wrong, neither loads one. A player that got four
    /// snapshots without matching for 600 ticks after one is only reported.
    Reload,
}
