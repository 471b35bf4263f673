//! TCP games at a node: what its driver is asked to do, and how it answers.

use core::fmt;
use core::net::SocketAddr;

use crate::config::Game;
use crate::tunnel::{ConnEnd, ConnId, StdInstant, TunnelConfig};

/// TCP games of a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TcpConfig {
    /// Games carried, apart from those over UDP: a name may stand in both. All connections of games of one
    /// mode to one exit share a flow; the mode is the entry's, in both directions. Those of a signed document
    /// take the place of these.
    pub games: Vec<Game>,
    /// What the driver's clock of the standard library shows when the node is made. Nothing but differences to
    /// it is looked at.
    pub epoch: StdInstant,
    /// Connections that the driver of the node's TCP sockets has places for, of players and to game
    /// servers together; 1,024, and at most [`PLAYERS_MAX`](TunnelConfig::PLAYERS_MAX) whatever stands here.
    /// Another entry has at most seven eighths of them, in all its tunnels. Players
    /// of one /24 or /48 have at most a quarter, or twice
    /// [`per_address_max`](TunnelConfig::per_address_max) where that is more; one whose exit is this node
    /// too has two. Where all are taken is the driver's to say.
    pub connections_max: u32,
    /// What each tunnel allows.
    pub tunnel: TunnelConfig,
}

impl TcpConfig {
    /// A node that carries no TCP game yet.
    #[must_use]
    pub fn new(epoch: StdInstant) -> Self {
        Self {
            games: Vec::new(),
            epoch,
            connections_max: 1_024,
            tunnel: TunnelConfig::default(),
        }
    }

    /// The share of so many places that one /24 or /48 may have: a quarter, more than a household or a
    /// school needs, and three others find some.
    #[must_use]
    pub const fn prefix_share(places: u32) -> u32 {
        places / 4
    }
}

/// Names a TCP port that a node wants listened on; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpPort(pub u32);

/// What a node asks of the driver of its TCP sockets, or tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpWork {
    /// Listen on this address, and say by [`Node::tcp_listening`](crate::Node::tcp_listening) whether it could be.
    Listen {
        /// Its name from now on.
        port: TcpPort,
        /// Where.
        address: SocketAddr,
        /// Whether it accepts IPv4 too: `[::]`, and no other address of the node has the port.
        is_dual: bool,
    },
    /// Listen no more. Connections taken before go on.
    Unlisten {
        /// Where.
        port: TcpPort,
    },
    /// Connect to a game server, and say by [`Node::tcp_dialled`](crate::Node::tcp_dialled) how it went.
    Dial {
        /// For whom.
        conn: ConnId,
        /// Where to.
        server: SocketAddr,
    },
    /// There are bytes for the socket, which had all before.
    Readable {
        /// Of which connection.
        conn: ConnId,
    },
    /// Bytes of the socket are taken again, after not all were.
    Writable {
        /// Of which connection.
        conn: ConnId,
    },
    /// No more bytes come for the socket: its half is to be closed.
    Finished {
        /// Of which connection.
        conn: ConnId,
    },
    /// The connection is over: its socket is to be closed, or reset where it is not
    /// [`Done`](ConnEnd::Done). A dial for it need not go on.
    Ended {
        /// Which.
        conn: ConnId,
        /// How.
        end: ConnEnd,
    },
}

/// Why a node takes no TCP connection: it is to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpRefused {
    /// Its port is of no game.
    NoGame,
    /// No exit of the game can be reached now.
    NoExit,
    /// A limit is reached: of the player's address, or of all.
    Crowded,
}

impl fmt::Display for TcpRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoGame => "the port belongs to no game",
            Self::NoExit => "no exit of the game can be reached",
            Self::Crowded => "the limit of connections is reached",
        })
    }
}

impl core::error::Error for TcpRefused {}
