//! Header of a hop frame: what a node needs to forward a game packet.

use core::fmt;

use crate::shard::ShardId;

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
    /// Remaining hops after the receiver; at most [`HOPS_LEFT_MAX`]. It bounds the way of a frame
    /// even if labels are bound in a long chain or a loop.
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
    /// A tag authenticates the header but not what follows; see [`HopKey`](crate::hop_key::HopKey).
    /// For underlays that are measured and trusted.
    TagOnly,
    /// Everything after the header is encrypted again with the link key.
    #[default]
    Sealed,
}

/// A label of a node: a slot of its slab, and the number of its use. Never reused while the node
/// runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelName {
    /// Shard, high bits of the use's number, and slot.
    pub slot: u32,
    /// Low bits of the use's number.
    pub generation: u8,
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
        let Some((
            &[
                kind,
                flags,
                generation,
                phase,
                s0,
                s1,
                s2,
                s3,
                n0,
                n1,
                n2,
                n3,
                n4,
                n5,
                n6,
                n7,
            ],
            _,
        )) = frame.split_first_chunk()
        else {
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
        let number = u64::from_be_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
        let piece = Piece::from_bits(phase & PIECE_BITS);
        match piece {
            Some(piece) if flags & !kind.flags() == 0 && number < NUMBERS_MAX => Ok(Self {
                kind,
                epoch: flags & EPOCH_BITS,
                from: ShardId((flags & SHARD_BITS) >> SHARD_SHIFT),
                hops_left: (flags & HOPS_BITS) >> HOPS_SHIFT,
                label: LabelName {
                    slot: u32::from_be_bytes([s0, s1, s2, s3]),
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
        let from = (self.from.0 << SHARD_SHIFT) & SHARD_BITS;
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

impl fmt::Display for HopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("truncated hop frame"),
            Self::Oversize(len) => write!(f, "hop frame of {len} bytes, over {FRAME_MAX}"),
            Self::UnknownKind(kind) => write!(f, "hop frame of unknown kind {kind:#04x}"),
            Self::Malformed => f.write_str("hop frame with a field out of range"),
        }
    }
}

impl core::error::Error for HopError {}

/// UDP payload in bytes that every link must carry; checked at link-up.
pub const FRAME_MAX: usize = 1_280;

/// Remaining hops of a frame at its first node: the most relays of a route.
pub const HOPS_LEFT_MAX: u8 = 3;

/// Packet numbers of a flow: a hop's nonce has room for 7 bytes.
pub const NUMBERS_MAX: u64 = 1 << 56;

const EPOCH_BITS: u8 = 0b0000_0011;
const HOPS_BITS: u8 = 0b0000_1100;
const HOPS_SHIFT: u32 = 2;
const SHARD_BITS: u8 = 0b0111_0000;
const SHARD_SHIFT: u32 = 4;
const PIECE_BITS: u8 = 0b0000_0011;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(header: &[u8; 16], len: usize) -> Vec<u8> {
        let mut frame = header.to_vec();
        frame.resize(len, 0);
        frame
    }

    #[test]
    fn the_layout_is_frozen() {
        let header = HopHeader {
            kind: HopKind::Sealed,
            epoch: 3,
            from: ShardId::new(5).unwrap(),
            hops_left: 2,
            label: LabelName {
                slot: 0x0102_0304,
                generation: 9,
            },
            phase: Phase {
                key: 63,
                piece: Piece::Second,
            },
            number: 0x00A1_A2A3_A4A5_A6A7,
        };
        assert_eq!(
            header.encode(),
            [
                0x81, 0x5B, 9, 0xFE, 1, 2, 3, 4, 0, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7
            ]
        );
    }

    #[test]
    fn mesh_a1_truncated_oversize_and_unknown_frames_are_refused() {
        let mut header = [0; 16];
        header[0] = 0x81;
        assert_eq!(HopHeader::decode(&header[..15]), Err(HopError::Truncated));
        assert_eq!(
            HopHeader::decode(&frame(&header, 47)),
            Err(HopError::Truncated)
        );
        assert!(HopHeader::decode(&frame(&header, 48)).is_ok());
        assert!(HopHeader::decode(&frame(&header, FRAME_MAX)).is_ok());
        assert_eq!(
            HopHeader::decode(&frame(&header, FRAME_MAX + 1)),
            Err(HopError::Oversize(FRAME_MAX + 1))
        );
        for kind in 0x82..=0xBF {
            header[0] = kind;
            assert_eq!(
                HopHeader::decode(&frame(&header, 64)),
                Err(HopError::UnknownKind(kind))
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(header: [u8; 16], len in 0_usize..1_400) {
            let frame = frame(&header, len.max(16));
            if let Ok(decoded) = HopHeader::decode(&frame) {
                prop_assert_eq!(decoded.encode(), header);
            }
        }

        #[test]
        fn reserved_bits_and_large_numbers_are_refused(
            is_sealed: bool,
            flags: u8,
            phase: u8,
            high: u8,
        ) {
            let mut header = [0; 16];
            header[0] = 0x80 | u8::from(is_sealed);
            header[1] = flags;
            header[3] = phase;
            header[8] = high;
            let flags_max = if is_sealed { 0x7F } else { 0x0F };
            let is_good = flags <= flags_max && phase & 3 != 3 && high == 0;
            prop_assert_eq!(HopHeader::decode(&frame(&header, 64)).is_ok(), is_good);
        }
    }
}
