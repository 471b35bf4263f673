//! Messages that wait for the application.

use std::collections::VecDeque;

use crate::channel::ChannelId;
use crate::channel::byte_queue::ByteQueue;

/// Messages of all channels in order of arrival.
///
/// Unreliable ones have a limit, beyond which the oldest are dropped. Reliable ones are bounded by
/// their credit.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    unreliable: Queue,
    reliable: Queue,
    /// Number of messages so far.
    arrivals: u64,
    /// Unreliable messages dropped.
    dropped: u64,
}

/// Messages of one class, oldest first.
#[derive(Debug, Default)]
struct Queue {
    bytes: ByteQueue,
    records: VecDeque<Record>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// Number of messages before it.
    arrival: u64,
    /// In bytes.
    len: usize,
    /// Credit spent; 0 for an unreliable message.
    credit: usize,
    channel: ChannelId,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) channel: ChannelId,
    /// Credit spent; 0 for an unreliable message.
    pub(super) credit: usize,
}

impl Unread {
    /// Queues the unreliable message that `write` appends.
    pub(crate) fn push_unreliable(
        &mut self,
        channel: ChannelId,
        write: impl FnOnce(&mut ByteQueue),
    ) {
        let record = (channel, 0, self.arrivals);
        self.arrivals = self.arrivals.wrapping_add(1);
        self.unreliable.push(record, write);
        while self.unreliable.cost() > UNRELIABLE_UNREAD_MAX && self.unreliable.drop_oldest() {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Queues the reliable message that `write` appends.
    pub(crate) fn push_reliable(
        &mut self,
        channel: ChannelId,
        credit: usize,
        write: impl FnOnce(&mut ByteQueue),
    ) {
        let record = (channel, credit, self.arrivals);
        self.arrivals = self.arrivals.wrapping_add(1);
        self.reliable.push(record, write);
    }

    /// Moves the oldest message to `out`, replacing its content.
    pub(super) fn take(&mut self, out: &mut Vec<u8>) -> Option<Taken> {
        let unreliable = self.unreliable.records.front().map(|first| first.arrival);
        let reliable = self.reliable.records.front().map(|first| first.arrival);
        match (unreliable, reliable) {
            (Some(unreliable), Some(reliable)) if unreliable < reliable => {
                self.unreliable.take(out)
            }
            (Some(_), None) => self.unreliable.take(out),
            (_, Some(_)) => self.reliable.take(out),
            (None, None) => None,
        }
    }

    /// Releases the memory of empty queues.
    pub(super) fn shrink(&mut self) {
        for queue in [&mut self.unreliable, &mut self.reliable] {
            if queue.records.is_empty() {
                *queue = Queue::default();
            }
        }
    }

    /// Releases capacity beyond twice the content.
    pub(super) fn tidy(&mut self) {
        for queue in [&mut self.unreliable, &mut self.reliable] {
            queue.bytes.tidy();
            if queue.records.capacity() / 2 > queue.records.len() {
                queue.records.shrink_to_fit();
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unreliable.records.is_empty() && self.reliable.records.is_empty()
    }

    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the heap memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.unreliable
            .memory()
            .saturating_add(self.reliable.memory())
    }
}

impl Queue {
    /// Queues the message that `write` appends.
    fn push(
        &mut self,
        (channel, credit, arrival): (ChannelId, usize, u64),
        write: impl FnOnce(&mut ByteQueue),
    ) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        let len = self.bytes.len().saturating_sub(before);
        self.records.push_back(Record {
            arrival,
            len,
            credit,
            channel,
        });
    }

    /// Moves the oldest message to `out`.
    fn take(&mut self, out: &mut Vec<u8>) -> Option<Taken> {
        let Record {
            len,
            credit,
            channel,
            ..
        } = *self.records.front()?;
        out.clear();
        out.extend_from_slice(self.bytes.first(len));
        self.drop_oldest();
        Some(Taken { channel, credit })
    }

    /// Drops the oldest message. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let Some(record) = self.records.pop_front() else {
            return false;
        };
        self.bytes.release_first(record.len);
        true
    }

    /// Accounted size in bytes.
    fn cost(&self) -> usize {
        self.records
            .len()
            .saturating_mul(size_of::<Record>())
            .saturating_add(self.bytes.len())
    }

    /// Returns the heap memory in bytes.
    fn memory(&self) -> usize {
        self.records
            .capacity()
            .saturating_mul(size_of::<Record>())
            .saturating_add(self.bytes.memory())
    }
}

/// Most bytes of unread unreliable messages with their records.
///
/// As large as a send queue: half a second of 32 messages of 100 bytes at 60 Hz. An application
/// that reads later needs only the newest.
pub(super) const UNRELIABLE_UNREAD_MAX: usize = 64 << 10;

const _: () = assert!(
    crate::channel::ChannelTable::UNRELIABLE_BYTES_MAX + size_of::<Record>()
        <= UNRELIABLE_UNREAD_MAX,
    "the longest unreliable message must find room"
);
