//! Unreliable channels, sequenced or not: what is lost stays lost, what is late is dropped.

mod arrivals;
mod partial_reliable;

use std::collections::VecDeque;

use wire::Instant;

use super::byte_queue::ByteQueue;
use super::{
    ChannelConfig, ChannelId, Delivery, MessageId, MsgHeader, QUEUE_RECORD_LEN, WHOLE_MAX,
    frame_count, truncate,
};
use super::{Next, Outgoing};
use crate::fragment::{FRAGMENT_LEN, Position, REASSEMBLY_LIFE, fragment_count};
use crate::outcome::MessageOutcome;
use partial_reliable::{Leaving, PartialReliable, Retransmission};

pub(crate) use arrivals::{Inbound, Note, Progress, Reassembly, SplitMessage};
pub(crate) use partial_reliable::{AckOutcome, STRAGGLERS};

/// The sending half of an unreliable channel: messages that wait for a packet, oldest first.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// The channel.
    channel: ChannelId,
    /// Bytes of the messages in `waiting`, in that order.
    bytes: ByteQueue,
    /// Messages not yet wholly written.
    waiting: VecDeque<Waiting>,
    /// Number that the next message gets.
    next_message: u64,
    /// Whether whole messages have a number on the wire, too.
    is_sequenced: bool,
    /// Number on the wire of the next message that begins to leave and has one. What never leaves
    /// has none, so these numbers stay close however much is dropped in the queue.
    next_on_wire: u64,
    /// Messages that left and are sent again until their deadline; made for the first.
    partial: Option<Box<PartialReliable>>,
}

/// Bytes of a datagram that holds a fragment, beside the fragment: header, tag and frame, at most.
const DATAGRAM_OVERHEAD: usize = 40;

/// How long a message is of use, and what is done for it meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// The time.
    pub(crate) now: Instant,
    /// When it is too old to be sent.
    pub(crate) expires: Instant,
    /// Whether it is sent again until then while it counts as lost.
    pub(crate) is_repeated: bool,
}

/// A message that waits.
#[derive(Debug)]
struct Waiting {
    /// Offset of its first byte.
    start: u64,
    /// Its number.
    message: u64,
    /// When it is too old to be sent. Once the first part of it has left, that is also when the peer,
    /// who waits [`REASSEMBLY_LIFE`] for the rest, may have given it up.
    expires: Instant,
    /// Its length, bytes.
    len: usize,
    /// Fragments written.
    written: u16,
    /// Its fragments; 0 where it goes as a frame that names none.
    split: u16,
    /// Whether it is sent again while it counts as lost.
    is_repeated: bool,
}

impl Outbound {
    /// Makes the half of `channel`, whose messages are numbered from there on: as their sender counts
    /// them, and on the wire.
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

    /// Returns the numbers of the next message: as its sender counts, and on the wire.
    pub(crate) const fn next_numbers(&self) -> (u64, u64) {
        (self.next_message, self.next_on_wire)
    }

    /// Queues a message and returns its number. Older ones that make place for it are named to
    /// `displaced`; before that, what has left is not sent again any more.
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

    /// Returns the frame to be written next.
    pub(crate) fn next(&self) -> Next {
        let Some(waiting) = self.waiting.front() else {
            return Next::Idle;
        };
        let before = usize::from(waiting.written).saturating_mul(FRAGMENT_LEN);
        let outgoing = self.outgoing(&Retransmission {
            leaving: waiting.leaving(self.next_on_wire),
            fragment: waiting.written,
            start: waiting.start.saturating_add(before as u64),
        });
        Next::Frame(Outgoing {
            is_tracked: waiting.is_repeated,
            ..outgoing
        })
    }

    /// Returns the message to be written next and its number, where its frame is the channel and the
    /// message and no more: it is whole, has no number on the wire, and leaves once.
    #[inline]
    pub(crate) fn next_plain(&self) -> Option<(MessageId, &[u8])> {
        let waiting = self.waiting.front()?;
        let is_plain = !self.is_sequenced && !waiting.is_repeated && waiting.split == 0;
        is_plain.then(|| (MessageId(waiting.message), self.bytes.first(waiting.len)))
    }

