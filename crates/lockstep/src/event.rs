//! What machines tell the application, and why they refuse.

use core::fmt;
use core::time::Duration;

use wire::{MatchId, Seat};

use crate::divergence::{Cause, Section};
use crate::input::Width;
use crate::tick::{PeerId, Tick};

/// What a [`MatchServer`](crate::MatchServer) tells the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerEvent {
    /// The player of `seat` holds the welcome and waits for the first tick.
    Ready {
        /// Who.
        seat: Seat,
    },
    /// Ticks begin.
    Started,
    /// Who came into the running match is in step; from `tick` on, its inputs count.
    Entered {
        /// Who.
        seat: Seat,
        /// First tick with an input of its.
        tick: Tick,
    },
    /// A player is out; from `tick` on, the seat is absent.
    Left {
        /// Who.
        seat: Seat,
        /// The driver's number for it, free to be used again.
        peer: PeerId,
        /// First tick without the player.
        tick: Tick,
        /// Why.
        reason: LeaveReason,
    },
    /// A player does not keep up: for 10 s, more than half of its ticks had its input filled in or
    /// waited for it, or found its simulation more than 6 turns behind; or it has not been heard for
    /// 1 s, also while a tick waits.
    Slow {
        /// Who.
        seat: Seat,
        /// The tick that was closed last.
        tick: Tick,
        /// What is slow about it.
        cause: SlowCause,
    },
    /// A player who was slow keeps up again.
    Recovered {
        /// Who.
        seat: Seat,
        /// The tick that was closed last.
        tick: Tick,
    },
    /// Somebody watches no more.
    SpectatorLeft {
        /// The driver's number for it, free to be used again.
        peer: PeerId,
        /// Why.
        reason: LeaveReason,
    },
    /// Somebody lacks more than the chain holds:
    /// [`offer_snapshot`](crate::MatchServer::offer_snapshot) after the next turn. Told again a second
    /// after one was refused. Who has waited for 20 s and cannot do without is put out
    /// ([`LeaveReason::Behind`]), and others go on without; told again then where somebody waits still.
    SnapshotWanted,
    /// Who loaded the snapshot of `donor` reported another state hash than the others had for its
    /// tick: one of the two is wrong, and `seat` gets a snapshot of somebody else.
    SnapshotRefuted {
        /// Who gave it.
        donor: Seat,
        /// Who loaded it.
        seat: Seat,
    },
    /// `tick` waited for the player of `seat` until its cap, in vain; ticks wait for this player
    /// no more until an input comes in time.
    Missed {
        /// Who.
        seat: Seat,
        /// The tick, which was closed without it.
        tick: Tick,
    },
    /// A player who holds `seat` let the state hash of `tick` be waited for in vain, some 2 s.
    ///
    /// Others' hashes are compared without this player's from now on, until reports come again;
    /// then they are compared too. Told once for each time that a player falls silent.
    Silent {
        /// Who.
        seat: Seat,
        /// First hash step that did not come in time.
        tick: Tick,
    },
    /// State hashes of `tick` differ, and those of all earlier hash steps of these players that
    /// were compared did not. A step whose hash was lost is not waited for once a later one differs;
    /// where it began follows as [`Divergence`](Self::Divergence). Comparison goes on without `seats`;
    /// each seat is named once.
    Desync {
        /// First hash step that was found to differ.
        tick: Tick,
        /// Who is named, in seat order.
        seats: Vec<Seat>,
        /// How they were found.
        verdict: Verdict,
    },
    /// Where a player who was named in a [`Desync`](Self::Desync) began to differ: told once for
    /// each, some round trips later. Where nobody decides, the first of those named is what the
    /// others are compared with.
    Divergence {
        /// Who.
        seat: Seat,
        /// With whom it was compared; `None` for the server itself.
        against: Option<Seat>,
        /// First tick that differs, of those that both reported and keep.
        tick: Tick,
        /// What differs in it.
        cause: Cause,
        /// First section of the state that differs; `None` where states do not, or are not divided
        /// into sections.
        section: Option<Section>,
    },
}

/// What is slow about a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowCause {
    /// Its link: inputs come late, or nothing comes.
    Link,
    /// Its simulation: turns arrive, and wait.
    Simulation,
}

/// Who lets a client wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallCause {
    /// Its own link: nothing comes from the server.
    Link,
    /// The server, which says something but closes no tick: it waits for a player.
    Server,
}

/// How the seats of a desync were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They differ from the hash that the server reported.
    Server,
    /// They differ from what more than half of the players reported who reported at all.
    Minority,
    /// No hash has more than half of the players behind it; all are named.
    Undecided,
}

