//! What waits in a queue: one ticket, with one player or several who stay together.

use wire::{ClientId, Instant};

use super::{MatchRules, Rating};
use crate::ticket::TicketId;

/// A ticket's players and wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Party {
    /// The ticket.
    pub ticket: TicketId,
    /// The players; they are put into the same team.
    pub players: Vec<PartyPlayer>,
    /// Round trip to each region in milliseconds, [`Party::NO_REGION`] if it is out of the question. A
    /// missing one is out of the question, too.
    pub round_trips: Vec<u16>,
    /// Players that must not be in the same match, ordered by id.
    pub avoid: Vec<ClientId>,
    /// What the match must be, for each property at most one.
    pub requirements: Vec<Requirement>,
    /// When the ticket was created. It keeps this time if it returns to the queue.
    pub since: Instant,
}

/// A player of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartyPlayer {
    /// The player.
    pub client_id: ClientId,
    /// Its strength.
    pub rating: Rating,
}

/// What a ticket requires of one property of the match, such as its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Number of the property in the queue.
    pub property: u8,
    /// The values that the ticket accepts.
    pub accepts: Accepts,
}

/// Values of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// Any of these values: bit `i` stands for value `i` of the property.
    AnyOf(u64),
    /// Numbers from the first to the last.
    Range(i32, i32),
}

impl Accepts {
    /// Returns the values that both accept; `None` if there is none.
    #[must_use]
    pub fn and(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::AnyOf(one), Self::AnyOf(two)) => {
                let both = one & two;
                (both != 0).then_some(Self::AnyOf(both))
            }
            (Self::Range(low, high), Self::Range(other_low, other_high)) => {
                let (low, high) = (low.max(other_low), high.min(other_high));
                (low <= high).then_some(Self::Range(low, high))
            }
            (Self::AnyOf(_), Self::Range(..)) | (Self::Range(..), Self::AnyOf(_)) => None,
        }
    }
}

impl Party {
    /// Regions of one queue.
    pub const REGIONS_MAX: usize = 32;

    /// The round trip of a region that is out of the question.
    pub const NO_REGION: u16 = u16::MAX;

    /// Players that one ticket avoids.
    pub const AVOID_MAX: usize = 32;

    /// Properties of one queue.
    pub const PROPERTIES_MAX: usize = 16;

    /// Creates a ticket of `players`, which accepts the regions with a round trip.
    #[must_use]
    pub const fn new(
        ticket: TicketId,
        players: Vec<PartyPlayer>,
        round_trips: Vec<u16>,
        since: Instant,
    ) -> Self {
        Self {
            ticket,
            players,
            round_trips,
            avoid: Vec::new(),
            requirements: Vec::new(),
            since,
        }
    }

    /// Checks a party against the rules of its queue.
    ///
    /// # Errors
    ///
    /// [`PartyError`], by which the ticket could never be matched or would cost too much.
    pub fn check(&self, rules: &MatchRules) -> Result<(), PartyError> {
        let size = self.players.len();
        if size == 0 || size > usize::from(rules.party_max()) {
            return Err(PartyError::Size(size));
        }
        if self.round_trips.len() > Self::REGIONS_MAX {
            return Err(PartyError::Regions);
        }
        let cap = rules.latency_cap.last();
        let mut trips = self.round_trips.iter();
        if !trips.any(|trip| *trip != Self::NO_REGION && u32::from(*trip) <= cap) {
            return Err(PartyError::NoRegion);
        }
        let is_sorted = self.avoid.is_sorted_by(|one, two| one < two);
        if self.avoid.len() > Self::AVOID_MAX || !is_sorted {
            return Err(PartyError::Avoid);
        }
        if self
            .players
            .iter()
            .any(|player| self.avoids(player.client_id))
        {
            return Err(PartyError::AvoidsItself);
        }
        let properties = &self.requirements;
        let is_sorted = properties.is_sorted_by(|one, two| one.property < two.property);
        if properties.len() > Self::PROPERTIES_MAX || !is_sorted {
            return Err(PartyError::Requirements);
        }
        Ok(())
    }

    /// Returns the mean of the players' ratings.
    #[must_use]
    pub fn rating(&self) -> Rating {
        let sum: i64 = self.players.iter().map(|it| i64::from(it.rating.0)).sum();
        let count = i64::try_from(self.players.len()).unwrap_or(i64::MAX);
        let mean = sum.checked_div(count).unwrap_or_default();
        Rating(i32::try_from(mean).unwrap_or_default())
    }

    pub(super) fn size(&self) -> u8 {
        u8::try_from(self.players.len()).unwrap_or(u8::MAX)
    }

    pub(super) fn round_trip(&self, region: u8) -> Option<u16> {
        let trip = self.round_trips.get(usize::from(region)).copied();
        trip.filter(|trip| *trip != Self::NO_REGION)
    }

