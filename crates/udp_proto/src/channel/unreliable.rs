//! Unreliable channels, sequenced or not: what is lost stays lost, what is late is dropped.

mod arrivals;

use std::collections::VecDeque;

use wire::Instant;

use super::outgoing::{Next, Outgoing};
use super::ring::Ring;
use super::{
    ChannelConfig, ChannelId, Delivery, MsgHeader, QUEUE_RECORD_LEN, WHOLE_MAX, frame_count,
    truncate,
};
use crate::fragment::{FRAGMENT_LEN, Position, tail_len};

pub(crate) use arrivals::{Inbound, Note, Progress, Reassembly, SplitMessage};

/// The sending half of an unreliable channel: messages that wait for a packet, oldest first.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// The channel.
    channel: ChannelId,
    /// Bytes of the messages in `waiting`, in that order.
    bytes: Ring,
    /// Messages not yet wholly written.
    waiting: VecDeque<Waiting>,
    /// Number that the next message gets.
    next_message: u64,
    /// Whether whole messages have a number on the wire, too.
    is_sequenced: bool,
    /// Number on the wire of the next message that begins to leave and has one. What never leaves
    /// has none, so these numbers stay close however much is dropped in the queue.
    next_on_wire: u64,
}

/// A message that waits.
#[derive(Debug)]
struct Waiting {
    /// Offset of its first byte.
    start: u64,
    /// Its number.
    message: u64,
    /// When it is too old to be sent.
    expires: Instant,
    /// Its length, bytes.
    len: usize,
    /// Fragments written.
    written: u16,
}

impl Outbound {
    /// Makes the half of `channel`, whose messages are numbered from `first_id` on.
    pub(crate) fn new(channel: ChannelId, delivery: Delivery, first_id: u64) -> Self {
        Self {
            channel,
            bytes: Ring::default(),
            waiting: VecDeque::new(),
            next_message: first_id,
            is_sequenced: delivery.is_numbered(),
            next_on_wire: first_id,
        }
    }

    /// Queues a message that is too old at `expires` and returns its number. Older ones that make
    /// place for it are named to `displaced`.
    pub(crate) fn push(
        &mut self,
        expires: Instant,
        config: &ChannelConfig,
        message: &[u8],
        mut displaced: impl FnMut(u64),
    ) -> u64 {
        while self.cost_with(message.len()) > config.queue_bytes_max
            && let Some(oldest) = self.drop_oldest()
        {
            displaced(oldest);
        }
        let number = self.next_message;
        self.next_message = number.wrapping_add(1);
        self.waiting.push_back(Waiting {
            start: self.bytes.end(),
            message: number,
            expires,
            len: message.len(),
            written: 0,
        });
        self.bytes.push(message);
        number
    }

    /// Returns the frame to be written next.
    pub(crate) fn next(&self) -> Next {
        let Some(waiting) = self.waiting.front() else {
            return Next::Idle;
        };
        let header = MsgHeader {
            channel: self.channel,
            id: self
                .is_numbered(waiting)
                .then(|| truncate(self.next_on_wire)),
            fragment: waiting.is_split().then(|| Position {
                index: waiting.written,
                count: waiting.fragments(),
            }),
        };
        let before = usize::from(waiting.written).saturating_mul(FRAGMENT_LEN);
        let len = if !waiting.is_split() {
            waiting.len
        } else if waiting.written.saturating_add(1) == waiting.fragments() {
            tail_len(waiting.len)
        } else {
            FRAGMENT_LEN
        };
        Next::Frame(Outgoing {
            header,
            message: waiting.message,
            fragment: waiting.written,
            start: waiting.start.saturating_add(before as u64),
            len,
            credit: 0,
        })
    }

    /// Takes note that the frame from [`next`](Self::next) is written.
    pub(crate) fn on_written(&mut self) {
        let Some(waiting) = self.waiting.front_mut() else {
            return;
        };
        waiting.written = waiting.written.saturating_add(1);
        if waiting.written >= waiting.fragments() {
            self.drop_oldest();
        }
    }

    /// Drops what is too old and names it to `expired`. A message that may wait less long than
    /// those before it is dropped when its turn comes.
    pub(crate) fn expire(&mut self, now: Instant, mut expired: impl FnMut(u64)) {
        while self.expires().is_some_and(|expires| expires <= now)
            && let Some(oldest) = self.drop_oldest()
        {
            expired(oldest);
        }
    }

    /// Gives back the memory of an empty queue.
    pub(crate) fn shrink(&mut self) {
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
            self.bytes.shrink();
        }
    }

    /// Returns when the oldest message is too old.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.expires)
    }

    /// Returns where the data of frames is.
    pub(crate) const fn bytes(&self) -> &Ring {
        &self.bytes
    }

    /// Returns the heap memory it keeps, bytes.
    pub(crate) fn memory(&self) -> usize {
        let records = self.waiting.capacity().saturating_mul(size_of::<Waiting>());
        self.bytes.memory().saturating_add(records)
    }

    /// What the queue would count as with one more message of `len` bytes.
    fn cost_with(&self, len: usize) -> usize {
        let records = self.waiting.len().saturating_add(1);
        self.bytes
            .len()
            .saturating_add(len)
            .saturating_add(records.saturating_mul(QUEUE_RECORD_LEN))
    }

    /// Returns whether `waiting` has a number on the wire.
    const fn is_numbered(&self, waiting: &Waiting) -> bool {
        self.is_sequenced || waiting.is_split()
    }

    /// Drops the oldest message, and returns its number.
    fn drop_oldest(&mut self) -> Option<u64> {
        let oldest = self.waiting.pop_front()?;
        self.bytes
            .release(oldest.start.saturating_add(oldest.len as u64));
        if oldest.written > 0 && self.is_numbered(&oldest) {
            self.next_on_wire = self.next_on_wire.wrapping_add(1);
        }
        Some(oldest.message)
    }
}

impl Waiting {
    /// Returns whether it goes in more than one frame.
    const fn is_split(&self) -> bool {
        self.len > WHOLE_MAX
    }

    /// Frames that the message takes.
    fn fragments(&self) -> u16 {
        frame_count(self.len)
    }
}
