//! The receiving half of a reliable channel.

use std::collections::VecDeque;

use super::store::{Buffers, Store};
use crate::byte_queue::deque_memory;
use crate::channel::{
    ChannelConfig, ChannelError, ChannelId, Delivery, ID_WINDOW, MsgFrame, frame_credit, widen,
};
use crate::fragment::{Admission, Fragment, Key};

/// Messages received ahead of the oldest missing one, bounded by the session's credit and by
/// [`ID_WINDOW`].
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Whether messages wait for earlier ones.
    order: Order,
    /// Number of the oldest message not delivered; all below were.
    next: u64,
    /// States of messages `next`, `next + 1`, ...; shorter than [`ID_WINDOW`].
    early: VecDeque<ArrivalState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Sending,
    Arrival,
}

#[derive(Clone, Copy, Debug)]
enum ArrivalState {
    Missing,
    /// Incomplete, or complete before its turn.
    PendingMessage(PendingMessage),
    /// Delivered before its predecessors.
    Delivered,
}

/// A message that is incomplete or not in turn.
#[derive(Clone, Copy, Debug)]
struct PendingMessage {
    /// Where its bytes are.
    key: Key,
    /// Credit spent by its frames so far; at most about 8 MiB.
    credit: u32,
}

impl Inbound {
    pub(crate) const fn new(delivery: Delivery, first_id: u64) -> Self {
        Self {
            order: match delivery {
                Delivery::ReliableUnordered => Order::Arrival,
                Delivery::ReliableOrdered | Delivery::Unreliable | Delivery::Sequenced => {
                    Order::Sending
                }
            },
            next: first_id,
            early: VecDeque::new(),
        }
    }

    /// Processes a frame. Returns whether it was new; a duplicate changes nothing.
    pub(crate) fn on_frame(
        &mut self,
        config: &ChannelConfig,
        frame: &MsgFrame<'_>,
        store: &mut Store,
    ) -> Result<bool, ChannelError> {
        let id = widen(self.next, frame.header.id.ok_or(ChannelError::Frame)?);
        let fragment = match frame.header.fragment {
            Some(position) => Fragment::new(position, frame.data, config.message_bytes_max)?,
            None if frame.data.len() <= config.message_bytes_max => Fragment::whole(frame.data),
            None => return Err(ChannelError::Frame),
        };
        let Some(ahead) = id.checked_sub(self.next) else {
            return Ok(false);
        };
        if ahead >= ID_WINDOW {
            return Err(ChannelError::Flow);
        }
        let place = usize::try_from(ahead).map_err(|_| ChannelError::Flow)?;
        let known = match self.early.get(place).copied() {
            Some(ArrivalState::Delivered) => return Ok(false),
            Some(ArrivalState::PendingMessage(held)) => Some(held),
            Some(ArrivalState::Missing) | None => None,
        };
        if let Some(held) = known
            && store.buffers().reassembler.admit(held.key, &fragment)? == Admission::Repeated
        {
            return Ok(false);
        }
        let credit = frame_credit(frame.data.len());
        store.credit.spend(credit)?;
        let channel = frame.header.channel;
        if place == 0 && fragment.count() == 1 && self.early.is_empty() {
            // The common case: deliver directly.
            store
                .buffers()
                .unread
                .push_reliable(channel, credit, |queue| queue.push(frame.data));
            self.next = self.next.saturating_add(1);
            return Ok(true);
        }
        let is_in_turn = place == 0 || self.order == Order::Arrival;
        let state = if fragment.count() == 1 && is_in_turn {
            store
                .buffers()
                .unread
                .push_reliable(channel, credit, |queue| queue.push(frame.data));
            ArrivalState::Delivered
        } else {
            let held = known.unwrap_or_else(|| PendingMessage {
                key: store.buffers().reassembler.begin(fragment.count()),
                credit: 0,
            });
            store.buffers().reassembler.insert(held.key, &fragment);
            let credit = u32::try_from(credit).unwrap_or(u32::MAX);
            let held = PendingMessage {
                credit: held.credit.saturating_add(credit),
                ..held
            };
            if is_in_turn && store.buffers().reassembler.is_complete(held.key) {
                held.deliver(channel, store);
                ArrivalState::Delivered
            } else {
                ArrivalState::PendingMessage(held)
            }
        };
        self.note(place, state);
        self.advance(channel, store);
        Ok(true)
    }

    pub(crate) fn shrink(&mut self) {
        if self.early.is_empty() {
            self.early = VecDeque::new();
        }
    }

    /// Returns the heap memory it keeps, bytes, without that of the messages.
    pub(crate) fn memory(&self) -> usize {
        deque_memory(&self.early)
    }

    fn note(&mut self, place: usize, state: ArrivalState) {
        while self.early.len() <= place {
            self.early.push_back(ArrivalState::Missing);
        }
        if let Some(slot) = self.early.get_mut(place) {
            *slot = state;
        }
    }

    fn advance(&mut self, channel: ChannelId, store: &mut Store) {
        loop {
            match self.early.front() {
                Some(ArrivalState::Delivered) => {}
                Some(ArrivalState::PendingMessage(held))
                    if store.buffers().reassembler.is_complete(held.key) =>
                {
                    held.deliver(channel, store);
                }
                Some(ArrivalState::PendingMessage(_) | ArrivalState::Missing) | None => return,
            }
            self.early.pop_front();
            self.next = self.next.saturating_add(1);
        }
    }
}

const _: () = assert!(
    size_of::<ArrivalState>() == 12,
    "one frame may make as many as the window has numbers"
);

impl PendingMessage {
    /// Delivers the complete message to the application.
    fn deliver(self, channel: ChannelId, store: &mut Store) {
        let Buffers {
            reassembler,
            unread,
        } = store.buffers();
        let credit = usize::try_from(self.credit).unwrap_or(usize::MAX);
        unread.push_reliable(channel, credit, |queue| {
            reassembler.take(self.key, &mut |bytes| queue.push(bytes));
        });
    }
}
