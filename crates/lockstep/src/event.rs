//! Events for the application, and errors.

use core::fmt;
use core::time::Duration;

use wire::{MatchId, Seat};

use crate::input::Width;
use crate::tick::{PeerId, Tick};

/// Events of a [`MatchServer`](crate::MatchServer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerEvent {
    /// The player of `seat` has the welcome and waits for the first tick.
    Ready {
        /// Its seat.
        seat: Seat,
    },
    /// Ticks begin.
    Started,
    /// A player that joined the running match is in step; from `tick` on, its inputs count.
    Entered {
        /// Its seat.
        seat: Seat,
        /// First tick with one of its inputs.
        tick: Tick,
    },
    /// A player left; from `tick` on, the seat is absent.
    Left {
        /// Its seat.
        seat: Seat,
        /// The driver's id for it, which may be reused.
        peer: PeerId,
        /// First tick without the player.
        tick: Tick,
        /// The reason.
        reason: LeaveReason,
    },
    /// A player does not keep up. Either over 10 s more than half of its ticks had its input
    /// substituted, waited for its input, or had its simulation more than 6 turns behind; or
    /// nothing arrived from it for 1 s, also while a tick waits.
    Slow {
        /// Its seat.
        seat: Seat,
        /// The last closed tick.
        tick: Tick,
        /// What is slow.
        cause: SlowCause,
    },
    /// A slow player keeps up again.
    Recovered {
        /// Its seat.
        seat: Seat,
        /// The last closed tick.
        tick: Tick,
    },
    /// A spectator left.
    SpectatorLeft {
        /// The driver's id for it, which may be reused.
        peer: PeerId,
        /// The reason.
        reason: LeaveReason,
    },
    /// A peer lacks more than the chain holds: call
    /// [`offer_snapshot`](crate::MatchServer::offer_snapshot) after the next turn. Repeated one
    /// second after a refused snapshot. A peer that needs one and waited 20 s is removed
    /// ([`LeaveReason::Behind`]).
    SnapshotWanted,
    /// The peer that loaded the snapshot of `donor` reported a different state hash for its tick
    /// than the others. One of the two is wrong; `seat` gets a snapshot from another player.
    SnapshotRefuted {
        /// The player that gave it.
        donor: Seat,
        /// The player that loaded it.
        seat: Seat,
    },
    /// `tick` waited for the player of `seat` until the limit; ticks no longer wait for this player
    /// until one of its inputs arrives in time.
    Missed {
        /// Its seat.
        seat: Seat,
        /// The tick, which closed without the input.
        tick: Tick,
    },
    /// The player of `seat` did not report the state hash of `tick` within about 2 s. The others'
    /// hashes are compared without it until it reports again. Emitted once per silence.
    Silent {
        /// Its seat.
        seat: Seat,
        /// First hash step that did not arrive in time.
        tick: Tick,
    },
    /// State hashes of `tick` differ; those of all earlier compared hash steps of these players
    /// matched. A step with a lost hash is skipped once a later one differs; the exact tick follows
    /// as [`Divergence`](Self::Divergence). Comparison goes on without `seats`; each seat is
    /// reported once.
    Desync {
        /// First hash step known to differ.
        tick: Tick,
        /// The seats found wrong, in seat order.
        seats: Vec<Seat>,
        /// How they were found.
        verdict: Verdict,
    },
    /// Where a player reported in a [`Desync`](Self::Desync) began to differ: once per player, some
    /// round trips later. If the verdict is undecided, the others are compared with the first
    /// reported seat.
    Divergence {
        /// Its seat.
        seat: Seat,
        /// The seat it was compared with; `None` for the server.
        against: Option<Seat>,
        /// First tick that differs, of those that both reported and still keep.
        tick: Tick,
        /// What differs in it.
        cause: Cause,
        /// First section of the state that differs; `None` if the states match or have no sections.
        section: Option<Section>,
    },
}

/// What is slow about a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowCause {
    /// Its link: inputs are late or missing.
    Link,
    /// Its simulation: turns arrive, and queue up.
    Simulation,
}

/// Cause of a client's stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallCause {
    /// Its own link: nothing arrives from the server.
    Link,
    /// The server, which sends datagrams but closes no tick: it waits for a player.
    Server,
}

/// How the seats of a desync were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They differ from the server's own hash.
    Server,
    /// They differ from the hash of more than half of the players that reported.
    Minority,
    /// No hash has a majority; all are reported.
    Undecided,
}

