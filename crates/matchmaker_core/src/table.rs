//! All tickets and all matches.

use core::num::NonZeroU8;
use std::collections::{BTreeMap, VecDeque};

use crypto::UserData;
use wire::{ClientId, CommandId, Instant, MatchId, Seat, Team, UnixTime};

use crate::record::Seated;
use crate::server::ServerLink;
use crate::ticket::{IdempotencyKey, ResumeKey, TicketId, TicketState};

#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) client_id: ClientId,
    pub(crate) user: UserData,
    pub(crate) idempotency: Option<IdempotencyKey>,
    pub(crate) resume_key: ResumeKey,
    pub(crate) expires_at: Instant,
    /// Its permanent position in the queue.
    pub(crate) arrival: Arrival,
    /// Matches of it that found no server.
    pub(crate) attempts: u8,
    pub(crate) state: TicketState,
}

/// All tickets. A player has at most one that has not ended.
#[derive(Debug, Default)]
pub(crate) struct TicketTable {
    by_id: BTreeMap<TicketId, Ticket>,
    by_idempotency: BTreeMap<(ClientId, IdempotencyKey), TicketId>,
    by_client: BTreeMap<ClientId, TicketId>,
    /// Tickets in the state `Queued`.
    pub(crate) queue: Queue,
    /// Number in the states `Queued` and `Allocating`.
    waiting: usize,
    /// Ended tickets, oldest first, with the time of their removal.
    ended: VecDeque<(Instant, TicketId)>,
}

impl TicketTable {
    /// Adds a ticket; its player must have no other that has not ended.
    pub(crate) fn insert(&mut self, id: TicketId, ticket: Ticket) {
        debug_assert!(!self.by_client.contains_key(&ticket.client_id));
        self.by_client.insert(ticket.client_id, id);
        if let Some(key) = ticket.idempotency {
            self.by_idempotency.insert((ticket.client_id, key), id);
        }
        if ticket.state.is_waiting() {
            self.waiting = self.waiting.saturating_add(1);
        }
        if ticket.state == TicketState::Queued {
            self.queue.insert(ticket.arrival, id);
        }
        self.by_id.insert(id, ticket);
    }

    /// Changes the state of a ticket that has not ended.
    pub(crate) fn set(&mut self, id: TicketId, state: TicketState) {
        let Some(ticket) = self.by_id.get_mut(&id) else {
            return;
        };
        debug_assert!(!ticket.state.is_ended());
        if ticket.state.is_waiting() {
            self.waiting = self.waiting.saturating_sub(1);
        }
        self.queue.remove(ticket.arrival);
        if state.is_waiting() {
            self.waiting = self.waiting.saturating_add(1);
        }
        if state == TicketState::Queued {
            self.queue.insert(ticket.arrival, id);
        }
        if state.is_ended() {
            self.by_client.remove(&ticket.client_id);
            ticket.user = UserData::default();
        }
        ticket.state = state;
    }

    /// Schedules the removal of an ended ticket; times must not decrease.
    pub(crate) fn schedule_removal(&mut self, at: Instant, id: TicketId) {
        self.ended.push_back((at, id));
    }

    pub(crate) fn removal_at(&self) -> Option<Instant> {
        self.ended.front().map(|(at, _)| *at)
    }

    /// Removes ended tickets that are due, and the oldest beyond `max`.
    pub(crate) fn remove_ended(&mut self, now: Instant, max: usize) {
        while let Some((at, id)) = self.ended.front().copied() {
            if at > now && self.ended.len() <= max {
                break;
            }
            self.ended.pop_front();
            if let Some(ticket) = self.by_id.remove(&id)
                && let Some(key) = ticket.idempotency
            {
                self.by_idempotency.remove(&(ticket.client_id, key));
            }
        }
    }

    pub(crate) fn get(&self, id: TicketId) -> Option<&Ticket> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TicketId) -> Option<&mut Ticket> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn of_client(&self, client: ClientId) -> Option<TicketId> {
        self.by_client.get(&client).copied()
    }

    /// Returns the ticket by idempotency key, ended or not.
    pub(crate) fn by_idempotency_key(
        &self,
        client: ClientId,
        key: IdempotencyKey,
    ) -> Option<TicketId> {
        self.by_idempotency.get(&(client, key)).copied()
    }

    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
}