/// What a [`ClientPeer`](crate::ClientPeer) tells the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientEvent {
    /// The server let us in.
    Welcome {
        /// Our seat.
        seat: Seat,
        /// Seats of the match.
        seats: u16,
        /// The match; state hashes are keyed by it.
        match_id: MatchId,
    },
    /// The server lets us watch; we have no seat. Also told to a player who loses its seat
    /// ([`SlowPolicy::Demote`](crate::SlowPolicy::Demote)): turns go on, what was submitted for later
    /// ones does not count, and nothing is said of it.
    Watching {
        /// Seats of the match.
        seats: u16,
        /// The match; state hashes are keyed by it.
        match_id: MatchId,
    },
    /// An input of ours came too late, or not at all: the server filled in `tick`.
    Substituted {
        /// The tick; its turn was just returned, or is known to a game that went ahead of it.
        tick: Tick,
    },
    /// The turn `tick` is overdue by more than 3 ticks.
    Stalled {
        /// The turn that is missing.
        tick: Tick,
        /// Who lets us wait, as far as can be seen from here.
        cause: StallCause,
    },
    /// Turns come again.
    Resumed {
        /// The turn that was missing.
        tick: Tick,
        /// How much later than it was expected it came.
        late: Duration,
    },
    /// A state to go on from has come: [`take_snapshot`](crate::ClientPeer::take_snapshot) returns
    /// it. Turns wait until it is taken; the next one is `next`.
    Snapshot {
        /// First tick that is not part of it.
        next: Tick,
    },
    /// The state of our game is wanted, for one who joins:
    /// [`offer_snapshot`](crate::ClientPeer::offer_snapshot) after the next turn. It need not be
    /// answered.
    SnapshotWanted,
    /// Inputs are stamped for so many ticks ahead from now on; see
    /// [`InputDelay`](crate::InputDelay). On the way up the held input fills the ticks between;
    /// on the way down what would be for a tick that has one is not stamped.
    InputDelay {
        /// The new delay.
        ticks: u8,
    },
    /// The match fell apart, and we are one of the two that were compared: what the state was
    /// before and after `tick`, and the inputs of it, are worth keeping.
    Diverged {
        /// First tick that differs.
        tick: Tick,
        /// Who differs, we or the one that was compared with us.
        seat: Seat,
        /// What differs.
        cause: Cause,
        /// First section of the state that differs, by its name in our newest report.
        section: Option<&'static str>,
    },
    /// The server's match is not one we can play. The machine is at its end.
    Refused(Refusal),
    /// We are out of the match. The machine is at its end.
    Closed(CloseReason),
}

/// Why a client refuses a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Inputs there have another width.
    Width {
        /// What the server said.
        theirs: Width,
    },
    /// It has more seats, or longer bundles, than the client's configuration allows.
    TooLarge {
        /// What the server said.
        seats: u16,
    },
}

/// What a machine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Ticks have not begun.
    Gathering,
    /// Ticks close.
    Running,
    /// Over.
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
            /// Returns the byte that stands for it.
            #[must_use]
            pub const fn code(self) -> u8 {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            /// Returns what `code` stands for.
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
    /// Why a player leaves.
    LeaveReason {
        /// The player wanted to.
        Quit = 0,
        /// The game ended for this player.
        Finished = 1,
        /// The transport lost it, or the application put it out.
        Removed = 2,
        /// Its acknowledgement fell out of the chain that the server keeps; or it needed a snapshot, and
        /// nobody gave one in time, or it took nothing of it for 5 s, or four came too late or were
        /// wrong.
        Behind = 3,
        /// It cannot play this match.
        Refused = 4,
        /// It was not ready when the match began without it.
        NotReady = 5,
        /// Its simulation does not keep up.
        Slow = 6,
    }
}

impl LeaveReason {
    /// Returns whether it is the player's own to give: quit, finished or refused. The others are
    /// what the server saw, and a client that claims one is not believed.
    #[must_use]
    pub const fn is_players(self) -> bool {
        match self {
            Self::Quit | Self::Finished | Self::Refused => true,
            Self::Removed | Self::Behind | Self::NotReady | Self::Slow => false,
        }
    }
}

reasons! {
    /// Why the server puts a client out.
    CloseReason {
        /// The match is over.
        Ended = 0,
        /// The application put this player out.
        Removed = 1,
        /// Its acknowledgement fell out of the chain that the server keeps; or it needed a snapshot, and
        /// nobody gave one in time, or it took nothing of it for 5 s, or four came too late or were
        /// wrong.
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

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $text,)*
                })
            }
        }

        impl core::error::Error for $name {}
    };
}

errors! {
    /// Why a configuration is refused.
    ConfigError {
        /// The match has no seat.
        NoSeats => "a match needs at least 1 seat",
        /// A tick in which every seat changes fits no datagram.
        BundleTooLong => "a tick in which every seat changes is over the datagram limit",
        /// A quorum of none, or of more seats than there are.
        QuorumOutOfRange => "a quorum is 1 seat to all of them",
    }
}

errors! {
    /// Why a player is not let in.
    JoinError {
        /// The match has no such seat.
        NoSuchSeat => "the match has no such seat",
        /// Somebody holds the seat, or held it.
        SeatTaken => "the seat is taken",
        /// The peer holds another seat, or watches.
        PeerTaken => "the peer holds another seat, or watches",
        /// As many watch as may.
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
        /// It has.
        Started => "the match has begun",
        /// It is over.
        Closed => "the match is over",
    }
}

errors! {
    /// Why an input is not taken.
    SubmitError {
        /// Who watches does not play.
        Spectator => "who watches does not play",
        /// No turn has arrived yet.
        NotRunning => "the match has not begun",
        /// The client is out of the match.
        Closed => "the match is over",
    }
}

errors! {
    /// Why a snapshot is not taken.
    SnapshotError {
        /// Nobody asked for it.
        NotWanted => "no snapshot is wanted",
        /// No turn was returned yet, or the last one is too long ago.
        NotCurrent => "a snapshot must be of the turn returned last, and that one of late",
        /// It is longer than the configuration allows, or takes too long at the rate that it allows.
        TooLong => "the snapshot is over its limit",
    }
}

errors! {
    /// Why a state hash is not taken.
    ReportError {
        /// It is not of the turn returned last, or of one reported before.
        OutOfOrder => "a state hash must be of the turn returned last, once",
    }
}
