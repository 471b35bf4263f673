//! Messages about flows between entry and exit, on the reliable channel of their session.
//!
//! | message | body |
//! |---|---|
//! | open 0x28 | flow 8, mode and player's family 1, ip 4 or 16, port 2, game name 1 + n (≤ 64) |
//! | opened 0x29 | flow 8, status 1 |
//! | close 0x2A | flow 8, reason 1 |
//! | open tunnel 0x2B | flow 8, mode 1 (0 single, 1 shadow, 2 dup); answered by opened |
//! | game edges 0x2C | see [`game_edge`](crate::game_edge) |
//! | open many 0x2D | first flow 8, mode and players' family 1, count 1 (1 to 192), game name 1 + n (≤ 64), count × (ip 4 or 16, port 2); flow ids increase by 2 |
//!
//! Mode and family: the family, 4 or 6, in the low 4 bits; in the high ones how both ends send the
//! flow's packets: 1 single, 2 shadow, 3 dup, 0 as the exit's own configuration says.
//!
//! If the ends do not reach each other directly, the probe flow of a path carries session datagram
//! 0x86: a datagram of their session, 1 to 1,280 bytes, in two pieces if it does not fit one frame.
//! The other messages of the probe flow are in [`path_probe`](crate::path_probe).

use core::net::{IpAddr, SocketAddr};

use wire::{Reader, Writer};

use crate::config::Mode;
use crate::flow_key::FlowId;
use crate::message::DecodeError;

/// Type bytes of these messages, in addition to [`code`](crate::message::code).
pub mod flow_code {
    /// Opens a flow.
    pub const OPEN: u8 = 0x28;
    /// Answers an open message.
    pub const OPENED: u8 = 0x29;
    /// Ends a flow.
    pub const CLOSE: u8 = 0x2A;
    /// Opens a flow that carries a tunnel.
    pub const OPEN_TUNNEL: u8 = 0x2B;
    /// Costs from an exit to its game servers.
    pub const GAME_EDGES: u8 = 0x2C;
    /// Opens flows with consecutive ids.
    pub const OPEN_MANY: u8 = 0x2D;
    /// A datagram of a flow without a label; unreliable channel.
    pub const DATAGRAM: u8 = 0x8A;
    /// A datagram of the session between both ends, in the probe flow of a path.
    pub const SESSION_DATAGRAM: u8 = 0x86;
    /// Probes a path.
    pub const PATH_PROBE: u8 = 0x84;
    /// Answers a probe.
    pub const PATH_ECHO: u8 = 0x85;
    /// Padding in place of data on an idle path.
    pub const PATH_PADDING: u8 = 0x87;
}

/// Longest name of a game, in bytes.
pub const GAME_NAME_MAX: usize = 64;

/// Most flows that one message opens: as many IPv4 players as fit a datagram.
pub const OPENS_MAX: usize = 192;

/// A message about a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowMessage {
    /// The entry opens a flow for a player of the exit's game.
    Open {
        /// Odd from the session's dialer, even from its accepter; never reused.
        flow: FlowId,
        /// The player's address, as the entry sees it.
        player: SocketAddr,
        /// The game; at most 64 bytes.
        game: String,
        /// How both ends of the flow react to failures; `None` leaves it to the exit.
        mode: Option<Mode>,
    },
    /// The entry opens flows for players of the exit's game; their addresses have one family.
    OpenMany {
        /// The first player's flow; ids increase by 2.
        first: FlowId,
        /// The game; at most 64 bytes.
        game: String,
        /// The players' addresses, as the entry sees them; 1 to [`OPENS_MAX`].
        players: Vec<SocketAddr>,
        /// As in [`Open`](Self::Open).
        mode: Option<Mode>,
    },
    /// The entry opens a flow for the tunnel of its TCP games of one mode.
    OpenTunnel {
        /// As in [`Open`](Self::Open).
        flow: FlowId,
        /// How both ends of the flow react to failures.
        mode: Mode,
    },
    /// The exit's answer.
    Opened {
        /// As in the request.
        flow: FlowId,
        /// Whether the flow is open.
        outcome: Result<(), FlowRefused>,
    },
    /// Either side ends a flow.
    Close {
        /// The flow.
        flow: FlowId,
        /// The reason.
        reason: FlowEnd,
    },
}

