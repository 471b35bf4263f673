//! The MSG frames of one packet while they are written.

use crate::channel::outgoing::Outgoing;
use crate::channel::ring::Ring;
use crate::channel::{Content, FRAMES_MAX, WITH_LENGTH, length_len};

/// What a packet has for MSG frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of plaintext.
    pub bytes: usize,
    /// What comes behind the frames.
    pub end: End,
    /// What must be among them.
    pub lead: Lead,
    /// Whose messages may be among them: bit n is channel n.
    pub channels: u32,
}

/// What a packet must hold for its messages to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// Any message: priorities decide.
    Any,
    /// A reliable one: these go first, whatever the priorities are, and unreliable ones take what
    /// is left. Without a reliable one nothing leaves.
    Reliable,
}

/// What comes behind the MSG frames of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The packet's end: the last frame may do without its length.
    Packet,
    /// Other frames.
    Frames,
}

/// Frames behind each other in a buffer.
pub(super) struct Page<'a> {
    /// The packet's plaintext, to whose end frames go.
    out: &'a mut Vec<u8>,
    /// Bytes left.
    left: usize,
    /// Frames written.
    written: usize,
    /// What comes behind them.
    end: End,
    /// The last frame, where it has a length.
    last: Option<Last>,
    /// Whose frames may be written: bit n is channel n.
    channels: u32,
    /// Who wants to know what is written.
    contents: &'a mut dyn FnMut(Content),
    /// Whether a message waits for credit: those behind it leave it what there is.
    pub(super) is_credit_awaited: bool,
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

impl<'a> Page<'a> {
    /// Starts behind what `out` holds.
    pub(super) fn new(
        room: Room,
        out: &'a mut Vec<u8>,
        contents: &'a mut dyn FnMut(Content),
    ) -> Self {
        Self {
            out,
            left: room.bytes,
            written: 0,
            end: room.end,
            last: None,
            channels: room.channels,
            contents,
            is_credit_awaited: false,
        }
    }

    /// Writes a frame whose data is in `bytes`, and returns whether it had room.
    pub(super) fn write(&mut self, outgoing: &Outgoing, bytes: &Ring) -> bool {
        if self.is_full() {
            return false;
        }
        let (header, len) = (&outgoing.header, outgoing.len);
        let with_length = header.encoded_len(Some(len)).saturating_add(len);
        let without = header.encoded_len(None).saturating_add(len);
        let (length, taken) = if with_length <= self.left {
            (Some(len), with_length)
        } else if without <= self.left && self.may_omit(without) {
            (None, without)
        } else {
            return false;
        };
        self.last = length.map(|len| Last {
            at: self.out.len(),
            without,
            len,
        });
        header.encode(length, self.out);
        bytes.copy(outgoing.start, len, self.out);
        (self.contents)(outgoing.content());
        self.written = self.written.saturating_add(1);
        // Nothing can follow a frame that ends where the packet ends.
        self.left = length.map_or(0, |_| self.left.saturating_sub(taken));
        true
    }

    /// Returns whether frames of `channel` may be written.
    pub(super) const fn allows(&self, channel: usize) -> bool {
        has_channel(self.channels, channel)
    }

    /// Returns whether nothing is written.
    pub(super) const fn is_empty(&self) -> bool {
        self.written == 0
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
