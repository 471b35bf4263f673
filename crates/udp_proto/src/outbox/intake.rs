//! What the application hands over, and what it is told of it.

use core::time::Duration;

use wire::Instant;

use super::Outbox;
use super::page::bit_of;
use super::senders::Outbound;
use crate::channel::unreliable::Use;
use crate::channel::{ChannelId, MessageId, SendError, frame_count, message_credit};
use crate::outcome::{Message, MessageOutcome, Settled};

impl Outbox {
    /// Queues a copy of `message`.
    ///
    /// A full unreliable channel gives up its oldest messages for it.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the message is then not taken.
    pub fn send(
        &mut self,
        now: Instant,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<MessageId, SendError> {
        self.queue(now, &Message::new(channel, message))
    }

    /// As [`send`](Self::send), and what becomes of the message comes once from
    /// [`poll_settled`](Self::poll_settled).
    ///
    /// # Errors
    ///
    /// [`SendError`]; the message is then not taken.
    pub fn send_tracked(
        &mut self,
        now: Instant,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        if self
            .tracker
            .as_ref()
            .is_some_and(|tracker| tracker.is_full())
        {
            return Err(SendError::TooManyTracked);
        }
        let number = self.queue(now, message)?;
        self.tracker.get_or_insert_default().begin(
            message.channel,
            number.0,
            frame_count(message.bytes.len()),
        );
        Ok(number)
    }

    /// Changes how long unreliable messages of `channel` may wait that do not say so themselves, from
    /// the next one on; returns whether there is such a channel.
    pub fn set_ttl(&mut self, channel: ChannelId, ttl: Duration) -> bool {
        let Some(table) = self.table.with_ttl(channel, ttl) else {
            return false;
        };
        self.table = table;
        true
    }

    /// Returns what became of the next tracked message.
    pub fn poll_settled(&mut self) -> Option<Settled> {
        self.tracker.as_mut()?.poll()
    }

    /// Returns whether [`poll_settled`](Self::poll_settled) has something to tell.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        self.tracker
            .as_ref()
            .is_some_and(|tracker| tracker.has_settled())
    }

    /// Takes note that nothing more will be heard of messages: the session has ended.
    pub fn abandon(&mut self) {
        if let Some(tracker) = &mut self.tracker {
            tracker.drop_all();
        }
    }

    /// Queues a copy of `message`.
    fn queue(&mut self, now: Instant, message: &Message<'_>) -> Result<MessageId, SendError> {
        let Message {
            channel,
            bytes,
            ttl,
            is_repeated,
        } = *message;
        if self.resting.is_some() {
            self.wake();
        }
        let unknown = SendError::UnknownChannel(channel);
        let config = self.table.get(channel).ok_or(unknown)?;
        let outbound = self
            .senders
            .channels
            .get_mut(usize::from(channel.0))
            .ok_or(unknown)?;
        let len = bytes.len();
        let mut max = config.message_bytes_max;
        if config.delivery.is_reliable() {
            max = max.min(self.credit_max);
        }
        let is_short = !config.delivery.is_reliable() || message_credit(len) <= self.credit_max;
        if len > max || !is_short {
            return Err(SendError::TooLarge { len, max });
        }
        let (counts, tracker) = (&mut self.counts, &mut self.tracker);
        match outbound {
            Outbound::Unreliable(outbound) => {
                let usage = Use {
                    now,
                    expires: now + ttl.unwrap_or(config.ttl),
                    is_repeated,
                };
                let id = outbound.push(usage, config, bytes, |displaced| {
                    counts.displaced = counts.displaced.saturating_add(1);
                    if let Some(tracker) = tracker {
                        tracker.settle(channel, displaced, MessageOutcome::Displaced);
                    }
                });
                self.busy |= bit_of(channel.0.into());
                if is_repeated {
                    self.keeping |= bit_of(channel.0.into());
                }
                Ok(MessageId(id))
            }
            Outbound::Reliable(outbound) => {
                let id = outbound.push(config, bytes).ok_or(SendError::Full)?;
                self.busy |= bit_of(channel.0.into());
                Ok(MessageId(id))
            }
        }
    }
}
