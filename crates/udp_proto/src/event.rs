//! Events for the application.

use core::net::SocketAddr;

use crypto::{PublicKey, TokenId};
use wire::{ClientId, MatchId, NodeId, Seat, Team, UnixTime};

use crate::channel::{ChannelId, MessageId};
use crate::config::Mtu;
use crate::error::{CloseReason, ConnectFailure};
use crate::slots::SessionId;

/// An event of one session. Events of a session are in order, and `Closed` is the last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The session is open: messages may be sent and received.
    Connected {
        /// The session.
        session: SessionId,
        /// The peer.
        peer: Box<Peer>,
    },
    /// `connect` failed; the id is not reused.
    ConnectFailed {
        /// The id that `connect` returned.
        session: SessionId,
        /// The cause.
        failure: ConnectFailure,
    },
    /// Messages can be received. Raised again only after all were received.
    Readable {
        /// The session.
        session: SessionId,
    },
    /// The outcome of a tracked message. Raised once for each message sent with
    /// [`send_tracked`](crate::Endpoint::send_tracked), before `Closed`.
    Settled {
        /// The session.
        session: SessionId,
        /// The message's channel.
        channel: ChannelId,
        /// The number that `send_tracked` returned.
        message: MessageId,
        /// The outcome.
        outcome: MessageOutcome,
    },
    /// The peer of an accepted session has a new address: it answered a challenge there, or
    /// returned, or the session's first packet was a copy from elsewhere.
    AddressChanged {
        /// The session, which continues.
        session: SessionId,
        /// The new address; the player's own if a trusted exit reported it.
        address: SocketAddr,
    },
    /// The check of [`Config::mtu_check`](crate::Config::mtu_check) finished. Raised again if the
    /// peer's host changed, for the size that the former path carried.
    MtuChecked {
        /// The session.
        session: SessionId,
        /// The size that the path carries, `None` if not the requested one.
        mtu: Option<Mtu>,
    },
    /// The session's realtime rate changed: halved because the path loses more than a fifth or is
    /// silent, or back at [`Config::realtime_rate`](crate::Config::realtime_rate).
    RateChanged {
        /// The session.
        session: SessionId,
        /// The new rate in bytes per second.
        realtime_rate: u32,
    },
    /// The session ended; the id is not reused. Received messages and counters stay readable until
    /// the next event is polled or another session dialled.
    Closed {
        /// The session.
        session: SessionId,
        /// The cause.
        reason: CloseReason,
        /// The peer's text, at most 128 bytes; empty if it sent none or did not close the session.
        /// Trust it no more than the peer's messages.
        text: Box<[u8]>,
    },
}

/// The peer of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address; the player's own if a trusted exit reported it.
    pub address: SocketAddr,
    /// What it proved.
    pub proof: Proof,
}

/// What the peer of a session has proved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proof {
    /// A client that holds the PSK of this token.
    Token(Grant),
    /// A client of open mode, without a proof.
    Anonymous,
    /// A node of our mesh: it holds the network secret and the key with this hash.
    Node(NodeId),
    /// The server that we dialled: it holds this key.
    Server(PublicKey),
}

/// What a connect token entitles its holder to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Unique id of the token.
    pub token_id: TokenId,
    /// The player.
    pub client_id: ClientId,
    /// The match.
    pub match_id: MatchId,
    /// The player's seat in the match.
    pub seat: Seat,
    /// The player's team.
    pub team: Team,
    /// When the matchmaker issued it; of two tokens of one player, the newer wins.
    pub issued_at: UnixTime,
    /// When it stops opening sessions; existing sessions continue.
    pub expires_at: UnixTime,
    /// The matchmaker's data for the game, at most 512 bytes.
    pub user: Vec<u8>,
}

/// The outcome of a message. `Delivered` is certain. With another, the message may have arrived if
/// only acknowledgements were lost, or if its packet held a fragment that the peer had given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageOutcome {
    /// The peer's endpoint acknowledged all of it, which says nothing of its application.
    Delivered,
    /// Unreliable: a part of it was declared lost, and not acknowledged within another half second.
    /// With [a deadline](crate::Message::until_deadline): the same, and it could not be kept, or was given
    /// up.
    Lost,
    /// Unreliable: its TTL, or the peer's time for fragments, passed before all of it was sent.
    /// With [a deadline](crate::Message::until_deadline) also: not acknowledged within half a second after
    /// it.
    Expired,
    /// Unreliable: newer messages displaced it in a full queue before all of it was sent.
    Displaced,
    /// The session ended first.
    Dropped,
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The message's channel.
    pub channel: ChannelId,
    /// Its number there.
    pub message: MessageId,
    /// The outcome.
    pub outcome: MessageOutcome,
}