/// Why an exit refuses a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowRefused {
    /// It does not serve this game, or not for this entry.
    Policy,
    /// Its limit of flows is reached.
    Full,
    /// The id is not the other end's to use, or was used.
    BadId,
    /// It could not open a socket.
    NoSocket,
}

/// Why a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowEnd {
    /// The idle timeout passed.
    Idle,
    /// The application or the operator ended it.
    Local,
    /// The session between entry and exit ended.
    SessionLost,
    /// The exit refused it.
    Refused,
    /// Its packet numbers are used up.
    Worn,
    /// It was evicted for others: its player had not proved to receive.
    Crowded,
}

impl FlowMessage {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        match self {
            Self::Open {
                flow,
                player,
                game,
                mode,
            } => {
                writer.u8(flow_code::OPEN);
                writer.u64(flow.0);
                writer.u8(mode_bits(*mode) | family_of(player));
                write_ip(&mut writer, player.ip());
                writer.u16(player.port());
                write_name(&mut writer, game);
            }
            Self::OpenMany {
                first,
                game,
                players,
                mode,
            } => {
                writer.u8(flow_code::OPEN_MANY);
                writer.u64(first.0);
                let family = players.first().map_or(4, family_of);
                writer.u8(mode_bits(*mode) | family);
                let players = players.get(..OPENS_MAX).unwrap_or(players);
                writer.u8(u8::try_from(players.len()).unwrap_or(0));
                write_name(&mut writer, game);
                for player in players {
                    write_ip(&mut writer, player.ip());
                    writer.u16(player.port());
                }
            }
            Self::OpenTunnel { flow, mode } => {
                writer.u8(flow_code::OPEN_TUNNEL);
                writer.u64(flow.0);
                writer.u8(match mode {
                    Mode::Single => 0,
                    Mode::Shadow => 1,
                    Mode::Dup => 2,
                });
            }
            Self::Opened { flow, outcome } => {
                writer.u8(flow_code::OPENED);
                writer.u64(flow.0);
                writer.u8(match outcome {
                    Ok(()) => 0,
                    Err(FlowRefused::Policy) => 1,
                    Err(FlowRefused::Full) => 2,
                    Err(FlowRefused::BadId) => 3,
                    Err(FlowRefused::NoSocket) => 4,
                });
            }
            Self::Close { flow, reason } => {
                writer.u8(flow_code::CLOSE);
                writer.u64(flow.0);
                writer.u8(match reason {
                    FlowEnd::Idle => 0,
                    FlowEnd::Local => 1,
                    FlowEnd::SessionLost => 2,
                    FlowEnd::Refused => 3,
                    FlowEnd::Worn => 4,
                    FlowEnd::Crowded => 5,
                });
            }
        }
    }

    /// Reads a whole message, type byte included.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let flow = FlowId(reader.u64()?);
        let message = match kind {
            flow_code::OPEN => {
                let (mode, family) = read_mode_and_family(&mut reader)?;
                let ip = read_ip(&mut reader, family)?;
                Self::Open {
                    flow,
                    player: SocketAddr::new(ip, reader.u16()?),
                    game: read_name(&mut reader)?,
                    mode,
                }
            }
            flow_code::OPEN_MANY => Self::read_many(flow, &mut reader)?,
            flow_code::OPEN_TUNNEL => Self::OpenTunnel {
                flow,
                mode: match reader.u8()? {
                    0 => Mode::Single,
                    1 => Mode::Shadow,
                    2 => Mode::Dup,
                    _ => return Err(DecodeError::BadValue),
                },
            },
            flow_code::OPENED => Self::Opened {
                flow,
                outcome: match reader.u8()? {
                    0 => Ok(()),
                    1 => Err(FlowRefused::Policy),
                    2 => Err(FlowRefused::Full),
                    3 => Err(FlowRefused::BadId),
                    4 => Err(FlowRefused::NoSocket),
                    _ => return Err(DecodeError::BadValue),
                },
            },
            flow_code::CLOSE => Self::Close {
                flow,
                reason: match reader.u8()? {
                    0 => FlowEnd::Idle,
                    1 => FlowEnd::Local,
                    2 => FlowEnd::SessionLost,
                    3 => FlowEnd::Refused,
                    4 => FlowEnd::Worn,
                    5 => FlowEnd::Crowded,
                    _ => return Err(DecodeError::BadValue),
                },
            },
            other => return Err(DecodeError::UnknownType(other)),
        };
        if reader.is_empty() {
            Ok(message)
        } else {
            Err(DecodeError::Trailing)
        }
    }

    fn read_many(first: FlowId, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (mode, family) = read_mode_and_family(reader)?;
        let count = usize::from(reader.u8()?);
        if count == 0 {
            return Err(DecodeError::BadValue);
        }
        if count > OPENS_MAX {
            let max = OPENS_MAX;
            return Err(DecodeError::OverLimit { found: count, max });
        }
        let game = read_name(reader)?;
        let player = |_| {
            let ip = read_ip(reader, family)?;
            Ok(SocketAddr::new(ip, reader.u16()?))
        };
        Ok(Self::OpenMany {
            first,
            game,
            players: (0..count).map(player).collect::<Result<_, DecodeError>>()?,
            mode,
        })
    }
}

