//! Reliable channels: each message exactly once, in order of sending or of arrival.

use std::collections::VecDeque;

use super::packet_builder::{Next, Outgoing};
use crate::byte_queue::{ByteQueue, deque_memory};
use crate::channel::{
    ChannelConfig, ChannelId, ID_WINDOW, MsgHeader, QUEUE_RECORD_LEN, frame_count, message_credit,
    truncate,
};
use crate::fragment::{FRAGMENT_LEN, Position, tail_len};

/// The sending half of a reliable channel: every message until it and all before it are
/// acknowledged.
#[derive(Debug)]
pub(crate) struct Outbound {
    channel: ChannelId,
    /// Bytes of `messages`, in order.
    pub(super) bytes: ByteQueue,
    /// Unacknowledged messages, and acknowledged ones behind them, by number.
    messages: VecDeque<Message>,
    /// Number of the first of `messages`.
    base: u64,
    /// Number of the first message with an unwritten fragment.
    unsent: u64,
    /// Fragments of `messages`, in order.
    fragments: VecDeque<State>,
    fragments_gone: u64,
    /// Fragments in [`State::Lost`], lowest first.
    lost: VecDeque<(u64, u16)>,
}

#[derive(Debug)]
struct Message {
    /// Offset of its first byte.
    start: u64,
    /// Index of its first fragment, counted from the channel's first.
    first_fragment: u64,
    /// Its length, bytes.
    len: usize,
    count: u16,
    /// Fragments below this index were written at least once.
    written: u16,
    acknowledged: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Never written.
    Unsent,
    /// In flight in this many packets, at least one.
    InFlight(u8),
    /// To be retransmitted, while this many packets with it are in flight.
    Lost(u8),
    Acknowledged,
}

impl Outbound {
    pub(crate) fn new(channel: ChannelId, first_id: u64) -> Self {
        Self {
            channel,
            bytes: ByteQueue::default(),
            messages: VecDeque::new(),
            base: first_id,
            unsent: first_id,
            fragments: VecDeque::new(),
            fragments_gone: 0,
            lost: VecDeque::new(),
        }
    }

    pub(crate) fn next_message(&self) -> u64 {
        self.base.saturating_add(self.messages.len() as u64)
    }

    /// Queues a message and returns its number; `None` if the queue is full.
    pub(crate) fn push(&mut self, config: &ChannelConfig, message: &[u8]) -> Option<u64> {
        let records = self.messages.len().saturating_add(1);
        let cost = self
            .bytes
            .len()
            .saturating_add(message.len())
            .saturating_add(records.saturating_mul(QUEUE_RECORD_LEN));
        if !self.messages.is_empty() && cost > config.queue_bytes_max {
            return None;
        }
        let count = frame_count(message.len());
        let number = self.next_message();
        self.messages.push_back(Message {
            start: self.bytes.end(),
            first_fragment: self
                .fragments_gone
                .saturating_add(self.fragments.len() as u64),
            len: message.len(),
            count,
            written: 0,
            acknowledged: 0,
        });
        self.bytes.push(message);
        for _ in 0..count {
            self.fragments.push_back(State::Unsent);
        }
        Some(number)
    }

    pub(crate) fn is_written(&self) -> bool {
        self.lost.is_empty() && self.get(self.unsent).is_none()
    }

    pub(crate) fn next_lost(&self) -> Option<Outgoing> {
        let (id, fragment) = *self.lost.front()?;
        self.outgoing(id, fragment)
    }

    /// Returns the next new fragment, given `credit` unused bytes of the peer's window.
    pub(crate) fn next_new(&self, credit: u64) -> Next {
        let Some(message) = self.get(self.unsent) else {
            return Next::Idle;
        };
        let Some(mut outgoing) = self.outgoing(self.unsent, message.written) else {
            return Next::Idle;
        };
        if message.written == 0 {
            if self.unsent.saturating_sub(self.base) >= ID_WINDOW {
                return Next::Idle;
            }
            // A message takes all its credit before it starts. So a started message can always be
            // finished, and the receiver never holds a part of one that it has no room to complete.
            outgoing.credit = message_credit(message.len);
            if outgoing.credit as u64 > credit {
                return Next::Waiting;
            }
        }
        Next::Frame(outgoing)
    }

    pub(crate) fn on_lost_written(&mut self) {
        if let Some((id, fragment)) = self.lost.pop_front()
            && let Some(state) = self.state(id, fragment)
            && let State::Lost(copies) = *state
        {
            *state = State::InFlight(copies.saturating_add(1));
        }
    }

    pub(crate) fn on_new_written(&mut self) {
        let id = self.unsent;
        let Some(message) = self.get_mut(id) else {
            return;
        };
        let fragment = message.written;
        message.written = fragment.saturating_add(1);
        if message.written >= message.count {
            self.unsent = id.saturating_add(1);
        }
        if let Some(state) = self.state(id, fragment) {
            *state = State::InFlight(1);
        }
    }