/// Position in the order of arrival. A ticket that returns to the queue keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival(u64);

/// Tickets ordered by arrival. `tickets_max` also counts tickets in matches that wait for a server,
/// so a ticket can always return.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Arrival, TicketId>,
    arrived: u64,
}

impl Queue {
    pub(crate) const fn next_arrival(&mut self) -> Arrival {
        self.arrived = self.arrived.saturating_add(1);
        Arrival(self.arrived)
    }

    pub(crate) fn insert(&mut self, arrival: Arrival, ticket: TicketId) {
        self.waiting.insert(arrival, ticket);
    }

    pub(crate) fn remove(&mut self, arrival: Arrival) {
        self.waiting.remove(&arrival);
    }

    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = TicketId> {
        self.waiting.values().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Calling {
        server: ServerLink,
        command: CommandId,
        until: Instant,
    },
    /// The server accepted it, and the players have tokens.
    Live {
        server: ServerLink,
        since: Instant,
    },
}

#[derive(Debug)]
pub(crate) struct Participant {
    pub(crate) seated: Seated,
    /// The player's ticket; `None` if an earlier matchmaker had it and the player has not returned.
    pub(crate) ticket: Option<TicketId>,
    pub(crate) issued_at: Option<UnixTime>,
    pub(crate) next_token_at: Instant,
    pub(crate) has_left: bool,
}

impl Participant {
    pub(crate) const fn new(seated: Seated, ticket: Option<TicketId>, now: Instant) -> Self {
        Self {
            seated,
            ticket,
            issued_at: None,
            next_token_at: now,
            has_left: false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Match {
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
        let participants = self.participants.iter();
        participants.map(|participant| participant.seated).collect()
    }

    pub(crate) fn participant_mut(&mut self, client: ClientId) -> Option<&mut Participant> {
        let mut participants = self.participants.iter_mut();
        participants.find(|participant| participant.seated.client_id == client)
    }
}

#[derive(Debug, Default)]
pub(crate) struct MatchTable {
    by_id: BTreeMap<MatchId, Match>,
    /// Matches in the phase `Waiting`, oldest first.
    waiting: BTreeMap<u64, MatchId>,
    /// The live match of each player that has not left.
    players: BTreeMap<ClientId, MatchId>,
    created: u64,
}

impl MatchTable {
    /// Adds a match; `until` are the times after which it is dissolved unless it is live, and no
    /// player can enter it.
    pub(crate) fn insert(
        &mut self,
        id: MatchId,
        participants: Vec<Participant>,
        phase: Phase,
        until: (Instant, Instant),
    ) {
        self.created = self.created.saturating_add(1);
        if phase == Phase::Waiting {
            self.waiting.insert(self.created, id);
        }
        let entry = Match {
            participants,
            phase,
            order: self.created,
            allocate_until: until.0,
            enter_until: until.1,
        };
        self.by_id.insert(id, entry);
    }

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

    pub(crate) fn leave(&mut self, client: ClientId, id: MatchId) {
        if self.players.get(&client) == Some(&id) {
            self.players.remove(&client);
        }
    }

    pub(crate) fn of_client(&self, client: ClientId) -> Option<MatchId> {
        self.players.get(&client).copied()
    }

    pub(crate) fn get(&self, id: MatchId) -> Option<&Match> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: MatchId) -> Option<&mut Match> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn participant_mut(
        &mut self,
        id: MatchId,
        client: ClientId,
    ) -> Option<&mut Participant> {
        self.get_mut(id)?.participant_mut(client)
    }

    pub(crate) fn first_waiting(&self) -> Option<MatchId> {
        self.waiting.first_key_value().map(|(_, id)| *id)
    }

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
    fn mm_5_a_requeued_ticket_has_its_old_place() {
        let mut queue = Queue::default();
        let places: Vec<_> = (0..4).map(|_| queue.next_arrival()).collect();
        for (place, id) in places.iter().zip(0..) {
            queue.insert(*place, TicketId(id));
        }
        queue.remove(places[1]);
        queue.remove(places[0]);
        queue.insert(places[1], TicketId(1));
        let order: Vec<_> = queue.oldest_first().map(|id| id.0).collect();
        assert_eq!(order, [1, 2, 3]);
        assert_eq!(queue.len(), 3);
    }

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
