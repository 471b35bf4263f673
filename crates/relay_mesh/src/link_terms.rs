//! What each end of a link announces: its terms, and the key epochs of its shards.

use wire::Writer;

use crate::hop::{HopKind, ShardId};
use crate::message::{DecodeError, code, of_type, whole};

/// Sent after the hello: a type byte, [`code::LINK_TERMS`], and one byte; bit 0 is set if frames
/// with a tag only are accepted, bit 1 if [trunks](crate::trunk) are. Other bits are reserved and
/// read as 0. Until it arrives, frames are sealed and sent one per datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTerms {
    /// Minimum protection of frames.
    pub kind: HopKind,
    /// How frames may be batched.
    pub packing: Packing,
}

/// Whether several frames may share a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// One frame per datagram.
    #[default]
    Alone,
    /// Several frames may form a trunk.
    Trunks,
}

impl LinkTerms {
    /// Length of the message in bytes.
    pub const LEN: usize = 2;

    /// Terms before the other end has announced any.
    pub(crate) const INITIAL: Self = Self {
        kind: HopKind::Sealed,
        packing: Packing::Alone,
    };

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            HopKind::Sealed => 0,
            HopKind::TagOnly => TAG_ONLY,
        };
        let packing = match self.packing {
            Packing::Alone => 0,
            Packing::Trunks => TRUNKS,
        };
        let mut writer = Writer::new(out);
        writer.u8(code::LINK_TERMS);
        writer.u8(kind | packing);
    }

    /// Decodes a whole message with its type byte.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = of_type(code::LINK_TERMS, bytes)?;
        let bits = reader.u8()?;
        let kind = if bits & TAG_ONLY == 0 {
            HopKind::Sealed
        } else {
            HopKind::TagOnly
        };
        let packing = if bits & TRUNKS == 0 {
            Packing::Alone
        } else {
            Packing::Trunks
        };
        whole(&reader, Self { kind, packing })
    }
}

const TAG_ONLY: u8 = 1;
const TRUNKS: u8 = 2;

/// Announces that a shard of the sender seals with the key of `epoch` for a shard of the receiver:
/// a type byte, [`code::KEY_EPOCH`], the two shards, 1 byte each, and the epoch, 4 bytes,
/// big-endian.
///
/// A frame has only the low two bits of its epoch, which are ambiguous after four epochs without an
/// opened frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEpoch {
    /// Shard of the sender.
    pub from: ShardId,
    /// Shard of the receiver.
    pub to: ShardId,
    /// Number of earlier keys.
    pub epoch: u32,
}

impl KeyEpoch {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(code::KEY_EPOCH);
        writer.u8(self.from.place());
        writer.u8(self.to.place());
        writer.u32(self.epoch);
    }

    /// Decodes a whole message with its type byte.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = of_type(code::KEY_EPOCH, bytes)?;
        let from = ShardId::new(reader.u8()?).ok_or(DecodeError::BadValue)?;
        let to = ShardId::new(reader.u8()?).ok_or(DecodeError::BadValue)?;
        let epoch = reader.u32()?;
        whole(&reader, Self { from, to, epoch })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_vote_is_decoded_and_later_bits_are_skipped() {
        for kind in [HopKind::Sealed, HopKind::TagOnly] {
            for packing in [Packing::Alone, Packing::Trunks] {
                let terms = LinkTerms { kind, packing };
                let mut out = Vec::new();
                terms.encode(&mut out);
                assert_eq!(out.len(), LinkTerms::LEN);
                assert_eq!(LinkTerms::decode(&out), Ok(terms));
                out[1] |= 0xFC;
                assert_eq!(LinkTerms::decode(&out), Ok(terms));
                out.push(0);
                assert_eq!(LinkTerms::decode(&out), Err(DecodeError::Trailing));
                assert_eq!(LinkTerms::decode(&out[..1]), Err(DecodeError::Truncated));
            }
        }
    }

    #[test]
    fn the_bytes_are_frozen() {
        let mut out = Vec::new();
        let epoch = KeyEpoch {
            from: ShardId(2),
            to: ShardId(7),
            epoch: 0x0102_0304,
        };
        epoch.encode(&mut out);
        assert_eq!(out, [0x07, 2, 7, 1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(mut bytes: Vec<u8>, is_one: bool) {
            if let Some(first) = bytes.first_mut().filter(|_| is_one) {
                *first = code::KEY_EPOCH;
            }
            if let Ok(epoch) = KeyEpoch::decode(&bytes) {
                let mut out = Vec::new();
                epoch.encode(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }

        #[test]
        fn whatever_is_written_is_read(from in 0_u8..8, to in 0_u8..8, epoch: u32) {
            let (from, to) = (ShardId(from), ShardId(to));
            let said = KeyEpoch { from, to, epoch };
            let mut out = Vec::new();
            said.encode(&mut out);
            prop_assert_eq!(KeyEpoch::decode(&out), Ok(said));
        }
    }
}
