//! Messages about flows between entry and exit, on the reliable channel of their session.
//!
//! | message | body |
//! |---|---|
//! | open 0x28 | flow 8, mode and player's family 1, ip 4 or 16, port 2, game name 1 + n (≤ 64) |
//! | opened 0x29 | flow 8, status 1 |
//! | close 0x2A | flow 8, reason 1 |
//! | open tunnel 0x2B | flow 8, mode 1 (0 single, 1 shadow, 2 dup); answered by opened |
//! | game edges 0x2C | see [`game_edge`](crate::game_edge) |
//! | datagram 0x8A | flow 8, datagram 0 to 1,472; of a flow without a label, on the unreliable channel, not retransmitted |
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

use crate::flow_key::FlowId;
use crate::game::Mode;
use crate::message::{DecodeError, of_type, whole};
use crate::pieces::DATAGRAM_MAX;

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
        /// The players' addresses, as the entry sees them; 1 to [`FLOWS_PER_OPEN_MAX`].
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
    AeadLimitReached,
    /// Its slot was needed for others: its player had not proved to receive, or its network has its
    /// share of the slots.
    Evicted,
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
                let players = players.get(..FLOWS_PER_OPEN_MAX).unwrap_or(players);
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
                writer.u8(code_of(&MODES, mode));
            }
            Self::Opened { flow, outcome } => {
                writer.u8(flow_code::OPENED);
                writer.u64(flow.0);
                writer.u8(code_of(&OUTCOMES, outcome));
            }
            Self::Close { flow, reason } => {
                writer.u8(flow_code::CLOSE);
                writer.u64(flow.0);
                writer.u8(code_of(&ENDS, reason));
            }
        }
    }

    /// Reads a whole message, type byte included.
    ///
    /// # Errors
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
                mode: of_code(&MODES, reader.u8()?)?,
            },
            flow_code::OPENED => Self::Opened {
                flow,
                outcome: of_code(&OUTCOMES, reader.u8()?)?,
            },
            flow_code::CLOSE => Self::Close {
                flow,
                reason: of_code(&ENDS, reader.u8()?)?,
            },
            other => return Err(DecodeError::UnknownType(other)),
        };
        whole(&reader, message)
    }

    fn read_many(first: FlowId, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (mode, family) = read_mode_and_family(reader)?;
        let count = usize::from(reader.u8()?);
        if count == 0 {
            return Err(DecodeError::BadValue);
        }
        if count > FLOWS_PER_OPEN_MAX {
            let max = FLOWS_PER_OPEN_MAX;
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

/// Returns `first` and the ids after it, as far as they exist.
pub(crate) fn numbers_from(first: FlowId) -> impl Iterator<Item = FlowId> {
    let after = |last: &FlowId| last.0.checked_add(2).map(FlowId);
    core::iter::successors(Some(first), after)
}

/// Returns the code of `value` on the wire: its place in `table`.
fn code_of<T: PartialEq>(table: &[T], value: &T) -> u8 {
    let place = table.iter().position(|known| known == value);
    place.map_or(u8::MAX, |place| u8::try_from(place).unwrap_or(u8::MAX))
}

fn of_code<T: Copy>(table: &[T], code: u8) -> Result<T, DecodeError> {
    let value = table.get(usize::from(code)).copied();
    value.ok_or(DecodeError::BadValue)
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

/// The high 4 bits of the byte for mode and family.
fn mode_bits(mode: Option<Mode>) -> u8 {
    let code = mode.map_or(0, |mode| code_of(&MODES, &mode).saturating_add(1));
    code << 4
}

fn read_mode_and_family(reader: &mut Reader<'_>) -> Result<(Option<Mode>, u8), DecodeError> {
    let byte = reader.u8()?;
    let mode = (byte >> 4).checked_sub(1);
    let mode = mode.map(|code| of_code(&MODES, code)).transpose()?;
    Ok((mode, byte & 0x0F))
}

pub(crate) fn write_name(writer: &mut Writer<'_>, name: &str) {
    let name = name.as_bytes();
    let name = name.get(..GAME_NAME_MAX).unwrap_or(name);
    writer.u8(u8::try_from(name.len()).unwrap_or(0));
    writer.bytes(name);
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
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = of_type(flow_code::DATAGRAM, bytes)?;
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

/// Longest name of a game, in bytes.
pub const GAME_NAME_MAX: usize = 64;
/// Most flows that one message opens: as many IPv4 players as fit a datagram.
pub const FLOWS_PER_OPEN_MAX: usize = 192;
/// Values by their codes on the wire.
const MODES: [Mode; 3] = [Mode::Single, Mode::Shadow, Mode::Dup];
const OUTCOMES: [Result<(), FlowRefused>; 5] = [
    Ok(()),
    Err(FlowRefused::Policy),
    Err(FlowRefused::Full),
    Err(FlowRefused::BadId),
    Err(FlowRefused::NoSocket),
];
const ENDS: [FlowEnd; 6] = [
    FlowEnd::Idle,
    FlowEnd::Local,
    FlowEnd::SessionLost,
    FlowEnd::Refused,
    FlowEnd::AeadLimitReached,
    FlowEnd::Evicted,
];

#[cfg(test)]
mod tests;
