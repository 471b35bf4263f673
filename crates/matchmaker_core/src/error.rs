//! Why a request of the application is refused.

use core::fmt;
use core::time::Duration;

use crypto::NoEntropy;

use crate::ticket::TicketId;

/// Why no ticket was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// As many tickets wait as may.
    Full,
    /// The player has this ticket already, and [`Duplicate::Refuse`](crate::Duplicate) is set.
    Duplicate(TicketId),
    /// The player is in a live match and had a token for it just now; the next one after this time.
    TooSoon(Duration),
    /// The player is in a live match, and no token can be made before the first
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
    /// A server waits for the player: it leaves a match by leaving the server.
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

/// Why no other token was made for a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReissueError {
    /// There is no such ticket.
    Unknown,
    /// It has no seat on a server.
    NotAssigned,
    /// The last token is too young; the next one after this time.
    TooSoon(Duration),
    /// There was no [`set_unix_time`](crate::Matchmaker::set_unix_time) yet.
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