    /// Returns whether the match must be checked for more than ratings and regions.
    pub(super) const fn has_conditions(&self) -> bool {
        !self.avoid.is_empty() || !self.requirements.is_empty()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let players = self
            .players
            .capacity()
            .saturating_mul(size_of::<PartyPlayer>());
        let trips = self.round_trips.capacity().saturating_mul(size_of::<u16>());
        let avoid = self.avoid.capacity().saturating_mul(size_of::<ClientId>());
        let requirements = self.requirements.capacity();
        let requirements = requirements.saturating_mul(size_of::<Requirement>());
        let sums = [players, trips, avoid, requirements];
        sums.into_iter().fold(0, usize::saturating_add)
    }

    /// Returns whether one of two parties avoids a player of the other.
    pub(super) fn avoids_any(&self, other: &Self) -> bool {
        let avoids = |one: &Self, two: &Self| {
            !one.avoid.is_empty() && two.players.iter().any(|it| one.avoids(it.client_id))
        };
        avoids(self, other) || avoids(other, self)
    }

    fn avoids(&self, client: ClientId) -> bool {
        self.avoid.binary_search(&client).is_ok()
    }
}

/// Why a party is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartyError {
    /// No team has room for this number of players.
    Size(usize),
    /// There are more round trips than regions can be.
    Regions,
    /// No region is ever within the queue's cap of latency.
    NoRegion,
    /// More than 32 players to avoid, or not in order.
    Avoid,
    /// A player of the party avoids another one of it.
    AvoidsItself,
    /// More than 16 requirements, or not in order of property.
    Requirements,
}

wire::error_text! { PartyError {
    Self::Size(count) => "no team has room for a party of {count} players",
    Self::Regions => "round trips to more than 32 regions",
    Self::NoRegion => "no region has a round trip within the queue's limit",
    Self::Avoid => "more than 32 players to avoid, or ids that are not in order",
    Self::AvoidsItself => "the party avoids one of its own players",
    Self::Requirements => "more than 16 requirements, or two of one property",
}}

#[cfg(test)]
mod tests {
    use super::super::{Curve, TeamRule};
    use super::*;

    fn party(players: usize) -> Party {
        let player = |id| PartyPlayer {
            client_id: ClientId(id),
            rating: Rating(100 * i32::try_from(id).unwrap()),
        };
        let players = (0..players as u64).map(player).collect();
        Party::new(
            TicketId(1),
            players,
            vec![40, Party::NO_REGION],
            Instant::ZERO,
        )
    }

    #[test]
    fn a_party_that_can_never_be_matched_is_refused() {
        let rules = MatchRules::new(vec![TeamRule { min: 1, max: 3 }; 2]).unwrap();
        let rules = rules.with_latency_cap(Curve::constant(100));
        assert_eq!(party(3).check(&rules), Ok(()));
        assert_eq!(party(4).check(&rules), Err(PartyError::Size(4)));
        assert_eq!(party(0).check(&rules), Err(PartyError::Size(0)));
        let change = |change: fn(&mut Party)| {
            let mut party = party(2);
            change(&mut party);
            party.check(&rules).unwrap_err()
        };
        assert_eq!(
            change(|it| it.round_trips = vec![101]),
            PartyError::NoRegion
        );
        assert_eq!(
            change(|it| it.round_trips = vec![1; 33]),
            PartyError::Regions
        );
        assert_eq!(
            change(|it| it.avoid = vec![ClientId(1)]),
            PartyError::AvoidsItself
        );
        assert_eq!(
            change(|it| it.avoid = vec![ClientId(9); 2]),
            PartyError::Avoid
        );
        assert_eq!(
            change(|it| it.avoid = (50..83).map(ClientId).collect()),
            PartyError::Avoid
        );
        let requirement = Requirement {
            property: 3,
            accepts: Accepts::AnyOf(1),
        };
        let twice = |it: &mut Party| it.requirements = vec![requirement; 2];
        let mut party = party(2);
        twice(&mut party);
        assert_eq!(party.check(&rules), Err(PartyError::Requirements));
    }

    #[test]
    fn requirements_have_values_in_common_or_none() {
        let (any, range) = (Accepts::AnyOf, Accepts::Range);
        assert_eq!(any(0b110).and(any(0b011)), Some(any(0b010)));
        assert_eq!(any(0b100).and(any(0b011)), None);
        assert_eq!(range(1, 5).and(range(5, 9)), Some(range(5, 5)));
        assert_eq!(range(1, 4).and(range(5, 9)), None);
        assert_eq!(range(1, 4).and(any(1)), None);
    }

    #[test]
    fn the_rating_of_a_party_is_the_mean() {
        assert_eq!(party(3).rating(), Rating(100));
        assert_eq!(party(2).rating(), Rating(50));
    }
}
