//! Configuration: what to match, how, and within which limits.

use core::num::NonZeroU8;
use core::time::Duration;
use std::collections::BTreeSet;

use crypto::token::LIFETIME_MAX;
use wire::NodeId;

use crate::record::SEATS_MAX;
use crate::table::Queue;
use crate::ticket::TicketId;

/// What to match, and on which servers. Nothing in it has a sensible default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Game {
    /// Identifies the game and build; servers with another id are rejected.
    pub app_id: u64,
    /// How tickets are grouped into matches.
    pub rule: Rule,
    /// Pool of processes that the driver can start: one identity each, as in the join file.
    /// Duplicates are ignored, as are those past 65,536.
    pub slots: Vec<NodeId>,
    /// Servers started by others: the other game nodes in the join file. No other node may
    /// register.
    pub fleet: BTreeSet<NodeId>,
}

/// Limits and timeouts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Waiting tickets. Default 100,000. Each holds up to 1 KiB, including user data.
    pub tickets_max: usize,
    /// Longest wait of a ticket. Default 10 minutes.
    pub ticket_ttl: Duration,
    /// How long a ticket may wait without a poll by its holder
    /// ([`Matchmaker::keep_ticket`](crate::Matchmaker::keep_ticket)). Default 60 s.
    pub ask_timeout: Duration,
    /// Ended tickets that can still be queried. Default 100,000. The oldest are removed first.
    pub ended_max: usize,
    /// How long an ended ticket can be queried. Default 10 minutes.
    pub ended_kept: Duration,
    /// What happens if a player with a waiting ticket requests another.
    pub duplicate: Duplicate,
    /// How often a match is tried before its tickets fail. Default 3.
    pub attempts_max: NonZeroU8,
    /// How long a match waits for a server. Default 60 s, which includes the start of a process.
    pub allocate_timeout: Duration,
    /// Timeout of a call to a server. Default 5 s.
    pub call_timeout: Duration,
    /// Matches, live or waiting for a server. Default 16,384. Beyond it, tickets wait in the queue.
    pub matches_max: usize,
    /// Lifetime of a token. Default 60 s.
    pub token_lifetime: TokenLifetime,
    /// Shortest interval between two tokens for one seat. Default 5 s.
    pub reissue_interval: Duration,
    /// Registered instances. Default 4,096. Each holds up to 6 KiB.
    pub servers_max: usize,
    /// Lease of an instance; it ends without heartbeats. 30 s.
    pub lease: Duration,
    /// Interval of an instance's heartbeats. Default 10 s.
    pub heartbeat: Duration,
    /// Time after the start in which instances of an earlier matchmaker register again. Default 2
    /// s. Meanwhile tickets wait, and no process is started.
    pub recovery: Duration,
    /// Servers with free seats that the pool keeps ready. Default 1.
    pub warm: u16,
    /// How long a process may take to register. Default 60 s.
    pub ready_timeout: Duration,
    /// How long a process may take to end before `Stop` is repeated. Default 30 s.
    pub stop_timeout: Duration,
    /// Idle time after which a process beyond the warm ones is stopped. Default 5 minutes.
    pub unused_timeout: Duration,
    /// Backoff of a slot after its first failure, doubled with each further one. Default 1 s.
    pub backoff_min: Duration,
    /// Longest backoff of a slot. A process that has served this long counts as a success. 60 s.
    pub backoff_max: Duration,
    /// Queued events. Default 16,384. The oldest are dropped first, and counted.
    pub events_max: usize,
    /// Queued replies, used by [`wire::Machine`] only. Default 1,024. Each has at most 1 KiB.
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

/// What happens if a player with a waiting ticket requests another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// The waiting ticket ends; the new one is last in the queue.
    Replace,
    /// The request is rejected.
    Refuse,
}

/// Lifetime of a token: 1 s to [`LIFETIME_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLifetime(Duration);

