//! A message on its way from the game to the endpoint.

use core::time::Duration;

use udp_proto::{ChannelId, Message, MessageId};

/// The payload, and how it is tracked.
#[derive(Debug)]
pub(crate) struct Parcel {
    bytes: Box<[u8]>,
    tracking: Option<Tracking>,
}

/// Send options of a tracked message.
#[derive(Clone, Copy, Debug)]
struct Tracking {
    number: MessageId,
    ttl: Option<Duration>,
    is_repeated: bool,
}

impl Parcel {
    /// An untracked message.
    pub(crate) fn plain(message: &[u8]) -> Self {
        Self {
            bytes: message.into(),
            tracking: None,
        }
    }

    /// A message tracked as `number`.
    pub(crate) fn tracked(message: &Message<'_>, number: MessageId) -> Self {
        Self {
            bytes: message.bytes.into(),
            tracking: Some(Tracking {
                number,
                ttl: message.ttl,
                is_repeated: message.is_repeated,
            }),
        }
    }

    /// The number of a tracked message.
    pub(crate) fn number(&self) -> Option<MessageId> {
        self.tracking.map(|tracking| tracking.number)
    }

    /// The message for the endpoint, if it is tracked.
    pub(crate) fn message(&self, channel: ChannelId) -> Option<Message<'_>> {
        let tracking = self.tracking?;
        let mut message = Message::new(channel, &self.bytes);
        message.ttl = tracking.ttl;
        message.is_repeated = tracking.is_repeated;
        Some(message)
    }
}

impl AsRef<[u8]> for Parcel {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
