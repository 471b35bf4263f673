//! What the application chooses.

use core::num::NonZeroU8;
use core::time::Duration;

use crate::bundle::Shape;
use crate::playout::Playout;
use crate::transfer::TransferLimits;

/// How a [`MatchServer`](crate::MatchServer) runs a match.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Seats of the match; 2. Memory and bytes a tick grow with it.
    pub seats: u16,
    /// Ticks a second; 60.
    pub tick_rate: TickRate,
    /// Ticks between the newest tick a client could have heard of and the one its input is for;
    /// fixed at 6, which at 60 Hz covers a round trip of 100 ms less jitter.
    pub input_delay: InputDelay,
    /// Ticks in each datagram; 4, which at 5 % loss leaves 6 in a million to be asked for.
    pub repair: Repair,
    /// When a tick is closed; by the clock, without grace.
    pub close: ClosePolicy,
    /// What stands in for an input that did not come in time; a repetition.
    pub substitute: Substitute,
    /// Ticks from one state hash to the next; 1. Each costs a client 4 bytes up.
    pub hash_interval: NonZeroU8,
    /// Ticks of which a server that simulates keeps its own hashes, to find where a player began to
    /// differ; 1,024, which is 17 s at 60 Hz. Each takes 16 bytes and 4 for each section.
    pub hashes_kept: u16,
    /// Longest datagram, in bytes; 1,100, which leaves room for the transport's own within the
    /// 1,200 that every path carries (RFC 9000, section 14).
    pub datagram_len_max: u16,
    /// Bytes a second that a client behind gets above its share; 72,000, a datagram of 1,200 each
    /// tick at 60 Hz.
    pub catch_up_rate: u32,
    /// Bytes that a client behind may get at once; 64,000.
    pub catch_up_burst: u32,
    /// Where snapshots come from, for players who join when the chain reaches back no further; from
    /// the server.
    pub snapshots: SnapshotSource,
    /// Longest state of a snapshot, in bytes; 6 MiB. What a player gives is held up to that. One
    /// that [`transfer`](Self::transfer) takes longer for than the 768 ticks that a newcomer may
    /// lack is refused, whatever this says.
    pub snapshot_len_max: u32,
    /// How fast snapshots are sent to each who gets one.
    pub transfer: TransferLimits,
    /// What becomes of players whose state went wrong; they are named.
    pub recovery: Recovery,
    /// What becomes of players whose simulation does not keep up; they are named.
    pub slow: SlowPolicy,
    /// Most who may watch without a seat; 64. Each costs some 200 bytes, and a datagram a tick.
    pub spectators_max: u32,
    /// Ticks that spectators are behind players, so that nobody can tell a player what the others
    /// do; none. They see the end of the match as much later. Each costs a bundle of memory.
    pub spectator_delay: u16,
    /// When ticks begin; when all are ready.
    pub start: StartPolicy,
    /// With [`StartPolicy::AllReady`], how long the first player who is ready waits for the
    /// others; 30 s. Then the match begins with whoever is ready: empty seats are absent, and
    /// who holds a seat without being ready is put out. [`Duration::MAX`] waits for ever.
    pub start_timeout: Duration,
    /// Whether to tell clients what others do before the tick is closed, as soon as it is heard;
    /// no. It makes rollback guess better, and costs each client the changed inputs a second time.
    /// It also lets a modified client see what others do in a tick before its own input for that
    /// tick is due: leave it off where that is an advantage.
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
    /// Whether a state of `len` bytes may be sent.
    pub(crate) fn takes_snapshot(&self, len: usize) -> bool {
        u32::try_from(len).is_ok_and(|len| len <= self.snapshot_len_max)
    }

    /// Longest snapshot, with what stands before its state.
    pub(crate) fn snapshot_bytes_max(&self, shape: Shape) -> u32 {
        snapshot_bytes_max(self.snapshot_len_max, shape)
    }
}

/// Longest snapshot of a state of at most `len_max` bytes, with what stands before it.
pub(crate) fn snapshot_bytes_max(len_max: u32, shape: Shape) -> u32 {
    let head_len = shape.bundle_len_max().saturating_add(4 + 8);
    len_max.saturating_add(u32::try_from(head_len).unwrap_or(u32::MAX))
}

/// 6 MiB: 5.1 s at 10 Mbit/s. A player's goes up and then down, and one datagram in nine may be
/// lost: 12 s of the 12.8 s that a newcomer may lack at 60 Hz.
const SNAPSHOT_LEN_MAX: u32 = 6 << 20;

