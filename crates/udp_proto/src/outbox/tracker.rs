//! Tracked messages.

use std::collections::VecDeque;

use wire::Instant;

use crate::byte_queue::deque_memory;
use crate::channel::{ChannelId, MessageId};
use crate::event::{MessageOutcome, Settled};
use crate::sent::LATE_ACK_SPAN;

#[derive(Debug, Default)]
pub(super) struct Tracker {
    /// Open messages, by channel and then by number.
    channels: Vec<VecDeque<Open>>,
    open: usize,
    /// Those declared lost that may still arrive, the earliest to be settled first.
    spurious_losses: VecDeque<PendingSpuriousLoss>,
    settled: VecDeque<Settled>,
}

#[derive(Debug)]
struct Open {
    /// Its number on its channel.
    message: u64,
    /// Fragments not acknowledged. Not counted here for retransmitted messages.
    left: u16,
    /// Whether it is in `spurious_losses`.
    may_be_spurious: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct PendingSpuriousLoss {
    until: Instant,
    channel: ChannelId,
    message: u64,
}

impl Tracker {
    pub(super) const LEN_MAX: usize = 4_096;

    pub(super) fn is_full(&self) -> bool {
        self.open.saturating_add(self.settled.len()) >= Self::LEN_MAX
    }

    /// Tracks a message, the newest of its channel.
    pub(super) fn begin(&mut self, channel: ChannelId, message: u64, fragments: u16) {
        let place = usize::from(channel.0);
        while self.channels.len() <= place {
            self.channels.push(VecDeque::new());
        }
        if let Some(messages) = self.channels.get_mut(place) {
            messages.push_back(Open {
                message,
                left: fragments,
                may_be_spurious: false,
            });
            self.open = self.open.saturating_add(1);
        }
    }

    pub(super) fn on_acked(&mut self, channel: ChannelId, message: u64) {
        if let Some(open) = self.get_mut(channel, message) {
            open.left = open.left.saturating_sub(1);
            if open.left == 0 {
                self.settle(channel, message, MessageOutcome::Delivered);
            }
        }
    }

    pub(super) fn on_lost(&mut self, now: Instant, channel: ChannelId, message: u64) {
        if let Some(open) = self.get_mut(channel, message)
            && !core::mem::replace(&mut open.may_be_spurious, true)
        {
            self.spurious_losses.push_back(PendingSpuriousLoss {
                until: now + LATE_ACK_SPAN,
                channel,
                message,
            });
        }
    }

    /// Records an outcome. Ignored if the message is not tracked or already settled.
    pub(super) fn settle(&mut self, channel: ChannelId, message: u64, outcome: MessageOutcome) {
        let Some(messages) = self.channels.get_mut(usize::from(channel.0)) else {
            return;
        };
        let Ok(place) = messages.binary_search_by_key(&message, |open| open.message) else {
            return;
        };
        let Some(open) = messages.remove(place) else {
            return;
        };
        self.open = self.open.saturating_sub(1);
        if open.may_be_spurious {
            let is_it = |pending: &PendingSpuriousLoss| {
                pending.channel == channel && pending.message == message
            };
            if let Some(place) = self.spurious_losses.iter().position(is_it) {
                self.spurious_losses.remove(place);
            }
        }
        self.settled.push_back(Settled {
            channel,
            message: MessageId(message),
            outcome,
        });
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while self.poll_timeout().is_some_and(|until| until <= now)
            && let Some(pending) = self.spurious_losses.pop_front()
        {
            if let Some(open) = self.get_mut(pending.channel, pending.message) {
                open.may_be_spurious = false;
            }
            self.settle(pending.channel, pending.message, MessageOutcome::Lost);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.spurious_losses.front().map(|pending| pending.until)
    }

    /// Settles all open messages, channel by channel, since the session has ended.
    pub(super) fn drop_all(&mut self) {
        for (channel, messages) in (0..).map(ChannelId).zip(&mut self.channels) {
            self.settled.extend(messages.drain(..).map(|open| Settled {
                channel,
                message: MessageId(open.message),
                outcome: MessageOutcome::Dropped,
            }));
        }
        self.open = 0;
        self.spurious_losses.clear();
    }

    pub(super) fn poll(&mut self) -> Option<Settled> {
        self.settled.pop_front()
    }

    pub(super) fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    pub(super) const fn is_settled(&self) -> bool {
        self.open == 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_settled() && self.settled.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        let open: usize = self.channels.iter().map(VecDeque::capacity).sum();
        [
            size_of::<Self>(),
            open.saturating_mul(size_of::<Open>()),
            self.channels
                .capacity()
                .saturating_mul(size_of::<VecDeque<Open>>()),
            deque_memory(&self.spurious_losses),
            deque_memory(&self.settled),
        ]
        .into_iter()
        .sum()
    }

    fn get_mut(&mut self, channel: ChannelId, message: u64) -> Option<&mut Open> {
        let messages = self.channels.get_mut(usize::from(channel.0))?;
        let place = messages
            .binary_search_by_key(&message, |open| open.message)
            .ok()?;
        messages.get_mut(place)
    }
}