    /// Takes note that the message from [`next_plain`](Self::next_plain) is written.
    #[inline]
    pub(crate) fn on_plain_written(&mut self) {
        if let Some(written) = self.waiting.pop_front() {
            self.bytes.release_first(written.len);
        }
    }

    /// Takes note that the frame from [`next`](Self::next) is written.
    pub(crate) fn on_written(&mut self, now: Instant) {
        let Some(waiting) = self.waiting.front_mut() else {
            return;
        };
        let fragment = waiting.written;
        waiting.written = fragment.saturating_add(1);
        let has_left = waiting.has_left();
        if waiting.is_repeated {
            let partial = self.partial.get_or_insert_default();
            partial.on_written(&waiting.leaving(self.next_on_wire), fragment, now);
            if has_left {
                partial.keep(waiting.message, &self.bytes, waiting.start);
            }
        }
        if fragment == 0 && waiting.split > 0 {
            // What the peer has given up by then need not leave. Until then the rest does: without it,
            // the first part was sent in vain.
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

    /// Returns the frame to be written again next.
    pub(crate) fn next_lost(&self) -> Option<Outgoing> {
        let partial = self.partial.as_ref()?;
        Some(self.outgoing(&partial.next_lost(self.next_on_wire)?))
    }

    /// Takes note that a frame from [`next_lost`](Self::next_lost) is written.
    pub(crate) fn on_lost_written(&mut self, outgoing: &Outgoing) {
        if let Some(partial) = &mut self.partial {
            partial.on_lost_written(outgoing.message, outgoing.fragment);
        }
    }

    /// Takes note that a fragment arrived.
    pub(crate) fn on_acknowledged(&mut self, message: u64, fragment: u16) -> AckOutcome {
        let Some(partial) = &mut self.partial else {
            return AckOutcome::NotKept;
        };
        partial.on_acknowledged(message, fragment)
    }

    /// Takes note that a fragment counts as lost, and returns whether it is of a message that is sent
    /// again, or was until its deadline.
    pub(crate) fn on_lost(&mut self, now: Instant, message: u64, fragment: u16) -> bool {
        let partial = self.partial.as_mut();
        partial.is_some_and(|partial| partial.on_lost(now, message, fragment))
    }

    /// Queues the oldest frame in flight that may be sent again, and returns whether there is one.
    pub(crate) fn probe(&mut self) -> bool {
        self.partial.as_mut().is_some_and(|partial| partial.probe())
    }

    /// Gives up what the peer may take for old, and names it to `settled`.
    pub(crate) fn drop_stale(&mut self, mut settled: impl FnMut(u64, MessageOutcome)) {
        if let Some(partial) = &mut self.partial {
            partial.drop_stale(self.next_on_wire, &mut settled);
        }
    }

    /// Drops what is too old and names it to `settled`, with what became of it. A message that may
    /// wait less long than those before it is dropped when its turn comes.
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

    /// Gives back the memory of an empty queue.
    pub(crate) fn shrink(&mut self) {
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
            self.bytes.shrink();
        }
        if !self.is_keeping() {
            self.partial = None;
        }
    }

    /// Returns whether the fate of a message that is sent again is open.
    pub(crate) fn is_keeping(&self) -> bool {
        self.partial
            .as_ref()
            .is_some_and(|partial| !partial.is_empty())
    }

    /// Returns whether nothing will be written any more, whatever is lost.
    pub(crate) fn is_done(&self) -> bool {
        let partial = self.partial.as_ref();
        self.waiting.is_empty() && partial.is_none_or(|partial| !partial.has_repeatable())
    }

    /// Returns when to call [`expire`](Self::expire).
    pub(crate) fn timeout(&self) -> Option<Instant> {
        let partial = self.partial.as_ref().and_then(|partial| partial.timeout());
        self.expires().into_iter().chain(partial).min()
    }

    /// Returns where the data of frames that are written again is.
    pub(crate) fn kept_bytes(&self) -> Option<&ByteQueue> {
        self.partial.as_ref().map(|partial| partial.bytes())
    }

    /// Returns when the oldest message is too old.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.expires)
    }

