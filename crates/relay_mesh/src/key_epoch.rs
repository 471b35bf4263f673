//! Key epoch of a shard, sent over the session.

use wire::{Reader, Writer};

use crate::message::{DecodeError, code};
use crate::shard::ShardId;

/// Announces that a shard of the sender seals with the key of `epoch` for a shard of the receiver:
/// a type byte, [`code::KEY_EPOCH`], the two shards, 1 byte each, and the epoch, 4 bytes,
/// big-endian.
///
/// A frame has only the low two bits of its epoch. If four epochs pass without an opened frame,
/// because frames are lost or their labels have expired, the bits are ambiguous and no later frame
/// would decrypt.
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
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            code::KEY_EPOCH => {}
            found => return Err(DecodeError::UnknownType(found)),
        }
        let from = ShardId::new(reader.u8()?).ok_or(DecodeError::BadValue)?;
        let to = ShardId::new(reader.u8()?).ok_or(DecodeError::BadValue)?;
        let epoch = reader.u32()?;
        if reader.is_empty() {
            Ok(Self { from, to, epoch })
        } else {
            Err(DecodeError::Trailing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
