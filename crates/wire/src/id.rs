//! Identifiers. Each is a type of its own, so the compiler catches a mix-up.

use core::fmt;
use core::str::FromStr;

use crate::codec::{Encode, Writer};

/// SHA-256 of a node's 65-byte SEC1 public key (uncompressed P-256 point).
///
/// Written and read as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; 32]);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for NodeId {
    /// Writes the first 8 digits, enough to distinguish nodes in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, self.0.first_chunk::<4>().map_or(&[], |head| head))
    }
}

impl FromStr for NodeId {
    type Err = NodeIdError;

    fn from_str(text: &str) -> Result<Self, NodeIdError> {
        let mut id = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != id.len() || !rest.is_empty() {
            return Err(NodeIdError::Length(text.len()));
        }
        for (byte, &[high, low]) in id.iter_mut().zip(pairs) {
            let high = hex_digit(high).ok_or(NodeIdError::Digit)?;
            let low = hex_digit(low).ok_or(NodeIdError::Digit)?;
            *byte = (high << 4) | low;
        }
        Ok(Self(id))
    }
}

/// Why a text is not a [`NodeId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeIdError {
    /// It has this many bytes instead of 64.
    Length(usize),
    /// It holds a character that is not a hexadecimal digit.
    Digit,
}

crate::error_text! { NodeIdError {
    Self::Length(len) => "node id has {len} bytes where 64 digits are needed",
    Self::Digit => "node id holds something else than hexadecimal digits",
}}

/// One run of one server. The server draws it at random when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A player, by the number of the game's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A match: a set of seats with one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatchId(pub [u8; 16]);

impl fmt::Display for MatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

/// A place in a match, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(pub u16);

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A side in a match, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Team(pub u8);

/// One TCP or TLS connection of a driver. An id is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// Implements [`Encode`] for identifiers.
macro_rules! encode_ids {
    ($($id:ty)*) => { $(
        impl Encode for $id {
            fn encode(&self, out: &mut Writer<'_>) {
                self.0.encode(out);
            }
        }
    )* };
}

encode_ids! { NodeId InstanceId ClientId MatchId Seat Team }

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte & 0x0f),
        // The letters end in 1 to 6.
        b'a'..=b'f' | b'A'..=b'F' => Some((byte & 0x0f).saturating_add(9)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn a_node_id_round_trips_as_text() {
        let id = NodeId(core::array::from_fn(|index| {
            u8::try_from(index * 7).unwrap()
        }));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
        assert_eq!(format!("{id:?}"), "00070e15");
    }

    #[test]
    fn a_bad_node_id_gives_an_error() {
        assert_eq!("ab".parse::<NodeId>(), Err(NodeIdError::Length(2)));
        assert_eq!("g".repeat(64).parse::<NodeId>(), Err(NodeIdError::Digit));
    }
}
