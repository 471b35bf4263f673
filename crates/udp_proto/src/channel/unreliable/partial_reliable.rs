//! Messages of an unreliable channel that are sent again until their deadline.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

use crate::channel::byte_queue::ByteQueue;
use crate::channel::{ChannelTable, ID_WINDOW, QUEUE_RECORD_LEN};
use crate::fragment::{FRAGMENT_LEN, REASSEMBLY_LIFE};
use crate::outcome::MessageOutcome;

/// What has begun to leave and is not acknowledged, oldest first.
///
/// Of a message that is not sent again any more only the record stays, until it is known what became
/// of it.
#[derive(Debug, Default)]
pub(crate) struct PartialReliable {
    /// By number, at most [`ID_WINDOW`].
    messages: VecDeque<Message>,
    /// Bytes of those that may be sent again, in that order.
    bytes: ByteQueue,
    /// How many these are.
    repeatable: usize,
    /// Fragments to be written again, lowest first.
    lost: VecDeque<(u64, u16)>,
    /// Nothing is due before it.
    timeout: Option<Instant>,
}

/// A message as it begins to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    /// Its number.
    pub(crate) message: u64,
    /// Its number on the wire.
    pub(crate) on_wire: u64,
    /// When it is of no use any more.
    pub(crate) deadline: Instant,
    /// Its length, bytes.
    pub(crate) len: usize,
    /// Its fragments; 0 where it goes as a frame that names none.
    pub(crate) split: u16,
}

/// What is known of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckOutcome {
    /// It is not one that is sent again, or was told of.
    NotKept,
    /// Not enough.
    Open,
    /// This.
    Known(MessageOutcome),
}

/// A fragment that is to be written again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retransmission {
    /// Its message.
    pub(crate) leaving: Leaving,
    /// Which of the message it is.
    pub(crate) fragment: u16,
    /// Offset of its data among the bytes kept.
    pub(crate) start: u64,
}

/// A message that has begun to leave.
#[derive(Debug)]
struct Message {
    /// What it is.
    leaving: Leaving,
    /// Fragments that arrived, bit by bit.
    acknowledged: u64,
    /// Fragments that left, and neither arrived nor count as lost.
    in_flight: u64,
    /// When it was given up or the last of it counted as lost.
    lost_at: Instant,
    /// When it is not sent again any more: past its deadline, or as soon as the peer may have given it
    /// up, who waits [`REASSEMBLY_LIFE`] from the first part on that comes. That may have been the
    /// first that left, also where no acknowledgement tells of it.
    useless_at: Instant,
    /// Where it stands.
    stage: Stage,
}

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Some of it has never left; its bytes are in the channel's queue.
    Leaving,
    /// What is lost is sent again; its bytes begin at this offset.
    Repeatable(u64),
    /// It is not sent again. If nothing more is heard, this became of it.
    Over(MessageOutcome),
    /// As `Over`, and nothing of it is in flight: hoped for until then.
    Doubted(MessageOutcome, Instant),
}

/// How long an acknowledgement is waited for after a packet counted as lost: longer than packets
/// overtake each other where anything can be played.
pub(crate) const STRAGGLERS: Duration = Duration::from_millis(500);

const _: () = assert!(
    ChannelTable::UNRELIABLE_BYTES_MAX.div_ceil(FRAGMENT_LEN) <= 64,
    "each fragment has a bit"
);

impl PartialReliable {
    /// Takes note that a fragment of a message that is still in the queue has left for the first time.
    pub(crate) fn on_written(&mut self, leaving: &Leaving, fragment: u16, now: Instant) {
        if let Some(message) = self.get_mut(leaving.message) {
            message.in_flight |= bit(fragment);
            return;
        }
        self.messages.push_back(Message {
            leaving: *leaving,
            acknowledged: 0,
            in_flight: bit(fragment),
            lost_at: Instant::ZERO,
            useless_at: leaving.useless_at(now),
            stage: Stage::Leaving,
        });
        self.wake_at(leaving.deadline);
    }