/// What a [`ClientPeer`](crate::ClientPeer) accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Largest match to take part in; 64 seats. With `bundle_len_max` it bounds what a server can
    /// make the client hold: 1,024 bundles and one input for each seat.
    pub seats_max: u16,
    /// Longest bundle to accept, in bytes; 1,200.
    pub bundle_len_max: u16,
    /// Longest datagram of inputs and hashes, in bytes; 1,100, as the server's
    /// [`Config::datagram_len_max`], which also limits what the server asks for. A report that would
    /// be longer leaves out its oldest inputs. Below 400 it counts as 400: the widest input and 16
    /// hashes fit. Snapshots have [`transfer`](Self::transfer).
    pub datagram_len_max: u16,
    /// How long to hold each turn back against jitter; not at all. What arrives later than this
    /// after the fastest of the last ticks makes the picture stutter; each millisecond is one of
    /// latency. [`Playout::Adaptive`] is for servers that close ticks by the clock: it takes ticks
    /// that waited for players for late ones. Without effect where there is a `window`.
    pub playout: Playout,
    /// Longest state of a snapshot to accept, in bytes; 6 MiB. Memory is taken as it arrives.
    pub snapshot_len_max: u32,
    /// How fast a snapshot that the server asks for is sent; 10 Mbit/s.
    pub transfer: TransferLimits,
    /// Ticks of which hashes are kept for a server that asks where the state began to differ;
    /// 1,024, which is 17 s at 60 Hz. Each takes 16 bytes and 4 for each section. With 0 a
    /// [`Rollback`](crate::Rollback) hashes no state between hash steps.
    pub hashes_kept: u16,
    /// Ticks that the game may be ahead of what is closed, on predicted inputs, and go back where
    /// they prove wrong; none, which is plain lockstep. At most 32: more counts as 32. One more
    /// than the server's [`Config::input_delay`] shows own inputs at once; each that is missing
    /// shows them a tick later. A tick of it costs three inputs for each seat, and as many for each
    /// seat as 128 once; in the game a saved state, and up to a step each time it goes back.
    pub window: u8,
    /// Which states to save for that; as many as are cheapest.
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
    /// Longest report, in bytes.
    pub(crate) fn report_len_max(&self) -> usize {
        self.datagram_len_max.max(REPORT_LEN_MIN).into()
    }
}

/// The head, 16 hashes and one input of 2,048 bits take 388 bytes at most.
const REPORT_LEN_MIN: u16 = 400;

/// Ticks between the newest tick a client could have heard of and the one its input is for: 1 to
/// 60, one number or a range.
///
/// Too small, and inputs come late and are filled in; each more is a tick of latency. In a range
/// each client finds its own: it begins at the least, goes up at once when its inputs come late,
/// and down by one tick in 5 s at most, never within 10 s of going up. Nobody else's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputDelay {
    min: u8,
    max: u8,
}

impl InputDelay {
    /// 6 ticks.
    pub const DEFAULT: Self = Self { min: 6, max: 6 };

    /// The same for all: `ticks`, where it lies in range.
    #[must_use]
    pub const fn fixed(ticks: u8) -> Option<Self> {
        Self::adaptive(ticks, ticks)
    }

    /// Each client's own, between `min` and `max`, where both lie in range and in order.
    #[must_use]
    pub const fn adaptive(min: u8, max: u8) -> Option<Self> {
        // Four fewer than the window in which a server takes inputs.
        if min >= 1 && min <= max && max <= 60 {
            Some(Self { min, max })
        } else {
            None
        }
    }

    /// Returns the least.
    #[must_use]
    pub const fn min(self) -> u8 {
        self.min
    }

    /// Returns the most.
    #[must_use]
    pub const fn max(self) -> u8 {
        self.max
    }
}

/// Ticks a second: 1 to 1,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRate(u16);

impl TickRate {
    /// 60 Hz.
    pub const DEFAULT: Self = Self(60);

    /// Accepts `hz` where it lies in range.
    #[must_use]
    pub const fn new(hz: u16) -> Option<Self> {
        if hz >= 1 && hz <= 1_000 {
            Some(Self(hz))
        } else {
            None
        }
    }

    /// Returns the length of a tick, in nanoseconds; what is left of a nanosecond is dropped.
    #[must_use]
    pub fn period_nanos(self) -> u32 {
        1_000_000_000_u32
            .checked_div(self.0.into())
            .unwrap_or(1_000_000_000)
    }
}

/// Ticks in each datagram: 1 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair(u8);

impl Repair {
    /// 4.
    pub const DEFAULT: Self = Self(4);

    /// Accepts `ticks` where it lies in range.
    #[must_use]
    pub const fn new(ticks: u8) -> Option<Self> {
        if ticks >= 1 && ticks <= 8 {
            Some(Self(ticks))
        } else {
            None
        }
    }

