//! What a tunnel tells of itself and of the connections in it.

use core::fmt;

use super::open_record::{OpenRecord, Refusal};

/// Names one player's connection at one end of a tunnel; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// The tunnel, as numbered by whoever made it.
    pub tunnel: u32,
    /// The connection, counted by the tunnel.
    pub number: u64,
}

/// News of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelEvent {
    /// Both ends have proved who they are.
    Up,
    /// At an exit: the entry has a connection for a game. It waits for
    /// [`accept`](super::Tunnel::accept) or [`refuse`](super::Tunnel::refuse), for 15 s.
    Asked {
        /// Its name from now on.
        conn: ConnId,
        /// Whose it is, and for which game.
        open: OpenRecord,
    },
    /// At an entry: the exit's server has answered.
    Accepted {
        /// Which connection.
        conn: ConnId,
    },
    /// There are bytes to be had from [`readable`](super::Tunnel::readable), which had none before.
    Readable {
        /// Of which connection.
        conn: ConnId,
    },
    /// [`write`](super::Tunnel::write), which did not take all before, takes bytes again.
    Writable {
        /// For which connection.
        conn: ConnId,
    },
    /// All bytes of the far end have been taken, and no more come: the half that leads here is closed.
    Finished {
        /// Of which connection.
        conn: ConnId,
    },
    /// A connection is over, and its name means nothing any more. Not told to whoever resets it.
    Ended {
        /// Which.
        conn: ConnId,
        /// How.
        end: ConnEnd,
    },
    /// The tunnel is over; its connections have been told to have ended before.
    Down {
        /// Why.
        end: TunnelEnd,
    },
}

/// How a connection ended. For all but [`Done`](Self::Done) the TCP connection is to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnEnd {
    /// Both halves were closed, and all bytes are where they belong.
    Done,
    /// The exit did not take it.
    Refused(Refusal),
    /// The TCP connection at the far end was reset, or its player is gone.
    Reset,
    /// The far end did not answer in time, or the driver here did not.
    Unanswered,
    /// The tunnel is over.
    Lost(TunnelEnd),
}

/// Why a tunnel is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelEnd {
    /// It was closed at this end.
    Local,
    /// It was closed at the other end.
    Closed,
    /// Nothing came from the other end for 20 s.
    Silent,
    /// The other end is not who it should be, or says so of this one.
    Identity,
    /// The other end broke a rule of QUIC, or says so of this one.
    Protocol,
}

impl fmt::Display for TunnelEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "the tunnel was closed here",
            Self::Closed => "the tunnel was closed at its other end",
            Self::Silent => "nothing came through the tunnel for 20 s",
            Self::Identity => "the other end of the tunnel is another node",
            Self::Protocol => "the two ends of the tunnel did not understand each other",
        })
    }
}

/// Why a tunnel takes no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// It has as many as it may.
    Players,
    /// The player's address has as many as it may.
    Address,
    /// Too many came within a second.
    Rate,
    /// It is over, or leads players out, not in.
    Closed,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Players => "the tunnel has as many connections as it may",
            Self::Address => "the player's address has as many connections as it may",
            Self::Rate => "too many connections came within a second",
            Self::Closed => "the tunnel takes no connections",
        })
    }
}

impl core::error::Error for OpenError {}

/// The connection is over, or never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such connection")
    }
}

impl core::error::Error for Gone {}
