//! Events of a tunnel and its connections.

use super::open_record::{OpenRecord, Refusal};

/// Names one player's connection at one end of a tunnel; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// The tunnel's number, as given by its creator.
    pub tunnel: u32,
    /// The connection's number within the tunnel.
    pub number: u64,
}

/// An event of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelEvent {
    /// Both ends have proved their identity.
    Up,
    /// Exit: the entry opens a connection for a game. Answer with [`accept`](super::Tunnel::accept)
    /// or [`refuse`](super::Tunnel::refuse) within 15 s.
    Asked {
        /// The new connection.
        conn: ConnId,
        /// Its player and game.
        open: OpenRecord,
    },
    /// Entry: the exit's server has answered.
    Accepted {
        /// The connection.
        conn: ConnId,
    },
    /// [`readable`](super::Tunnel::readable), which was empty, has bytes.
    Readable {
        /// The connection.
        conn: ConnId,
    },
    /// [`write`](super::Tunnel::write), which did not take all bytes, has room again.
    Writable {
        /// The connection.
        conn: ConnId,
    },
    /// All bytes of the remote end were consumed, and it has closed its half.
    Finished {
        /// The connection.
        conn: ConnId,
    },
    /// A connection has ended, and its id is invalid. Not reported to the end that reset it.
    Ended {
        /// The connection.
        conn: ConnId,
        /// How it ended.
        end: ConnEnd,
    },
    /// The tunnel is down; the end of each connection was reported before.
    Down {
        /// The reason.
        end: TunnelEnd,
    },
}

/// How a connection ended. In all cases except [`Done`](Self::Done), reset the TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnEnd {
    /// Both halves were closed and all bytes delivered.
    Done,
    /// The exit refused it.
    Refused(Refusal),
    /// The TCP connection at the remote end was reset, or the player is gone.
    Reset,
    /// The remote end, or the driver at this one, did not answer in time.
    Unanswered,
    /// The tunnel is down.
    Lost(TunnelEnd),
}

/// Why a tunnel is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelEnd {
    /// This end closed it.
    Local,
    /// The remote end closed it.
    Closed,
    /// Nothing arrived from the remote end for 20 s.
    Silent,
    /// One end did not prove the expected identity.
    Identity,
    /// One end violated the QUIC protocol.
    Protocol,
}

wire::display_text! { TunnelEnd {
    Self::Local => "this end closed the tunnel",
    Self::Closed => "the far end closed the tunnel",
    Self::Silent => "the tunnel received nothing for 20 s",
    Self::Identity => "the far end of the tunnel is another node",
    Self::Protocol => "one end of the tunnel violated the protocol",
}}

/// Why a tunnel accepts no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Its limit of connections is reached.
    Players,
    /// The limit of the player's address is reached.
    Address,
    /// The limit of connections per second is reached.
    Rate,
    /// It is down, or it is an exit's end.
    Closed,
}

wire::error_text! { OpenError {
    Self::Players => "the limit of connections of the tunnel is reached",
    Self::Address => "the limit of connections of the player's address is reached",
    Self::Rate => "the limit of connections per second is reached",
    Self::Closed => "the tunnel accepts no connections",
}}

/// The connection has ended, or never existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

wire::error_text! { Gone {
    Self => "no such connection",
}}
