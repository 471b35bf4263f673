//! What a player of a hosted match tells the application.

use wire::Seat;

use crate::event::{ClientEvent, CloseReason, LeaveReason, Refusal, ServerEvent};
use crate::tick::Tick;

/// What a [`HostedPeer`](crate::HostedPeer) tells the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostedEvent {
    /// What a client is told; its end is told by [`Closed`](Self::Closed) instead.
    Client(ClientEvent),
    /// What a server is told, while we host.
    Server(ServerEvent),
    /// The host is gone, and those who stay choose another. Ticks that are closed come as ever.
    HostLost {
        /// Who hosted.
        host: Seat,
    },
    /// Those who stay have agreed on who hosts from `tick` on. Inputs that were submitted for it or
    /// a later one are taken back, and nothing more is said of them; what the player holds counts
    /// from the first tick on that the new host's clock stamps.
    Migrated {
        /// Who hosts; may be ourselves.
        host: Seat,
        /// Hosts and players lost so far, at most 15: the number of this view.
        epoch: u8,
        /// First tick that the new host closes.
        tick: Tick,
    },
    /// Those who stay have agreed that a player is out; its seat is absent, from a tick on that the
    /// turns show.
    Left {
        /// Who.
        seat: Seat,
        /// [`LeaveReason::Quit`] where it said so, else [`LeaveReason::Removed`]: it fell silent,
        /// or the host put it out.
        reason: LeaveReason,
    },
    /// We are out of the match. Nothing is told after it; the machine is driven on, to tell others,
    /// until [`poll_timeout`](crate::HostedPeer::poll_timeout) returns `None`.
    Closed(HostedClose),
}

/// Why a player's hosted match ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostedClose {
    /// Too few others can be heard: no more than half, and not half with the lowest seat among us;
    /// or the host cannot, for [`player_patience`](crate::HostedConfig::player_patience). Others may
    /// play on without us, whom we cannot hear.
    TooFew,
    /// The others play on without us.
    LeftOut {
        /// First tick in which our history may not be theirs, as far as those who told us knew.
        tick: Tick,
    },
    /// We are to host, and cannot: closed ticks are lacking that nobody serves, or the configuration
    /// is not the one that the match was begun with. The others play on.
    Unserved,
    /// The host ended the match, or put us out.
    Out(CloseReason),
    /// The host's match is not one we can play.
    Refused(Refusal),
}

/// What a [`HostedPeer`](crate::HostedPeer) counted, beside what its client and server did; none of
/// it ever goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostedStats {
    /// Datagrams sent that only hosted matches have.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Times that another host took over, ourselves included.
    pub migrations: u64,
    /// Datagrams of closed ticks sent to one who is to host.
    pub forwards_sent: u64,
    /// Times that we hosted and closed no ticks, since too few others were heard.
    pub holds: u64,
    /// Datagrams dropped: not of this format.
    pub dropped_malformed: u64,
    /// Datagrams dropped: from nobody who plays, or from one who is given up.
    pub dropped_unknown_peer: u64,
    /// Datagrams dropped: a host's who is none any more, or none yet.
    pub dropped_stale: u64,
    /// Statements and decisions dropped: of another view, or no honest ones.
    pub dropped_view: u64,
    /// Events not told, since too many waited.
    pub events_lost: u64,
}
