//! Rules: which of the waiting tickets make a match.

use core::fmt;
use core::num::NonZeroU8;

use crate::ticket::TicketId;
use crate::ticket_table::Queue;

/// Which tickets make a match.
///
/// A rule is a pure function of the queue: equal queues give equal matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// First come, first served, in teams of one size.
    TeamSize(TeamSize),
}

impl Rule {
    /// Returns how many seats a match has.
    #[must_use]
    pub const fn seats(self) -> u16 {
        match self {
            Self::TeamSize(size) => size.seats(),
        }
    }

    /// Returns how many teams a match has.
    #[must_use]
    pub const fn teams(self) -> NonZeroU8 {
        match self {
            Self::TeamSize(size) => size.teams,
        }
    }

    /// Returns the tickets of the next match in the order of their seats, `None` where no match can
    /// be made. No two tickets of `queue` are of one player.
    pub(crate) fn propose(self, queue: &Queue) -> Option<Vec<TicketId>> {
        match self {
            Self::TeamSize(size) => {
                let seats = usize::from(size.seats());
                (queue.len() >= seats).then(|| queue.oldest_first().take(seats).collect())
            }
        }
    }
}

/// A number of teams, and of players in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamSize {
    teams: NonZeroU8,
    players: NonZeroU8,
}

impl TeamSize {
    /// Accepts one team or more of one player or more, up to [`SEATS_MAX`] players together.
    ///
    /// # Errors
    ///
    /// [`TeamSizeError`] where there would be none, or too many.
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

    /// Returns how many seats a match has.
    #[must_use]
    pub const fn seats(self) -> u16 {
        // 255 * 255 is below 2^16.
        (self.teams.get() as u16).saturating_mul(self.players.get() as u16)
    }
}

/// No match has this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamSizeError {
    /// Teams asked for.
    pub teams: u8,
    /// Players in each.
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

/// Most players in a match; the record that announces one to its server has 2,844 bytes then.
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
