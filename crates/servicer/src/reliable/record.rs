//! Records between a reliable server and its clients, and those that wait for a peer's socket.
//!
//! | byte 0 | from | the rest |
//! |---|---|---|
//! | 0, join | client | version, 1; then the application's bytes, such as name and credentials |
//! | 1, accepted | server | the application's bytes, such as where the game is |
//! | 2, refused | server | the application's reason |
//! | 3, message | both | the application's bytes |
//! | 4, closing | server | one byte of reason, then the application's text |
//!
//! A client's first record is a join. It sends nothing more until it is accepted.

use std::collections::VecDeque;
use std::time::Duration;

use wire::Instant;

/// Version of this table, sent in the join record.
const VERSION: u8 = 1;

/// Header length of a message, a welcome and a refusal, bytes.
pub(super) const MESSAGE_HEADER: usize = 1;

/// Longest header, that of a join and of a closing record, bytes.
pub(super) const HEADER_MAX: usize = 2;

/// Maximum length of a reason, bytes, sent or received. Longer ones are truncated.
pub(super) const REASON_BYTES_MAX: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReliableRecord<'a> {
    Join(&'a [u8]),
    Accepted(&'a [u8]),
    Refused(&'a [u8]),
    Message(&'a [u8]),
    Closing(Closing, &'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    ShutDown,
    Slow,
    Dismissed,
}

impl<'a> ReliableRecord<'a> {
    /// Decodes a record; `None` if it is malformed.
    pub(super) fn decode(record: &'a [u8]) -> Option<Self> {
        let (kind, rest) = record.split_first()?;
        Some(match (kind, rest) {
            (0, [VERSION, rest @ ..]) => Self::Join(rest),
            (1, rest) => Self::Accepted(rest),
            (2, rest) => Self::Refused(rest),
            (3, rest) => Self::Message(rest),
            (4, [code, reason @ ..]) => Self::Closing(Closing::of(*code)?, reason),
            _ => return None,
        })
    }

    pub(super) fn encode(self, buf: &mut Vec<u8>) {
        let (head, rest): (&[u8], _) = match self {
            Self::Join(rest) => (&[0, VERSION], rest),
            Self::Accepted(rest) => (&[1], rest),
            Self::Refused(rest) => (&[2], truncate(rest)),
            Self::Message(rest) => (&[3], rest),
            Self::Closing(Closing::ShutDown, reason) => (&[4, 0], truncate(reason)),
            Self::Closing(Closing::Slow, reason) => (&[4, 1], truncate(reason)),
            Self::Closing(Closing::Dismissed, reason) => (&[4, 2], truncate(reason)),
        };
        buf.extend_from_slice(head);
        buf.extend_from_slice(rest);
    }
}

impl Closing {
    const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::ShutDown),
            1 => Some(Self::Slow),
            2 => Some(Self::Dismissed),
            _ => None,
        }
    }
}

fn truncate(reason: &[u8]) -> &[u8] {
    reason.get(..REASON_BYTES_MAX).unwrap_or(reason)
}

/// Limits of a peer's send backlog.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Maximum bytes, where each record counts as its length plus [`RECORD_COST`].
    pub(super) bytes_max: usize,
    pub(super) age_max: Duration,
}

/// The records that a peer's socket has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    records: VecDeque<QueuedRecord>,
    /// Sum of lengths and costs.
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct QueuedRecord {
    since: Instant,
    len: usize,
    /// Application messages in the record, for the report: 0 or 1.
    messages: u64,
}

/// Overhead of a record, bytes: its length field, and its entries in two queues.
const RECORD_COST: usize = 48;

/// Record entries that an empty backlog keeps allocated.
const ENTRIES_KEPT: usize = 64;

impl Backlog {
    /// Returns whether a record of `len` bytes fits into the budget.
    pub(super) const fn has_room(&self, len: usize, budget: &Budget) -> bool {
        self.bytes.saturating_add(len).saturating_add(RECORD_COST) <= budget.bytes_max
    }

    pub(super) fn push(&mut self, now: Instant, len: usize, messages: u64) {
        self.bytes = self.bytes.saturating_add(len).saturating_add(RECORD_COST);
        self.records.push_back(QueuedRecord {
            since: now,
            len,
            messages,
        });
    }

    /// Removes `bytes` bytes of written records, always whole records. Returns how many messages
    /// they contained.
    pub(super) fn on_written(&mut self, mut bytes: usize) -> u64 {
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
        if self.records.is_empty() && self.records.capacity() > ENTRIES_KEPT {
            self.records.shrink_to(ENTRIES_KEPT);
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

    pub(super) fn deadline(&self, budget: &Budget) -> Option<Instant> {
        self.records
            .front()
            .map(|record| record.since + budget.age_max)
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        self.records
            .front()
            .map_or(Duration::ZERO, |record| now.saturating_since(record.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for typed in [
            ReliableRecord::Join(b"ann"),
            ReliableRecord::Accepted(b""),
            ReliableRecord::Refused(b"full"),
            ReliableRecord::Message(b"\0\x01"),
            ReliableRecord::Closing(Closing::ShutDown, b"bye"),
            ReliableRecord::Closing(Closing::Slow, b""),
            ReliableRecord::Closing(Closing::Dismissed, b"rude"),
        ] {
            let mut record = Vec::new();
            typed.encode(&mut record);
            assert_eq!(ReliableRecord::decode(&record), Some(typed));
        }
    }

    #[test]
    fn bytes_that_are_no_record_are_rejected() {
        for record in [&[][..], &[0], &[0, 2, 7], &[4], &[4, 3], &[5], &[255, 1]] {
            assert_eq!(ReliableRecord::decode(record), None, "{record:?}");
        }
    }

    #[test]
    fn a_reason_is_truncated() {
        let long = [7; REASON_BYTES_MAX + 1];
        for typed in [
            ReliableRecord::Refused(&long),
            ReliableRecord::Closing(Closing::Slow, &long),
        ] {
            let mut record = Vec::new();
            typed.encode(&mut record);
            assert!(record.len() <= REASON_BYTES_MAX + HEADER_MAX);
        }
    }

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
        assert_eq!(backlog.on_written(1), 1);
        assert!(backlog.has_room(1, &BUDGET));
    }

    #[test]
    fn ls_18_messages_are_counted_as_they_are_written() {
        let mut backlog = Backlog::default();
        backlog.push(at(0), 10, 0);
        backlog.push(at(1), 5, 1);
        backlog.push(at(2), 7, 1);
        assert_eq!(backlog.deadline(&BUDGET), Some(at(5)));
        assert_eq!(backlog.on_written(15), 1);
        assert_eq!(backlog.deadline(&BUDGET), Some(at(7)));
        assert_eq!(backlog.age(at(4)), Duration::from_secs(2));
        assert_eq!(backlog.on_written(7), 1);
        assert!(backlog.is_empty());
        assert_eq!((backlog.bytes(), backlog.deadline(&BUDGET)), (0, None));
    }
}