    /// Takes the bytes of a message that has left in full from `offset` of the channel's queue.
    pub(crate) fn keep(&mut self, message: u64, queue: &ByteQueue, offset: u64) {
        let start = self.bytes.end();
        let Some(partial) = self.get_mut(message) else {
            return;
        };
        // All of it may have arrived already.
        partial.stage = Stage::Repeatable(start);
        let useless_at = partial.useless_at;
        let (len, fragments) = (partial.leaving.len, partial.leaving.split.max(1));
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

    /// Forgets a message.
    pub(crate) fn remove(&mut self, message: u64) {
        self.close(message, Stage::Over(MessageOutcome::Dropped));
        if let Ok(place) = self.place(message) {
            self.messages.remove(place);
        }
    }

    /// Sends the oldest message no more that may be sent again, and returns whether there is one.
    pub(crate) fn give_up_oldest(&mut self, now: Instant) -> bool {
        let is_it = |message: &&Message| matches!(message.stage, Stage::Repeatable(_));
        let Some(oldest) = self.messages.iter().find(is_it) else {
            return false;
        };
        self.give_up(now, oldest.leaving.message, MessageOutcome::Lost);
        true
    }

    /// Takes note that a fragment arrived.
    pub(crate) fn on_acknowledged(&mut self, message: u64, fragment: u16) -> AckOutcome {
        let Some(partial) = self.get_mut(message) else {
            return AckOutcome::NotKept;
        };
        partial.acknowledged |= bit(fragment);
        partial.in_flight &= !bit(fragment);
        let count = u32::from(partial.leaving.split.max(1));
        let is_complete = partial.acknowledged.count_ones() >= count;
        self.unqueue(message, fragment);
        if !is_complete {
            self.doubt(message);
            return AckOutcome::Open;
        }
        self.remove(message);
        AckOutcome::Known(MessageOutcome::Delivered)
    }

    /// Takes note that a fragment counts as lost; returns whether it is of a message kept here.
    pub(crate) fn on_lost(&mut self, now: Instant, message: u64, fragment: u16) -> bool {
        let Some(partial) = self.get_mut(message) else {
            return false;
        };
        if partial.acknowledged & bit(fragment) != 0 {
            return true;
        }
        partial.in_flight &= !bit(fragment);
        partial.lost_at = now;
        if matches!(partial.stage, Stage::Repeatable(_)) {
            self.queue(message, fragment);
        }
        self.doubt(message);
        true
    }

    /// Returns the lowest fragment to be written again, where the next number on the wire is so.
    pub(crate) fn next_lost(&self, next_on_wire: u64) -> Option<Retransmission> {
        self.lost.iter().find_map(|(message, fragment)| {
            let partial = self.messages.get(self.place(*message).ok()?)?;
            let Stage::Repeatable(start) = partial.stage else {
                return None;
            };
            let before = usize::from(*fragment).saturating_mul(FRAGMENT_LEN) as u64;
            (!partial.leaving.is_behind(next_on_wire)).then_some(Retransmission {
                leaving: partial.leaving,
                fragment: *fragment,
                start: start.saturating_add(before),
            })
        })
    }

    /// Takes note that a fragment from [`next_lost`](Self::next_lost) is written.
    pub(crate) fn on_lost_written(&mut self, message: u64, fragment: u16) {
        self.unqueue(message, fragment);
        if let Some(partial) = self.get_mut(message) {
            partial.in_flight |= bit(fragment);
        }
    }

    /// Queues the oldest fragment in flight to be written again, and returns whether there is one or
    /// another waits already.
    pub(crate) fn probe(&mut self) -> bool {
        if !self.lost.is_empty() {
            return true;
        }
        let oldest = self.messages.iter().find_map(|partial| {
            let is_it = matches!(partial.stage, Stage::Repeatable(_)) && partial.in_flight != 0;
            let lowest = u16::try_from(partial.in_flight.trailing_zeros()).ok()?;
            is_it.then_some((partial.leaving.message, lowest))
        });
        if let Some((message, fragment)) = oldest {
            self.queue(message, fragment);
        }
        oldest.is_some()
    }

    /// Gives up what the peer may take for old, where the next number on the wire is so, and names it
    /// to `settled`.
    pub(crate) fn drop_stale(
        &mut self,
        next_on_wire: u64,
        settled: &mut impl FnMut(u64, MessageOutcome),
    ) {
        while let Some(oldest) = self.messages.front()
            && oldest.leaving.is_behind(next_on_wire)
        {
            let message = oldest.leaving.message;
            self.remove(message);
            settled(message, MessageOutcome::Lost);
        }
    }

    /// Sends no more what is past its deadline, and names to `settled` what is given up for good.
    ///
    /// A message that is still in the queue is the queue's to give up.
    pub(crate) fn expire(&mut self, now: Instant, settled: &mut impl FnMut(u64, MessageOutcome)) {
        if self.timeout.is_none_or(|at| at > now) {
            return;
        }
        self.timeout = None;
        let mut place = 0;
        while let Some(partial) = self.messages.get(place) {
            let Leaving {
                message, deadline, ..
            } = partial.leaving;
            let useless_at = partial.useless_at;
            match partial.stage {
                Stage::Doubted(outcome, until) if until <= now => {
                    self.remove(message);
                    settled(message, outcome);
                    continue;
                }
                Stage::Doubted(_, until) => self.wake_at(until),
                Stage::Repeatable(_) if deadline <= now => {
                    self.give_up(now, message, MessageOutcome::Expired);
                }
                Stage::Repeatable(_) if useless_at <= now => {
                    self.give_up(now, message, MessageOutcome::Lost);
                }
                Stage::Leaving => self.wake_at(deadline),
                Stage::Repeatable(_) => self.wake_at(useless_at),
                Stage::Over(_) => {}
            }
            place = place.saturating_add(1);
        }
    }

    /// Returns when to call [`expire`](Self::expire).
    pub(crate) const fn timeout(&self) -> Option<Instant> {
        self.timeout
    }

    /// Returns whether it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns whether something may be sent again.
    pub(crate) const fn has_repeatable(&self) -> bool {
        self.repeatable > 0
    }

    /// Returns where the data of what is written again is.
    pub(crate) const fn bytes(&self) -> &ByteQueue {
        &self.bytes
    }

    /// Returns what it counts as in the channel's queue, bytes.
    pub(crate) const fn cost(&self) -> usize {
        let records = self.repeatable.saturating_mul(QUEUE_RECORD_LEN);
        self.bytes.len().saturating_add(records)
    }

    /// Returns the heap memory it keeps, itself included, bytes.
    pub(crate) fn memory(&self) -> usize {
        let messages = self
            .messages
            .capacity()
            .saturating_mul(size_of::<Message>());
        let lost = self.lost.capacity().saturating_mul(size_of::<(u64, u16)>());
        size_of::<Self>()
            .saturating_add(messages)
            .saturating_add(lost)
            .saturating_add(self.bytes.memory())
    }

    /// Sends a message no more; `outcome` is what became of it where nothing more is heard.
    fn give_up(&mut self, now: Instant, message: u64, outcome: MessageOutcome) {
        self.close(message, Stage::Over(outcome));
        if let Some(partial) = self.get_mut(message) {
            partial.lost_at = now;
        }
        self.doubt(message);
    }

    /// Begins to doubt a message that is not sent again, once nothing of it is in flight.
    fn doubt(&mut self, message: u64) {
        if let Some(partial) = self.get_mut(message)
            && let Stage::Over(outcome) = partial.stage
            && partial.in_flight == 0
        {
            let until = partial.lost_at + STRAGGLERS;
            partial.stage = Stage::Doubted(outcome, until);
            self.wake_at(until);
        }
    }

    /// Changes the stage of a message to one in which it is not sent again, and lets go of its bytes.
    fn close(&mut self, message: u64, stage: Stage) {
        let Some(partial) = self.get_mut(message) else {
            return;
        };
        let before = core::mem::replace(&mut partial.stage, stage);
        if !matches!(before, Stage::Repeatable(_)) {
            return;
        }
        self.repeatable = self.repeatable.saturating_sub(1);
        self.lost.retain(|(lost, _)| *lost != message);
        let first = self
            .messages
            .iter()
            .find_map(|partial| match partial.stage {
                Stage::Repeatable(start) => Some(start),
                Stage::Leaving | Stage::Over(_) | Stage::Doubted(..) => None,
            });
        let end = self.bytes.end();
        self.bytes.release(first.unwrap_or(end));
    }

    /// Queues a fragment to be written again.
    fn queue(&mut self, message: u64, fragment: u16) {
        if let Err(place) = self.lost.binary_search(&(message, fragment)) {
            self.lost.insert(place, (message, fragment));
        }
    }

    /// Takes a fragment off the queue.
    fn unqueue(&mut self, message: u64, fragment: u16) {
        if let Ok(place) = self.lost.binary_search(&(message, fragment)) {
            self.lost.remove(place);
        }
    }

    /// Sees to it that the timeout is at `at` or before.
    fn wake_at(&mut self, at: Instant) {
        self.timeout = Some(self.timeout.map_or(at, |timeout| timeout.min(at)));
    }

    /// Where a message is in `messages`, or would be.
    fn place(&self, message: u64) -> Result<usize, usize> {
        self.messages
            .binary_search_by_key(&message, |partial| partial.leaving.message)
    }

    /// Returns a message, to change it.
    fn get_mut(&mut self, message: u64) -> Option<&mut Message> {
        let place = self.place(message).ok()?;
        self.messages.get_mut(place)
    }
}

impl Leaving {
    /// Returns when a message is not sent again any more that begins to leave at `now`.
    fn useless_at(&self, now: Instant) -> Instant {
        if self.split == 0 {
            return self.deadline;
        }
        self.deadline.min(now + REASSEMBLY_LIFE)
    }

    /// Returns whether a peer who has seen all numbers up to `next_on_wire` takes it for old.
    const fn is_behind(&self, next_on_wire: u64) -> bool {
        next_on_wire.wrapping_sub(self.on_wire) >= ID_WINDOW
    }
}

/// The bit of a fragment; there are 64 at most.
const fn bit(fragment: u16) -> u64 {
    if fragment < 64 { 1 << fragment } else { 0 }
}
