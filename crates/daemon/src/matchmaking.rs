//! Requests to the matchmaker's thread.

use crossbeam_channel::Sender;
use matchmaker_core::{
    CancelError, MatchEnd, Receipt, ReissueError, ResumeKey, SubmitError, TicketId, TicketRequest,
    TicketState,
};
use servicer::{RequestError, StreamRequests};
use tokio::sync::oneshot;
use wire::MatchId;

use crate::allocator::Report;

/// Sends requests to the matchmaker's thread without blocking.
pub type MatchmakerRequests = StreamRequests<MatchmakerRequest>;

/// Where the answer to a request goes.
pub type Answer<T, E> = oneshot::Sender<Result<T, E>>;

/// A request to the matchmaker's thread. The answer is dropped if its receiver is gone.
#[derive(Debug)]
pub enum MatchmakerRequest {
    /// Create a ticket.
    Submit(TicketRequest, Answer<Submitted, SubmitError>),
    /// Return a ticket's state.
    Get(TicketAccess, Answer<TicketState, UnknownTicket>),
    /// Return a ticket's state once it has a seat or has ended.
    Wait(TicketAccess, Answer<TicketState, UnknownTicket>),
    /// Cancel a waiting ticket.
    Cancel(TicketAccess, Answer<TicketState, CancelError>),
    /// Issue another token.
    Reissue(TicketAccess, Answer<TicketState, ReissueError>),
    /// Send the result of every match that ends from now on; replaces an earlier subscription.
    Subscribe(Sender<MatchResult>),
    /// Return the load.
    Load(oneshot::Sender<Load>),
    /// A report of the allocator.
    Report(Report),
}

/// A ticket, and the proof of its holder.
#[derive(Clone, Debug)]
pub struct TicketAccess {
    /// The ticket.
    pub ticket: TicketId,
    /// Its resume key.
    pub resume_key: ResumeKey,
}

/// A created or existing ticket.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The holder's receipt.
    pub receipt: Receipt,
    /// The ticket's state.
    pub state: TicketState,
}

/// A match that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchResult {
    /// The match.
    pub match_id: MatchId,
    /// Why it ended.
    pub end: MatchEnd,
    /// The server's result, at most 1 KiB; may be empty.
    pub result: Vec<u8>,
}

/// The ticket does not exist, or the key is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownTicket;

/// Load of a matchmaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Whether the node has joined the hub.
    pub is_joined: bool,
    /// Tickets and matches.
    pub matchmaker: matchmaker_core::Load,
    /// Counters since the start.
    pub stats: matchmaker_core::Stats,
}

/// Sends an allocator's report to the matchmaker; returns it if the queue is full.
pub(crate) fn forward_report(requests: &MatchmakerRequests, report: Report) -> Result<(), Report> {
    match requests.send(MatchmakerRequest::Report(report.clone())) {
        Ok(()) | Err(RequestError::Ended(_)) => Ok(()),
        Err(RequestError::Full(_)) => Err(report),
    }
}
