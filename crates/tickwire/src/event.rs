//! What happens to a server's players, or to a client.

use udp_proto::{
    ChannelId, CloseReason, ConnectFailure, MessageId, MessageOutcome, Peer, SessionId,
};

/// News for a game loop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A session is open: messages may be sent.
    Connected {
        /// The session.
        session: SessionId,
        /// Who is at its other end, and what was proved.
        peer: Box<Peer>,
    },
    /// A message has come.
    Message {
        /// The session.
        session: SessionId,
        /// The channel it was sent on.
        channel: ChannelId,
        /// What was sent.
        bytes: Vec<u8>,
    },
    /// What became of a message is known: once for each that was sent tracked, and before
    /// `Disconnected`.
    Settled {
        /// The session.
        session: SessionId,
        /// The channel it was sent on.
        channel: ChannelId,
        /// What `send_tracked` returned.
        message: MessageId,
        /// What became of it.
        outcome: MessageOutcome,
    },
    /// The session has ended; none of its events follow.
    Disconnected {
        /// The session.
        session: SessionId,
        /// Why.
        reason: CloseReason,
        /// What the peer said to that, at most 128 bytes; empty where it said nothing.
        text: Box<[u8]>,
    },
    /// The server was not reached; no session was opened.
    Unreachable {
        /// Why.
        failure: ConnectFailure,
    },
}
