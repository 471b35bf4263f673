//! Why a request of the application is rejected.

use core::fmt;
use core::time::Duration;

use crypto::NoEntropy;

use crate::ticket::TicketId;

/// Why no ticket was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// The limit of waiting tickets is reached.
    Full,
    /// The player has this ticket, and [`Duplicate::Refuse`](crate::Duplicate) is configured.
    Duplicate(TicketId),
    /// The player is in a live match and got a token recently; retry after this time.
    TooSoon(Duration),
    /// The player is in a live match, and no token can be issued before the first
    /// [`set_unix_time`](crate::Matchmaker::set_unix_time).
    NoClock,
    /// The source of randomness failed.
    NoEntropy,
}

impl From<NoEntropy> for SubmitError {
    fn from(_: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the queue is full"),
            Self::Duplicate(ticket) => write!(f, "the player already has ticket {ticket}"),
            Self::TooSoon(wait) => write!(f, "the next token may be asked for in {wait:?}"),
            Self::NoClock => f.write_str("the matchmaker has no wall clock yet"),
            Self::NoEntropy => f.write_str("the source of randomness failed"),
        }
    }
}

impl core::error::Error for SubmitError {}

/// Why a ticket was not cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelError {
    /// There is no such ticket.
    Unknown,
    /// The player has a seat. To leave the match, it leaves the server.
    Assigned,
    /// It has ended.
    Ended,
}

impl fmt::Display for CancelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such ticket",
            Self::Assigned => "the ticket has a seat on a server",
            Self::Ended => "the ticket has ended",
        })
    }
}

impl core::error::Error for CancelError {}

/// Why no new token was issued for a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReissueError {
    /// There is no such ticket.
    Unknown,
    /// It has no seat on a server.
    NotAssigned,
    /// The last token is too recent; retry after this time.
    TooSoon(Duration),
    /// [`set_unix_time`](crate::Matchmaker::set_unix_time) was not called yet.
    NoClock,
    /// The source of randomness failed.
    NoEntropy,
}

impl fmt::Display for ReissueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such ticket"),
            Self::NotAssigned => f.write_str("the ticket has no seat on a server"),
            Self::TooSoon(wait) => write!(f, "the next token may be asked for in {wait:?}"),
            Self::NoClock => f.write_str("the matchmaker has no wall clock yet"),
            Self::NoEntropy => f.write_str("the source of randomness failed"),
        }
    }
}

impl core::error::Error for ReissueError {}