/// Events of a [`ClientPeer`](crate::ClientPeer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientEvent {
    /// The server admitted us.
    Welcome {
        /// Our seat.
        seat: Seat,
        /// Seats of the match.
        seats: u16,
        /// The match; it keys state hashes.
        match_id: MatchId,
    },
    /// The server admitted us as a spectator. Also emitted when a player loses its seat
    /// ([`SlowPolicy::Demote`](crate::SlowPolicy::Demote)): turns continue, and inputs already
    /// submitted for later ticks are dropped without an event.
    Watching {
        /// Seats of the match.
        seats: u16,
        /// The match; it keys state hashes.
        match_id: MatchId,
    },
    /// Our input was late or lost: the server substituted it in `tick`.
    Substituted {
        /// The tick; its turn was just returned, or just confirmed to a predicting game.
        tick: Tick,
    },
    /// The turn `tick` is overdue by more than 3 ticks.
    Stalled {
        /// The missing turn.
        tick: Tick,
        /// The cause, as far as this side can see it.
        cause: StallCause,
    },
    /// Turns arrive again.
    Resumed {
        /// The turn that was missing.
        tick: Tick,
        /// How late it arrived.
        late: Duration,
    },
    /// A snapshot has arrived: [`take_snapshot`](crate::ClientPeer::take_snapshot) returns it.
    /// Turns wait until then; the next one is `next`.
    Snapshot {
        /// First tick that is not part of it.
        next: Tick,
    },
    /// A joining player needs our state: call [`offer_snapshot`](crate::ClientPeer::offer_snapshot)
    /// after the next turn. Optional.
    SnapshotWanted,
    /// The input delay changed; see [`InputDelay`](crate::InputDelay). When it rises, the held
    /// input fills the ticks between; when it falls, an input for a tick that already has one is
    /// dropped.
    InputDelay {
        /// The new delay.
        ticks: u8,
    },
    /// A desync involves us. Save the state before and after `tick`, and its inputs.
    Diverged {
        /// First tick that differs.
        tick: Tick,
        /// The wrong side: ours, or the one that was compared with us.
        seat: Seat,
        /// What differs.
        cause: Cause,
        /// First section of the state that differs, by its name in our newest report.
        section: Option<&'static str>,
    },
    /// We cannot play the server's match. The machine has ended.
    Refused(Refusal),
    /// We are out of the match. The machine has ended.
    Closed(CloseReason),
}

/// Why a client refuses a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Its inputs have another width.
    Width {
        /// The server's width.
        theirs: Width,
    },
    /// It has more seats, or longer bundles, than the client's configuration allows.
    TooLarge {
        /// The server's number.
        seats: u16,
    },
}

/// State of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Ticks have not begun.
    Gathering,
    /// Ticks close.
    Running,
    /// The match is over.
    Closed,
}

/// Declares an enum of reasons with one-byte codes.
macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// Returns its code.
            #[must_use]
            pub const fn code(self) -> u8 {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            /// Returns the value with this code.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    /// Why a player left.
    LeaveReason {
        /// The player quit.
        Quit = 0,
        /// The game ended for this player.
        Finished = 1,
        /// The transport lost it, or the application removed it.
        Removed = 2,
        /// Its acknowledgement fell out of the server's chain. Or it needed a snapshot, and nobody
        /// gave one in time, it acknowledged none of it for 5 s, or four were late or wrong.
        Behind = 3,
        /// It cannot play this match.
        Refused = 4,
        /// It was not ready when the match began.
        NotReady = 5,
        /// Its simulation does not keep up.
        Slow = 6,
    }
}

impl LeaveReason {
    /// Returns whether a player may give this reason: quit, finished or refused. Only the server
    /// gives the others; a client's claim of one is ignored.
    #[must_use]
    pub const fn is_players(self) -> bool {
        match self {
            Self::Quit | Self::Finished | Self::Refused => true,
            Self::Removed | Self::Behind | Self::NotReady | Self::Slow => false,
        }
    }
}

reasons! {
    /// Why the server removed a client.
    CloseReason {
        /// The match is over.
        Ended = 0,
        /// The application removed this player.
        Removed = 1,
        /// Its acknowledgement fell out of the server's chain. Or it needed a snapshot, and nobody
        /// gave one in time, it acknowledged none of it for 5 s, or four were late or wrong.
        Behind = 2,
        /// It was not ready when the match began.
        NotReady = 3,
        /// Its simulation does not keep up.
        Slow = 4,
    }
}

/// Declares an error enum with its texts.
macro_rules! errors {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident => $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $text,)*
                })
            }
        }

        impl core::error::Error for $name {}
    };
}

pub(crate) use errors;

