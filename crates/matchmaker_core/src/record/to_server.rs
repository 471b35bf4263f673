//! Records from the matchmaker to a game server, and the answer.

use wire::{InstanceId, MatchId, Writer};

use super::{DecodeError, VERSION, field};
use crate::match_table::Seated;

/// Assigns a match to an instance, which reserves the seats and lists the match in its heartbeats.
/// The players get their tokens after it has answered [`Verdict::Taken`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assign {
    /// The instance it is for; a call reaches whatever instance runs on the node.
    pub instance: InstanceId,
    /// The match.
    pub match_id: MatchId,
    /// Players, ordered by seat.
    pub players: Vec<Seated>,
}

impl Assign {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer::new(out);
        out.bytes(&[VERSION, ASSIGN]);
        out.u64(self.instance.0);
        out.bytes(&self.match_id.0);
        field::write_players(&mut out, &self.players);
    }

    /// Decodes a record.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the record is invalid.
    pub fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (kind, mut reader) = field::begin(record)?;
        if kind != ASSIGN {
            return Err(DecodeError::Kind(kind));
        }
        let decoded = Self {
            instance: InstanceId(reader.u64()?),
            match_id: field::match_id(&mut reader)?,
            players: field::players(&mut reader, 1)?,
        };
        field::end(&reader)?;
        Ok(decoded)
    }
}

/// A server's answer to an [`Assign`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The seats are reserved, now or by an earlier answer.
    Taken,
    /// There is no room, or it accepts no new matches.
    Full,
    /// It is another instance.
    OtherInstance,
}

impl Verdict {
    /// Appends the answer.
    pub fn encode(self, out: &mut Vec<u8>) {
        let code = match self {
            Self::Taken => 0,
            Self::Full => 1,
            Self::OtherInstance => 2,
        };
        out.extend_from_slice(&[VERSION, code]);
    }

    /// Decodes an answer.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the answer is invalid.
    pub fn decode(answer: &[u8]) -> Result<Self, DecodeError> {
        let (code, reader) = field::begin(answer)?;
        field::end(&reader)?;
        match code {
            0 => Ok(Self::Taken),
            1 => Ok(Self::Full),
            2 => Ok(Self::OtherInstance),
            other => Err(DecodeError::Kind(other)),
        }
    }
}

const ASSIGN: u8 = 16;
