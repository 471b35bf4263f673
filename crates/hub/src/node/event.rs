//! What a node tells its application, asks its driver, and counts.

use core::fmt;

use bytes::Bytes;
use wire::{ClientId, ConnectionId, Effect, InstanceId, NodeId};

use crate::address::Addr;
use crate::id::{CallId, ClaimNumber, Epoch, LogId, MailSeq, RequestId, SenderSeq};
use crate::name::Name;
use crate::record::{CallError, DownReason, MailRefusal, NodeInfo, RevokeReason};
use crate::redact::Redacted;

/// What a node tells its application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// The hub has let this node join.
    Joined {
        /// The number of this run.
        epoch: Epoch,
        /// Which log the hub keeps. Where it is another than before, as after a disk was replaced,
        /// all numbers of mails are void: those of mails that were not acknowledged, and those that
        /// clients have persisted.
        log: LogId,
    },
    /// The link to the hub has ended; the node dials again by itself.
    HubDown,
    /// The hub has ended the link, and why. After [`DownReason::Fenced`] the node does not dial
    /// again.
    Refused(DownReason),
    /// A call has ended.
    Reply {
        /// Which.
        call: CallId,
        /// The answer, or why there is none.
        result: Result<Redacted<Bytes>, CallError>,
    },
    /// Another node asks; [`Node::reply`](crate::Node::reply) answers.
    Request {
        /// What to answer.
        ticket: Ticket,
        /// Who asks, as the hub has info proved.
        from: NodeId,
        /// Which run of it.
        instance: InstanceId,
        /// Whom it asks: this node, a service or a player of it.
        to: Addr,
        /// What it asks.
        body: Redacted<Bytes>,
    },
    /// A mail of this node is on the hub's disk.
    MailStored(SenderSeq),
    /// A mail of this node is not kept, for good.
    MailRefused(SenderSeq, MailRefusal),
    /// A mail for a player of this node; [`Node::acknowledge`](crate::Node::acknowledge) ends it.
    Mail {
        /// For whom, and for which session of the player: one that names another claim than the
        /// last is not for the client that is connected now.
        claim: ClaimId,
        /// Its place in the mailbox.
        seq: MailSeq,
        /// Who sent it.
        from: NodeId,
        /// What it says.
        body: Redacted<Bytes>,
    },
    /// The claim of a player stands.
    Claimed(ClaimId),
    /// The claim of a player has ended.
    ClaimLost(ClaimId, RevokeReason),
    /// Another node to all.
    Broadcast {
        /// Who says it.
        from: NodeId,
        /// What it is about.
        topic: Name,
        /// What is said.
        body: Redacted<Bytes>,
    },
    /// What is known of presence is void; what follows is all there is.
    PresenceReset,
    /// How a node is: which run has joined, if any.
    NodePresence(NodeId, Option<NodeInfo>),
    /// Where a player is, and the holder's note.
    PlayerPresence(ClientId, Option<(NodeId, Redacted<Bytes>)>),
    /// What there was at the reset has been told.
    PresenceComplete,
}

/// One session of a player on this node: what [`Node::claim`](crate::Node::claim) gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimId {
    pub(super) player: ClientId,
    pub(super) number: ClaimNumber,
}

impl ClaimId {
    /// Returns the player.
    #[must_use]
    pub const fn player(self) -> ClientId {
        self.player
    }
}

/// A request to answer, over the link it came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    pub(super) link: ConnectionId,
    pub(super) request: RequestId,
}

/// What a node asks its driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeCommand {
    /// Open a connection and prove both keys.
    Dial {
        /// Who shall be at the other end.
        hub: NodeId,
        /// Where, as `host:port`.
        address: String,
    },
}

impl Effect for NodeCommand {
    /// That the connection is open is told by `handle_opened`; this may come before or after it.
    type Outcome = Result<(), DialError>;
}

/// The hub was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialError;

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the hub was not reached")
    }
}

impl core::error::Error for DialError {}

/// Why the node did not take something; what it was is handed back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// No link to the hub is up.
    HubDown(Redacted<Bytes>),
    /// What waits has reached its bound.
    Full(Redacted<Bytes>),
    /// The body is over 64 KiB, or the note over 256 bytes.
    TooLong(Redacted<Bytes>),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HubDown(_) => f.write_str("no link to the hub is up"),
            Self::Full(_) => f.write_str("what waits has reached its bound"),
            Self::TooLong(body) => write!(f, "{} bytes are over the limit", body.len()),
        }
    }
}

impl core::error::Error for SendError {}

/// What a node has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// Dials asked for.
    pub dials: u64,
    /// Links whose other end was not the hub.
    pub strangers: u64,
    /// Records that were none.
    pub malformed: u64,
    /// Mails that came again and were not given to the application again.
    pub mail_repeated: u64,
    /// Mails of players that are not claimed here.
    pub mail_stray: u64,
    /// Replies to calls that nobody waits for.
    pub replies_unknown: u64,
    /// Replies of the application that came after their link had ended.
    pub replies_stale: u64,
    /// Requests answered as busy because events wait.
    pub requests_refused: u64,
    /// Broadcasts dropped because events wait.
    pub broadcasts_dropped: u64,
    /// Increases dropped because too many keys wait.
    pub counts_dropped: u64,
    /// Completions of commands that are not known, or were completed before.
    pub completions_unknown: u64,
}
