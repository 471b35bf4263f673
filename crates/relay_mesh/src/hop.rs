//! Hop frames: the header by which a node forwards a game packet, and the tags of tag-only links.

use crypto::{Exporter, Label, Provider, Secret32, equal};
use siphasher::sip::SipHasher24;
use zeroize::Zeroize;

/// Fields in front of every hop frame, 16 bytes, big-endian.
///
/// | offset | size | field | |
/// |---|---|---|---|
/// | 0 | 1 | kind | 0x80 tag-only, 0x81 sealed |
/// | 1 | 1 | flags | link epoch in bits 0 and 1, hops left in bits 2 and 3, in a sealed frame the sealing [shard](ShardId) in bits 4 to 6, the rest 0; of this hop only |
/// | 2 | 1 | generation | low 8 bits of the number of this use of the label's place at the receiving node; of this hop only |
/// | 3 | 1 | phase | key phase of the flow mod 64 in the high 6 bits, [`Piece`] in the low 2 |
/// | 4 | 4 | label | slot at the receiving node: its [shard](ShardId) in the high 3 bits, 11 more of the number of the use, 18 of the place; of this hop only |
/// | 8 | 8 | packet number | of flow and direction, below 2^56; the same on all hops |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopHeader {
    /// Protection of the frame on this hop.
    pub kind: HopKind,
    /// Low 2 bits of the link key's epoch.
    pub epoch: u8,
    /// The shard of the sending node that sealed it; the first for tag-only frames.
    pub from: ShardId,
    /// Remaining hops after the receiver; at most [`HOPS_LEFT_MAX`], so that loops of labels end.
    pub hops_left: u8,
    /// Label at the receiving node.
    pub label: LabelName,
    /// Key phase of the flow, and whether the payload is a piece.
    pub phase: Phase,
    /// Packet number in its flow and direction.
    pub number: u64,
}

/// Protection of a frame on one hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HopKind {
    /// A tag authenticates the header but not what follows; see [`HopKey`].
    /// For underlays that are measured and trusted.
    TagOnly,
    /// Everything after the header is encrypted again with the link key.
    #[default]
    Sealed,
}

/// A label of a node: a slot, and the number of its use. Never reused while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelName {
    /// Shard, high bits of the use's number, and slot.
    pub slot: u32,
    /// Low bits of the use's number.
    pub generation: u8,
}

/// Id of one of a node's shards. The first is the node itself; the others only forward frames.
///
/// The high 3 bits of a label's slot name its shard. Each sealing shard has a separate key for each
/// opening shard of a neighbour, so no two threads share a nonce counter or a replay window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardId(pub(crate) u8);

impl ShardId {
    /// The node itself.
    pub const FIRST: Self = Self(0);
    /// Maximum number of shards of a node, including the first.
    pub const COUNT_MAX: u8 = 8;

    /// Creates the id with this index; `None` from [`COUNT_MAX`](Self::COUNT_MAX) on.
    #[must_use]
    pub const fn new(place: u8) -> Option<Self> {
        if place < Self::COUNT_MAX {
            Some(Self(place))
        } else {
            None
        }
    }

    /// Returns its index among the shards of its node.
    #[must_use]
    pub const fn place(self) -> u8 {
        self.0
    }
}

/// The fourth byte: authenticated end to end, never rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Key phase of the flow mod 64.
    pub key: u8,
    /// Whether the payload is a whole datagram.
    pub piece: Piece,
}

/// Whether a payload is a player's whole datagram or half of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A whole datagram.
    Whole,
    /// Its first half; the second has the next number.
    First,
    /// Its second half.
    Second,
}

impl HopHeader {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Returns whether a datagram that starts with `byte` belongs to the data plane.
    #[must_use]
    pub const fn claims(byte: u8) -> bool {
        matches!(byte, 0x80..=0xBF)
    }

