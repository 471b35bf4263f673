//! What became of TCP connections.

use serde::Serialize;

/// What a node's TCP sockets count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TcpStats {
    /// Connections taken from players.
    pub accepted: u64,
    /// Game servers dialled.
    pub dialled: u64,
    /// Connections whose two halves were closed, at this node's socket.
    pub done: u64,
    /// Connections reset by the player or the game server.
    pub broken: u64,
    /// Connections reset because the far end, or the way to it, is gone or refused.
    pub lost: u64,
    /// Players reset because no exit of their game can be reached, or the node takes no more.
    pub no_exit: u64,
    /// Players reset because a limit is reached: of their address, of its /24 or /48, or of a second.
    pub crowded: u64,
    /// Players reset for what they began with: a header that they may not send, a bad one, or none
    /// where one must be.
    pub bad_greetings: u64,
    /// Connections of proxies reset before their header came, to make room for newcomers.
    pub greetings_crowded: u64,
    /// Dials that a game server, or the network, refused.
    pub dials_refused: u64,
    /// Dials that a game server did not answer in time.
    pub dials_slow: u64,
    /// Dials not made: as many connections as there may be, or no descriptor left.
    pub dials_crowded: u64,
    /// Times that nobody was let in for a while: all places were taken, and no connection was idle.
    pub pauses: u64,
    /// Failed accepts, such as for want of a descriptor; a pause follows each.
    pub accept_errors: u64,
    /// Ports that could not be opened.
    pub listens_failed: u64,
    /// Bytes taken from sockets.
    pub bytes_in: u64,
    /// Bytes given to sockets.
    pub bytes_out: u64,
}

/// The counters, and what stands now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpCounted {
    /// What was counted.
    pub stats: TcpStats,
    /// Sockets of players and to game servers that are open now.
    pub connections: usize,
    /// Ports that are listened on now.
    pub ports: usize,
}

pub(super) const fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}
