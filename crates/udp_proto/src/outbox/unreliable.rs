//! Unreliable and sequenced channels.

use std::collections::VecDeque;

use wire::Instant;

use super::packet_builder::{Next, Outgoing};
use super::partial_reliable::{AckOutcome, MessageInfo, PartialReliable, Retransmission};
use crate::byte_queue::{ByteQueue, deque_memory};
use crate::channel::{
    ChannelConfig, ChannelId, Delivery, MessageId, MsgHeader, QUEUE_RECORD_LEN, WHOLE_MAX,
    frame_count, truncate,
};
use crate::event::MessageOutcome;
use crate::fragment::{FRAGMENT_LEN, Position, REASSEMBLY_LIFE, fragment_count};

/// The sending half of an unreliable channel: messages that wait for a packet, oldest first.
#[derive(Debug)]
pub(crate) struct Outbound {
    channel: ChannelId,
    /// Bytes of the messages in `waiting`, in order.
    pub(super) bytes: ByteQueue,
    /// Messages not completely written.
    waiting: VecDeque<Waiting>,
    next_message: u64,
    is_sequenced: bool,
    /// The next number on the wire. Assigned when sending starts, so that dropped messages take
    /// none.
    next_on_wire: u64,
    /// Sent messages that are retransmitted until their deadline; allocated for the first one.
    partial: Option<Box<PartialReliable>>,
}

/// Most bytes of a datagram beside a fragment: header, tag and frame header.
const DATAGRAM_OVERHEAD: usize = 40;

/// Lifetime and retransmission of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) now: Instant,
    pub(crate) expires: Instant,
    /// Whether it is retransmitted until then.
    pub(crate) is_repeated: bool,
}

#[derive(Debug)]
struct Waiting {
    start: u64,
    message: u64,
    /// When it expires; once its first fragment was sent, when the peer may give it up.
    expires: Instant,
    len: usize,
    written: u16,
    /// Number of fragments; 0 for a frame without a position.
    split: u16,
    /// Whether it is retransmitted when lost.
    is_repeated: bool,
}

impl Outbound {
    pub(crate) fn new(
        channel: ChannelId,
        delivery: Delivery,
        (next_message, next_on_wire): (u64, u64),
    ) -> Self {
        Self {
            channel,
            bytes: ByteQueue::default(),
            waiting: VecDeque::new(),
            next_message,
            is_sequenced: delivery.is_numbered(),
            next_on_wire,
            partial: None,
        }
    }

    pub(crate) const fn next_numbers(&self) -> (u64, u64) {
        (self.next_message, self.next_on_wire)
    }

    /// Queues a message and returns its number. To make room, first stops retransmission of sent
    /// messages, then drops older queued ones and passes them to `displaced`.
    pub(crate) fn push(
        &mut self,
        usage: Use,
        config: &ChannelConfig,
        message: &[u8],
        mut displaced: impl FnMut(u64),
    ) -> u64 {
        while self.cost_with(message.len()) > config.queue_bytes_max {
            let partial = self.partial.as_mut();
            if partial.is_some_and(|partial| partial.give_up_oldest(usage.now)) {
                continue;
            }
            let Some(oldest) = self.drop_waiting() else {
                break;
            };
            displaced(oldest);
        }
        let number = self.next_message;
        self.next_message = number.wrapping_add(1);
        self.waiting.push_back(Waiting {
            start: self.bytes.end(),
            message: number,
            expires: usage.expires,
            len: message.len(),
            written: 0,
            split: self.split(usage, message.len()),
            is_repeated: usage.is_repeated,
        });
        self.bytes.push(message);
        number
    }

    pub(crate) fn next(&self) -> Next {
        let Some(waiting) = self.waiting.front() else {
            return Next::Idle;
        };
        let before = usize::from(waiting.written).saturating_mul(FRAGMENT_LEN);
        let outgoing = self.outgoing(&Retransmission {
            info: waiting.info(self.next_on_wire),
            fragment: waiting.written,
            start: waiting.start.saturating_add(before as u64),
        });
        Next::Frame(Outgoing {
            is_tracked: waiting.is_repeated,
            ..outgoing
        })
    }

