//! What an endpoint tells its application.

use core::net::SocketAddr;

use crypto::{PublicKey, TokenId};
use wire::{ClientId, MatchId, NodeId, Seat, Team, UnixTime};

use crate::channel::{ChannelId, MessageId};
use crate::config::Mtu;
use crate::error::{CloseReason, ConnectFailure};
use crate::outcome::MessageOutcome;
use crate::slots::SessionId;

/// News of one session. Events of one session come in order, and none after `Closed`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The session is open: messages may be sent and received.
    Connected {
        /// The session.
        session: SessionId,
        /// Who is at its other end.
        peer: Box<Peer>,
    },
    /// `connect` ended without a session; the id is not used again.
    ConnectFailed {
        /// What `connect` returned.
        session: SessionId,
        /// Why.
        failure: ConnectFailure,
    },
    /// Messages wait to be received; said again only after all were.
    Readable {
        /// The session.
        session: SessionId,
    },
    /// What became of a message is known; told once for each that was sent with
    /// [`send_tracked`](crate::Endpoint::send_tracked), and before `Closed`.
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
    /// The peer of a session that we accepted has another address: packets go there from now on. It
    /// has answered from there, or came back to where it was within the last minute; or the first
    /// packet of the session was a copy from elsewhere.
    AddressChanged {
        /// The session, which goes on.
        session: SessionId,
        /// Where its packets come from now: the player's own address where a trusted exit told it.
        address: SocketAddr,
    },
    /// The check that [`Config::mtu_check`](crate::Config::mtu_check) asks for is over; told again
    /// where the peer's host has changed, for the size that was known to be carried before.
    MtuChecked {
        /// The session.
        session: SessionId,
        /// The size that its path carries, `None` where not the one asked for.
        mtu: Option<Mtu>,
    },
    /// What the session may send of realtime messages has changed: its path loses more than a fifth,
    /// or answers no more, and the rate was halved; or it is back at
    /// [`Config::realtime_rate`](crate::Config::realtime_rate). Who sends less keeps what it sends young.
    RateChanged {
        /// The session.
        session: SessionId,
        /// Bytes a second now.
        realtime_rate: u32,
    },
    /// The session has ended; the id is not used again. Until the next event is polled, or another
    /// session dialled, what came before the end can be received, and the counters be read.
    Closed {
        /// The session.
        session: SessionId,
        /// Why.
        reason: CloseReason,
        /// What the peer said besides its code, at most 128 bytes; empty where it said nothing,
        /// or did not end the session. To be trusted like any message of the peer's.
        text: Box<[u8]>,
    },
}

/// Who is at the other end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where its packets come from: the player's own address where a trusted exit told it.
    pub address: SocketAddr,
    /// What it proved.
    pub proof: Proof,
}

/// What the other end of a session has proved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proof {
    /// A client: it holds the PSK of this token.
    Token(Grant),
    /// A client of open mode: nothing.
    Anonymous,
    /// A node of our network: it holds the network secret and the key with this hash.
    Node(NodeId),
    /// The server that we dialled: it holds this key.
    Server(PublicKey),
}

/// What a connect token entitles its holder to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Names the token; no other has it.
    pub token_id: TokenId,
    /// The player.
    pub client_id: ClientId,
    /// The match.
    pub match_id: MatchId,
    /// The place in it.
    pub seat: Seat,
    /// The side.
    pub team: Team,
    /// When the matchmaker made it; of two tokens of one player, the newer one counts.
    pub issued_at: UnixTime,
    /// When it stops opening sessions; a session outlives it.
    pub expires_at: UnixTime,
    /// What the matchmaker added for the game, at most 512 bytes.
    pub user: Vec<u8>,
}
