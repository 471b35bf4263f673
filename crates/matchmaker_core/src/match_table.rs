//! All matches, live or waiting for a server.

use core::num::NonZeroU8;
use std::collections::BTreeMap;

use wire::{ClientId, CommandId, Instant, MatchId, Seat, Team, UnixTime};

use crate::lease::ServerLink;
use crate::ticket::TicketId;

/// State of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for a server with room.
    Waiting,
    /// A server was asked to run it.
    Calling {
        server: ServerLink,
        command: CommandId,
        /// Timeout of the call.
        until: Instant,
    },
    /// The server accepted it, and the players have tokens.
    Live { server: ServerLink, since: Instant },
}

/// A player of a match, and its seat.
#[derive(Debug)]
pub(crate) struct Participant {
    pub(crate) seated: Seated,
    /// The player's ticket; `None` if an earlier matchmaker had it and the player has not returned.
    pub(crate) ticket: Option<TicketId>,
    /// Issue time of the last token for the seat.
    pub(crate) issued_at: Option<UnixTime>,
    /// When the next token may be issued.
    pub(crate) next_token_at: Instant,
    /// The player has left permanently.
    pub(crate) has_left: bool,
}

#[derive(Debug)]
pub(crate) struct Match {
    /// Ordered by seat.
    pub(crate) participants: Vec<Participant>,
    pub(crate) phase: Phase,
    /// Position among the matches that wait for a server.
    pub(crate) order: u64,
    /// When it is dissolved, unless it is live.
    pub(crate) allocate_until: Instant,
    /// Until then a token may be valid; later, no new player can enter.
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
        self.participants
            .iter()
            .map(|participant| participant.seated)
            .collect()
    }

    pub(crate) fn chair_mut(&mut self, client: ClientId) -> Option<&mut Participant> {
        let is_of = |participant: &&mut Participant| participant.seated.client_id == client;
        self.participants.iter_mut().find(is_of)
    }
}

#[derive(Debug, Default)]
pub(crate) struct MatchTable {
    by_id: BTreeMap<MatchId, Match>,
    /// Matches in the phase `Waiting`, oldest first.
    waiting: BTreeMap<u64, MatchId>,
    /// The live match of each player that has not left.
    players: BTreeMap<ClientId, MatchId>,
    /// Matches created.
    created: u64,
}

impl MatchTable {
    /// Returns the next position in the order.
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

    /// Removes a match and its players.
    pub(crate) fn remove(&mut self, id: MatchId) -> Option<Match> {
        let entry = self.by_id.remove(&id)?;
        self.waiting.remove(&entry.order);
        for participant in &entry.participants {
            self.leave(participant.seated.client_id, id);
        }
        Some(entry)
    }

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

    /// Adds a player to a live match; it must be in no other.
    pub(crate) fn enter(&mut self, client: ClientId, id: MatchId) {
        let before = self.players.insert(client, id);
        debug_assert_eq!(before, None);
    }

    /// Removes a player, if it is in this match.
    pub(crate) fn leave(&mut self, client: ClientId, id: MatchId) {
        if self.players.get(&client) == Some(&id) {
            self.players.remove(&client);
        }
    }

    /// Returns the live match of a player.
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

    /// Returns how many matches wait for a server.
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

/// A player with its seat, as in the records of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seated {
    /// The player.
    pub client_id: ClientId,
    /// The seat.
    pub seat: Seat,
    /// The team.
    pub team: Team,
}

/// Assigns seats in the order of the rule's proposal, and teams round robin: seat 0 to team 0, seat
/// 1 to team 1, and so on. Teams are equal if the number of seats is a multiple of theirs.
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
