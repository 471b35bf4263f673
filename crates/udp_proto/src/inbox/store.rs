//! What the channels of a session share: messages that wait for the application, and credit.

use std::collections::VecDeque;

use crate::byte_queue::{ByteQueue, deque_memory};
use crate::channel::{ChannelError, ChannelId, ChannelTable};
use crate::fragment::{Reassembler, UNRELIABLE_BUDGET};

/// State shared by a session's channels.
#[derive(Debug)]
pub(super) struct Store {
    /// `None` while nothing is held and nothing has arrived for long.
    pub(super) buffers: Option<Box<Buffers>>,
    pub(super) credit: Credit,
    /// Unreliable messages dropped by earlier stocks.
    dropped: u64,
}

/// Messages between packets and the application.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Incomplete or out of order.
    pub(super) reassembler: Reassembler,
    pub(super) unread: Unread,
}

impl Store {
    pub(super) const fn new(window: u64) -> Self {
        Self {
            buffers: None,
            credit: Credit::new(window),
            dropped: 0,
        }
    }

    #[inline]
    pub(super) fn buffers(&mut self) -> &mut Buffers {
        self.buffers.get_or_insert_default()
    }

    /// Shrinks sparse parts once all together keep more than one part alone could: a peer that
    /// alternates between forms would otherwise grow each in turn.
    pub(super) fn tidy(&mut self) {
        let window = usize::try_from(self.credit.window).unwrap_or(usize::MAX);
        let alone = window.saturating_add(window / 2).max(UNRELIABLE_MEMORY_MAX);
        let Buffers {
            reassembler,
            unread,
        } = self.buffers();
        let kept = reassembler.stores_memory();
        if kept.saturating_add(unread.memory()) > alone {
            reassembler.tidy();
            unread.tidy();
        }
    }

    pub(super) fn shrink(&mut self) {
        let Some(buffers) = &mut self.buffers else {
            return;
        };
        buffers.unread.shrink();
        buffers.reassembler.shrink();
        if buffers.unread.is_empty() && buffers.reassembler.is_empty() {
            self.dropped = self.dropped();
            self.buffers = None;
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        let of_this = self
            .buffers
            .as_ref()
            .map_or(0, |buffers| buffers.unread.dropped());
        self.dropped.saturating_add(of_this)
    }

    pub(super) fn memory(&self) -> usize {
        self.buffers.as_ref().map_or(0, |buffers| {
            size_of::<Buffers>()
                .saturating_add(buffers.reassembler.memory())
                .saturating_add(buffers.unread.memory())
        })
    }
}

/// Memory of unreliable messages, with the spare capacity of vectors that grow by half.
const UNRELIABLE_MEMORY_MAX: usize = (UNRELIABLE_BUDGET + UNRELIABLE_UNREAD_MAX) * 8 / 5;

/// Flow control, receiver's side; TWP/1, section 7.2. All counts are since the session's start.
#[derive(Debug)]
pub(super) struct Credit {
    /// Bytes that may be received and unread.
    window: u64,
    /// The peer's limit; initially the window, which it knows from the handshake.
    granted: u64,
    /// Received.
    spent: u64,
    /// Read by the application.
    read: u64,
    acknowledged: u64,
    /// Whether to send the grant, for the first time or again.
    is_due: bool,
}

impl Credit {
    const fn new(window: u64) -> Self {
        Self {
            window,
            granted: window,
            spent: 0,
            read: 0,
            acknowledged: window,
            is_due: false,
        }
    }

    pub(super) const fn spend(&mut self, credit: usize) -> Result<(), ChannelError> {
        let spent = self.spent.saturating_add(credit as u64);
        if spent > self.granted {
            return Err(ChannelError::Flow);
        }
        self.spent = spent;
        Ok(())
    }

    pub(super) const fn on_read(&mut self, credit: usize) {
        self.read = self.read.saturating_add(credit as u64);
        let grant = self.read.saturating_add(self.window);
        // Not for every message, which would cost a frame each.
        if grant.saturating_sub(self.granted) >= self.window / 4 {
            self.granted = grant;
            self.is_due = true;
        }
    }

    pub(super) fn due(&self) -> Option<u64> {
        self.is_due.then_some(self.granted)
    }

    pub(super) const fn on_sent(&mut self, grant: u64) {
        if grant == self.granted {
            self.is_due = false;
        }
    }

