//! What entry and exit say to each other about flows, on the reliable channel of their session.
//!
//! | message | body |
//! |---|---|
//! | open 0x28 | flow 8, player's family 1 (4 or 6), ip 4 or 16, port 2, game name 1 + n (≤ 64) |
//! | opened 0x29 | flow 8, status 1 |
//! | close 0x2A | flow 8, reason 1 |
//!
//! And inside the probe flow of a path (see [`PathProbe`]), sealed end to end:
//!
//! | message | body |
//! |---|---|
//! | probe 0x84 | path 1, probe number 4, clock of the asking end 8 |
//! | echo 0x85 | path 1, probe number 4, clock of the answering end less that of the probe 8 |
//!
//! The echo also goes as an unreliable message of the session. Clocks are in nanoseconds since any
//! moment; their difference wraps.

#![warn(clippy::arithmetic_side_effects)]

use core::net::{IpAddr, SocketAddr};

use wire::{Instant, Reader, Writer};

use crate::flow_key::FlowId;
use crate::message::DecodeError;

/// Type bytes of these messages, beside those of [`code`](crate::message::code).
pub mod flow_code {
    /// Opens a flow.
    pub const OPEN: u8 = 0x28;
    /// Whether it was opened.
    pub const OPENED: u8 = 0x29;
    /// Ends a flow.
    pub const CLOSE: u8 = 0x2A;
    /// Asks over a path whether it carries.
    pub const PATH_PROBE: u8 = 0x84;
    /// The answer.
    pub const PATH_ECHO: u8 = 0x85;
}

/// Longest name of a game, bytes.
pub const GAME_NAME_MAX: usize = 64;

/// A message about a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowMessage {
    /// The entry has a player for a game of the exit.
    Open {
        /// Odd from the session's dialler, even from its accepter; never used before.
        flow: FlowId,
        /// The player's address, as the entry sees it.
        player: SocketAddr,
        /// Which game; at most 64 bytes.
        game: String,
    },
    /// What the exit says to it.
    Opened {
        /// As in the request.
        flow: FlowId,
        /// Whether the flow lives.
        outcome: Result<(), FlowRefused>,
    },
    /// The flow has ended, by either side.
    Close {
        /// Which one.
        flow: FlowId,
        /// Why.
        reason: FlowEnd,
    },
}

/// Why an exit takes no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowRefused {
    /// It does not serve this game, or not for this entry.
    Policy,
    /// It has as many flows as it may.
    Full,
    /// The flow's number is not the other end's to give, or was used.
    BadId,
    /// It could not open a socket.
    NoSocket,
}

/// Why a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowEnd {
    /// Nothing passed for the time that the configuration allows.
    Idle,
    /// The application or the operator wanted it.
    Local,
    /// The session between entry and exit ended.
    SessionLost,
    /// The exit did not take it.
    Refused,
    /// Its packet numbers are used up.
    Worn,
    /// Others needed its place, and its player had not proved to receive.
    Crowded,
}

impl FlowMessage {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        match self {
            Self::Open { flow, player, game } => {
                writer.u8(flow_code::OPEN);
                writer.u64(flow.0);
                write_address(&mut writer, *player);
                let name = game.as_bytes();
                let name = name.get(..GAME_NAME_MAX).unwrap_or(name);
                writer.u8(u8::try_from(name.len()).unwrap_or(0));
                writer.bytes(name);
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
            flow_code::OPEN => Self::Open {
                flow,
                player: read_address(&mut reader)?,
                game: read_name(&mut reader)?,
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
}

/// Asks over one path whether it carries, and the answer.
///
/// The answer goes back both over the answering end's own path and as a message of the session,
/// and the first one counts: so the end of one direction is not taken for that of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
    /// Which path of the asking end.
    pub path: u8,
    /// Number of the probe on the path.
    pub number: u32,
    /// The asking end's clock; in the answer, the answering end's less it.
    pub clock: u64,
}

impl PathProbe {
    /// Length in bytes.
    pub const LEN: usize = 14;

    /// Returns the message as a question.
    #[must_use]
    pub fn encode_probe(self) -> [u8; Self::LEN] {
        self.encode(flow_code::PATH_PROBE)
    }

    /// Returns the message as an answer.
    #[must_use]
    pub fn encode_echo(self) -> [u8; Self::LEN] {
        self.encode(flow_code::PATH_ECHO)
    }

    /// Returns the answer to give when the own clock shows `now`.
    #[must_use]
    pub const fn answer(self, now: Instant) -> Self {
        Self {
            clock: now.as_nanos().wrapping_sub(self.clock),
            ..self
        }
    }

    /// Reads a whole message and says whether it is the answer.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for another type or length.
    pub fn decode(bytes: &[u8]) -> Result<(Self, bool), DecodeError> {
        let mut reader = Reader::new(bytes);
        let is_echo = match reader.u8()? {
            flow_code::PATH_PROBE => false,
            flow_code::PATH_ECHO => true,
            other => return Err(DecodeError::UnknownType(other)),
        };
        let probe = Self {
            path: reader.u8()?,
            number: reader.u32()?,
            clock: reader.u64()?,
        };
        if reader.is_empty() {
            Ok((probe, is_echo))
        } else {
            Err(DecodeError::Trailing)
        }
    }

    fn encode(self, kind: u8) -> [u8; Self::LEN] {
        let mut bytes = [kind; Self::LEN];
        let fields = [self.path]
            .into_iter()
            .chain(self.number.to_be_bytes())
            .chain(self.clock.to_be_bytes());
        for (to, from) in bytes.iter_mut().skip(1).zip(fields) {
            *to = from;
        }
        bytes
    }
}

fn write_address(writer: &mut Writer<'_>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            writer.u8(4);
            writer.bytes(&ip.octets());
        }
        IpAddr::V6(ip) => {
            writer.u8(6);
            writer.bytes(&ip.octets());
        }
    }
    writer.u16(address.port());
}

fn read_address(reader: &mut Reader<'_>) -> Result<SocketAddr, DecodeError> {
    let ip = match reader.u8()? {
        4 => IpAddr::from(reader.array::<4>()?),
        6 => IpAddr::from(reader.array::<16>()?),
        _ => return Err(DecodeError::BadValue),
    };
    Ok(SocketAddr::new(ip, reader.u16()?))
}

fn read_name(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
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
    fn the_bytes_are_frozen() {
        let mut out = Vec::new();
        FlowMessage::Open {
            flow: FlowId(5),
            player: "192.0.2.1:258".parse().unwrap(),
            game: "doom".into(),
        }
        .encode(&mut out);
        let expected = [
            0x28, 0, 0, 0, 0, 0, 0, 0, 5, 4, 192, 0, 2, 1, 1, 2, 4, b'd', b'o', b'o', b'm',
        ];
        assert_eq!(out, expected);
        let probe = PathProbe {
            path: 7,
            number: 0x0102_0304,
            clock: 5,
        };
        assert_eq!(
            probe.encode_probe(),
            [0x84, 7, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5]
        );
        assert_eq!(probe.answer(Instant::from_nanos(3)).clock, u64::MAX - 1);
        assert_eq!(PathProbe::decode(&probe.encode_echo()), Ok((probe, true)));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(
            kind in 0x27_u8..0x2C,
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
            };
            message.encode(&mut out);
            let decoded = FlowMessage::decode(&out).unwrap();
            prop_assert_eq!(decoded == message, len <= GAME_NAME_MAX);
        }
    }
}
