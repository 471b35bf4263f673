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
    /// once those before it have left, where they may wait longer; of one that is split what has not
    /// left 2 s after its first part, as the peer keeps parts no longer. Reliable channels ignore it.
    pub ttl: Option<Duration>,
    /// Whether it is sent again while it counts as lost, until it has waited so long; see
    /// [`until_deadline`](Self::until_deadline).
    pub is_repeated: bool,
}

impl<'a> Message<'a> {
    /// Makes a message with the channel's ttl.
    #[must_use]
    pub const fn new(channel: ChannelId, bytes: &'a [u8]) -> Self {
        Self {
            channel,
            bytes,
            ttl: None,
            is_repeated: false,
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

    /// Asks that an unreliable message be sent again whenever its packet counts as lost, until its
    /// ttl ends: best effort with a deadline. Reliable channels, where nothing is given up, ignore it.
    ///
    /// It is delivered once at most, and costs 6 bytes more where its channel is not sequenced. On a
    /// sequenced channel a newer message overtakes it as any other. Of what is split the peer keeps
    /// parts for 2 s, of 8 messages and 64 KiB in all, whatever the deadline is: nothing is sent again
    /// 2 s after its first part left.
    ///
    /// What is kept to be sent again counts in [`queue_bytes_max`]: where that is full, the oldest is
    /// not sent again. Nor is one before the newest 1,024 of its channel that have a number.
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

/// What became of a message.
///
/// `Delivered` is certain. The others say that nothing was heard: where the network lost only what
/// acknowledges it, or a part of a split message that the peer had given up shared its packet, a message
/// may have come all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageOutcome {
    /// The peer's endpoint has acknowledged all of it. Whether its application took it, and whether a
    /// sequenced one had been overtaken, only the application's answer tells.
    Delivered,
    /// Unreliable: it left, and counts as lost, or a part of it does; half a second later no
    /// acknowledgement has come, either. Of one [until its deadline](Message::until_deadline): the
    /// same, and there was no place to keep it, or 1,024 newer ones had left, or the peer has given
    /// up the parts that came.
    Lost,
    /// Unreliable: it waited longer than its ttl, or than the peer keeps the parts that left, and did
    /// not leave, or not all of it. Of one
    /// [until its deadline](Message::until_deadline) also: it left, perhaps again and again, and half
    /// a second after the deadline, or after the last of it counted as lost, whichever is later, no
    /// acknowledgement has come.
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
