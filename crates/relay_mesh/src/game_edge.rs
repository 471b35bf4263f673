//! Costs from an exit to its game servers, which it sends to entries that may use it.
//!
//! | size | field |
//! |---|---|
//! | 1 | [`GAME_EDGES`](crate::flow_message::flow_code::GAME_EDGES) |
//! | 1 | count (1 to 16) |
//! | 1 + 1 + n + 2 each | protocol (0 datagrams, 1 streams), name (≤ 64, as in an open), cost |
//!
//! Ascending by protocol and name. A cost of 32,767 means that the server is unreachable.
//!
//! The session of entry and exit authenticates it, so it is not in the signed records that all
//! nodes get. An exit with 16 games sends 311 bytes every 30 s and when a cost changes: 10 bytes/s
//! per exit at an entry, of link state's budget of 3,000.

use wire::{Reader, Writer};

use crate::cost::Cost;
use crate::flow_message::{flow_code, read_name, write_name};
use crate::message::{DecodeError, at_most, of_type, whole};
use crate::signed_config::Protocol;

/// The edge from an exit to a game's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GameEdge {
    /// The protocol; a UDP and a TCP game may have the same name.
    pub protocol: Protocol,
    /// The game; at most 64 bytes.
    pub game: String,
    /// Round-trip cost; unroutable if the server is unreachable.
    pub cost: Cost,
}

impl GameEdge {
    /// Maximum number of edges per message.
    pub const COUNT_MAX: usize = 16;

    /// Appends a message with `edges` to `out`; omits those over the bound.
    pub fn encode(edges: &[Self], out: &mut Vec<u8>) {
        let edges = edges.get(..Self::COUNT_MAX).unwrap_or(edges);
        let mut writer = Writer::new(out);
        writer.u8(flow_code::GAME_EDGES);
        writer.u8(u8::try_from(edges.len()).unwrap_or(0));
        for edge in edges {
            writer.u8(code_of(edge.protocol));
            write_name(&mut writer, &edge.game);
            writer.u16(edge.cost.units());
        }
    }

    /// Decodes a whole message with its type byte.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut reader = of_type(flow_code::GAME_EDGES, bytes)?;
        let count = at_most(reader.u8()?.into(), Self::COUNT_MAX)?;
        if count == 0 {
            return Err(DecodeError::BadValue);
        }
        let mut edges: Vec<Self> = Vec::with_capacity(count);
        for _ in 0..count {
            let edge = Self::read(&mut reader)?;
            let key = |edge: &Self| (code_of(edge.protocol), edge.game.clone());
            if edges.last().is_some_and(|last| key(last) >= key(&edge)) {
                return Err(DecodeError::Unordered);
            }
            edges.push(edge);
        }
        whole(&reader, edges)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let protocol = match reader.u8()? {
            0 => Protocol::Udp,
            1 => Protocol::Tcp,
            _ => return Err(DecodeError::BadValue),
        };
        let game = read_name(reader)?;
        let units = reader.u16()?;
        if units > Cost::UNROUTABLE.units() {
            return Err(DecodeError::BadValue);
        }
        let cost = Cost::from_units(units);
        Ok(Self {
            protocol,
            game,
            cost,
        })
    }
}

const fn code_of(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Udp => 0,
        Protocol::Tcp => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edge(protocol: Protocol, game: &str, units: u16) -> GameEdge {
        let game = game.to_owned();
        let cost = Cost::from_units(units);
        GameEdge {
            protocol,
            game,
            cost,
        }
    }

    fn written(edges: &[GameEdge]) -> Vec<u8> {
        let mut bytes = Vec::new();
        GameEdge::encode(edges, &mut bytes);
        bytes
    }

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let edges = [
            edge(Protocol::Udp, "doom", 258),
            edge(Protocol::Tcp, "doom", u16::MAX),
        ];
        let bytes = written(&edges);
        assert_eq!(
            bytes,
            [
                &[0x2C, 2, 0, 4][..],
                b"doom",
                &[1, 2, 1, 4],
                b"doom",
                &[0x7F, 0xFF]
            ]
            .concat()
        );
        assert_eq!(GameEdge::decode(&bytes), Ok(edges.to_vec()));
    }

    #[test]
    fn what_is_none_too_many_twice_or_dearer_than_no_way_is_refused() {
        assert_eq!(GameEdge::decode(&[0x2C, 0]), Err(DecodeError::BadValue));
        let (found, max) = (17, 16);
        let many = Err(DecodeError::OverLimit { found, max });
        assert_eq!(GameEdge::decode(&[0x2C, 17]), many);
        let doom = edge(Protocol::Udp, "doom", 1);
        let twice = written(&[doom.clone(), doom.clone()]);
        assert_eq!(GameEdge::decode(&twice), Err(DecodeError::Unordered));
        let mut dear = written(&[doom]);
        let last = dear.len() - 2;
        dear[last] = 0x80;
        assert_eq!(GameEdge::decode(&dear), Err(DecodeError::BadValue));
        dear.push(0);
        dear[last] = 0;
        assert_eq!(GameEdge::decode(&dear), Err(DecodeError::Trailing));
    }

    #[test]
    fn a_message_of_the_longest_names_fits_a_datagram() {
        let name = |index: usize| format!("{index:0>64}");
        let edges: Vec<GameEdge> = (0..20)
            .map(|index| edge(Protocol::Udp, &name(index), 1))
            .collect();
        let bytes = written(&edges);
        assert_eq!(bytes.len(), 2 + 16 * 68);
        assert_eq!(GameEdge::decode(&bytes).as_deref(), Ok(&edges[..16]));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(
            count in 0_u8..4,
            bytes in prop::collection::vec(0_u8..5, 0..24),
        ) {
            let bytes = [&[0x2C, count][..], &bytes].concat();
            if let Ok(edges) = GameEdge::decode(&bytes) {
                prop_assert_eq!(written(&edges), bytes);
            }
        }
    }
}
