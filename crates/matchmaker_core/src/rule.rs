//! Rules: how waiting tickets are grouped into matches.

use core::fmt;
use core::num::NonZeroU8;

use crate::ticket::TicketId;
use crate::ticket_table::Queue;

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

impl fmt::Display for TeamSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { teams, players } = self;
        write!(
            f,
            "{teams} teams of {players} players, where 1 to {SEATS_MAX} players are allowed"
        )
    }
}

impl core::error::Error for TeamSizeError {}

/// Most players in a match; the record that assigns such a match has 2,844 bytes.
pub const SEATS_MAX: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

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
            let arrival = queue.arrive();
            queue.insert(arrival, TicketId(id));
        }
        assert_eq!(rule.propose(&queue).unwrap(), [0, 1, 2, 3].map(TicketId));
    }
}