impl TokenLifetime {
    /// A server is ready when its players get tokens, so a token must last for one connect with
    /// retries, not for a start.
    const DEFAULT: Self = Self(Duration::from_secs(60));

    /// Accepts `span` if it is in range.
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

/// How tickets are grouped into matches.
///
/// A rule is a pure function of the queue: equal queues give equal matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// First come, first served, in teams of one size.
    TeamSize(TeamSize),
}

impl Rule {
    /// Returns the number of seats of a match.
    #[must_use]
    pub const fn seats(self) -> u16 {
        match self {
            Self::TeamSize(size) => size.seats(),
        }
    }

    /// Returns the number of teams of a match.
    #[must_use]
    pub const fn teams(self) -> NonZeroU8 {
        match self {
            Self::TeamSize(size) => size.teams,
        }
    }

    /// Returns the tickets of the next match, ordered by seat; `None` if no match can be made.
    /// `queue` holds at most one ticket per player.
    pub(crate) fn propose(self, queue: &Queue) -> Option<Vec<TicketId>> {
        match self {
            Self::TeamSize(size) => {
                let seats = usize::from(size.seats());
                (queue.len() >= seats).then(|| queue.oldest_first().take(seats).collect())
            }
        }
    }
}

/// Number of teams, and of players in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamSize {
    teams: NonZeroU8,
    players: NonZeroU8,
}

impl TeamSize {
    /// Accepts at least one team of at least one player, up to [`SEATS_MAX`] players together.
    ///
    /// # Errors
    ///
    /// [`TeamSizeError`] if there are none, or too many.
    pub const fn new(teams: u8, players: u8) -> Result<Self, TeamSizeError> {
        let error = TeamSizeError { teams, players };
        let (Some(teams), Some(players)) = (NonZeroU8::new(teams), NonZeroU8::new(players)) else {
            return Err(error);
        };
        let size = Self { teams, players };
        if size.seats() > SEATS_MAX {
            return Err(error);
        }
        Ok(size)
    }

    /// Returns the number of seats of a match.
    #[must_use]
    pub const fn seats(self) -> u16 {
        // 255 * 255 is below 2^16.
        (self.teams.get() as u16).saturating_mul(self.players.get() as u16)
    }
}

/// An invalid match size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamSizeError {
    /// Number of teams.
    pub teams: u8,
    /// Players per team.
    pub players: u8,
}

wire::error_text! { TeamSizeError {
    Self { teams, players } =>
        "{teams} teams of {players} players, where 1 to {SEATS_MAX} players are allowed",
}}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lives_300_seconds_at_most() {
        let new = |millis| TokenLifetime::new(Duration::from_millis(millis));
        assert_eq!(new(300_000).map(TokenLifetime::get), Some(LIFETIME_MAX));
        assert_eq!((new(300_001), new(999)), (None, None));
    }

    #[test]
    fn a_team_size_is_within_bounds() {
        assert_eq!(TeamSize::new(2, 5).map(TeamSize::seats), Ok(10));
        assert_eq!(TeamSize::new(64, 4).map(TeamSize::seats), Ok(SEATS_MAX));
        for (teams, players) in [(0, 1), (1, 0), (2, 129), (255, 255)] {
            assert_eq!(
                TeamSize::new(teams, players),
                Err(TeamSizeError { teams, players })
            );
        }
    }

    #[test]
    fn mm_3_the_oldest_tickets_make_the_match() {
        let rule = Rule::TeamSize(TeamSize::new(2, 2).unwrap());
        let mut queue = Queue::default();
        for id in 0..9 {
            let first = (id < 4).then(|| (0..id).map(TicketId).collect::<Vec<_>>());
            if let Some(waiting) = first {
                assert_eq!(rule.propose(&queue), None, "{waiting:?}");
            }
            let arrival = queue.next_arrival();
            queue.insert(arrival, TicketId(id));
        }
        assert_eq!(rule.propose(&queue).unwrap(), [0, 1, 2, 3].map(TicketId));
    }
}
