//! Configuration.

use core::num::NonZeroU8;
use core::time::Duration;
use std::collections::BTreeSet;

use crypto::token::LIFETIME_MAX;
use wire::NodeId;

use crate::rule::Rule;

/// What a matchmaker matches, and onto which servers; nothing in it has a sensible default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Game {
    /// Separates games and builds; servers that say another one are refused.
    pub app_id: u64,
    /// Which tickets make a match.
    pub rule: Rule,
    /// Pool of processes that the driver can start: one identity each, as the join file lists them.
    /// One that is named twice counts once; those past 65,536 are not used.
    pub slots: Vec<NodeId>,
    /// Servers that others start: the other game nodes of the join file. Nobody else may register.
    pub fleet: BTreeSet<NodeId>,
}

/// Limits and times.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Tickets that may wait for players or a server; 100,000. Each holds up to 1 KiB, user data
    /// included.
    pub tickets_max: usize,
    /// How long a ticket may wait; 10 minutes.
    pub ticket_ttl: Duration,
    /// How long a ticket may wait without its holder having asked for it
    /// ([`Matchmaker::keep_ticket`](crate::Matchmaker::keep_ticket)); 60 s. Whoever has gone is not
    /// matched with players who are there.
    pub ask_timeout: Duration,
    /// Tickets that have ended and can still be asked for; 100,000. The oldest go first.
    pub ended_max: usize,
    /// How long a ticket that has ended can be asked for; 10 minutes.
    pub ended_kept: Duration,
    /// What becomes of a waiting ticket whose player asks anew; the new one takes its place.
    pub duplicate: Duplicate,
    /// How often a match is tried before its tickets fail; 3.
    pub attempts_max: NonZeroU8,
    /// How long a match waits for a server to take it; 60 s, since a cold process must start.
    pub allocate_timeout: Duration,
    /// How long a server may take to answer a call; 5 s.
    pub call_timeout: Duration,
    /// Matches that may exist, live and waiting for a server; 16,384. Past it tickets wait in the
    /// queue.
    pub matches_max: usize,
    /// Life of a token; 60 s.
    pub token_lifetime: TokenLifetime,
    /// Shortest time between two tokens for one seat; 5 s.
    pub reissue_interval: Duration,
    /// Instances that may be registered; 4,096. Each holds up to 6 KiB.
    pub servers_max: usize,
    /// How long an instance lives without a heartbeat; 30 s.
    pub lease: Duration,
    /// How often an instance shall renew its lease; 10 s.
    pub heartbeat: Duration,
    /// Time after the start in which instances that an earlier matchmaker knew register again; 2 s.
    /// Tickets wait meanwhile, and no process is started.
    pub recovery: Duration,
    /// Servers with room that the pool holds ready; 1.
    pub warm: u16,
    /// How long a process may take to register; 60 s.
    pub ready_timeout: Duration,
    /// How long a process may take to end before it is told again; 30 s.
    pub stop_timeout: Duration,
    /// How long a process beyond the warm ones stands unused before it is stopped; 5 minutes.
    pub unused_timeout: Duration,
    /// Rest of a slot after its first failure, doubled with each further one; 1 s.
    pub backoff_min: Duration,
    /// Longest rest of a slot, and how long a process must have served to count as a success; 60 s.
    pub backoff_max: Duration,
    /// Events that may wait to be taken; 16,384. The oldest are lost first, and counted.
    pub events_max: usize,
    /// Replies that may wait to be taken, by [`wire::Machine`] only; 1,024. Each has at most 1 KiB.
    pub replies_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tickets_max: 100_000,
            ticket_ttl: Duration::from_secs(600),
            ask_timeout: Duration::from_secs(60),
            ended_max: 100_000,
            ended_kept: Duration::from_secs(600),
            duplicate: Duplicate::Replace,
            attempts_max: NonZeroU8::MIN.saturating_add(2),
            allocate_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(5),
            matches_max: 16_384,
            token_lifetime: TokenLifetime::DEFAULT,
            reissue_interval: Duration::from_secs(5),
            servers_max: 4_096,
            lease: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
            recovery: Duration::from_secs(2),
            warm: 1,
            ready_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(30),
            unused_timeout: Duration::from_secs(300),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            events_max: 16_384,
            replies_max: 1_024,
        }
    }
}

/// What becomes of a waiting ticket whose player asks anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// It ends, and the new one goes to the end of the queue.
    Replace,
    /// It stays, and the request is refused.
    Refuse,
}

/// Life of a token: 1 s to [`LIFETIME_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLifetime(Duration);

impl TokenLifetime {
    /// A server is ready when its players get their tokens, so they need to last for one connect
    /// with retries, and not for a start.
    const DEFAULT: Self = Self(Duration::from_secs(60));

    /// Accepts `span` where it lies in range.
    #[must_use]
    pub const fn new(span: Duration) -> Option<Self> {
        if span.as_secs() < 1 || span.as_nanos() > LIFETIME_MAX.as_nanos() {
            None
        } else {
            Some(Self(span))
        }
    }

    /// Returns the span.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lives_300_seconds_at_most() {
        let new = |millis| TokenLifetime::new(Duration::from_millis(millis));
        assert_eq!(new(300_000).map(TokenLifetime::get), Some(LIFETIME_MAX));
        assert_eq!((new(300_001), new(999)), (None, None));
    }
}
