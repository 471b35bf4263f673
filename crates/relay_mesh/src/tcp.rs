//! TCP games of a node: requests to the driver of its TCP sockets.

use core::net::SocketAddr;

use crate::game::Game;
use crate::tunnel::{ConnEnd, ConnId, StdInstant, TunnelConfig};

/// TCP games of a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TcpConfig {
    /// TCP games that it carries; a UDP game may have the same name. All connections of games of
    /// one mode to one exit share a flow; the entry's mode applies in both directions. The games of
    /// a signed document replace these.
    pub games: Vec<Game>,
    /// The driver's `std` clock when the node is created; only differences to it are used.
    pub epoch: StdInstant,
    /// Connection slots of the driver, for players and game servers together; 1,024, and at most
    /// [`PLAYERS_MAX`](TunnelConfig::PLAYERS_MAX). Another entry has at most seven eighths of them,
    /// in all its tunnels. Players of one /24 or /48 have at most a quarter, or twice
    /// [`per_address_max`](TunnelConfig::per_address_max) if that is more; a player with this
    /// node as exit too uses two. The driver enforces the total.
    pub connections_max: u32,
    /// Limits of each tunnel.
    pub tunnel: TunnelConfig,
}

impl TcpConfig {
    /// Creates the configuration of a node without TCP games.
    #[must_use]
    pub fn new(epoch: StdInstant) -> Self {
        Self {
            games: Vec::new(),
            epoch,
            connections_max: 1_024,
            tunnel: TunnelConfig::default(),
        }
    }

    /// Returns the share of `places` slots that one /24 or /48 may have: a quarter.
    #[must_use]
    pub const fn prefix_share(places: u32) -> u32 {
        places / 4
    }
}

/// Id of a TCP port that a node listens on; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpPort(pub u32);

/// A request or notification to the driver of the TCP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpWork {
    /// Listen, and report the result by [`Node::tcp_listening`](crate::Node::tcp_listening).
    Listen {
        /// Its new id.
        port: TcpPort,
        /// The address.
        address: SocketAddr,
        /// Whether it accepts IPv4 too: it is `[::]`, and the only address of the port.
        is_dual: bool,
    },
    /// Stop listening; accepted connections continue.
    Unlisten {
        /// The port.
        port: TcpPort,
    },
    /// Connect, and report the result by [`Node::tcp_dialled`](crate::Node::tcp_dialled).
    Dial {
        /// The player's connection.
        conn: ConnId,
        /// The server.
        server: SocketAddr,
    },
    /// There are bytes for the socket, after it had all previous ones.
    Readable {
        /// The connection.
        conn: ConnId,
    },
    /// Bytes of the socket are accepted again, after some were not.
    Writable {
        /// The connection.
        conn: ConnId,
    },
    /// There are no more bytes for the socket: close its send half.
    Finished {
        /// The connection.
        conn: ConnId,
    },
    /// The connection has ended: close its socket, or reset it if the end is not
    /// [`Done`](ConnEnd::Done). A dial for it may be aborted.
    Ended {
        /// The connection.
        conn: ConnId,
        /// How it ended.
        end: ConnEnd,
    },
}

/// Why a node accepts no TCP connection; reset it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpRefused {
    /// Its port belongs to no game.
    NoGame,
    /// No exit of the game can be reached.
    NoExit,
    /// A limit is reached: per address, or in total.
    LimitReached,
}

wire::error_text! { TcpRefused {
    Self::NoGame => "the port belongs to no game",
    Self::NoExit => "no exit of the game can be reached",
    Self::LimitReached => "the limit of connections is reached",
}}