    /// Reads the header of a whole frame.
    ///
    /// # Errors
    ///
    /// [`HopError`]; the length is checked first, then kind and fields.
    pub const fn decode(frame: &[u8]) -> Result<Self, HopError> {
        let Some((&[kind, flags, generation, phase], rest)) = frame.split_first_chunk() else {
            return Err(HopError::Truncated);
        };
        let Some((&slot, rest)) = rest.split_first_chunk() else {
            return Err(HopError::Truncated);
        };
        let Some((&number, _)) = rest.split_first_chunk() else {
            return Err(HopError::Truncated);
        };
        let kind = match kind {
            0x80 => HopKind::TagOnly,
            0x81 => HopKind::Sealed,
            other => return Err(HopError::UnknownKind(other)),
        };
        if frame.len() < kind.frame_min() {
            return Err(HopError::Truncated);
        }
        if frame.len() > FRAME_MAX {
            return Err(HopError::Oversize(frame.len()));
        }
        let number = u64::from_be_bytes(number);
        let piece = Piece::from_bits(phase & PIECE_BITS);
        match piece {
            Some(piece) if flags & !kind.flags() == 0 && number < NUMBERS_MAX => Ok(Self {
                kind,
                epoch: flags & EPOCH_BITS,
                from: ShardId((flags & SHARD_BITS) >> FROM_SHIFT),
                hops_left: (flags & HOPS_BITS) >> HOPS_SHIFT,
                label: LabelName {
                    slot: u32::from_be_bytes(slot),
                    generation,
                },
                phase: Phase {
                    key: phase >> 2,
                    piece,
                },
                number,
            }),
            _ => Err(HopError::Malformed),
        }
    }

    /// Encodes the header; epoch, hops and key phase are truncated to their fields.
    #[must_use]
    pub const fn encode(&self) -> [u8; Self::LEN] {
        let kind = match self.kind {
            HopKind::TagOnly => 0x80,
            HopKind::Sealed => 0x81,
        };
        let hops = (self.hops_left << HOPS_SHIFT) & HOPS_BITS;
        let from = (self.from.0 << FROM_SHIFT) & SHARD_BITS;
        let flags = (self.epoch & EPOCH_BITS) | hops | from;
        let [s0, s1, s2, s3] = self.label.slot.to_be_bytes();
        let [n0, n1, n2, n3, n4, n5, n6, n7] = self.number.to_be_bytes();
        let generation = self.label.generation;
        let phase = self.phase.to_byte();
        [
            kind, flags, generation, phase, s0, s1, s2, s3, n0, n1, n2, n3, n4, n5, n6, n7,
        ]
    }
}

impl LabelName {
    /// Returns the shard that it belongs to.
    #[must_use]
    pub const fn shard(self) -> ShardId {
        let [high, ..] = self.slot.to_be_bytes();
        ShardId(high >> SHARD_SHIFT)
    }

    /// Bits that all slots of a shard share.
    pub(crate) const fn high_bits(shard: ShardId) -> u32 {
        u32::from_be_bytes([shard.0 << SHARD_SHIFT, 0, 0, 0])
    }
}

impl HopKind {
    /// Length of header, hop tag and the tag of an empty end-to-end payload.
    const fn frame_min(self) -> usize {
        match self {
            Self::TagOnly => 40,
            Self::Sealed => 48,
        }
    }

    /// Bits of the second byte that may be set.
    const fn flags(self) -> u8 {
        match self {
            Self::TagOnly => EPOCH_BITS | HOPS_BITS,
            Self::Sealed => EPOCH_BITS | HOPS_BITS | SHARD_BITS,
        }
    }
}

impl Phase {
    /// Returns the byte that is authenticated end to end.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        let piece = match self.piece {
            Piece::Whole => 0,
            Piece::First => 1,
            Piece::Second => 2,
        };
        (self.key << 2) | piece
    }
}

impl Piece {
    const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Whole),
            1 => Some(Self::First),
            2 => Some(Self::Second),
            _ => None,
        }
    }
}

/// Why a datagram is no hop frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HopError {
    /// Shorter than the shortest frame of its kind.
    Truncated,
    /// Longer than a link allows.
    Oversize(usize),
    /// An unknown first byte of the data plane.
    UnknownKind(u8),
    /// A reserved bit is set, the piece is invalid, or the number is 2^56 or more.
    Malformed,
}

wire::error_text! { HopError {
    Self::Truncated => "truncated hop frame",
    Self::Oversize(len) => "hop frame of {len} bytes, over {FRAME_MAX}",
    Self::UnknownKind(kind) => "hop frame of unknown kind {kind:#04x}",
    Self::Malformed => "hop frame with a field out of range",
}}

/// UDP payload in bytes that every link must carry; checked at link-up.
pub const FRAME_MAX: usize = 1_280;

/// Remaining hops of a frame at its first node: the most relays of a route.
pub const HOPS_LEFT_MAX: u8 = 3;

/// Packet numbers of a flow: a hop's nonce has room for 7 bytes.
pub const NUMBERS_MAX: u64 = 1 << 56;

/// Right shift that leaves the shard of a slot's first byte.
pub(crate) const SHARD_SHIFT: u32 = 5;

