//! Records from a game server to the matchmaker.

use core::fmt;

use crypto::{AddressList, ServerKeys, TokenKey};
use wire::{ClientId, MatchId, Reader, Writer};
use zeroize::Zeroizing;

use super::{
    DecodeError, Listed, MATCHES_MAX, RECORD_BYTES_MAX, RESULT_BYTES_MAX, Seated, VERSION,
};

/// Whether an instance accepts new matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// It accepts new matches.
    Open = 1,
    /// It finishes its matches, and accepts no other.
    Closed = 0,
}

impl Intake {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let is_open = super::flag(reader)?;
        Ok(if is_open { Self::Open } else { Self::Closed })
    }
}

/// A match that an instance runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningMatch {
    /// The match.
    pub match_id: MatchId,
    /// Whether any player has ever entered it with a token. If not, its answer may have been lost
    /// and its players be in another match: a restarted matchmaker does not adopt it.
    pub is_entered: bool,
    /// Its players that have not left permanently; at most 256.
    pub players: Vec<Seated>,
}

impl RunningMatch {
    fn decode_list(reader: &mut Reader<'_>) -> Result<Vec<Self>, DecodeError> {
        let count = super::count(reader, 0..=MATCHES_MAX)?;
        let one = |_| {
            Ok(Self {
                match_id: super::match_id(reader)?,
                is_entered: super::flag(reader)?,
                players: super::players(reader, 0)?,
            })
        };
        let matches: Vec<_> = (0..count).map(one).collect::<Result<_, DecodeError>>()?;
        if matches.is_sorted_by(|a, b| a.match_id < b.match_id) {
            Ok(matches)
        } else {
            Err(DecodeError::Order)
        }
    }
}

/// Registers an instance: at its start, when the matchmaker returns or requests it, and with each
/// new token key. It holds that key, so it is sent by call only, and has no `Debug`.
#[expect(
    missing_debug_implementations,
    reason = "a token key must not be printable"
)]
#[derive(Clone)]
pub struct Register {
    /// Identifies the game and build.
    pub app_id: u64,
    /// Seals new tokens for this instance.
    pub token_key: TokenKey,
    /// Most seats at a time, in all its matches.
    pub capacity: u16,
    /// Whether it accepts new matches.
    pub intake: Intake,
    /// Its identity keys: that of its link, and the next one.
    pub identity_keys: ServerKeys,
    /// Addresses for players, best first.
    pub addresses: AddressList,
    /// Running matches, in ascending order of ids; at most 256.
    pub matches: Vec<RunningMatch>,
}

impl Register {
    /// Returns the record, wiped on drop; `None` if its matches are too many, not sorted, or too
    /// long together.
    #[must_use]
    pub fn encode(&self) -> Option<Zeroizing<Vec<u8>>> {
        let players = self.matches.iter().map(|entry| entry.players.len());
        // Never reallocates: that would leave copies of the key behind.
        let len = players
            .map(|count| count.saturating_mul(11).saturating_add(19))
            .fold(1_024_usize, usize::saturating_add);
        let is_sorted = self.matches.is_sorted_by(|a, b| a.match_id < b.match_id);
        if self.matches.len() > MATCHES_MAX || len > RECORD_BYTES_MAX || !is_sorted {
            return None;
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(len));
        let mut out = Writer::new(&mut bytes);
        out.bytes(&[VERSION, REGISTER]);
        out.u64(self.app_id);
        out.bytes(self.token_key.to_bytes().as_slice());
        out.u16(self.capacity);
        out.u8(self.intake as u8);
        super::write_server_keys(&mut out, &self.identity_keys);
        self.addresses.encode(&mut out);
        out.list(self.matches.iter(), |out, entry| {
            out.bytes(&entry.match_id.0);
            out.u8(entry.is_entered.into());
            super::write_players(out, &entry.players);
        });
        Some(bytes)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            app_id: reader.u64()?,
            token_key: TokenKey::from_bytes(&Zeroizing::new(reader.array()?)),
            capacity: reader.u16()?,
            intake: Intake::decode(reader)?,
            identity_keys: super::server_keys(reader)?,
            addresses: super::addresses(reader)?,
            matches: RunningMatch::decode_list(reader)?,
        })
    }
}

