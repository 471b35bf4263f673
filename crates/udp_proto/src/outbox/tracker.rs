//! Messages whose sender wants to know what became of them.

use std::collections::VecDeque;

use wire::Instant;

use crate::channel::unreliable::STRAGGLERS;
use crate::channel::{ChannelId, MessageId};
use crate::outcome::{MessageOutcome, Settled};

/// The messages of a session that are tracked: each is told about once.
///
/// It is told what happens to all messages, and passes over those that it does not track.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    /// Those whose fate is open, by channel and then by number.
    channels: Vec<VecDeque<Open>>,
    /// How many these are.
    open: usize,
    /// Those of them that count as lost, and when that is taken for true; the first first.
    spurious_losses: VecDeque<PendingSpuriousLoss>,
    /// Outcomes that nobody has taken.
    settled: VecDeque<Settled>,
}

/// A message whose fate is open.
#[derive(Debug)]
struct Open {
    /// Its number on its channel.
    message: u64,
    /// Fragments not acknowledged; of one that is sent again nobody counts them here.
    left: u16,
    /// Whether it is among the doubts.
    may_be_spurious: bool,
}

/// A message that counts as lost.
#[derive(Debug, PartialEq, Eq)]
struct PendingSpuriousLoss {
    /// When it is given up.
    until: Instant,
    /// Its channel.
    channel: ChannelId,
    /// Its number there.
    message: u64,
}

impl Tracker {
    /// Messages and outcomes not taken that it holds at most.
    pub(super) const LEN_MAX: usize = 4_096;

    /// Returns whether it takes no further message.
    pub(super) fn is_full(&self) -> bool {
        self.open.saturating_add(self.settled.len()) >= Self::LEN_MAX
    }

    /// Begins to track a message, the newest of its channel.
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

    /// Takes note that a fragment of an unreliable message arrived.
    pub(super) fn on_acked(&mut self, channel: ChannelId, message: u64) {
        if let Some(open) = self.get_mut(channel, message) {
            open.left = open.left.saturating_sub(1);
            if open.left == 0 {
                self.settle(channel, message, MessageOutcome::Delivered);
            }
        }
    }

    /// Takes note that a fragment of an unreliable message counts as lost.
    pub(super) fn on_lost(&mut self, now: Instant, channel: ChannelId, message: u64) {
        if let Some(open) = self.get_mut(channel, message)
            && !core::mem::replace(&mut open.may_be_spurious, true)
        {
            self.spurious_losses.push_back(PendingSpuriousLoss {
                until: now + STRAGGLERS,
                channel,
                message,
            });
        }
    }

    /// Takes note of what became of a message. Of one that is not tracked, or was settled, it has
    /// nothing to say.
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
            let is_it =
                |doubt: &PendingSpuriousLoss| doubt.channel == channel && doubt.message == message;
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

    /// Gives up messages that count as lost for long enough.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while self.poll_timeout().is_some_and(|until| until <= now)
            && let Some(doubt) = self.spurious_losses.pop_front()
        {
            if let Some(open) = self.get_mut(doubt.channel, doubt.message) {
                open.may_be_spurious = false;
            }
            self.settle(doubt.channel, doubt.message, MessageOutcome::Lost);
        }
    }

    /// Returns when the next message is given up.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.spurious_losses.front().map(|doubt| doubt.until)
    }

    /// Settles all messages whose fate is open, channel by channel: nothing will be heard of them.
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

    /// Takes the next outcome.
    pub(super) fn poll(&mut self) -> Option<Settled> {
        self.settled.pop_front()
    }

    /// Returns whether an outcome waits to be taken.
    pub(super) fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    /// Returns whether the fate of no message is open.
    pub(super) const fn is_settled(&self) -> bool {
        self.open == 0
    }

    /// Returns whether it holds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.is_settled() && self.settled.is_empty()
    }

    /// Returns the heap memory it keeps, itself included, bytes.
    pub(super) fn memory(&self) -> usize {
        let open: usize = self.channels.iter().map(VecDeque::capacity).sum();
        [
            size_of::<Self>(),
            open.saturating_mul(size_of::<Open>()),
            self.channels
                .capacity()
                .saturating_mul(size_of::<VecDeque<Open>>()),
            self.spurious_losses
                .capacity()
                .saturating_mul(size_of::<PendingSpuriousLoss>()),
            self.settled.capacity().saturating_mul(size_of::<Settled>()),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// Returns a message whose fate is open.
    fn get_mut(&mut self, channel: ChannelId, message: u64) -> Option<&mut Open> {
        let messages = self.channels.get_mut(usize::from(channel.0))?;
        let place = messages
            .binary_search_by_key(&message, |open| open.message)
            .ok()?;
        messages.get_mut(place)
    }
}
