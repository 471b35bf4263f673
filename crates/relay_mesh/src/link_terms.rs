//! Terms that each end of a link announces.

use wire::{Reader, Writer};

use crate::hop::HopKind;
use crate::message::{DecodeError, code};

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
    pub(crate) const UNSAID: Self = Self {
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
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            code::LINK_TERMS => {}
            found => return Err(DecodeError::UnknownType(found)),
        }
        let bits = reader.u8()?;
        if !reader.is_empty() {
            return Err(DecodeError::Trailing);
        }
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
        Ok(Self { kind, packing })
    }
}

const TAG_ONLY: u8 = 1;
const TRUNKS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_written_and_later_bits_are_passed_over() {
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
}
