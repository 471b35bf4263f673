//! What became of a tunnel's datagrams and connections.

/// Counters of one end of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunnelStats {
    /// Datagrams that were none of QUIC's for this connection.
    pub junk: u64,
    /// Connections that players or the entry opened.
    pub opened: u64,
    /// Of them, those that the exit took.
    pub accepted: u64,
    /// Those that it refused.
    pub refused: u64,
    /// Not taken: as many connections as there may be, in all.
    pub over_players: u64,
    /// Not taken: as many as one address may have.
    pub over_address: u64,
    /// Not taken: too many within a second.
    pub over_rate: u64,
    /// Streams that began with no open record.
    pub malformed: u64,
    /// Connections that nobody answered for in time.
    pub unanswered: u64,
    /// Connections that were reset, at either end.
    pub reset: u64,
    /// Connections whose two halves were closed.
    pub done: u64,
}
