//! All matches, live and on their way to a server.

use core::num::NonZeroU8;
use std::collections::BTreeMap;

use wire::{ClientId, CommandId, Instant, MatchId, Seat, Team, UnixTime};

use crate::lease::ServerLink;
use crate::ticket::TicketId;

/// Where a match stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No server has room.
    Waiting,
    /// A server was asked.
    Calling {
        server: ServerLink,
        command: CommandId,
        /// When its answer is of no use any more.
        until: Instant,
    },
    /// A server took it, and the players have tokens.
    Live { server: ServerLink, since: Instant },
}

/// A seat of a match and its player.
#[derive(Debug)]
pub(crate) struct Chair {
    pub(crate) seated: Seated,
    /// Of the player; `None` where an earlier matchmaker had it, and it has not come back.
    pub(crate) ticket: Option<TicketId>,
    /// What the last token for the seat says.
    pub(crate) issued_at: Option<UnixTime>,
    /// No other token before this time.
    pub(crate) next_token_at: Instant,
    /// The player left for good.
    pub(crate) has_left: bool,
}

/// One match.
#[derive(Debug)]
pub(crate) struct Match {
    /// In the order of seats.
    pub(crate) chairs: Vec<Chair>,
    pub(crate) phase: Phase,
    /// Its place among those that wait for a server.
    pub(crate) order: u64,
    /// When it is taken apart, unless it is live.
    pub(crate) allocate_until: Instant,
    /// Until then a token may be good for it; later nobody can enter it who has not.
    pub(crate) enter_until: Instant,
}

impl Match {
    pub(crate) const fn server(&self) -> Option<ServerLink> {
        match self.phase {
            Phase::Waiting => None,
            Phase::Calling { server, .. } | Phase::Live { server, .. } => Some(server),
        }
    }

    pub(crate) fn seats(&self) -> Vec<Seated> {
        self.chairs.iter().map(|chair| chair.seated).collect()
    }

    pub(crate) fn chair_mut(&mut self, client: ClientId) -> Option<&mut Chair> {
        let is_of = |chair: &&mut Chair| chair.seated.client_id == client;
        self.chairs.iter_mut().find(is_of)
    }
}

/// All matches.
#[derive(Debug, Default)]
pub(crate) struct MatchTable {
    by_id: BTreeMap<MatchId, Match>,
    /// Those in the phase `Waiting`, oldest first.
    waiting: BTreeMap<u64, MatchId>,
    /// Players with a seat in a live match, those who left excepted; each in one.
    players: BTreeMap<ClientId, MatchId>,
    /// How many there ever were.
    created: u64,
}

impl MatchTable {
    /// Draws the next place in the order.
    pub(crate) const fn next_order(&mut self) -> u64 {
        self.created = self.created.saturating_add(1);
        self.created
    }

    pub(crate) fn insert(&mut self, id: MatchId, entry: Match) {
        if entry.phase == Phase::Waiting {
            self.waiting.insert(entry.order, id);
        }
        self.by_id.insert(id, entry);
    }

    /// Takes a match away, and its players out of it.
    pub(crate) fn remove(&mut self, id: MatchId) -> Option<Match> {
        let entry = self.by_id.remove(&id)?;
        self.waiting.remove(&entry.order);
        for chair in &entry.chairs {
            self.leave(chair.seated.client_id, id);
        }
        Some(entry)
    }

    /// Changes the phase of a match.
    pub(crate) fn set_phase(&mut self, id: MatchId, phase: Phase) {
        let Some(entry) = self.by_id.get_mut(&id) else {
            return;
        };
        entry.phase = phase;
        if phase == Phase::Waiting {
            self.waiting.insert(entry.order, id);
        } else {
            self.waiting.remove(&entry.order);
        }
    }

    /// Puts a player into a live match; it is in no other.
    pub(crate) fn enter(&mut self, client: ClientId, id: MatchId) {
        let before = self.players.insert(client, id);
        debug_assert_eq!(before, None);
    }

    /// Takes a player out of a match, where it is in this one.
    pub(crate) fn leave(&mut self, client: ClientId, id: MatchId) {
        if self.players.get(&client) == Some(&id) {
            self.players.remove(&client);
        }
    }

    /// Returns the live match that a player is in.
    pub(crate) fn of_client(&self, client: ClientId) -> Option<MatchId> {
        self.players.get(&client).copied()
    }

    pub(crate) fn get(&self, id: MatchId) -> Option<&Match> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: MatchId) -> Option<&mut Match> {
        self.by_id.get_mut(&id)
    }

    /// Returns the match that has waited longest for a server.
    pub(crate) fn first_waiting(&self) -> Option<MatchId> {
        self.waiting.first_key_value().map(|(_, id)| *id)
    }

    /// Returns how many wait for a server.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn players(&self) -> usize {
        self.players.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
}

/// A player and the seat it has, as the records of a match say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seated {
    /// Who.
    pub client_id: ClientId,
    /// Where.
    pub seat: Seat,
    /// On which side.
    pub team: Team,
}

/// Gives seats in the order of the rule's proposal, and teams in turn: seat 0 to team 0, seat 1 to
/// team 1, and so on. All teams are of one size where the number of seats is a multiple of theirs.
pub(crate) fn plan_seats(
    players: impl IntoIterator<Item = ClientId>,
    teams: NonZeroU8,
) -> impl Iterator<Item = Seated> {
    let teams = (0..teams.get()).cycle();
    players
        .into_iter()
        .zip(0..)
        .zip(teams)
        .map(|((client_id, seat), team)| Seated {
            client_id,
            seat: Seat(seat),
            team: Team(team),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_are_filled_in_turn() {
        let seats: Vec<_> = plan_seats((10..16).map(ClientId), NonZeroU8::new(3).unwrap())
            .map(|seated| (seated.client_id.0, seated.seat.0, seated.team.0))
            .collect();
        let expected = [
            (10, 0, 0),
            (11, 1, 1),
            (12, 2, 2),
            (13, 3, 0),
            (14, 4, 1),
            (15, 5, 2),
        ];
        assert_eq!(seats, expected);
    }
}