    /// Returns the next message with its number if its frame needs only the channel.
    #[inline]
    pub(crate) fn next_plain(&self) -> Option<(MessageId, &[u8])> {
        let waiting = self.waiting.front()?;
        let is_plain = !self.is_sequenced && !waiting.is_repeated && waiting.split == 0;
        is_plain.then(|| (MessageId(waiting.message), self.bytes.first(waiting.len)))
    }

    #[inline]
    pub(crate) fn on_plain_written(&mut self) {
        if let Some(written) = self.waiting.pop_front() {
            self.bytes.release_first(written.len);
        }
    }

    pub(crate) fn on_written(&mut self, now: Instant) {
        let Some(waiting) = self.waiting.front_mut() else {
            return;
        };
        let fragment = waiting.written;
        waiting.written = fragment.saturating_add(1);
        let has_left = waiting.has_left();
        if waiting.is_repeated {
            let partial = self.partial.get_or_insert_default();
            partial.on_written(&waiting.info(self.next_on_wire), fragment, now);
            if has_left {
                partial.keep(waiting.message, &self.bytes, waiting.start);
            }
        }
        if fragment == 0 && waiting.split > 0 {
            // After this time the peer gives the message up. Until then the rest is sent, or the
            // first fragment would be wasted.
            let until = now + REASSEMBLY_LIFE;
            waiting.expires = if waiting.is_repeated {
                waiting.expires.min(until)
            } else {
                until
            };
        }
        if has_left {
            self.drop_oldest();
        }
    }

    pub(crate) fn next_lost(&self) -> Option<Outgoing> {
        let partial = self.partial.as_ref()?;
        Some(self.outgoing(&partial.next_lost(self.next_on_wire)?))
    }

    pub(crate) fn on_lost_written(&mut self, outgoing: &Outgoing) {
        if let Some(partial) = &mut self.partial {
            partial.on_lost_written(outgoing.message, outgoing.fragment);
        }
    }

    pub(crate) fn on_acknowledged(&mut self, message: u64, fragment: u16) -> AckOutcome {
        let Some(partial) = &mut self.partial else {
            return AckOutcome::NotKept;
        };
        partial.on_acknowledged(message, fragment)
    }

    /// Records a lost fragment. Returns whether its message is or was retransmitted.
    pub(crate) fn on_lost(&mut self, now: Instant, message: u64, fragment: u16) -> bool {
        let partial = self.partial.as_mut();
        partial.is_some_and(|partial| partial.on_lost(now, message, fragment))
    }

    /// Queues the oldest retransmittable frame in flight. Returns whether there is one.
    pub(crate) fn probe(&mut self) -> bool {
        self.partial.as_mut().is_some_and(|partial| partial.probe())
    }

    pub(crate) fn drop_stale(&mut self, mut settled: impl FnMut(u64, MessageOutcome)) {
        if let Some(partial) = &mut self.partial {
            partial.drop_stale(self.next_on_wire, &mut settled);
        }
    }

    /// Drops expired messages and settles them; one behind a longer TTL when it reaches the front.
    pub(crate) fn expire(&mut self, now: Instant, mut settled: impl FnMut(u64, MessageOutcome)) {
        while self.expires().is_some_and(|expires| expires <= now)
            && let Some(oldest) = self.drop_oldest()
        {
            settled(oldest, MessageOutcome::Expired);
        }
        if let Some(partial) = &mut self.partial {
            partial.expire(now, &mut settled);
        }
    }

