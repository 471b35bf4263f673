//! A datagram between two nodes that do not reach each other, which a third one passes on.
//!
//! It is one of the session between the two, sealed by them; the third adds who sent it, and could as
//! well have made it up: the session tells. On the unreliable channel of the sessions with the third:
//!
//! | message | body |
//! |---|---|
//! | pass on 0x88 | who shall have it 32, datagram 1 to 1,280 |
//! | passed on 0x89 | who sent it 32, datagram 1 to 1,280 |
//!
//! Nothing is passed on twice, and no hop frames are: flows have paths of their own.

use wire::{NodeId, Reader, Writer};

use crate::message::{DecodeError, code};

/// A datagram of a session that goes over a third node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detoured<'a> {
    /// Which part of the way is before it.
    pub leg: DetourLeg,
    /// Who shall have it, on the first leg; who sent it, on the second.
    pub node: NodeId,
    /// The datagram; 1 to [`DATAGRAM_MAX`](Self::DATAGRAM_MAX) bytes.
    pub datagram: &'a [u8],
}

/// A part of the way of a [`Detoured`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetourLeg {
    /// From its sender to the node that shall pass it on.
    First,
    /// From there to the one who shall have it.
    Second,
}

impl<'a> Detoured<'a> {
    /// Longest datagram of a session between nodes, in bytes.
    pub const DATAGRAM_MAX: usize = 1_280;

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(match self.leg {
            DetourLeg::First => code::PASS_ON,
            DetourLeg::Second => code::PASSED_ON,
        });
        writer.bytes(&self.node.0);
        writer.bytes(self.datagram);
    }

    /// Reads a whole message, type byte included.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let leg = match reader.u8()? {
            code::PASS_ON => DetourLeg::First,
            code::PASSED_ON => DetourLeg::Second,
            other => return Err(DecodeError::UnknownType(other)),
        };
        let node = NodeId(reader.array()?);
        let datagram = reader.rest();
        if datagram.is_empty() {
            return Err(DecodeError::Truncated);
        }
        if datagram.len() > Self::DATAGRAM_MAX {
            return Err(DecodeError::OverLimit {
                found: datagram.len(),
                max: Self::DATAGRAM_MAX,
            });
        }
        Ok(Self {
            leg,
            node,
            datagram,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(bytes in prop::collection::vec(any::<u8>(), 0..1_400), kind in 0x87_u8..0x8b) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let fits = (34..=33 + Detoured::DATAGRAM_MAX).contains(&bytes.len());
            let read = Detoured::decode(&bytes);
            prop_assert_eq!(read.is_ok(), fits && (0x88..0x8a).contains(&kind));
            if let Ok(read) = read {
                let mut written = Vec::new();
                read.encode(&mut written);
                prop_assert_eq!(written, bytes);
            }
        }
    }
}