    /// Records an acknowledged fragment. Returns whether that completes its message.
    pub(crate) fn on_acknowledged(&mut self, id: u64, fragment: u16) -> bool {
        let Some(state) = self.state(id, fragment) else {
            return false;
        };
        let before = *state;
        if !matches!(before, State::InFlight(_) | State::Lost(_)) {
            return false;
        }
        *state = State::Acknowledged;
        if matches!(before, State::Lost(_))
            && let Ok(place) = self.lost.binary_search(&(id, fragment))
        {
            self.lost.remove(place);
        }
        let mut is_complete = false;
        if let Some(message) = self.get_mut(id) {
            message.acknowledged = message.acknowledged.saturating_add(1);
            is_complete = message.acknowledged >= message.count;
        }
        while let Some(first) = self.messages.front()
            && first.acknowledged >= first.count
        {
            let end = first.start.saturating_add(first.len as u64);
            let count = usize::from(first.count).min(self.fragments.len());
            self.fragments.drain(..count);
            self.fragments_gone = self.fragments_gone.saturating_add(count as u64);
            self.bytes.release(end);
            self.messages.pop_front();
            self.base = self.base.saturating_add(1);
        }
        is_complete
    }

    /// Records a loss. Queues the fragment again unless it was acknowledged or another copy is in
    /// flight.
    pub(crate) fn on_lost(&mut self, id: u64, fragment: u16) {
        let Some(state) = self.state(id, fragment) else {
            return;
        };
        match *state {
            State::Unsent | State::Acknowledged => {}
            State::Lost(copies) => *state = State::Lost(copies.saturating_sub(1)),
            State::InFlight(copies) => match copies.saturating_sub(1) {
                0 => self.queue(id, fragment, 0),
                left => *state = State::InFlight(left),
            },
        }
    }

    /// Queues the oldest fragment in flight for retransmission. Returns whether one is queued.
    pub(crate) fn probe(&mut self) -> bool {
        if !self.lost.is_empty() {
            return true;
        }
        // The first message is not fully acknowledged, or it would have been released.
        let Some(first) = self.messages.front() else {
            return false;
        };
        let count = usize::from(first.count);
        let states = self.fragments.iter().take(count);
        let oldest = (0..).zip(states).find_map(|(fragment, state)| match state {
            State::InFlight(copies) => Some((fragment, *copies)),
            State::Unsent | State::Lost(_) | State::Acknowledged => None,
        });
        let Some((fragment, copies)) = oldest else {
            return false;
        };
        self.queue(self.base, fragment, copies);
        true
    }

    pub(crate) fn shrink(&mut self) {
        if self.messages.is_empty() {
            self.messages = VecDeque::new();
            self.fragments = VecDeque::new();
            self.lost = VecDeque::new();
            self.bytes.shrink();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn memory(&self) -> usize {
        let (messages, fragments) = (deque_memory(&self.messages), deque_memory(&self.fragments));
        [
            self.bytes.memory(),
            messages,
            fragments,
            deque_memory(&self.lost),
        ]
        .into_iter()
        .sum()
    }

    fn queue(&mut self, id: u64, fragment: u16, copies: u8) {
        if let Some(state) = self.state(id, fragment) {
            *state = State::Lost(copies);
        }
        if let Err(place) = self.lost.binary_search(&(id, fragment)) {
            self.lost.insert(place, (id, fragment));
        }
    }

    fn outgoing(&self, id: u64, fragment: u16) -> Option<Outgoing> {
        let message = self.get(id)?;
        let before = usize::from(fragment).saturating_mul(FRAGMENT_LEN);
        let is_last = fragment.saturating_add(1) >= message.count;
        let (len, position) = if message.count == 1 {
            (message.len, None)
        } else {
            let position = Position {
                index: fragment,
                count: message.count,
            };
            let tail = tail_len(message.len);
            (if is_last { tail } else { FRAGMENT_LEN }, Some(position))
        };
        Some(Outgoing {
            header: MsgHeader {
                channel: self.channel,
                id: Some(truncate(id)),
                fragment: position,
            },
            message: id,
            fragment,
            start: message.start.saturating_add(before as u64),
            len,
            credit: 0,
            is_tracked: true,
        })
    }

    fn get(&self, id: u64) -> Option<&Message> {
        let place = usize::try_from(id.checked_sub(self.base)?).ok()?;
        self.messages.get(place)
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Message> {
        let place = usize::try_from(id.checked_sub(self.base)?).ok()?;
        self.messages.get_mut(place)
    }

    fn state(&mut self, id: u64, fragment: u16) -> Option<&mut State> {
        let message = self.get(id)?;
        if fragment >= message.count {
            return None;
        }
        let place = message
            .first_fragment
            .checked_sub(self.fragments_gone)?
            .checked_add(fragment.into())?;
        self.fragments.get_mut(usize::try_from(place).ok()?)
    }
}
