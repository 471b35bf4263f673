//! How an exit measures the round trip to a game server.

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

    /// Returns whether port and query are within their bounds.
    pub(crate) const fn is_valid(&self) -> bool {
        match self {
            Self::Connect { port } => *port != 0,
            Self::None | Self::Icmp => true,
            Self::Query { request } => request.len() <= Self::QUERY_LEN_MAX,
        }
    }
}
