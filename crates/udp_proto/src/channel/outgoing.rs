//! What a channel would put into a packet next.

use super::{Content, MessageId, MsgHeader};

/// What a channel has for a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// Nothing, or nothing before an acknowledgement comes.
    Idle,
    /// A message that cannot begin before the peer grants more.
    Waiting,
    /// A frame.
    Frame(Outgoing),
}

/// A MSG frame that is not yet written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    /// All of it but length and data.
    pub(crate) header: MsgHeader,
    /// Number of its message on the channel.
    pub(crate) message: u64,
    /// Which fragment of the message it is; 0 where it is whole.
    pub(crate) fragment: u16,
    /// Offset of its data in the channel's queue.
    pub(crate) start: u64,
    /// Bytes of data.
    pub(crate) len: usize,
    /// What its message takes of the peer's window, all of it with the first fragment; 0 in others.
    pub(crate) credit: usize,
    /// Whether the channel wants to hear what became of it.
    pub(crate) is_told: bool,
}

impl Outgoing {
    /// Returns what the record of its packet keeps of it.
    pub(crate) const fn content(&self) -> Content {
        Content::new(self.header.channel, MessageId(self.message), self.fragment)
    }
}
