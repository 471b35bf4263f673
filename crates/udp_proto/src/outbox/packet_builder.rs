//! The MSG frames of one packet while they are written.

use crate::channel::Outgoing;
use crate::channel::byte_queue::ByteQueue;
use crate::channel::{Content, FRAMES_MAX, WITH_LENGTH, encode_plain, length_len};

/// What a packet has for MSG frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of plaintext.
    pub bytes: usize,
    /// What comes behind the frames.
    pub end: End,
    /// What must be among them.
    pub fill_policy: FillPolicy,
    /// Whose messages may be among them: bit n is channel n.
    pub channels: u32,
}

/// What a packet must hold for its messages to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillPolicy {
    /// Any message: priorities decide.
    Any,
    /// A reliable one: these go first, whatever the priorities are, and unreliable ones take what
    /// is left. Without a reliable one nothing leaves.
    ReliableFirst,
}

/// What comes behind the MSG frames of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The packet's end: the last frame may do without its length.
    Packet,
    /// Other frames.
    Frames,
}

/// A frame that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// What it carries.
    pub content: Content,
    /// Whether what becomes of it is to be told with [`Outbox::on_acked`](super::Outbox::on_acked) and
    /// [`Outbox::on_lost`](super::Outbox::on_lost). Where not, its loss is counted alone.
    pub is_tracked: bool,
    /// Whether it is a part of an unreliable message that is sent again; then all in the packet are, of
    /// the same message.
    pub is_retransmit: bool,
}

/// Frames behind each other in a buffer.
pub(super) struct PacketBuilder<'a> {
    /// The packet's plaintext, to whose end frames go.
    out: &'a mut Vec<u8>,
    /// Bytes left.
    left: usize,
    /// Bytes that there were at first.
    room: usize,
    /// Frames written.
    written: usize,
    /// What comes behind them.
    end: End,
    /// The last frame, where it has a length.
    last: Option<Last>,
    /// Whose frames may be written: bit n is channel n.
    channels: u32,
    /// Who wants to know what is written.
    contents: &'a mut dyn FnMut(Written),
    /// Whether somebody wants to hear what becomes of messages whose channels do not.
    pub(super) tracks_all: bool,
    /// What is written next.
    pub(super) kind: FrameKind,
    /// Whether a message waits for credit: those behind it leave it what there is.
    pub(super) is_credit_awaited: bool,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A part of an unreliable message that is sent again.
    Retransmit,
    /// Any other.
    Other,
}

/// A frame that might do without its length.
#[derive(Clone, Copy)]
struct Last {
    /// Its offset in the buffer.
    at: usize,
    /// Its bytes without length.
    without: usize,
    /// Bytes of data.
    len: usize,
}

impl<'a> PacketBuilder<'a> {
    /// Starts behind what `out` holds.
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

    /// Writes a frame whose data is in `bytes`, and returns whether it had room.
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

    /// Writes a frame that is its channel and `data`, and returns whether it had room.
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

    /// Takes the room for a frame of `len` bytes of data, `without` bytes if it has no length, and
    /// returns whether there is.
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
            // Nothing can follow a frame that ends where the packet ends.
            self.left = 0;
        } else {
            return false;
        }
        self.written = self.written.saturating_add(1);
        true
    }

    /// Returns the length that the frame has for which room was taken last, where it has one.
    fn length(&self) -> Option<usize> {
        self.last.map(|last| last.len)
    }

    /// Returns whether frames of `channel` may be written.
    pub(super) const fn allows(&self, channel: usize) -> bool {
        has_channel(self.channels, channel)
    }

    /// Returns whether nothing is written.
    pub(super) const fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Returns how many bytes are taken.
    pub(super) const fn used(&self) -> usize {
        self.room.saturating_sub(self.left)
    }

    /// Lets no frame follow.
    pub(super) const fn close(&mut self) {
        self.left = 0;
    }

    /// Returns whether no frame can follow.
    pub(super) const fn is_full(&self) -> bool {
        self.left == 0 || self.written >= FRAMES_MAX
    }

    /// Takes the length out of the last frame where it may, and returns how many frames there are.
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

    /// Returns whether a last frame of `len` bytes may do without its length.
    ///
    /// A plaintext below [`PLAINTEXT_MIN`] is padded, and the padding would pass for data.
    fn may_omit(&self, len: usize) -> bool {
        self.end == End::Packet && len >= PLAINTEXT_MIN
    }
}

/// The bit of `channel`; there are 32 at most.
pub(super) const fn bit_of(channel: usize) -> u32 {
    if channel < 32 { 1 << channel } else { 0 }
}

/// Returns whether `channels`, in which bit n is channel n, has `channel`.
pub(super) const fn has_channel(channels: u32, channel: usize) -> bool {
    channel < 32 && channels >> channel & 1 == 1
}

/// Bytes to which a shorter plaintext is padded; TWP/1, section 4.
const PLAINTEXT_MIN: usize = 4;
