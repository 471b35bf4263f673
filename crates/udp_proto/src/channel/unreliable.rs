//! Unreliable channels: what is lost stays lost, what is late is dropped.

mod arrivals;

use std::collections::VecDeque;

use wire::Instant;

use super::outgoing::Outgoing;
use super::ring::Ring;
use super::{ChannelConfig, ChannelId, MsgHeader, QUEUE_RECORD_LEN, WHOLE_MAX, truncate};
use crate::fragment::{FRAGMENT_LEN, Position, fragment_count, tail_len};

pub(crate) use arrivals::{Inbound, Progress, Reassembly, SplitMessage};

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
    /// Number that the next message of several fragments gets on the wire. Whole messages have
    /// none there, so these numbers stay close however many of those are sent.
    next_split: u64,
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
    /// Its number on the wire; `None` where it goes in one frame.
    id: Option<u16>,
    /// Fragments written.
    written: u16,
}

impl Outbound {
    /// Makes the half of `channel`, whose messages are numbered from `first_id` on.
    pub(crate) fn new(channel: ChannelId, first_id: u64) -> Self {
        Self {
            channel,
            bytes: Ring::default(),
            waiting: VecDeque::new(),
            next_message: first_id,
            next_split: first_id,
        }
    }

    /// Queues a message and returns its number and how many older ones made place for it.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        config: &ChannelConfig,
        message: &[u8],
    ) -> (u64, u64) {
        let mut displaced: u64 = 0;
        while self.cost_with(message.len()) > config.queue_bytes_max && self.drop_oldest() {
            displaced = displaced.saturating_add(1);
        }
        let id = (message.len() > WHOLE_MAX).then(|| {
            let id = truncate(self.next_split);
            self.next_split = self.next_split.wrapping_add(1);
            id
        });
        let number = self.next_message;
        self.next_message = number.wrapping_add(1);
        self.waiting.push_back(Waiting {
            start: self.bytes.end(),
            message: number,
            expires: now + config.ttl,
            len: message.len(),
            id,
            written: 0,
        });
        self.bytes.push(message);
        (number, displaced)
    }

    /// Returns the frame to be written next.
    pub(crate) fn next(&self) -> Option<Outgoing> {
        let waiting = self.waiting.front()?;
        let header = MsgHeader {
            channel: self.channel,
            id: waiting.id,
            fragment: waiting.id.map(|_| Position {
                index: waiting.written,
                count: waiting.fragments(),
            }),
        };
        let before = usize::from(waiting.written).saturating_mul(FRAGMENT_LEN);
        let len = if waiting.id.is_none() {
            waiting.len
        } else if waiting.written.saturating_add(1) == waiting.fragments() {
            tail_len(waiting.len)
        } else {
            FRAGMENT_LEN
        };
        Some(Outgoing {
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

    /// Drops what is too old and returns how many messages that were.
    pub(crate) fn expire(&mut self, now: Instant) -> u64 {
        let mut expired: u64 = 0;
        while self.expires().is_some_and(|expires| expires <= now) && self.drop_oldest() {
            expired = expired.saturating_add(1);
        }
        expired
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

    /// Drops the oldest message, and returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.waiting.pop_front() else {
            return false;
        };
        self.bytes
            .release(oldest.start.saturating_add(oldest.len as u64));
        true
    }
}

impl Waiting {
    /// Frames that the message takes.
    fn fragments(&self) -> u16 {
        if self.id.is_none() {
            return 1;
        }
        u16::try_from(fragment_count(self.len)).unwrap_or(u16::MAX)
    }
}
