//! Events for the application.

use wire::MatchId;

use crate::lease::ServerLink;
use crate::pool::Slot;
use crate::ticket::TicketId;

/// An event for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The ticket has changed state.
    Ticket(TicketId),
    /// A server accepted the match, and all its players have tokens.
    MatchLive {
        /// The match.
        match_id: MatchId,
        /// The server instance.
        server: ServerLink,
    },
    /// A live match has ended.
    MatchEnded {
        /// The match.
        match_id: MatchId,
        /// The reason.
        end: MatchEnd,
        /// The result that its server reported; empty if none.
        result: Vec<u8>,
    },
    /// An instance registered.
    ServerUp(ServerLink),
    /// An instance is gone permanently.
    ServerDown {
        /// The server instance.
        server: ServerLink,
        /// The reason.
        reason: DownReason,
    },
    /// A slot's process did not become a server; retried later.
    SpawnFailed {
        /// The slot.
        slot: Slot,
        /// Consecutive failures.
        failures: u32,
    },
    /// This many events were dropped; query every ticket of interest.
    Missed(u64),
}

/// Why a live match has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatchEnd {
    /// Its server reported the end.
    Reported,
    /// Its server's heartbeat does not list it.
    Unlisted,
    /// Its server is gone.
    ServerLost,
    /// No player has entered, and its last token has expired.
    NotEntered,
}

/// Why an instance is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownReason {
    /// Its lease expired.
    LeaseLost,
    /// Its process ended.
    Exited,
    /// Another instance registered from the same node.
    Superseded,
    /// It announced its end.
    Left,
    /// It was idle, and was stopped.
    Unused,
}
