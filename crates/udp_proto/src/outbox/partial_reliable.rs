//! Partial reliability: unreliable messages that are retransmitted until their deadline.

use std::collections::VecDeque;

use wire::Instant;

use crate::byte_queue::{ByteQueue, deque_memory};
use crate::channel::{ChannelTable, ID_WINDOW, QUEUE_RECORD_LEN};
use crate::event::MessageOutcome;
use crate::fragment::{FRAGMENT_LEN, REASSEMBLY_LIFE};
use crate::sent::LATE_ACK_SPAN;

/// Messages that are partly or fully sent and unsettled, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PartialReliable {
    /// By number, at most [`ID_WINDOW`].
    messages: VecDeque<Message>,
    /// Bytes of the retransmittable ones, in order.
    pub(super) bytes: ByteQueue,
    pub(super) repeatable: usize,
    /// Fragments to retransmit, lowest first.
    lost: VecDeque<(u64, u16)>,
    /// Nothing is due before it.
    pub(super) timeout: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageInfo {
    pub(crate) message: u64,
    pub(crate) on_wire: u64,
    pub(crate) deadline: Instant,
    /// Its length, bytes.
    pub(crate) len: usize,
    /// Number of fragments; 0 for a frame without a position.
    pub(crate) split: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckOutcome {
    /// It is not kept here, or was settled.
    NotKept,
    /// Not settled yet.
    Open,
    Known(MessageOutcome),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Retransmission {
    pub(crate) info: MessageInfo,
    pub(crate) fragment: u16,
    /// Offset of its data in the kept bytes.
    pub(crate) start: u64,
}

#[derive(Debug)]
struct Message {
    info: MessageInfo,
    /// Acknowledged fragments, one bit each.
    acknowledged: u64,
    /// Fragments in flight, one bit each.
    in_flight: u64,
    /// When it was given up, or its last fragment declared lost.
    lost_at: Instant,
    /// When retransmission stops: at its deadline, or [`REASSEMBLY_LIFE`] after its first
    /// transmission, when the peer may give it up.
    useless_at: Instant,
    stage: SendState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendState {
    /// Partly sent; its bytes are in the channel's queue.
    PartlySent,
    /// Retransmittable; its bytes start at this offset.
    Repeatable(u64),
    /// Not retransmitted; settles with this outcome unless acknowledged.
    Over(MessageOutcome),
    /// As `Over`, with nothing in flight: settles at this time.
    AwaitingLateAck(MessageOutcome, Instant),
}

const _: () = assert!(
    ChannelTable::UNRELIABLE_BYTES_MAX.div_ceil(FRAGMENT_LEN) <= 64,
    "each fragment has a bit"
);

impl PartialReliable {
    /// Records the first transmission of a fragment of a queued message.
    pub(crate) fn on_written(&mut self, info: &MessageInfo, fragment: u16, now: Instant) {
        if let Some(message) = self.get_mut(info.message) {
            message.in_flight |= bit(fragment);
            return;
        }
        self.messages.push_back(Message {
            info: *info,
            acknowledged: 0,
            in_flight: bit(fragment),
            lost_at: Instant::ZERO,
            useless_at: info.useless_at(now),
            stage: SendState::PartlySent,
        });
        self.wake_at(info.deadline);
    }

    /// Copies the bytes of a fully sent message from `offset` of the channel's queue.
    pub(crate) fn keep(&mut self, message: u64, queue: &ByteQueue, offset: u64) {
        let start = self.bytes.end();
        let Some(partial) = self.get_mut(message) else {
            return;
        };
        // It may be fully acknowledged already.
        partial.stage = SendState::Repeatable(start);
        let useless_at = partial.useless_at;
        let (len, fragments) = (partial.info.len, partial.info.split.max(1));
        let missing = !(partial.acknowledged | partial.in_flight);
        self.wake_at(useless_at);
        self.repeatable = self.repeatable.saturating_add(1);
        self.bytes.push(queue.get(offset, len));
        for fragment in 0..fragments {
            if missing & bit(fragment) != 0 {
                self.queue(message, fragment);
            }
        }
    }

    pub(crate) fn remove(&mut self, message: u64) {
        self.close(message, SendState::Over(MessageOutcome::Dropped));
        if let Ok(place) = self.place(message) {
            self.messages.remove(place);
        }
    }

    /// Stops retransmission of the oldest message. Returns whether there was one.
    pub(crate) fn give_up_oldest(&mut self, now: Instant) -> bool {
        let is_it = |message: &&Message| matches!(message.stage, SendState::Repeatable(_));
        let Some(oldest) = self.messages.iter().find(is_it) else {
            return false;
        };
        self.give_up(now, oldest.info.message, MessageOutcome::Lost);
        true
    }

    pub(crate) fn on_acknowledged(&mut self, message: u64, fragment: u16) -> AckOutcome {
        let Some(partial) = self.get_mut(message) else {
            return AckOutcome::NotKept;
        };
        partial.acknowledged |= bit(fragment);
        partial.in_flight &= !bit(fragment);
        let count = u32::from(partial.info.split.max(1));
        let is_complete = partial.acknowledged.count_ones() >= count;
        self.unqueue(message, fragment);
        if !is_complete {
            self.await_late_ack(message);
            return AckOutcome::Open;
        }
        self.remove(message);
        AckOutcome::Known(MessageOutcome::Delivered)
    }

    /// Records a lost fragment. Returns whether its message is kept here.
    pub(crate) fn on_lost(&mut self, now: Instant, message: u64, fragment: u16) -> bool {
        let Some(partial) = self.get_mut(message) else {
            return false;
        };
        if partial.acknowledged & bit(fragment) != 0 {
            return true;
        }
        partial.in_flight &= !bit(fragment);
        partial.lost_at = now;
        if matches!(partial.stage, SendState::Repeatable(_)) {
            self.queue(message, fragment);
        }
        self.await_late_ack(message);
        true
    }

    pub(crate) fn next_lost(&self, next_on_wire: u64) -> Option<Retransmission> {
        self.lost.iter().find_map(|(message, fragment)| {
            let partial = self.messages.get(self.place(*message).ok()?)?;
            let SendState::Repeatable(start) = partial.stage else {
                return None;
            };
            let before = usize::from(*fragment).saturating_mul(FRAGMENT_LEN) as u64;
            (!partial.info.is_behind(next_on_wire)).then_some(Retransmission {
                info: partial.info,
                fragment: *fragment,
                start: start.saturating_add(before),
            })
        })
    }

    pub(crate) fn on_lost_written(&mut self, message: u64, fragment: u16) {
        self.unqueue(message, fragment);
        if let Some(partial) = self.get_mut(message) {
            partial.in_flight |= bit(fragment);
        }
    }

    /// Queues the oldest fragment in flight for retransmission. Returns whether one is queued.
    pub(crate) fn probe(&mut self) -> bool {
        if !self.lost.is_empty() {
            return true;
        }
        let oldest = self.messages.iter().find_map(|partial| {
            let is_it = matches!(partial.stage, SendState::Repeatable(_)) && partial.in_flight != 0;
            let lowest = u16::try_from(partial.in_flight.trailing_zeros()).ok()?;
            is_it.then_some((partial.info.message, lowest))
        });
        if let Some((message, fragment)) = oldest {
            self.queue(message, fragment);
        }
        oldest.is_some()
    }

    /// Settles messages that the peer may consider too old, given the next wire number.
    pub(crate) fn drop_stale(
        &mut self,
        next_on_wire: u64,
        settled: &mut impl FnMut(u64, MessageOutcome),
    ) {
        while let Some(oldest) = self.messages.front()
            && oldest.info.is_behind(next_on_wire)
        {
            let message = oldest.info.message;
            self.remove(message);
            settled(message, MessageOutcome::Lost);
        }
    }

    /// Stops retransmission of messages past their deadline, and settles overdue ones.
    pub(crate) fn expire(&mut self, now: Instant, settled: &mut impl FnMut(u64, MessageOutcome)) {
        if self.timeout.is_none_or(|at| at > now) {
            return;
        }
        self.timeout = None;
        let mut place = 0;
        while let Some(partial) = self.messages.get(place) {
            let MessageInfo {
                message, deadline, ..
            } = partial.info;
            let useless_at = partial.useless_at;
            match partial.stage {
                SendState::AwaitingLateAck(outcome, until) if until <= now => {
                    self.remove(message);
                    settled(message, outcome);
                    continue;
                }
                SendState::AwaitingLateAck(_, until) => self.wake_at(until),
                SendState::Repeatable(_) if deadline <= now => {
                    self.give_up(now, message, MessageOutcome::Expired);
                }
                SendState::Repeatable(_) if useless_at <= now => {
                    self.give_up(now, message, MessageOutcome::Lost);
                }
                SendState::PartlySent => self.wake_at(deadline),
                SendState::Repeatable(_) => self.wake_at(useless_at),
                SendState::Over(_) => {}
            }
            place = place.saturating_add(1);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns its share of the channel's queue size in bytes.
    pub(crate) const fn cost(&self) -> usize {
        let records = self.repeatable.saturating_mul(QUEUE_RECORD_LEN);
        self.bytes.len().saturating_add(records)
    }

    pub(crate) fn memory(&self) -> usize {
        let (messages, lost) = (deque_memory(&self.messages), deque_memory(&self.lost));
        [size_of::<Self>(), messages, lost, self.bytes.memory()]
            .into_iter()
            .sum()
    }

    /// Stops retransmission of a message; `outcome` applies unless it is acknowledged.
    fn give_up(&mut self, now: Instant, message: u64, outcome: MessageOutcome) {
        self.close(message, SendState::Over(outcome));
        if let Some(partial) = self.get_mut(message) {
            partial.lost_at = now;
        }
        self.await_late_ack(message);
    }

    /// Starts the final wait of a message once nothing of it is in flight.
    fn await_late_ack(&mut self, message: u64) {
        if let Some(partial) = self.get_mut(message)
            && let SendState::Over(outcome) = partial.stage
            && partial.in_flight == 0
        {
            let until = partial.lost_at + LATE_ACK_SPAN;
            partial.stage = SendState::AwaitingLateAck(outcome, until);
            self.wake_at(until);
        }
    }

    /// Moves a message to a stage without retransmission, and releases its bytes.
    fn close(&mut self, message: u64, stage: SendState) {
        let Some(partial) = self.get_mut(message) else {
            return;
        };
        let before = core::mem::replace(&mut partial.stage, stage);
        if !matches!(before, SendState::Repeatable(_)) {
            return;
        }
        self.repeatable = self.repeatable.saturating_sub(1);
        self.lost.retain(|(lost, _)| *lost != message);
        let first = self
            .messages
            .iter()
            .find_map(|partial| match partial.stage {
                SendState::Repeatable(start) => Some(start),
                SendState::PartlySent | SendState::Over(_) | SendState::AwaitingLateAck(..) => None,
            });
        let end = self.bytes.end();
        self.bytes.release(first.unwrap_or(end));
    }

    fn queue(&mut self, message: u64, fragment: u16) {
        if let Err(place) = self.lost.binary_search(&(message, fragment)) {
            self.lost.insert(place, (message, fragment));
        }
    }

    fn unqueue(&mut self, message: u64, fragment: u16) {
        if let Ok(place) = self.lost.binary_search(&(message, fragment)) {
            self.lost.remove(place);
        }
    }

    fn wake_at(&mut self, at: Instant) {
        self.timeout = Some(self.timeout.map_or(at, |timeout| timeout.min(at)));
    }

    /// Returns the index of a message in `messages`, or its insertion point.
    fn place(&self, message: u64) -> Result<usize, usize> {
        self.messages
            .binary_search_by_key(&message, |partial| partial.info.message)
    }

    fn get_mut(&mut self, message: u64) -> Option<&mut Message> {
        let place = self.place(message).ok()?;
        self.messages.get_mut(place)
    }
}

impl MessageInfo {
    /// Returns when retransmission stops for a message first sent at `now`.
    fn useless_at(&self, now: Instant) -> Instant {
        if self.split == 0 {
            return self.deadline;
        }
        self.deadline.min(now + REASSEMBLY_LIFE)
    }

    /// Returns whether a peer that has seen all numbers up to `next_on_wire` considers it too old.
    const fn is_behind(&self, next_on_wire: u64) -> bool {
        next_on_wire.wrapping_sub(self.on_wire) >= ID_WINDOW
    }
}

/// The bit of a fragment, which is below 64.
const fn bit(fragment: u16) -> u64 {
    if fragment < 64 { 1 << fragment } else { 0 }
}
