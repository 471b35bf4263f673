//! Events of a server or client.

use udp_proto::{
    ChannelId, CloseReason, ConnectFailure, MessageId, MessageOutcome, Peer, SessionId,
};

/// An event for the game loop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A session is open and accepts messages.
    Connected {
        /// The session.
        session: SessionId,
        /// The peer, and what it proved about itself.
        peer: Box<Peer>,
    },
    /// A message was received.
    Message {
        /// The session.
        session: SessionId,
        /// The channel it was sent on.
        channel: ChannelId,
        /// The payload.
        bytes: Vec<u8>,
    },
    /// The outcome of a tracked message. There is one for each message that was sent tracked,
    /// before `Disconnected`.
    Settled {
        /// The session.
        session: SessionId,
        /// The channel it was sent on.
        channel: ChannelId,
        /// The number that `send_tracked` returned.
        message: MessageId,
        /// The outcome.
        outcome: MessageOutcome,
    },
    /// The session has ended. No event of this session follows.
    Disconnected {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: CloseReason,
        /// The peer's reason text, at most 128 bytes; empty if it sent none.
        text: Box<[u8]>,
    },
    /// The server was not reached; no session was opened.
    Unreachable {
        /// The reason.
        failure: ConnectFailure,
    },
}