    /// Returns where the data of frames is.
    pub(crate) const fn bytes(&self) -> &ByteQueue {
        &self.bytes
    }

    /// Returns the heap memory it keeps, bytes.
    pub(crate) fn memory(&self) -> usize {
        let records = self.waiting.capacity().saturating_mul(size_of::<Waiting>());
        let partial = self.partial.as_ref().map_or(0, |partial| partial.memory());
        self.bytes
            .memory()
            .saturating_add(records)
            .saturating_add(partial)
    }

    /// What the queue would count as with one more message of `len` bytes.
    fn cost_with(&self, len: usize) -> usize {
        let records = self.waiting.len().saturating_add(1);
        let partial = self.partial.as_ref().map_or(0, |partial| partial.cost());
        self.bytes
            .len()
            .saturating_add(len)
            .saturating_add(records.saturating_mul(QUEUE_RECORD_LEN))
            .saturating_add(partial)
    }

    /// In how many frames that name it a message of `len` bytes goes; 0 where it is whole.
    ///
    /// One that is sent again needs a number. Where whole messages have none, it is a single fragment.
    fn split(&self, usage: Use, len: usize) -> u16 {
        if usage.is_repeated && !self.is_sequenced {
            return u16::try_from(fragment_count(len).max(1)).unwrap_or(u16::MAX);
        }
        if len > WHOLE_MAX { frame_count(len) } else { 0 }
    }

    /// Makes a frame.
    fn outgoing(&self, again: &Retransmission) -> Outgoing {
        let Retransmission {
            leaving,
            fragment,
            start,
        } = *again;
        let is_numbered = self.is_sequenced || leaving.split > 0;
        let before = usize::from(fragment).saturating_mul(FRAGMENT_LEN);
        let left = leaving.len.saturating_sub(before);
        let is_split = leaving.split > 0;
        Outgoing {
            header: MsgHeader {
                channel: self.channel,
                id: is_numbered.then(|| truncate(leaving.on_wire)),
                fragment: is_split.then_some(Position {
                    index: fragment,
                    count: leaving.split,
                }),
            },
            message: leaving.message,
            fragment,
            start,
            len: if is_split {
                left.min(FRAGMENT_LEN)
            } else {
                leaving.len
            },
            credit: 0,
            is_tracked: true,
        }
    }

    /// Returns how many bytes of datagrams the next message takes, where it is split and has not begun
    /// to leave.
    pub(crate) fn to_begin(&self) -> Option<usize> {
        let waiting = self.waiting.front()?;
        (waiting.written == 0 && waiting.split > 1).then(|| waiting.datagram_bytes(0))
    }

    /// Returns how many bytes of datagrams the next message takes in all, and what is left of it, where
    /// a part of it has left.
    pub(crate) fn begun(&self) -> Option<(usize, usize)> {
        let waiting = self.waiting.front()?;
        (waiting.written > 0).then(|| {
            (
                waiting.datagram_bytes(0),
                waiting.datagram_bytes(waiting.written),
            )
        })
    }

    /// Drops the oldest message of which no part has left, and returns its number.
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

    /// Drops the oldest message, and returns its number.
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

    /// Returns how many bytes of datagrams the fragments from `first` on take.
    fn datagram_bytes(&self, first: u16) -> usize {
        let before = usize::from(first).saturating_mul(FRAGMENT_LEN);
        let datagrams = usize::from(self.split.saturating_sub(first));
        let overhead = datagrams.saturating_mul(DATAGRAM_OVERHEAD);
        self.len.saturating_sub(before).saturating_add(overhead)
    }

    /// Returns what leaves, with that number on the wire.
    const fn leaving(&self, on_wire: u64) -> Leaving {
        Leaving {
            message: self.message,
            on_wire,
            deadline: self.expires,
            len: self.len,
            split: self.split,
        }
    }
}
