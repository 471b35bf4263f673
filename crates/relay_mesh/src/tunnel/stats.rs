//! What became of a tunnel's datagrams and connections.

use serde::Serialize;

/// Counters of one end of a tunnel, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
    /// Not taken, of all that come in here: as many as one /24 or /48 may have.
    pub over_prefix: u64,
    /// Not taken, of all that go out here: as many as one entry may have.
    pub over_share: u64,
    /// Not taken: too many within a second.
    pub over_rate: u64,
    /// Streams that began with no open record.
    pub malformed: u64,
    /// Connections that nobody answered for in time.
    pub unanswered: u64,
    /// Connections that were reset, at either end.
    pub reset: u64,
    /// Of them, those whose driver had taken next to nothing for long, beyond as many as may.
    pub stalled: u64,
    /// Connections whose two halves were closed.
    pub done: u64,
}

impl TunnelStats {
    /// What both have counted.
    pub(crate) const fn plus(self, other: &Self) -> Self {
        Self {
            junk: self.junk.saturating_add(other.junk),
            opened: self.opened.saturating_add(other.opened),
            accepted: self.accepted.saturating_add(other.accepted),
            refused: self.refused.saturating_add(other.refused),
            over_players: self.over_players.saturating_add(other.over_players),
            over_address: self.over_address.saturating_add(other.over_address),
            over_prefix: self.over_prefix.saturating_add(other.over_prefix),
            over_share: self.over_share.saturating_add(other.over_share),
            over_rate: self.over_rate.saturating_add(other.over_rate),
            malformed: self.malformed.saturating_add(other.malformed),
            unanswered: self.unanswered.saturating_add(other.unanswered),
            reset: self.reset.saturating_add(other.reset),
            stalled: self.stalled.saturating_add(other.stalled),
            done: self.done.saturating_add(other.done),
        }
    }
}
