//! Addresses of messages.

use wire::{ClientId, NodeId, Reader, Writer};

use crate::name::Name;
use crate::record::DecodeError;

/// Address of a message.
///
/// Encoding: one byte for the kind, then 8 bytes, 32 bytes or a [`Name`]. Code 4 is reserved for
/// groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Addr {
    /// The node that holds the player's claim; for mail, the player's mailbox.
    Player(ClientId),
    /// One node.
    Node(NodeId),
    /// The node with the fewest open calls among those that provide this service.
    Service(Name),
    /// All nodes but the sender.
    Topic(Name),
}

impl Addr {
    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Player(player) => {
                out.u8(0);
                out.u64(player.0);
            }
            Self::Node(node) => {
                out.u8(1);
                out.bytes(&node.0);
            }
            Self::Service(name) => {
                out.u8(2);
                name.encode(out);
            }
            Self::Topic(name) => {
                out.u8(3);
                name.encode(out);
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::Player(ClientId(reader.u64()?))),
            1 => Ok(Self::Node(NodeId(reader.array()?))),
            2 => Ok(Self::Service(Name::decode(reader)?)),
            3 => Ok(Self::Topic(Name::decode(reader)?)),
            code => Err(DecodeError::Addr(code)),
        }
    }
}
