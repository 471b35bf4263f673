//! Games that the mesh carries: entries, exits, PROXY headers to servers, and their measurement.

use core::net::SocketAddr;
use core::ops::BitOr;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use wire::NodeId;

use crate::proxy_header::{Checksum, Version};

/// A game that the mesh carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Game {
    /// Equal at entry and exit; at most 64 bytes.
    pub name: String,
    /// How flows that this node sends react to failures.
    pub mode: Mode,
    /// At an entry: where players connect.
    pub entry: Option<EntryGame>,
    /// At an exit: where packets are sent.
    pub exit: Option<ExitGame>,
}

impl Game {
    /// Returns whether its header has a version that does not support datagrams.
    pub(crate) fn has_line_for_datagrams(&self) -> bool {
        let header = self.exit.as_ref().and_then(|exit| exit.header);
        header.is_some_and(|header| header.version == Version::One)
    }
}

/// A game at an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryGame {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Exits that serve it; each new player gets the cheapest.
    pub exits: Vec<NodeId>,
}

/// A game at an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitGame {
    /// Address of its server.
    pub server: SocketAddr,
    /// Entries that may send players; `None` allows all members.
    pub entries: Option<BTreeSet<NodeId>>,
    /// PROXY header sent to the server, if any; without one it sees only this node's address.
    pub header: Option<ServerHeader>,
}

/// How a flow reacts to failures of its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One path; another is used once it is dead.
    Single,
    /// A second path is kept warm, and carries copies while the first is suspect.
    #[default]
    Shadow,
    /// Two paths carry every packet.
    Dup,
}

/// PROXY protocol headers from an exit to a game server. Only for servers that parse them; others
/// treat them as player data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerHeader {
    /// Header version. Games over UDP use version 2, since version 1 has no datagrams.
    pub version: Version,
    /// Which datagrams have a header.
    pub timing: HeaderTiming,
    /// Extensions besides the addresses.
    pub extras: HeaderExtras,
}

/// Which of a flow's datagrams start with a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderTiming {
    /// The first, each further one while the server has not answered within the last 2 s, and those
    /// in which a player imitates a header. For servers that remember the player of each flow.
    #[default]
    First,
    /// All. For servers without state; every datagram is longer by the header.
    Each,
}

/// Extensions of a header; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderExtras(u8);

impl HeaderExtras {
    /// None.
    pub const NONE: Self = Self(0);
    /// Its CRC32C; 7 bytes.
    pub const CHECKSUM: Self = Self(1);
    /// Unique id of the flow, [`SESSION_ID`](crate::proxy_header::TlvKind::SESSION_ID); 19 bytes.
    pub const SESSION_ID: Self = Self(2);
    /// Nodes on the path, [`NODES`](crate::proxy_header::TlvKind::NODES); 3 bytes, and 8 for each
    /// of 2 to 5 nodes.
    pub const NODES: Self = Self(4);

    /// Returns whether all of `others` are in the set.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    pub(crate) const fn checksum(self) -> Checksum {
        if self.contains(Self::CHECKSUM) {
            Checksum::Crc32c
        } else {
            Checksum::None
        }
    }
}

impl BitOr for HeaderExtras {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What is sent to a server to measure its round-trip time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerProbe {
    /// Nothing: the server is not measured.
    None,
    /// A TCP connection to this port of the server's host, closed once it is established.
    Connect {
        /// The port.
        port: u16,
    },
    /// An ICMP echo request to the server's host, if the system permits it.
    Icmp,
    /// A datagram to the server; any answer counts.
    Query {
        /// Its payload; at most [`QUERY_LEN_MAX`](Self::QUERY_LEN_MAX) bytes.
        request: Vec<u8>,
    },
}

impl ServerProbe {
    /// Longest query, in bytes; those of games are shorter than 64.
    pub const QUERY_LEN_MAX: usize = 512;

    pub(crate) const fn is_valid(&self) -> bool {
        match self {
            Self::Connect { port } => *port != 0,
            Self::None | Self::Icmp => true,
            Self::Query { request } => request.len() <= Self::QUERY_LEN_MAX,
        }
    }
}
