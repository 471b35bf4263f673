//! A datagram of a flow without a label, on the unreliable channel of the session between its ends.
//!
//! | message | body |
//! |---|---|
//! | flow datagram 0x8A | flow 8, datagram 0 to 1,472 |
//!
//! It is sent with the message that opens the flow, or with the first answer, and is not
//! retransmitted.

use wire::{Reader, Writer};

use crate::flow_key::FlowId;
use crate::flow_message::flow_code;
use crate::message::DecodeError;
use crate::pieces::DATAGRAM_MAX;

/// A datagram of a player or a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowDatagram<'a> {
    /// The flow.
    pub flow: FlowId,
    /// At most [`DATAGRAM_MAX`] bytes.
    pub datagram: &'a [u8],
}

impl<'a> FlowDatagram<'a> {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(flow_code::DATAGRAM);
        writer.u64(self.flow.0);
        writer.bytes(self.datagram);
    }

    /// Decodes a whole message with its type byte.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        if kind != flow_code::DATAGRAM {
            return Err(DecodeError::UnknownType(kind));
        }
        let flow = FlowId(reader.u64()?);
        let datagram = reader.rest();
        if datagram.len() > DATAGRAM_MAX {
            return Err(DecodeError::OverLimit {
                found: datagram.len(),
                max: DATAGRAM_MAX,
            });
        }
        Ok(Self { flow, datagram })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(bytes in prop::collection::vec(any::<u8>(), 0..1_500), kind in 0x89_u8..0x8C) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let fits = (9..=9 + DATAGRAM_MAX).contains(&bytes.len());
            let read = FlowDatagram::decode(&bytes);
            prop_assert_eq!(read.is_ok(), fits && kind == flow_code::DATAGRAM);
            if let Ok(read) = read {
                let mut written = Vec::new();
                read.encode(&mut written);
                prop_assert_eq!(written, bytes);
            }
        }
    }
}