    pub(super) fn on_acknowledged(&mut self, grant: u64) {
        self.acknowledged = self.acknowledged.max(grant.min(self.granted));
        if self.acknowledged == self.granted {
            self.is_due = false;
        }
    }

    /// Records the loss of a packet with `grant`. An older grant is obsolete.
    pub(super) const fn on_lost(&mut self, grant: u64) {
        if grant == self.granted && self.acknowledged < self.granted {
            self.is_due = true;
        }
    }
}

/// Messages of all channels in order of arrival. Unreliable ones have a limit, beyond which the
/// oldest are dropped; reliable ones are bounded by their credit.
#[derive(Debug, Default)]
pub(super) struct Unread {
    unreliable: Queue,
    reliable: Queue,
    arrivals: u64,
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
    arrival: u64,
    len: usize,
    /// Credit spent; 0 for an unreliable message.
    credit: usize,
    channel: ChannelId,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FreedCredit {
    pub(super) channel: ChannelId,
    pub(super) credit: usize,
}

impl Unread {
    pub(super) fn push_unreliable(
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

    pub(super) fn push_reliable(
        &mut self,
        channel: ChannelId,
        credit: usize,
        write: impl FnOnce(&mut ByteQueue),
    ) {
        let record = (channel, credit, self.arrivals);
        self.arrivals = self.arrivals.wrapping_add(1);
        self.reliable.push(record, write);
    }

    pub(super) fn take(&mut self, out: &mut Vec<u8>) -> Option<FreedCredit> {
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

    pub(super) fn shrink(&mut self) {
        for queue in [&mut self.unreliable, &mut self.reliable] {
            if queue.records.is_empty() {
                *queue = Queue::default();
            }
        }
    }

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

    pub(super) fn memory(&self) -> usize {
        self.unreliable
            .memory()
            .saturating_add(self.reliable.memory())
    }
}

impl Queue {
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

    fn take(&mut self, out: &mut Vec<u8>) -> Option<FreedCredit> {
        let Record {
            len,
            credit,
            channel,
            ..
        } = *self.records.front()?;
        out.clear();
        out.extend_from_slice(self.bytes.first(len));
        self.drop_oldest();
        Some(FreedCredit { channel, credit })
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

    fn memory(&self) -> usize {
        deque_memory(&self.records).saturating_add(self.bytes.memory())
    }
}

/// Most bytes of unread unreliable messages with their records: half a second of 32 messages of 100
/// bytes at 60 Hz.
pub(super) const UNRELIABLE_UNREAD_MAX: usize = 64 << 10;

const _: () = assert!(
    ChannelTable::UNRELIABLE_BYTES_MAX + size_of::<Record>() <= UNRELIABLE_UNREAD_MAX,
    "the longest unreliable message must find room"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_after_a_quarter_is_read_and_repeats_until_acknowledged() {
        let mut credit = Credit::new(400);
        assert_eq!(credit.spend(401), Err(ChannelError::Flow));
        assert_eq!(credit.spend(400), Ok(()));
        assert_eq!(credit.spend(1), Err(ChannelError::Flow));
        credit.on_read(99);
        assert_eq!(credit.due(), None);
        credit.on_read(1);
        assert_eq!(credit.due(), Some(500));
        credit.on_sent(500);
        assert_eq!(credit.due(), None, "it is on its way");
        credit.on_lost(500);
        assert_eq!(credit.due(), Some(500));
        credit.on_sent(500);
        credit.on_read(100);
        assert_eq!(credit.due(), Some(600));
        credit.on_sent(600);
        credit.on_lost(500);
        assert_eq!(credit.due(), None, "a newer grant is on its way");
        credit.on_acknowledged(600);
        credit.on_lost(600);
        assert_eq!(credit.due(), None, "the peer has it");
        assert_eq!(credit.spend(200), Ok(()));
        assert_eq!(credit.spend(1), Err(ChannelError::Flow));
    }

    #[test]
    fn an_acknowledgement_of_an_unsent_grant_changes_nothing() {
        let mut credit = Credit::new(400);
        credit.on_acknowledged(u64::MAX);
        credit.on_read(100);
        credit.on_sent(500);
        credit.on_lost(500);
        assert_eq!(credit.due(), Some(500), "not acknowledged yet");
    }
}