/// Returns the ids of flows that one message opens, as far as they exist.
pub(crate) fn numbers_from(first: FlowId) -> impl Iterator<Item = FlowId> {
    let after = |last: &FlowId| last.0.checked_add(2).map(FlowId);
    core::iter::successors(Some(first), after)
}

#[cfg(feature = "tcp")]
pub(crate) fn write_address(writer: &mut Writer<'_>, address: SocketAddr) {
    writer.u8(family_of(&address));
    write_ip(writer, address.ip());
    writer.u16(address.port());
}

fn write_ip(writer: &mut Writer<'_>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => writer.bytes(&ip.octets()),
        IpAddr::V6(ip) => writer.bytes(&ip.octets()),
    }
}

const fn family_of(address: &SocketAddr) -> u8 {
    if address.is_ipv6() { 6 } else { 4 }
}

const fn mode_bits(mode: Option<Mode>) -> u8 {
    match mode {
        None => 0x00,
        Some(Mode::Single) => 0x10,
        Some(Mode::Shadow) => 0x20,
        Some(Mode::Dup) => 0x30,
    }
}

fn read_mode_and_family(reader: &mut Reader<'_>) -> Result<(Option<Mode>, u8), DecodeError> {
    let byte = reader.u8()?;
    let mode = match byte & 0xF0 {
        0x00 => None,
        0x10 => Some(Mode::Single),
        0x20 => Some(Mode::Shadow),
        0x30 => Some(Mode::Dup),
        _ => return Err(DecodeError::BadValue),
    };
    Ok((mode, byte & 0x0F))
}

fn write_name(writer: &mut Writer<'_>, name: &str) {
    let name = name.as_bytes();
    let name = name.get(..GAME_NAME_MAX).unwrap_or(name);
    writer.u8(u8::try_from(name.len()).unwrap_or(0));
    writer.bytes(name);
}

#[cfg(feature = "tcp")]
pub(crate) fn read_address(reader: &mut Reader<'_>) -> Result<SocketAddr, DecodeError> {
    let family = reader.u8()?;
    let ip = read_ip(reader, family)?;
    Ok(SocketAddr::new(ip, reader.u16()?))
}

fn read_ip(reader: &mut Reader<'_>, family: u8) -> Result<IpAddr, DecodeError> {
    match family {
        4 => Ok(IpAddr::from(reader.array::<4>()?)),
        6 => Ok(IpAddr::from(reader.array::<16>()?)),
        _ => Err(DecodeError::BadValue),
    }
}