/// Appends a heartbeat, which renews the lease and lists the running matches in ascending order,
/// each with whether a player has entered it. Those past [`MATCHES_MAX`] are left out.
pub fn encode_heartbeat(
    intake: Intake,
    matches: impl Iterator<Item = (MatchId, bool)>,
    out: &mut Vec<u8>,
) {
    let mut out = Writer::new(out);
    out.bytes(&[VERSION, HEARTBEAT, intake as u8]);
    out.list(matches.take(MATCHES_MAX), |out, (id, is_entered)| {
        out.bytes(&id.0);
        out.u8(is_entered.into());
    });
}

/// Appends a record that ends a match; `result` is cut at [`RESULT_BYTES_MAX`].
pub fn encode_result(match_id: MatchId, result: &[u8], out: &mut Vec<u8>) {
    let mut out = Writer::new(out);
    out.bytes(&[VERSION, RESULT]);
    out.bytes(&match_id.0);
    out.bytes(result.get(..RESULT_BYTES_MAX).unwrap_or(result));
}

/// Appends a record that frees a player that left a match permanently.
pub fn encode_left(match_id: MatchId, client_id: ClientId, out: &mut Vec<u8>) {
    let mut out = Writer::new(out);
    out.bytes(&[VERSION, LEFT]);
    out.bytes(&match_id.0);
    out.u64(client_id.0);
}

/// Appends a record that announces the end of the instance.
pub fn encode_bye(out: &mut Vec<u8>) {
    out.extend_from_slice(&[VERSION, BYE]);
}

/// A decoded record from a game server.
pub(crate) enum ToMatchmaker<'a> {
    Register(Box<Register>),
    Heartbeat {
        intake: Intake,
        /// In ascending order of ids.
        matches: &'a [Listed],
    },
    Result {
        match_id: MatchId,
        result: &'a [u8],
    },
    Left {
        match_id: MatchId,
        client_id: ClientId,
    },
    Bye,
}

impl<'a> ToMatchmaker<'a> {
    /// Decodes `record`; allocates for a register record only.
    pub(crate) fn decode(record: &'a [u8]) -> Result<Self, DecodeError> {
        let (kind, mut reader) = super::begin(record)?;
        let decoded = match kind {
            REGISTER => Self::Register(Box::new(Register::decode(&mut reader)?)),
            HEARTBEAT => Self::Heartbeat {
                intake: Intake::decode(&mut reader)?,
                matches: {
                    let count = super::count(&mut reader, 0..=MATCHES_MAX)?;
                    super::listed(&mut reader, count)?
                },
            },
            RESULT => Self::Result {
                match_id: super::match_id(&mut reader)?,
                result: {
                    let result = reader.take_rest();
                    if result.len() > RESULT_BYTES_MAX {
                        return Err(DecodeError::Trailing(result.len()));
                    }
                    result
                },
            },
            LEFT => Self::Left {
                match_id: super::match_id(&mut reader)?,
                client_id: ClientId(reader.u64()?),
            },
            BYE => Self::Bye,
            other => return Err(DecodeError::Kind(other)),
        };
        reader.finish(DecodeError::Trailing)?;
        Ok(decoded)
    }
}

impl fmt::Debug for ToMatchmaker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Register(_) => "Register(..)",
            Self::Heartbeat { .. } => "Heartbeat",
            Self::Result { .. } => "Result",
            Self::Left { .. } => "Left",
            Self::Bye => "Bye",
        })
    }
}

const REGISTER: u8 = 1;
const HEARTBEAT: u8 = 2;
const RESULT: u8 = 3;
const LEFT: u8 = 4;
const BYE: u8 = 5;
