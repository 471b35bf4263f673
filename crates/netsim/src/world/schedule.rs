//! Scheduled events, by time and then by the order of scheduling.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use wire::Instant;

use super::NodeIndex;
use crate::Datagram;

#[derive(Debug, Default)]
pub(super) struct Schedule {
    heap: BinaryHeap<Reverse<Entry>>,
    /// Number of entries so far; breaks ties.
    count: u64,
}

impl Schedule {
    pub(super) fn insert(&mut self, at: Instant, event: Event) {
        let order = self.count;
        self.count += 1;
        self.heap.push(Reverse(Entry { at, order, event }));
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    pub(super) fn pop(&mut self) -> Option<(Instant, Event)> {
        let Reverse(entry) = self.heap.pop()?;
        Some((entry.at, entry.event))
    }
}

#[derive(Debug)]
pub(super) enum Event {
    /// A datagram arrives at the node that then has its destination address.
    Arrival(Datagram),
    /// A node's driver runs once.
    Turn(NodeIndex),
    /// A node's earliest timer may be due.
    Wake(NodeIndex),
}

#[derive(Debug)]
struct Entry {
    at: Instant,
    order: u64,
    event: Event,
}

impl Entry {
    const fn key(&self) -> (Instant, u64) {
        (self.at, self.order)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
