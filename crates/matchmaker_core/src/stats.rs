//! Counters.

/// What a matchmaker has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tickets taken.
    pub tickets: u64,
    /// Matches that went live.
    pub matches: u64,
    /// Matches found in the record of an instance that an earlier matchmaker knew.
    pub adopted: u64,
    /// Tokens made.
    pub tokens: u64,
    /// Matches taken apart before they went live, their tickets back in the queue.
    pub dissolved: u64,
    /// Calls that were not understood, from no server of this game, or refused.
    pub calls_refused: u64,
    /// Completions for an unknown id.
    pub completions_stray: u64,
    /// Events thrown away since nobody took them.
    pub events_missed: u64,
    /// Replies thrown away since nobody took them.
    pub replies_dropped: u64,
}
