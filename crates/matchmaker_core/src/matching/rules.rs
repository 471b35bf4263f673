//! What a queue demands of a match.

use core::time::Duration;

use super::Curve;
use crate::record::SEATS_MAX;

/// A player's strength, in hundredths of a rating point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rating(pub i32);

impl Rating {
    /// Returns how far apart two ratings are.
    #[must_use]
    pub const fn distance(self, other: Self) -> u32 {
        self.0.abs_diff(other.0)
    }
}

/// Number of players in a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamRule {
    /// Players that a match needs.
    pub min: u8,
    /// Players that a match takes at most.
    pub max: u8,
}

/// How long a match that is possible waits for a better one.
///
/// The longer it waits, the more players of similar strength arrive. A match waits while the expected
/// decrease of its spread, per second, is worth more than `price`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dwell {
    /// Price of a second of waiting, in hundredths of a rating point of spread. 0: a possible match waits
    /// for `max`.
    pub price: u32,
    /// Longest wait of the oldest ticket of a possible match.
    pub max: Duration,
}

/// The rules of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchRules {
    pub(super) teams: Vec<TeamRule>,
    pub(super) window: Curve,
    pub(super) latency_cap: Curve,
    pub(super) dwell: Dwell,
    pub(super) ratings: (Rating, Rating),
}

impl MatchRules {
    /// Teams of a match.
    pub const TEAMS_MAX: usize = 64;

    /// Creates rules for `teams`: without a limit of ratings or latency, and without a wait for a better
    /// match.
    ///
    /// # Errors
    ///
    /// [`RulesError`] if there is no team or too many, or a team's numbers are not in order.
    pub fn new(teams: Vec<TeamRule>) -> Result<Self, RulesError> {
        if teams.is_empty() || teams.len() > Self::TEAMS_MAX {
            return Err(RulesError::Teams(teams.len()));
        }
        let is_wrong = |team: &TeamRule| team.min > team.max || team.max == 0;
        if let Some(index) = teams.iter().position(is_wrong) {
            return Err(RulesError::Team(index));
        }
        let seats: u16 = teams.iter().map(|team| u16::from(team.max)).sum();
        if seats > SEATS_MAX {
            return Err(RulesError::Seats(seats));
        }
        if teams.iter().all(|team| team.min == 0) {
            return Err(RulesError::NoPlayer);
        }
        Ok(Self {
            teams,
            window: Curve::constant(u32::MAX),
            latency_cap: Curve::constant(u32::MAX),
            dwell: Dwell {
                price: u32::MAX,
                max: Duration::ZERO,
            },
            ratings: (Rating(0), Rating(300_000)),
        })
    }

    /// Sets how far the ratings of two tickets of a match may be apart, in hundredths of a point, by the
    /// wait of each: both must accept it.
    #[must_use]
    pub fn with_window(mut self, window: Curve) -> Self {
        self.window = window;
        self
    }

    /// Sets the largest round trip to a match's region, in milliseconds, by the wait of each ticket.
    #[must_use]
    pub fn with_latency_cap(mut self, latency_cap: Curve) -> Self {
        self.latency_cap = latency_cap;
        self
    }

    /// Sets how long a possible match waits for a better one.
    #[must_use]
    pub const fn with_dwell(mut self, dwell: Dwell) -> Self {
        self.dwell = dwell;
        self
    }

    /// Sets the usual range of ratings, 0 to 3,000 points if it is not set. Ratings outside are allowed;
    /// the search among them is slower.
    #[must_use]
    pub const fn with_ratings(mut self, low: Rating, high: Rating) -> Self {
        self.ratings = (low, high);
        self
    }

    /// Returns the most players of a match.
    #[must_use]
    pub fn seats(&self) -> u16 {
        self.teams.iter().map(|team| u16::from(team.max)).sum()
    }

    /// Returns the size of the largest party that fits a team.
    #[must_use]
    pub fn party_max(&self) -> u8 {
        self.teams
            .iter()
            .map(|team| team.max)
            .max()
            .unwrap_or_default()
    }
}

/// Why rules are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RulesError {
    /// The number of teams.
    Teams(usize),
    /// This team, from 0, has no seat or a minimum above its maximum.
    Team(usize),
    /// The number of seats.
    Seats(u16),
    /// A match without a player would be possible.
    NoPlayer,
}

wire::error_text! { RulesError {
    Self::Teams(count) => "{count} teams, where 1 to 64 are allowed",
    Self::Team(index) => "team {index} has no seat, or a minimum above its maximum",
    Self::Seats(count) => "{count} seats, where at most {SEATS_MAX} are allowed",
    Self::NoPlayer => "at least one team needs a minimum of 1 player",
}}

#[cfg(test)]
mod tests {
    use super::*;

    const fn team(min: u8, max: u8) -> TeamRule {
        TeamRule { min, max }
    }

    #[test]
    fn rules_without_a_playable_match_are_refused() {
        let refused = |teams: &[TeamRule]| MatchRules::new(teams.to_vec()).unwrap_err();
        assert_eq!(refused(&[]), RulesError::Teams(0));
        assert_eq!(refused(&[team(1, 1); 65]), RulesError::Teams(65));
        assert_eq!(refused(&[team(1, 1), team(2, 1)]), RulesError::Team(1));
        assert_eq!(refused(&[team(0, 0)]), RulesError::Team(0));
        assert_eq!(
            refused(&[team(1, 200), team(1, 57)]),
            RulesError::Seats(257)
        );
        assert_eq!(refused(&[team(0, 4)]), RulesError::NoPlayer);
        let rules = MatchRules::new(vec![team(1, 1), team(2, 4)]).unwrap();
        assert_eq!((rules.seats(), rules.party_max()), (5, 4));
    }
}