/// The body of an implementation of [`wire::Machine`] by the type's own methods, without commands.
macro_rules! machine {
    ($event:ty) => {
        type Peer = $crate::PeerId;
        type Event = $event;
        type Command = core::convert::Infallible;

        fn handle_datagram(
            &mut self,
            now: wire::Instant,
            arrival: wire::Arrival<$crate::PeerId>,
            datagram: &mut [u8],
        ) {
            self.handle_datagram(now, arrival, datagram);
        }

        fn handle_timeout(&mut self, now: wire::Instant) {
            self.handle_timeout(now);
        }

        fn handle_completed(
            &mut self,
            _: wire::Instant,
            _: wire::CommandId,
            outcome: Self::Command,
        ) {
            match outcome {}
        }

        fn poll_transmit(
            &mut self,
            now: wire::Instant,
            buf: &mut Vec<u8>,
        ) -> Option<wire::Transmit<$crate::PeerId>> {
            self.poll_transmit(now, buf)
        }

        fn poll_command(&mut self) -> Option<(wire::CommandId, Self::Command)> {
            None
        }

        fn poll_event(&mut self) -> Option<$event> {
            self.poll_event()
        }

        fn poll_timeout(&self) -> Option<wire::Instant> {
            self.poll_timeout()
        }
    };
}
pub(crate) use machine;

errors! {
    /// Why a configuration is refused.
    ConfigError {
        /// The match has no seat.
        NoSeats => "a match needs at least 1 seat",
        /// A tick in which every seat changes does not fit a datagram.
        BundleTooLong => "a tick in which every seat changes is over the datagram limit",
        /// A quorum of 0, or of more seats than there are.
        QuorumOutOfRange => "a quorum is 1 seat to all of them",
    }
}

errors! {
    /// Why a player is not admitted.
    JoinError {
        /// The match has no such seat.
        NoSuchSeat => "the match has no such seat",
        /// The seat is, or was, held by a player.
        SeatTaken => "the seat is taken",
        /// The peer holds another seat, or is a spectator.
        PeerTaken => "the peer holds another seat, or watches",
        /// The spectator limit is reached.
        Full => "as many watch as may",
        /// The match is over.
        Closed => "the match is over",
        /// Another player hosts the match.
        NotHost => "another player hosts the match",
    }
}

errors! {
    /// Why a match does not start.
    StartError {
        /// It has started.
        Started => "the match has begun",
        /// It is over.
        Closed => "the match is over",
    }
}

errors! {
    /// Why an input is refused.
    SubmitError {
        /// Spectators do not play.
        Spectator => "who watches does not play",
        /// No turn has arrived yet.
        NotRunning => "the match has not begun",
        /// The client is out of the match.
        Closed => "the match is over",
    }
}

errors! {
    /// Why a snapshot is refused.
    SnapshotError {
        /// None was requested.
        NotWanted => "no snapshot is wanted",
        /// No turn was returned yet, or the last one is too old.
        NotCurrent => "a snapshot must be of the turn returned last, and that one of late",
        /// It is longer than the configuration allows, or takes too long at the configured rate.
        TooLong => "the snapshot is over its limit",
    }
}

errors! {
    /// Why a state hash is refused.
    ReportError {
        /// It is not of the turn returned last, or that turn was already reported.
        OutOfOrder => "a state hash must be of the turn returned last, once",
    }
}

/// What first differed, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Unknown: an answer did not arrive in time, or the tick is no longer kept.
    Unknown,
    /// The played inputs: the log of closed ticks differs.
    Inputs,
    /// The states, after the same inputs.
    State,
}

impl Cause {
    /// Returns its code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Inputs => 1,
            Self::State => 2,
        }
    }

    /// Returns the value with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Unknown),
            1 => Some(Self::Inputs),
            2 => Some(Self::State),
            _ => None,
        }
    }
}

/// A section of a state, as begun by [`StateHasher::section`](crate::StateHasher::section).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its index, from 0; below [`SECTIONS_MAX`](crate::checksum::SECTIONS_MAX).
    pub index: u8,
    /// Its name: the server's own if it simulates, else as a player reported it.
    pub name: SectionName,
}

/// Name of a section in datagrams: at most 32 printable ASCII characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SectionName {
    /// The characters; zero past `len`.
    bytes: [u8; Self::LEN_MAX],
    /// At most [`SectionName::LEN_MAX`].
    len: u8,
}

impl SectionName {
    /// Most bytes.
    pub const LEN_MAX: usize = 32;

    /// Takes the first `len` bytes of `name`, at most [`LEN_MAX`](Self::LEN_MAX); characters other
    /// than printable ASCII become `?`.
    pub(crate) fn shortened(name: &str, len: usize) -> Self {
        let mut short = Self::EMPTY;
        for (kept, byte) in short.bytes.iter_mut().zip(name.bytes()).take(len) {
            *kept = if is_printable(byte) { byte } else { b'?' };
            short.len = short.len.saturating_add(1);
        }
        short
    }

    /// Decodes a name; `None` if it is too long or not printable ASCII.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut name = Self::EMPTY;
        name.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        name.len = u8::try_from(bytes.len()).ok()?;
        bytes.iter().copied().all(is_printable).then_some(name)
    }

    /// Returns it as a string.
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }

    const EMPTY: Self = Self {
        bytes: [0; Self::LEN_MAX],
        len: 0,
    };
}

impl fmt::Debug for SectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for SectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

const fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

#[cfg(test)]
mod tests;