    /// Returns the number of ticks.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// When a tick is closed, counted from its nominal end.
///
/// | policy | who has a bad link | the others |
/// |---|---|---|
/// | `Clock` | has inputs filled in | play on at full speed |
/// | `WaitAll` | has none filled in, up to the cap | wait for the slowest, up to the cap |
/// | `Quorum` | as `Clock`, if enough others are heard | wait for the slowest of the quickest `seats` |
///
/// With the last two, a seat that let a tick wait until the cap is not waited for again until an
/// input of its comes in time: one outage costs everybody one cap, not one each tick. A tick that
/// waited moves all later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosePolicy {
    /// By the clock, whoever was heard: a tick never waits longer than `grace`.
    Clock {
        /// How long after its nominal end.
        grace: Duration,
    },
    /// When the input of every player who is waited for is there: pure lockstep.
    WaitAll {
        /// Longest wait.
        cap: Duration,
    },
    /// When the inputs of this many players are there, or of all who are waited for.
    Quorum {
        /// How many.
        seats: u16,
        /// Longest wait.
        cap: Duration,
    },
}

impl ClosePolicy {
    /// How long after its nominal end a tick closes at the earliest.
    pub(crate) const fn grace(self) -> Duration {
        match self {
            Self::Clock { grace } => grace,
            Self::WaitAll { .. } | Self::Quorum { .. } => Duration::ZERO,
        }
    }

    /// How long a tick waits past that, at the longest.
    pub(crate) const fn cap(self) -> Duration {
        match self {
            Self::Clock { .. } => Duration::ZERO,
            Self::WaitAll { cap } | Self::Quorum { cap, .. } => cap,
        }
    }
}

/// What stands in for an input that did not come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Substitute {
    /// What the player did in the tick before: held buttons stay held.
    Repeat,
    /// The default input: right where one tick's input is one action.
    Neutral,
}

/// When ticks begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPolicy {
    /// When every seat is taken and its player ready, at `start`, or when
    /// [`Config::start_timeout`] ends.
    AllReady,
    /// At `start` only.
    ByHand,
}

/// What becomes of players whose simulation does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowPolicy {
    /// They are named by [`ServerEvent::Slow`](crate::ServerEvent::Slow). Where ticks close by the
    /// clock they delay nobody.
    Report,
    /// They are named, and put out.
    Kick,
    /// They are named, lose their seat and watch from then on, as
    /// [`MatchServer::watch`](crate::MatchServer::watch) lets in. Where as many watch as may, or
    /// spectators are shown the match later than players, they are put out; so are players of a
    /// [`HostedPeer`](crate::HostedPeer)'s match.
    Demote,
    /// They are named, and ticks are longer while they do not keep up, for everybody: by as much as it
    /// takes, up to `percent_max`, and once they do, back by 1 % of a tick in as many ticks as usually
    /// take a second. Nobody's inputs are lost to it, and no clock jumps. Spectators see it as the
    /// players do, but are not told how long ticks are: what they hold back against jitter helps less
    /// meanwhile.
    ///
    /// Who has had ticks longer for `hold` in all, with the time in which they go back, is taken out as
    /// with [`Demote`](Self::Demote) when it does not keep up next. A tenth of the time that it did without
    /// is given back. Who is silent for a second is not taken for slow. The time goes by the seat: whoever
    /// comes to it has what was left, and after one who was taken out all of it, though it be the same.
    /// So an application that seats whoever asks lets one player hold the others up again and again: seat
    /// nobody anew whose [`ServerEvent::Left`](crate::ServerEvent::Left) said
    /// [`LeaveReason::Slow`](crate::LeaveReason::Slow).
    Stretch {
        /// Most by which a tick is longer, per cent; more than 100 counts as 100.
        percent_max: u8,
        /// For how long, per player.
        hold: Duration,
    },
}

/// Which states a game with rollback saves, to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavePolicy {
    /// Each state that later inputs may show to be wrong: one save a tick, and no step is made
    /// again without need. For games whose saves are cheap beside their steps.
    Dense,
    /// The newest state that is known to be right: few saves, and each rollback makes all steps
    /// since again. For games whose saves are dear. Hashes are reported later than otherwise, by
    /// up to twice the window.
    Sparse,
    /// As many as are cheapest, by what saves and steps cost and how far rollbacks went of late;
    /// at most twice the window apart. Until they are told, saves and steps count alike.
    Auto,
}

/// Where a snapshot comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotSource {
    /// The server simulates: it is asked by
    /// [`ServerEvent::SnapshotWanted`](crate::ServerEvent::SnapshotWanted) and answers with
    /// [`MatchServer::offer_snapshot`](crate::MatchServer::offer_snapshot).
    Server,
    /// A player, the one with the fewest turns waiting, is asked by
    /// [`ClientEvent::SnapshotWanted`](crate::ClientEvent::SnapshotWanted). What it gives is held
    /// against the state hashes that the others reported, when whoever loaded it reports its own.
    Players,
}

/// What becomes of players whose state went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// They are named, and left out of comparison.
    Report,
    /// They are named, and load a snapshot as soon as it is known where they began to differ, which
    /// takes a round trip or two; where nobody can say who is wrong, nobody does. Nor does whoever
    /// got four without having been right for 600 ticks after one: that player is named, as with
    /// `Report`.
    Reload,
}