    pub(crate) fn shrink(&mut self) {
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
            self.bytes.shrink();
        }
        if !self.is_keeping() {
            self.partial = None;
        }
    }

    pub(crate) fn is_keeping(&self) -> bool {
        self.partial
            .as_ref()
            .is_some_and(|partial| !partial.is_empty())
    }

    /// Returns whether nothing will be written again, whatever is lost.
    pub(crate) fn is_done(&self) -> bool {
        let partial = self.partial.as_ref();
        self.waiting.is_empty() && partial.is_none_or(|partial| partial.repeatable == 0)
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        let partial = self.partial.as_ref().and_then(|partial| partial.timeout);
        self.expires().into_iter().chain(partial).min()
    }

    pub(crate) fn kept_bytes(&self) -> Option<&ByteQueue> {
        self.partial.as_ref().map(|partial| &partial.bytes)
    }

    pub(crate) fn expires(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.expires)
    }

    pub(crate) fn memory(&self) -> usize {
        let records = deque_memory(&self.waiting);
        let partial = self.partial.as_ref().map_or(0, |partial| partial.memory());
        [self.bytes.memory(), records, partial].into_iter().sum()
    }

    /// The size of the queue with another message of `len` bytes.
    fn cost_with(&self, len: usize) -> usize {
        let records = self.waiting.len().saturating_add(1);
        let partial = self.partial.as_ref().map_or(0, |partial| partial.cost());
        self.bytes
            .len()
            .saturating_add(len)
            .saturating_add(records.saturating_mul(QUEUE_RECORD_LEN))
            .saturating_add(partial)
    }

    /// Returns the number of frames with a position for a message of `len` bytes; 0 if it needs
    /// none. A retransmitted message needs a number, so it has at least one where whole messages
    /// have none.
    fn split(&self, usage: Use, len: usize) -> u16 {
        if usage.is_repeated && !self.is_sequenced {
            return u16::try_from(fragment_count(len).max(1)).unwrap_or(u16::MAX);
        }
        if len > WHOLE_MAX { frame_count(len) } else { 0 }
    }

    fn outgoing(&self, frame: &Retransmission) -> Outgoing {
        let Retransmission {
            info,
            fragment,
            start,
        } = *frame;
        let is_numbered = self.is_sequenced || info.split > 0;
        let before = usize::from(fragment).saturating_mul(FRAGMENT_LEN);
        let left = info.len.saturating_sub(before);
        let is_split = info.split > 0;
        Outgoing {
            header: MsgHeader {
                channel: self.channel,
                id: is_numbered.then(|| truncate(info.on_wire)),
                fragment: is_split.then_some(Position {
                    index: fragment,
                    count: info.split,
                }),
            },
            message: info.message,
            fragment,
            start,
            len: if is_split {
                left.min(FRAGMENT_LEN)
            } else {
                info.len
            },
            credit: 0,
            is_tracked: true,
        }
    }

    /// Returns the datagram bytes of the next message if it is split and not started.
    pub(crate) fn to_begin(&self) -> Option<usize> {
        let waiting = self.waiting.front()?;
        (waiting.written == 0 && waiting.split > 1).then(|| waiting.datagram_bytes(0))
    }

    /// Returns the total and remaining datagram bytes of the next message if it is partly sent.
    pub(crate) fn begun(&self) -> Option<(usize, usize)> {
        let waiting = self.waiting.front()?;
        (waiting.written > 0).then(|| {
            (
                waiting.datagram_bytes(0),
                waiting.datagram_bytes(waiting.written),
            )
        })
    }

    /// Drops the oldest message that is not started. Returns its number.
    fn drop_waiting(&mut self) -> Option<u64> {
        if self.waiting.front()?.written == 0 {
            return self.drop_oldest();
        }
        let dropped = self.waiting.remove(1)?;
        self.bytes.remove(dropped.start, dropped.len);
        for later in self.waiting.iter_mut().skip(1) {
            later.start = later.start.saturating_sub(dropped.len as u64);
        }
        Some(dropped.message)
    }

    /// Drops the oldest message. Returns its number.
    fn drop_oldest(&mut self) -> Option<u64> {
        let oldest = self.waiting.pop_front()?;
        self.bytes
            .release(oldest.start.saturating_add(oldest.len as u64));
        if oldest.written > 0 && (self.is_sequenced || oldest.split > 0) {
            self.next_on_wire = self.next_on_wire.wrapping_add(1);
        }
        if oldest.is_repeated
            && !oldest.has_left()
            && let Some(partial) = &mut self.partial
        {
            partial.remove(oldest.message);
        }
        Some(oldest.message)
    }
}

impl Waiting {
    /// Returns whether all of it was written.
    fn has_left(&self) -> bool {
        self.written >= self.split.max(1)
    }

    fn datagram_bytes(&self, first: u16) -> usize {
        let before = usize::from(first).saturating_mul(FRAGMENT_LEN);
        let datagrams = usize::from(self.split.saturating_sub(first));
        let overhead = datagrams.saturating_mul(DATAGRAM_OVERHEAD);
        self.len.saturating_sub(before).saturating_add(overhead)
    }

    /// Returns its description with the wire number `on_wire`.
    const fn info(&self, on_wire: u64) -> MessageInfo {
        MessageInfo {
            message: self.message,
            on_wire,
            deadline: self.expires,
            len: self.len,
            split: self.split,
        }
    }
}
