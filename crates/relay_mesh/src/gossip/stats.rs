//! What gossip counts.

use serde::Serialize;

/// What became of gossip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GossipStats {
    /// Messages dropped because their neighbour said more than it may.
    pub over_rate: u64,
    /// Requests answered in part, or not, because their neighbour asked for more than it may.
    pub unanswered: u64,
    /// Messages not sent because too many wait.
    pub unsent: u64,
    /// Links made eager because a record did not come over another.
    pub grafts: u64,
    /// Links made lazy because a record came over another before.
    pub prunes: u64,
    /// Neighbours that wanted to gossip with us when as many did as may.
    pub crowded: u64,
    /// Times that all that is wanted was gone through; once for each `tend`, whatever comes.
    pub looks: u64,
}
