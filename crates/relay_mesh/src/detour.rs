//! A session datagram that a third node forwards between two nodes without a direct path.
//!
//! The two nodes seal it. The third adds the sender's id; it could forge the id, but the session
//! authenticates the datagram. On the unreliable channel of the sessions with the third:
//!
//! | message | body |
//! |---|---|
//! | request to forward 0x88 | receiver 32, datagram 1 to 1,280 |
//! | forwarded 0x89 | sender 32, datagram 1 to 1,280 |
//!
//! No datagram is forwarded twice, and hop frames are not forwarded: flows have their own paths.

use wire::{NodeId, Reader, Writer};

use crate::message::{DecodeError, at_most, code};

/// A session datagram that a third node forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detoured<'a> {
    /// The leg that it is on.
    pub hop: ForwardHop,
    /// The receiver on the first leg; the sender on the second.
    pub node: NodeId,
    /// The datagram; 1 to [`DATAGRAM_MAX`](Self::DATAGRAM_MAX) bytes.
    pub datagram: &'a [u8],
}

/// A leg of a [`Detoured`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardHop {
    /// From the sender to the forwarding node.
    First,
    /// From the forwarding node to the receiver.
    Second,
}

impl<'a> Detoured<'a> {
    /// Longest datagram of a session between nodes, in bytes.
    pub const DATAGRAM_MAX: usize = 1_280;

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(match self.hop {
            ForwardHop::First => code::PASS_ON,
            ForwardHop::Second => code::PASSED_ON,
        });
        writer.bytes(&self.node.0);
        writer.bytes(self.datagram);
    }

    /// Decodes a whole message with its type byte.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let hop = match reader.u8()? {
            code::PASS_ON => ForwardHop::First,
            code::PASSED_ON => ForwardHop::Second,
            other => return Err(DecodeError::UnknownType(other)),
        };
        let node = NodeId(reader.array()?);
        let datagram = reader.rest();
        if datagram.is_empty() {
            return Err(DecodeError::Truncated);
        }
        at_most(datagram.len(), Self::DATAGRAM_MAX)?;
        Ok(Self {
            hop,
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
