//! Records: what surrounds the bytes of each.

use wire::codec::{Reader, Truncated, Writer};

use crate::bundle::Shape;
use crate::tick::Tick;

/// First bytes of a file.
pub(super) const MAGIC: [u8; 4] = *b"TWRP";
/// The version of this module; another one is refused.
pub(super) const VERSION: u8 = 1;
/// Bytes before the body of a record: kind, length, check of both.
pub(super) const HEAD_LEN: usize = 5;
/// Bytes behind it: CRC32C.
pub(super) const CHECKSUM_LEN: usize = 4;
/// Longest body: what 24 bits count.
pub(super) const BODY_LEN_MAX: usize = 0xff_ffff;
/// Longest signature or other seal.
pub(super) const SEAL_LEN_MAX: usize = 1_024;

/// What decides where the parts of a file lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) shape: Shape,
    pub(super) hash_interval: u8,
    pub(super) keyframe_interval: u32,
}

impl Layout {
    /// Whether a state hash stands behind the bundle of `tick`.
    pub(super) fn has_hash_at(self, tick: Tick) -> bool {
        self.hash_interval > 0 && tick.0.is_multiple_of(self.hash_interval.into())
    }

    /// Whether a keyframe stands before the bundle of `tick`.
    pub(super) const fn has_keyframe_at(self, tick: Tick) -> bool {
        let interval = self.keyframe_interval;
        tick.0 > 0 && interval > 0 && tick.0.is_multiple_of(interval)
    }
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bundles of some ticks, and state hashes.
    Ticks,
    /// All that a step from here on depends on.
    Keyframe,
    /// What the application says of the chain so far.
    Seal,
    /// Ticks and head of the chain; nothing comes behind it.
    End,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Ticks => 1,
            Self::Keyframe => 2,
            Self::Seal => 3,
            Self::End => 4,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Ticks),
            2 => Some(Self::Keyframe),
            3 => Some(Self::Seal),
            4 => Some(Self::End),
            _ => None,
        }
    }
}

/// The first bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Bytes of the body.
    pub(super) len: usize,
}

impl Head {
    /// Reads a head; the inner `None` where it is none, whatever is behind it.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, Truncated> {
        let [kind, high, middle, low, check] = reader.array()?;
        let is_whole = check == head_check([kind, high, middle, low]);
        let len = u32::from_be_bytes([0, high, middle, low]);
        Ok(Kind::from_code(kind)
            .filter(|_| is_whole)
            .zip(usize::try_from(len).ok())
            .map(|(kind, len)| Self { kind, len }))
    }
}

/// Appends one record whose body is `parts`, at most [`BODY_LEN_MAX`] bytes, and returns its
/// checksum; `before` is that of the record before it.
pub(super) fn write(kind: Kind, parts: &[&[u8]], before: u32, out: &mut Vec<u8>) -> u32 {
    let start = out.len();
    let len = parts.iter().map(|part| part.len()).sum::<usize>();
    debug_assert!(len <= BODY_LEN_MAX, "a longer body is refused before");
    let [.., high, middle, low] = len.to_be_bytes();
    let head = [kind.code(), high, middle, low];
    let mut writer = Writer::new(out);
    writer.bytes(&head);
    writer.u8(head_check(head));
    for part in parts {
        writer.bytes(part);
    }
    let checksum = checksum(before, out.get(start..).unwrap_or_default());
    Writer::new(out).u32(checksum);
    checksum
}

/// CRC32C (RFC 3720, appendix B.4) of `bytes` behind what led to `before`: a record that is left
/// out, doubled or moved is found as well as one that has changed.
pub(super) fn checksum(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// Any one changed byte of a head shows without the body, whose length is then not believed.
fn head_check(head: [u8; 4]) -> u8 {
    !head.iter().fold(0, |all, byte| all ^ byte)
}