pub(crate) fn read_name(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let found = usize::from(reader.u8()?);
    if found > GAME_NAME_MAX {
        let max = GAME_NAME_MAX;
        return Err(DecodeError::OverLimit { found, max });
    }
    let name = reader.bytes(found)?;
    core::str::from_utf8(name)
        .map(str::to_owned)
        .map_err(|_| DecodeError::BadValue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_type_byte_has_one_meaning() {
        use crate::message::code;
        let codes = [
            flow_code::OPEN,
            flow_code::OPENED,
            flow_code::CLOSE,
            flow_code::OPEN_TUNNEL,
            flow_code::GAME_EDGES,
            flow_code::OPEN_MANY,
            flow_code::DATAGRAM,
            flow_code::SESSION_DATAGRAM,
            flow_code::PATH_PROBE,
            flow_code::PATH_ECHO,
            flow_code::PATH_PADDING,
            code::HELLO,
            code::NODE_RECORD,
            code::LINK_RECORD,
            code::DIGEST,
            code::REQUEST,
            code::LINK_TERMS,
            code::KEY_EPOCH,
            code::LINK_DELTA,
            code::HAVE,
            code::GRAFT,
            code::PRUNE,
            code::PART,
            code::ROUTE_REQUEST,
            code::ROUTE_REPLY,
            code::ROUTE_RELEASE,
            code::CONFIG_VERSION,
            code::CONFIG_REQUEST,
            code::CONFIG,
            code::PROBE,
            code::ECHO,
            code::PASS_ON,
            code::PASSED_ON,
        ];
        let distinct: std::collections::BTreeSet<u8> = codes.into_iter().collect();
        assert_eq!(distinct.len(), codes.len());
    }

    #[test]
    fn the_bytes_are_frozen() {
        let mut out = Vec::new();
        FlowMessage::Open {
            flow: FlowId(5),
            player: "192.0.2.1:258".parse().unwrap(),
            game: "doom".into(),
            mode: None,
        }
        .encode(&mut out);
        let expected = [
            0x28, 0, 0, 0, 0, 0, 0, 0, 5, 4, 192, 0, 2, 1, 1, 2, 4, b'd', b'o', b'o', b'm',
        ];
        assert_eq!(out, expected);
        for (byte, mode) in [
            (0x14, Mode::Single),
            (0x24, Mode::Shadow),
            (0x34, Mode::Dup),
        ] {
            out.clear();
            let open = FlowMessage::Open {
                flow: FlowId(5),
                player: "192.0.2.1:258".parse().unwrap(),
                game: "doom".into(),
                mode: Some(mode),
            };
            open.encode(&mut out);
            assert_eq!(out[9], byte);
            assert_eq!(FlowMessage::decode(&out), Ok(open));
        }
        out[9] = 0x44;
        assert_eq!(FlowMessage::decode(&out), Err(DecodeError::BadValue));
        for (byte, mode) in [(0, Mode::Single), (1, Mode::Shadow), (2, Mode::Dup)] {
            let flow = FlowId(5);
            out.clear();
            FlowMessage::OpenTunnel { flow, mode }.encode(&mut out);
            assert_eq!(out, [0x2B, 0, 0, 0, 0, 0, 0, 0, 5, byte]);
        }
        out.clear();
        FlowMessage::OpenMany {
            first: FlowId(5),
            game: "doom".into(),
            players: vec![
                "192.0.2.1:258".parse().unwrap(),
                "192.0.2.2:259".parse().unwrap(),
            ],
            mode: Some(Mode::Shadow),
        }
        .encode(&mut out);
        let expected = [
            0x2D, 0, 0, 0, 0, 0, 0, 0, 5, 0x24, 2, 4, b'd', b'o', b'o', b'm', 192, 0, 2, 1, 1, 2,
            192, 0, 2, 2, 1, 3,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn mesh_a1_numbers_of_flows_end_with_the_last_there_is() {
        let numbers = |first: u64| numbers_from(FlowId(first)).take(OPENS_MAX).count();
        assert_eq!(numbers(1), OPENS_MAX);
        assert_eq!([numbers(u64::MAX - 2), numbers(u64::MAX)], [2, 1]);
        let next = numbers_from(FlowId(5)).nth(1);
        assert_eq!(next, Some(FlowId(7)));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(
            kind in 0x27_u8..0x2E,
            body in prop::collection::vec(any::<u8>(), 0..40),
            status in 0_u8..7,
            is_short: bool,
        ) {
            let mut bytes = vec![kind];
            bytes.extend(&body);
            if is_short {
                bytes.truncate(9);
                bytes.push(status);
            }
            if let Ok(message) = FlowMessage::decode(&bytes) {
                let mut out = Vec::new();
                message.encode(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }

        #[test]
        fn names_are_bounded(len in 0_usize..300) {
            let mut out = Vec::new();
            let message = FlowMessage::Open {
                flow: FlowId(1),
                player: "[::1]:9".parse().unwrap(),
                game: "x".repeat(len),
                mode: None,
            };
            message.encode(&mut out);
            let decoded = FlowMessage::decode(&out).unwrap();
            prop_assert_eq!(decoded == message, len <= GAME_NAME_MAX);
        }
    }
}
