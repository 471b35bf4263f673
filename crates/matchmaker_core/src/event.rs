//! News for the application.

use wire::MatchId;

use crate::lease::ServerLink;
use crate::pool::Slot;
use crate::ticket::TicketId;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The ticket has another state: who waits for it should ask.
    Ticket(TicketId),
    /// A server took the match, and all its players have their tokens.
    MatchLive {
        /// Which.
        match_id: MatchId,
        /// Where.
        server: ServerLink,
    },
    /// A live match is over.
    MatchEnded {
        /// Which.
        match_id: MatchId,
        /// Why.
        end: MatchEnd,
        /// What its server said of it; empty where it said nothing.
        result: Vec<u8>,
    },
    /// An instance registered.
    ServerUp(ServerLink),
    /// An instance is gone, and does not come back.
    ServerDown {
        /// Which.
        server: ServerLink,
        /// Why.
        reason: DownReason,
    },
    /// No server came of a slot; it is tried again later.
    SpawnFailed {
        /// Which slot.
        slot: Slot,
        /// How many times in a row.
        failures: u32,
    },
    /// So many events were not taken in time and are lost: ask for every ticket that you wait for.
    Missed(u64),
}

/// Why a live match is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatchEnd {
    /// Its server said so.
    Reported,
    /// Its server's heartbeat does not name it.
    Unlisted,
    /// Its server is gone.
    ServerLost,
    /// Nobody has entered it, and nobody can any more: its last token has lapsed.
    NotEntered,
}

/// Why an instance is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownReason {
    /// It did not renew its lease.
    LeaseLost,
    /// Its process ended.
    Exited,
    /// Another instance registered from the same node.
    Superseded,
    /// It said that it ends.
    Left,
    /// It stood unused, and was stopped.
    Unused,
}
