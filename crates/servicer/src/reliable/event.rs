//! Members, destinations and events of reliable servers and clients.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wire::PeerIdentity;

use crate::handle::End;
use crate::tcp::{DialError, OpenConnection};

/// Id of a client that a server has accepted. The server never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.0)
    }
}

/// The recipients of a message.
///
/// The recipients on one thread cost one order together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dest {
    /// One member.
    One(MemberId),
    /// These members, once per occurrence. Those that have left are ignored.
    Many(Arc<[MemberId]>),
    /// All members at the time of sending.
    All,
}

impl From<MemberId> for Dest {
    fn from(member: MemberId) -> Self {
        Self::One(member)
    }
}

/// Events of a [`ReliableServer`](super::ReliableServer).
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerEvent {
    /// A client asks to join. Answer with [`accept`](super::ReliableServer::accept) or
    /// [`refuse`](super::ReliableServer::refuse).
    Join(JoinRequest),
    /// A member sent a message.
    Message {
        /// The sender.
        from: MemberId,
        /// The message.
        payload: Bytes,
    },
    /// A member read too slowly and is being closed. [`Left`](Self::Left) follows.
    Slow {
        /// The member.
        member: MemberId,
        /// Bytes queued for it, counting 48 more for each message.
        waiting_bytes: usize,
        /// Age of the oldest queued message.
        waiting_for: Duration,
    },
    /// A member has left. No event of it follows.
    Left {
        /// The member.
        member: MemberId,
        /// The cause.
        cause: LeaveCause,
    },
    /// A thread ended on its own, for example by a panic. [`Left`](Self::Left) follows for each
    /// of its members. Other members are not affected. A pool thread is replaced.
    ThreadEnded {
        /// Name of its thread.
        name: String,
        /// How it ended.
        end: End,
        /// Number of its members.
        members: usize,
    },
}

/// A client that asks to join. Dropping it closes the connection without a reason.
#[derive(Debug)]
pub struct JoinRequest {
    pub(super) connection: OpenConnection,
    pub(super) payload: Bytes,
    pub(super) address: Option<SocketAddr>,
}

impl JoinRequest {
    /// Returns the client's join payload, such as name and credentials. It was sent encrypted over
    /// TLS.
    pub const fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Returns the identity that the client proved, if any.
    pub const fn peer(&self) -> &PeerIdentity {
        self.connection.peer()
    }

    /// Returns the client's address; `None` if it has already left.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

/// Why a member has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaveCause {
    /// The member closed the connection in order.
    Finished,
    /// The connection was lost: reset, or timed out.
    Lost,
    /// The member broke the protocol: a record too long, or one that clients must not send.
    Malformed,
    /// The member read too slowly.
    Slow,
    /// The application dismissed it.
    Dismissed,
    /// The server has shut down.
    ShutDown,
    /// The thread of the member has ended.
    ThreadEnded,
}

wire::display_text! { LeaveCause {
    Self::Finished => "left",
    Self::Lost => "was lost",
    Self::Malformed => "broke the rules of the stream",
    Self::Slow => "did not take what it was sent",
    Self::Dismissed => "was dismissed",
    Self::ShutDown => "was sent away as the server shut down",
    Self::ThreadEnded => "lost its thread",
}}

/// Events of a [`ReliableClient`](super::ReliableClient).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientEvent {
    /// The server accepted the client.
    Accepted {
        /// The server's welcome, such as the address of the game.
        welcome: Bytes,
    },
    /// The server sent a message.
    Message(Bytes),
    /// The connection has closed. No event follows.
    Closed(ClientClose),
}

/// Why a client's connection closed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientClose {
    /// The dial failed.
    Unreachable(DialError),
    /// The server refused the client for this reason.
    Refused(Bytes),
    /// The connection was lost: the server or the network failed.
    Lost,
    /// The server broke the protocol.
    Malformed,
    /// The server shut down for this reason.
    ShutDown(Bytes),
    /// The server closed the connection because the client read too slowly.
    Slow,
    /// The server dismissed the client for this reason.
    Dismissed(Bytes),
    /// The client closed the connection because the server read too slowly.
    ServerSlow,
    /// The client's own thread has ended, for example by a panic.
    ThreadEnded,
}

wire::error_text! { ClientClose {
    Self::Unreachable(error) => "the server was not reached: {error}",
    Self::Refused(_) => "the server refused the client",
    Self::Lost => "the connection was lost",
    Self::Malformed => "the server broke the rules of the stream",
    Self::ShutDown(_) => "the server has shut down",
    Self::Slow => "the client did not take what it was sent",
    Self::Dismissed(_) => "the server has dismissed the client",
    Self::ServerSlow => "the server did not take what it was sent",
    Self::ThreadEnded => "the client's thread has ended",
}}
