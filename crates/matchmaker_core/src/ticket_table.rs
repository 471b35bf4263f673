//! All tickets: waiting, assigned and ended.

use std::collections::{BTreeMap, VecDeque};

use crypto::UserData;
use wire::{ClientId, Instant};

use crate::ticket::{IdempotencyKey, ResumeKey, TicketId, TicketState};

/// A ticket.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) client_id: ClientId,
    pub(crate) user: UserData,
    pub(crate) idempotency: Option<IdempotencyKey>,
    pub(crate) resume_key: ResumeKey,
    /// When it has waited too long.
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
    /// Tickets by idempotency key, while their record is kept.
    by_idempotency: BTreeMap<(ClientId, IdempotencyKey), TicketId>,
    /// Tickets that have not ended.
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
    pub(crate) fn keep_until(&mut self, at: Instant, id: TicketId) {
        self.ended.push_back((at, id));
    }

    /// Returns when the oldest ended ticket is removed.
    pub(crate) fn forget_at(&self) -> Option<Instant> {
        self.ended.front().map(|(at, _)| *at)
    }

    /// Removes ended tickets that are due, and the oldest beyond `max`.
    pub(crate) fn forget(&mut self, now: Instant, max: usize) {
        while let Some((at, id)) = self.ended.front().copied() {
            if at > now && self.ended.len() <= max {
                break;
            }
            self.ended.pop_front();
            let ticket = self.by_id.remove(&id);
            if let Some((client, key)) =
                ticket.and_then(|ticket| Some((ticket.client_id, ticket.idempotency?)))
            {
                self.by_idempotency.remove(&(client, key));
            }
        }
    }

    pub(crate) fn get(&self, id: TicketId) -> Option<&Ticket> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TicketId) -> Option<&mut Ticket> {
        self.by_id.get_mut(&id)
    }

    /// Returns the ticket of a player that has not ended.
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

/// Tickets ordered by arrival.
///
/// Bounded by `tickets_max`, which also counts tickets in matches that wait for a server, so a
/// ticket can always return.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Arrival, TicketId>,
    arrived: u64,
}

impl Queue {
    /// Returns the next position.
    pub(crate) const fn arrive(&mut self) -> Arrival {
        // 2^64 is never reached.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mm_5_a_ticket_that_comes_back_has_its_old_place() {
        let mut queue = Queue::default();
        let places: Vec<_> = (0..4).map(|_| queue.arrive()).collect();
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
}
