//! What other threads ask of the matchmaker's.

use crossbeam_channel::Sender;
use matchmaker_core::{
    CancelError, MatchEnd, Receipt, ReissueError, ResumeKey, SubmitError, TicketId, TicketRequest,
    TicketState,
};
use servicer::{RequestError, StreamRequests};
use tokio::sync::oneshot;
use wire::MatchId;

use crate::allocator::Report;

/// Sends requests to the matchmaker's thread; never blocks.
pub type MatchmakerRequests = StreamRequests<MatchmakerRequest>;

/// What other threads ask of the matchmaker's. An answer that nobody waits for is dropped.
#[derive(Debug)]
pub enum MatchmakerRequest {
    /// A player's wish to play.
    Submit(
        TicketRequest,
        oneshot::Sender<Result<Submitted, SubmitError>>,
    ),
    /// What has become of a ticket.
    Get(
        TicketAccess,
        oneshot::Sender<Result<TicketState, UnknownTicket>>,
    ),
    /// The same, once it has a seat or has ended.
    Wait(
        TicketAccess,
        oneshot::Sender<Result<TicketState, UnknownTicket>>,
    ),
    /// End a waiting ticket.
    Cancel(
        TicketAccess,
        oneshot::Sender<Result<TicketState, CancelError>>,
    ),
    /// Make another token.
    Reissue(
        TicketAccess,
        oneshot::Sender<Result<TicketState, ReissueError>>,
    ),
    /// Tell of every match that ends from now on, in place of whoever was told so far.
    Subscribe(Sender<MatchResult>),
    /// How much there is to do.
    Load(oneshot::Sender<Load>),
    /// What the allocator tells.
    Report(Report),
}

/// A ticket, and the proof that it is the asker's.
#[derive(Clone, Debug)]
pub struct TicketAccess {
    /// Which.
    pub ticket: TicketId,
    /// What its holder was given.
    pub resume_key: ResumeKey,
}

/// A ticket that was made or found.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// For its holder.
    pub receipt: Receipt,
    /// What has become of it.
    pub state: TicketState,
}

/// A match that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchResult {
    /// Which.
    pub match_id: MatchId,
    /// Why.
    pub end: MatchEnd,
    /// What its server said of it, up to 1 KiB of the game's own; empty where it said nothing.
    pub result: Vec<u8>,
}

/// There is no such ticket, or the asker is not its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownTicket;

/// How much a matchmaker has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Whether the link to the hub is up.
    pub is_joined: bool,
    /// Tickets and matches.
    pub matchmaker: matchmaker_core::Load,
    /// What was counted since the start.
    pub stats: matchmaker_core::Stats,
}

/// Gives a report of the allocator to the matchmaker, or hands it back.
pub(crate) fn forward_report(requests: &MatchmakerRequests, report: Report) -> Result<(), Report> {
    match requests.send(MatchmakerRequest::Report(report.clone())) {
        // Nobody is there to hear it.
        Ok(()) | Err(RequestError::Ended(_)) => Ok(()),
        Err(RequestError::Full(_)) => Err(report),
    }
}
