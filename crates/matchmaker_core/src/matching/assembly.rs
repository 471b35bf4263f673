//! A match while it is put together.

use wire::Instant;

use super::balance::{self, Weight};
use super::party::{Accepts, Party};
use super::rules::{MatchRules, Rating, TeamRule};

/// A ticket that may join: its rating, and how far from it others may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) slot: u32,
    pub(super) rating: Rating,
    pub(super) window: u32,
    pub(super) players: u8,
}

/// Tickets that accept each other, with a team for each. Buffers are used again for the next match.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    slots: Vec<u32>,
    weights: Vec<Weight>,
    teams: Vec<u8>,
    /// Free seats of each team.
    room: Vec<u8>,
    /// The largest party that a team has room for.
    room_max: u8,
    /// Least and greatest rating of its tickets.
    ratings: (i64, i64),
    /// The ratings that all its tickets accept.
    accepted: (i64, i64),
    /// What its tickets require of each property.
    required: Vec<(u8, Accepts)>,
    has_conditions: bool,
}

/// How good a match is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatchQuality {
    /// Distance between the highest and lowest rating of its tickets, in hundredths of a point.
    pub spread: u32,
    /// Distance between the highest and lowest mean rating of its teams, in hundredths of a point.
    pub team_gap: u32,
    /// The longest round trip of its players to the region, in milliseconds.
    pub round_trip_max: u16,
    /// How long its oldest ticket has waited, in milliseconds.
    pub waited_ms: u64,
}

impl Assembly {
    /// Begins with one ticket; returns false if no team has room for it.
    pub(super) fn begin(&mut self, rules: &MatchRules, first: &Candidate, party: &Party) -> bool {
        self.slots.clear();
        self.weights.clear();
        self.teams.clear();
        self.room.clear();
        self.room.extend(rules.teams.iter().map(|team| team.max));
        self.room_max = rules.party_max();
        let rating = i64::from(first.rating.0);
        self.ratings = (rating, rating);
        self.accepted = (i64::MIN, i64::MAX);
        self.required.clear();
        self.has_conditions = false;
        self.require(party);
        self.add(rules, first)
    }

    /// Returns whether the ticket and those in the match accept each other's ratings, and a team has room.
    pub(super) fn admits(&self, candidate: &Candidate) -> bool {
        let rating = i64::from(candidate.rating.0);
        let window = i64::from(candidate.window);
        candidate.players <= self.room_max
            && rating >= self.accepted.0
            && rating <= self.accepted.1
            && rating.saturating_sub(window) <= self.ratings.0
            && rating.saturating_add(window) >= self.ratings.1
    }

    /// Returns whether the requirements of `party` have values in common with those of the match.
    pub(super) fn suits(&self, party: &Party) -> bool {
        party.requirements.iter().all(|wanted| {
            let mut required = self.required.iter();
            let other = required.find(|(property, _)| *property == wanted.property);
            other.is_none_or(|(_, accepts)| accepts.and(wanted.accepts).is_some())
        })
    }

    /// Adds the conditions of a ticket that [suits](Self::suits).
    pub(super) fn require(&mut self, party: &Party) {
        self.has_conditions |= party.has_conditions();
        for wanted in &party.requirements {
            let mut required = self.required.iter_mut();
            match required.find(|(property, _)| *property == wanted.property) {
                Some((_, accepts)) => {
                    if let Some(both) = accepts.and(wanted.accepts) {
                        *accepts = both;
                    }
                }
                None => self.required.push((wanted.property, wanted.accepts)),
            }
        }
    }

    /// Adds a ticket to a team: first to those below their minimum, there to the one with the least room
    /// that is enough, then to the one with the most room. Returns false if there is none.
    pub(super) fn add(&mut self, rules: &MatchRules, candidate: &Candidate) -> bool {
        let teams = (0_u8..).zip(rules.teams.iter().zip(self.room.iter_mut()));
        let teams = teams.filter(|(_, (_, room))| **room >= candidate.players);
        let order = |team: &TeamRule, room: u8| {
            let has_enough = team.max.saturating_sub(room) >= team.min;
            (
                has_enough,
                if has_enough {
                    u8::MAX.saturating_sub(room)
                } else {
                    room
                },
            )
        };
        let Some((team, (_, room))) = teams.min_by_key(|(_, (team, room))| order(team, **room))
        else {
            return false;
        };
        *room = room.saturating_sub(candidate.players);
        self.room_max = self.room.iter().copied().max().unwrap_or_default();
        let rating = i64::from(candidate.rating.0);
        let window = i64::from(candidate.window);
        self.ratings = (self.ratings.0.min(rating), self.ratings.1.max(rating));
        self.accepted = (
            self.accepted.0.max(rating.saturating_sub(window)),
            self.accepted.1.min(rating.saturating_add(window)),
        );
        self.slots.push(candidate.slot);
        self.weights.push(Weight {
            players: candidate.players,
            sum: rating.saturating_mul(candidate.players.into()),
        });
        self.teams.push(team);
        true
    }

    /// Returns whether no team has a free seat.
    pub(super) const fn is_full(&self) -> bool {
        self.room_max == 0
    }

    /// Returns whether every team has the players that it needs.
    pub(super) fn is_playable(&self, rules: &MatchRules) -> bool {
        let has_enough =
            |(team, room): (&TeamRule, &u8)| team.max.saturating_sub(*room) >= team.min;
        rules.teams.iter().zip(&self.room).all(has_enough)
    }

    /// Returns whether a ticket of the match avoids players or has requirements.
    pub(super) const fn has_conditions(&self) -> bool {
        self.has_conditions
    }

    /// Returns what the tickets require of each property.
    pub(super) fn required(&self) -> &[(u8, Accepts)] {
        &self.required
    }

    pub(super) fn slots(&self) -> &[u32] {
        &self.slots
    }

    pub(super) fn spread(&self) -> u32 {
        let spread = self.ratings.1.saturating_sub(self.ratings.0);
        u32::try_from(spread).unwrap_or(u32::MAX)
    }

    /// Makes teams equally strong. Returns the gap between them.
    pub(super) fn balance(&mut self) -> u32 {
        let count = u8::try_from(self.room.len()).unwrap_or(u8::MAX);
        balance::balance(&self.weights, &mut self.teams, count)
    }

    /// Returns each ticket's slot and team.
    pub(super) fn seats(&self) -> impl Iterator<Item = (u32, u8)> {
        self.slots.iter().copied().zip(self.teams.iter().copied())
    }
}

/// Returns whole milliseconds from `since` to `now_ms`.
pub(super) const fn waited(since: Instant, now_ms: u64) -> u64 {
    now_ms.saturating_sub(since.as_millis())
}
