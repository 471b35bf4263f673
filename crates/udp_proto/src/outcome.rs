//! What became of messages, for those who ask.

use core::time::Duration;

use crate::channel::{ChannelId, MessageId};

/// A message to be sent, and what is asked of it beyond what its channel is configured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message<'a> {
    /// The channel it goes by.
    pub channel: ChannelId,
    /// What is sent.
    pub bytes: &'a [u8],
    /// How long it may wait to be sent, where that is not the channel's ttl. It is dropped then, or
    /// once those before it have left, where they may wait longer. Reliable channels ignore it.
    pub ttl: Option<Duration>,
}

impl<'a> Message<'a> {
    /// Makes a message with the channel's ttl.
    #[must_use]
    pub const fn new(channel: ChannelId, bytes: &'a [u8]) -> Self {
        Self {
            channel,
            bytes,
            ttl: None,
        }
    }

    /// Sets how long it may wait to be sent.
    #[must_use]
    pub const fn with_ttl(self, ttl: Duration) -> Self {
        Self {
            ttl: Some(ttl),
            ..self
        }
    }
}

/// What became of a message.
///
/// `Delivered` is certain. The others say that nothing was heard: where the network lost only what
/// acknowledges it, a message may have come all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageOutcome {
    /// The peer's endpoint has acknowledged all of it. Whether its application took it, and whether a
    /// sequenced one had been overtaken, only the application's answer tells.
    Delivered,
    /// Unreliable: it left, and counts as lost, or a part of it does; half a second later no
    /// acknowledgement has come, either.
    Lost,
    /// Unreliable: it waited longer than its ttl, and did not leave, or not all of it.
    Expired,
    /// Unreliable: it made place for newer ones in a full queue, and did not leave, or not all of it.
    Displaced,
    /// The session ended before anything else was known.
    Dropped,
}

/// A message and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The channel it was sent on.
    pub channel: ChannelId,
    /// Its number there.
    pub message: MessageId,
    /// What became of it.
    pub outcome: MessageOutcome,
}
