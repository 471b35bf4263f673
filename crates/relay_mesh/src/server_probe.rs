//! How an exit measures its way to a game server.

/// What is sent to a server to see how long an answer takes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerProbe {
    /// Nothing: the server is not measured.
    None,
    /// A TCP connection to this port of the server's host, closed once it stands.
    Connect {
        /// Which port.
        port: u16,
    },
    /// An ICMP echo request to the server's host, where the system permits it.
    Icmp,
    /// A datagram to the server; whatever it answers counts.
    Query {
        /// What it is sent; at most [`QUERY_LEN_MAX`](Self::QUERY_LEN_MAX) bytes.
        request: Vec<u8>,
    },
}

impl ServerProbe {
    /// Longest query, in bytes; those of games are shorter than 64.
    pub const QUERY_LEN_MAX: usize = 512;

    /// Returns whether it keeps its bound.
    pub(crate) const fn is_valid(&self) -> bool {
        match self {
            Self::Connect { port } => *port != 0,
            Self::None | Self::Icmp => true,
            Self::Query { request } => request.len() <= Self::QUERY_LEN_MAX,
        }
    }
}