const EPOCH_BITS: u8 = 0b0000_0011;
const HOPS_BITS: u8 = 0b0000_1100;
const HOPS_SHIFT: u32 = 2;
const SHARD_BITS: u8 = 0b0111_0000;
const FROM_SHIFT: u32 = 4;
const PIECE_BITS: u8 = 0b0000_0011;

/// Tag key of one label; its node creates a new one for each use of the slot. Wiped when dropped.
///
/// The tag of a frame is SipHash-2-4 (Aumasson and Bernstein, 2012) over the 16 bytes of the header
/// and the length of the frame, 2 bytes, big-endian; its 64 bits little-endian.
///
/// It does not cover the body. An observer that is faster than the frame can replace the body: the
/// forgery fails to decrypt at the remote end of the flow, and the genuine frame is dropped as a
/// duplicate. That costs the flow one packet, and neither reveals nor alters data.
#[derive(Clone, PartialEq, Eq)]
pub struct HopKey(pub [u8; Self::LEN]);

/// Protection of a label's frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HopForm {
    /// Sealed with the link key.
    #[default]
    Sealed,
    /// Tagged with this key.
    TagOnly(HopKey),
}

/// A label of the next hop, and the protection of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextLabel {
    /// The label.
    pub name: LabelName,
    /// As its node assigned it.
    pub form: HopForm,
}

impl HopKey {
    /// Length in bytes.
    pub const LEN: usize = 16;
    /// Length of a tag in bytes.
    pub const TAG_LEN: usize = 8;

    /// Returns the tag of a frame of `len` bytes in total.
    #[must_use]
    pub fn tag(&self, header: &[u8; HopHeader::LEN], len: usize) -> [u8; Self::TAG_LEN] {
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        let mut input = [0; HopHeader::LEN + 2];
        if let Some((first, last)) = input.split_first_chunk_mut() {
            *first = *header;
            last.copy_from_slice(&len.to_be_bytes());
        }
        let hash = SipHasher24::new_with_key(&self.0).hash(&input);
        hash.to_le_bytes()
    }

    /// Returns the body of a frame if its tag is valid; compares in constant time.
    pub fn open<'a>(&self, frame: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let len = frame.len();
        let (header, rest) = frame.split_first_chunk_mut::<{ HopHeader::LEN }>()?;
        let (tag, body) = rest.split_first_chunk_mut::<{ Self::TAG_LEN }>()?;
        equal(&self.tag(header, len), tag).then_some(body)
    }

    pub(crate) fn close(&self, header: &HopHeader, body: &[u8], out: &mut Vec<u8>) {
        let header = header.encode();
        let len = (HopHeader::LEN + Self::TAG_LEN).saturating_add(body.len());
        out.extend_from_slice(&header);
        out.extend_from_slice(&self.tag(&header, len));
        out.extend_from_slice(body);
    }
}

impl HopForm {
    /// Whether frames are tag-only.
    #[must_use]
    pub const fn is_tag_only(&self) -> bool {
        matches!(self, Self::TagOnly(_))
    }

    /// The key; empty if there is none.
    pub(crate) const fn key(&self) -> &[u8] {
        match self {
            Self::Sealed => &[],
            Self::TagOnly(key) => &key.0,
        }
    }
}

impl From<LabelName> for NextLabel {
    /// A label with sealed frames.
    fn from(name: LabelName) -> Self {
        let form = HopForm::Sealed;
        Self { name, form }
    }
}

impl Drop for HopKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

wire::opaque_debug!(HopKey);

/// Creates the keys of labels that one link's frames arrive at.
///
/// A key is the first 16 bytes of HMAC-SHA-256(Expand(exporter, "tw1 hop key"), label 4 |
/// generation 1 | number of keys created before 8) with the exporter of the link's session, so that
/// none repeats.
#[derive(Debug)]
pub(crate) struct HopKeyMaker {
    secret: Secret32,
    made: u64,
}

impl HopKeyMaker {
    pub(crate) fn new<P: Provider>(provider: &P, exporter: &Exporter) -> Self {
        Self {
            secret: exporter.expand(provider, HOP_KEY, &[]),
            made: 0,
        }
    }

    pub(crate) fn make<P: Provider>(&mut self, provider: &P, name: LabelName) -> HopKey {
        let mac = provider.hmac_sha256(
            self.secret.expose(),
            &[
                &name.slot.to_be_bytes(),
                &[name.generation],
                &self.made.to_be_bytes(),
            ],
        );
        self.made = self.made.saturating_add(1);
        HopKey(mac.first_chunk().copied().unwrap_or_default())
    }
}

const HOP_KEY: Label = Label::new("tw1 hop key");

#[cfg(test)]
mod tests;
