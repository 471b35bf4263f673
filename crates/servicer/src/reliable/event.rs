//! What servers and clients tell their application.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use wire::PeerIdentity;

use crate::end::End;
use crate::tcp::{DialError, OpenConnection};

/// A client that a server has accepted; no two of a server have the same, one after the other
/// neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.0)
    }
}

/// News of a [`ReliableServer`](super::ReliableServer).
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerEvent {
    /// Somebody asks to be let in. To be given to
    /// [`accept`](super::ReliableServer::accept) or [`refuse`](super::ReliableServer::refuse).
    Join(JoinRequest),
    /// A member says something.
    Message {
        /// Who.
        from: MemberId,
        /// What.
        payload: Bytes,
    },
    /// A member does not take what it is sent, and is given up; [`Left`](Self::Left) follows.
    Slow {
        /// Who.
        member: MemberId,
        /// What waits for it, bytes, 48 more for each message counted in.
        waiting_bytes: usize,
        /// How long the oldest of it has waited.
        waiting_for: Duration,
    },
    /// A member is gone. Nothing of it comes after this.
    Left {
        /// Who.
        member: MemberId,
        /// Why.
        cause: LeaveCause,
    },
    /// A servicer has ended by itself, such as by a panic. Those whom it served have left, which is told
    /// next; all others are served as before, and where it was one of a pool, another is in its place.
    ServicerEnded {
        /// Name of its thread.
        name: String,
        /// How.
        end: End,
        /// How many members it served.
        members: usize,
    },
}

/// Somebody who asks to be let in. Dropping it closes the connection without a reason.
#[derive(Debug)]
pub struct JoinRequest {
    pub(super) connection: OpenConnection,
    pub(super) payload: Bytes,
    pub(super) address: Option<SocketAddr>,
}

impl JoinRequest {
    /// What it says of itself, such as a name and credentials. It came over TLS, so nobody else has
    /// read it.
    pub const fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Who it has proved to be, if it has.
    pub const fn peer(&self) -> &PeerIdentity {
        self.connection.peer()
    }

    /// Where it comes from; `None` where it has left already.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

/// Why a member has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaveCause {
    /// It closed in order.
    Finished,
    /// Its connection is lost: reset, or silent beyond all patience.
    Lost,
    /// It broke the rules of the stream: a record too long, or none of those that clients send.
    Malformed,
    /// It did not take what it was sent.
    Slow,
    /// The application dismissed it.
    Dismissed,
    /// The server has shut down.
    ShutDown,
    /// The servicer that it had has ended.
    ServicerEnded,
}

impl fmt::Display for LeaveCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Finished => "left",
            Self::Lost => "was lost",
            Self::Malformed => "broke the rules of the stream",
            Self::Slow => "did not take what it was sent",
            Self::Dismissed => "was dismissed",
            Self::ShutDown => "was sent away as the server shut down",
            Self::ServicerEnded => "lost its servicer",
        })
    }
}

/// News of a [`ReliableClient`](super::ReliableClient).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientEvent {
    /// The server has let the client in.
    Accepted {
        /// What it says to that, such as where the game is.
        welcome: Bytes,
    },
    /// The server says something.
    Message(Bytes),
    /// It is over; nothing comes after this.
    Closed(ClientClose),
}

/// Why a client's connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientClose {
    /// No server was reached, or another than the one to be there.
    Unreachable(DialError),
    /// The server did not let the client in, for this reason.
    Refused(Bytes),
    /// The connection is lost without a word: the server is gone, or the way to it.
    Lost,
    /// The server broke the rules of the stream.
    Malformed,
    /// The server has shut down, and says this.
    ShutDown(Bytes),
    /// The server gave the client up, since it did not take what it was sent.
    Slow,
    /// The server has dismissed the client, for this reason.
    Dismissed(Bytes),
    /// The server did not take what it was sent.
    ServerSlow,
    /// The client's own servicer has ended, such as by a panic.
    ServicerEnded,
}

impl fmt::Display for ClientClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "the server was not reached: {error}"),
            Self::Refused(_) => f.write_str("the server refused the client"),
            Self::Lost => f.write_str("the connection was lost"),
            Self::Malformed => f.write_str("the server broke the rules of the stream"),
            Self::ShutDown(_) => f.write_str("the server has shut down"),
            Self::Slow => f.write_str("the client did not take what it was sent"),
            Self::Dismissed(_) => f.write_str("the server has dismissed the client"),
            Self::ServerSlow => f.write_str("the server did not take what it was sent"),
            Self::ServicerEnded => f.write_str("the client's servicer has ended"),
        }
    }
}

impl std::error::Error for ClientClose {}
