//! Writes the MSG frames of one packet.

use crate::byte_queue::ByteQueue;
use crate::channel::{
    Content, FRAMES_MAX, MessageId, MsgHeader, WITH_LENGTH, encode_plain, length_len,
};

/// The room of a packet for MSG frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of plaintext.
    pub bytes: usize,
    /// What follows the frames.
    pub end: End,
    /// Which messages to write.
    pub fill_policy: FillPolicy,
    /// The channels that may send: bit n is channel n.
    pub channels: u32,
}

/// Which messages a packet may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillPolicy {
    /// Any, by priority.
    Any,
    /// Reliable ones first, regardless of priority; unreliable ones use the remaining room. Nothing
    /// is written without a reliable one.
    ReliableFirst,
}

/// What follows the MSG frames of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The packet's end: the last frame may omit its length.
    Packet,
    /// Other frames.
    Frames,
}

/// A frame that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// What it carries.
    pub content: Content,
    /// Whether to report its outcome to [`Outbox::on_acked`](super::Outbox::on_acked) and
    /// [`Outbox::on_lost`](super::Outbox::on_lost). Otherwise only its loss is counted.
    pub is_tracked: bool,
    /// Whether it is a retransmitted part of a split unreliable message. All frames of the packet
    /// then belong to that message.
    pub is_retransmit: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// Nothing before the next acknowledgement.
    Idle,
    /// A message that cannot start before the peer grants more credit.
    Waiting,
    Frame(Outgoing),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) header: MsgHeader,
    pub(super) message: u64,
    pub(super) fragment: u16,
    /// Offset of its data in the channel's queue.
    pub(super) start: u64,
    pub(super) len: usize,
    /// Credit of the whole message with the first fragment; 0 with others.
    pub(super) credit: usize,
    /// Whether the channel tracks its outcome.
    pub(super) is_tracked: bool,
}

impl Outgoing {
    /// Returns its entry in the packet's record.
    pub(super) const fn content(&self) -> Content {
        Content::new(self.header.channel, MessageId(self.message), self.fragment)
    }
}

pub(super) struct PacketBuilder<'a> {
    out: &'a mut Vec<u8>,
    /// Bytes left.
    left: usize,
    /// Bytes available at the start.
    room: usize,
    written: usize,
    end: End,
    /// The last frame, if it has a length.
    last: Option<Last>,
    /// The channels that may send: bit n is channel n.
    channels: u32,
    contents: &'a mut dyn FnMut(Written),
    pub(super) tracks_all: bool,
    pub(super) kind: FrameKind,
    /// A message waits for credit, so later ones must not take it.
    pub(super) is_credit_awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A retransmitted part of a split unreliable message.
    Retransmit,
    Other,
}

/// A frame that could omit its length.
#[derive(Clone, Copy)]
struct Last {
    /// Offset in the buffer.
    at: usize,
    /// Length of the frame without its length field.
    without: usize,
    len: usize,
}

impl<'a> PacketBuilder<'a> {
    pub(super) fn new(
        room: Room,
        out: &'a mut Vec<u8>,
        contents: &'a mut dyn FnMut(Written),
    ) -> Self {
        Self {
            out,
            left: room.bytes,
            room: room.bytes,
            written: 0,
            end: room.end,
            last: None,
            channels: room.channels,
            contents,
            tracks_all: false,
            kind: FrameKind::Other,
            is_credit_awaited: false,
        }
    }

    /// Writes a frame with data from `bytes`. Returns whether it fit.
    pub(super) fn write(&mut self, outgoing: &Outgoing, bytes: &ByteQueue) -> bool {
        let (header, len) = (&outgoing.header, outgoing.len);
        let without = header.encoded_len(None).saturating_add(len);
        if !self.claim(without, len) {
            return false;
        }
        header.encode(self.length(), self.out);
        self.out.extend_from_slice(bytes.get(outgoing.start, len));
        (self.contents)(Written {
            content: outgoing.content(),
            is_tracked: outgoing.is_tracked || self.tracks_all,
            is_retransmit: self.kind == FrameKind::Retransmit,
        });
        true
    }

    /// Writes a frame of only a channel and `data`. Returns whether it fit.
    #[inline]
    pub(super) fn write_plain(&mut self, content: Content, data: &[u8]) -> bool {
        if !self.claim(data.len().saturating_add(1), data.len()) {
            return false;
        }
        encode_plain(content.channel(), self.length(), data, self.out);
        (self.contents)(Written {
            content,
            is_tracked: self.tracks_all,
            is_retransmit: false,
        });
        true
    }

    /// Reserves room for a frame with `len` bytes of data, `without` bytes long without a length
    /// field. Returns whether it fits.
    #[inline]
    fn claim(&mut self, without: usize, len: usize) -> bool {
        if self.is_full() {
            return false;
        }
        let with_length = without.saturating_add(length_len(len));
        if let Some(left) = self.left.checked_sub(with_length) {
            self.last = Some(Last {
                at: self.out.len(),
                without,
                len,
            });
            self.left = left;
        } else if without <= self.left && self.may_omit(without) {
            self.last = None;
            // A frame without a length ends the packet.
            self.left = 0;
        } else {
            return false;
        }
        self.written = self.written.saturating_add(1);
        true
    }

    /// Returns the length field of the frame that was claimed last, if it has one.
    fn length(&self) -> Option<usize> {
        self.last.map(|last| last.len)
    }

    pub(super) const fn allows(&self, channel: usize) -> bool {
        has_channel(self.channels, channel)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.written == 0
    }

    pub(super) const fn used(&self) -> usize {
        self.room.saturating_sub(self.left)
    }

    pub(super) const fn close(&mut self) {
        self.left = 0;
    }

    pub(super) const fn is_full(&self) -> bool {
        self.left == 0 || self.written >= FRAMES_MAX
    }

    /// Removes the last frame's length if possible. Returns the number of frames.
    pub(super) fn finish(self) -> usize {
        if let Some(Last { at, without, len }) = self.last
            && self.may_omit(without)
        {
            let start = at.saturating_add(without.saturating_sub(len));
            self.out.drain(start..start.saturating_add(length_len(len)));
            if let Some(first) = self.out.get_mut(at) {
                *first &= !WITH_LENGTH;
            }
        }
        self.written
    }

    /// Returns whether a last frame of `len` bytes may omit its length: padding of a shorter
    /// plaintext would be read as data.
    fn may_omit(&self, len: usize) -> bool {
        self.end == End::Packet && len >= PLAINTEXT_MIN
    }
}

pub(super) const fn bit_of(channel: usize) -> u32 {
    if channel < 32 { 1 << channel } else { 0 }
}

pub(super) const fn has_channel(channels: u32, channel: usize) -> bool {
    channel < 32 && channels >> channel & 1 == 1
}

/// Shorter plaintexts are padded to this; TWP/1, section 4.
const PLAINTEXT_MIN: usize = 4;
