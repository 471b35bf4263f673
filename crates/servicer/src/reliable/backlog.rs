//! The send backlog of a peer and its budget.

use std::collections::VecDeque;
use std::time::Duration;

use wire::Instant;

/// Limits of a peer's send backlog.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Maximum bytes, where each record counts as its length plus [`RECORD_COST`].
    pub(super) bytes_max: usize,
    /// Maximum age of the oldest record.
    pub(super) age_max: Duration,
}

/// The records that a peer's socket has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    records: VecDeque<Record>,
    /// Sum of lengths and costs.
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// When the record was queued.
    since: Instant,
    len: usize,
    /// Application messages in the record, for the report: 0 or 1.
    messages: u64,
}

/// Overhead of a record, bytes: its length field, and its entries in two queues.
const RECORD_COST: usize = 48;

/// Record entries that an empty backlog keeps allocated.
const KEPT: usize = 64;

impl Backlog {
    /// Returns whether a record of `len` bytes fits into the budget.
    pub(super) const fn has_room(&self, len: usize, budget: &Budget) -> bool {
        self.bytes.saturating_add(len).saturating_add(RECORD_COST) <= budget.bytes_max
    }

    /// Adds a record.
    pub(super) fn push(&mut self, now: Instant, len: usize, messages: u64) {
        self.bytes = self.bytes.saturating_add(len).saturating_add(RECORD_COST);
        self.records.push_back(Record {
            since: now,
            len,
            messages,
        });
    }

    /// Removes `bytes` bytes of written records, always whole records. Returns how many messages
    /// they contained.
    pub(super) fn note_written(&mut self, mut bytes: usize) -> u64 {
        let mut messages = 0_u64;
        while let Some(record) = self.records.front().copied()
            && let Some(rest) = bytes.checked_sub(record.len)
        {
            bytes = rest;
            self.records.pop_front();
            let cost = record.len.saturating_add(RECORD_COST);
            self.bytes = self.bytes.saturating_sub(cost);
            messages = messages.saturating_add(record.messages);
        }
        if self.records.is_empty() && self.records.capacity() > KEPT {
            self.records.shrink_to(KEPT);
        }
        messages
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Sum of the lengths and costs of the queued records.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns when the oldest record exceeds the maximum age.
    pub(super) fn deadline(&self, budget: &Budget) -> Option<Instant> {
        self.records
            .front()
            .map(|record| record.since + budget.age_max)
    }

    /// Returns the age of the oldest record.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.records
            .front()
            .map_or(Duration::ZERO, |record| now.saturating_since(record.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        bytes_max: 200,
        age_max: Duration::from_secs(5),
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    #[test]
    fn ls_19_records_cost_more_than_their_bytes() {
        let mut backlog = Backlog::default();
        let mut count = 0;
        while backlog.has_room(1, &BUDGET) {
            backlog.push(at(0), 1, 1);
            count += 1;
        }
        assert_eq!((count, backlog.bytes()), (4, 196));
        assert!(!backlog.has_room(0, &BUDGET));
        assert_eq!(backlog.note_written(1), 1);
        assert!(backlog.has_room(1, &BUDGET));
    }

    #[test]
    fn ls_18_messages_are_counted_as_they_are_written() {
        let mut backlog = Backlog::default();
        backlog.push(at(0), 10, 0);
        backlog.push(at(1), 5, 1);
        backlog.push(at(2), 7, 1);
        assert_eq!(backlog.deadline(&BUDGET), Some(at(5)));
        assert_eq!(backlog.note_written(15), 1);
        assert_eq!(backlog.deadline(&BUDGET), Some(at(7)));
        assert_eq!(backlog.age(at(4)), Duration::from_secs(2));
        assert_eq!(backlog.note_written(7), 1);
        assert!(backlog.is_empty());
        assert_eq!((backlog.bytes(), backlog.deadline(&BUDGET)), (0, None));
    }
}
