//! The queue: tickets that wait for other players, oldest first.

use std::collections::BTreeMap;

use crate::ticket::TicketId;

/// Place of a ticket in the order of arrival; it keeps it when it comes back to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival(u64);

/// Tickets in the order of their arrival.
///
/// Its bound is the matchmaker's `tickets_max`, which counts tickets that are on their way to a
/// server too: one that comes back always finds its place.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Arrival, TicketId>,
    /// How many ever arrived.
    arrived: u64,
}

impl Queue {
    /// Draws the next place, behind all others.
    pub(crate) const fn arrive(&mut self) -> Arrival {
        // 2^64 tickets do not come.
        self.arrived = self.arrived.saturating_add(1);
        Arrival(self.arrived)
    }

    /// Puts a ticket at its place.
    pub(crate) fn insert(&mut self, arrival: Arrival, ticket: TicketId) {
        self.waiting.insert(arrival, ticket);
    }

    /// Takes the ticket at `arrival` out.
    pub(crate) fn remove(&mut self, arrival: Arrival) {
        self.waiting.remove(&arrival);
    }

    /// Returns the tickets, oldest first.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = TicketId> {
        self.waiting.values().copied()
    }

    /// Returns how many wait.
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
