//! Tracked messages and their outcomes.

use core::time::Duration;

use crate::channel::{ChannelId, MessageId};

/// A message to send, with options beyond its channel's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message<'a> {
    /// The channel.
    pub channel: ChannelId,
    /// The content.
    pub bytes: &'a [u8],
    /// How long it may wait to be sent; `None` is the channel's TTL. It is dropped then, or once
    /// earlier messages with a longer TTL were sent. The unsent rest of a split message is dropped
    /// 2 s after its first fragment, when the peer gives it up. Reliable channels ignore it.
    pub ttl: Option<Duration>,
    /// Whether it is retransmitted until its TTL ends; see
    /// [`until_deadline`](Self::until_deadline).
    pub is_repeated: bool,
}

impl<'a> Message<'a> {
    /// Creates a message with the channel's TTL.
    #[must_use]
    pub const fn new(channel: ChannelId, bytes: &'a [u8]) -> Self {
        Self {
            channel,
            bytes,
            ttl: None,
            is_repeated: false,
        }
    }

    /// Sets its TTL.
    #[must_use]
    pub const fn with_ttl(self, ttl: Duration) -> Self {
        Self {
            ttl: Some(ttl),
            ..self
        }
    }

    /// Retransmits an unreliable message whenever its packet is declared lost, until its TTL ends:
    /// partial reliability. Reliable channels ignore it.
    ///
    /// It is delivered at most once, and costs 6 more bytes on a channel that is not sequenced. On
    /// a sequenced channel newer messages supersede it as usual. The peer keeps fragments for 2 s,
    /// of at most 8 messages and 64 KiB, regardless of the deadline, so nothing is retransmitted 2
    /// s after the first fragment was sent.
    ///
    /// Kept messages count in [`queue_bytes_max`]: if that is full, the oldest is no longer
    /// retransmitted. Neither is one older than the newest 1,024 numbered messages of its channel.
    ///
    /// [`queue_bytes_max`]: crate::ChannelConfig::queue_bytes_max
    #[must_use]
    pub const fn until_deadline(self) -> Self {
        Self {
            is_repeated: true,
            ..self
        }
    }
}

/// The outcome of a message.
///
/// `Delivered` is certain. The others mean that no acknowledgement arrived. The message may have
/// arrived if only acknowledgements were lost, or if its packet also held a fragment of a message
/// that the peer had given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageOutcome {
    /// The peer's endpoint acknowledged all of it. Whether the application read it, or a newer
    /// message of a sequenced channel superseded it, only the application can tell.
    Delivered,
    /// Unreliable: it, or a part of it, was declared lost, and not acknowledged within another half
    /// second. With [a deadline](Message::until_deadline): the same, and it could not be kept, or
    /// 1,024 newer messages were sent, or the peer gave its fragments up.
    Lost,
    /// Unreliable: its TTL, or the peer's time for fragments, passed before all of it was sent.
    /// With [a deadline](Message::until_deadline) also: it was sent, and not acknowledged within
    /// half a second after the deadline or its last loss, whichever is later.
    Expired,
    /// Unreliable: newer messages displaced it in a full queue before all of it was sent.
    Displaced,
    /// The session ended first.
    Dropped,
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The message's channel.
    pub channel: ChannelId,
    /// Its number there.
    pub message: MessageId,
    /// The outcome.
    pub outcome: MessageOutcome,
}
