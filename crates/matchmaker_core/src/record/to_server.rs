//! What the matchmaker asks of a game server, and the answer.

use wire::{InstanceId, MatchId, Writer};

use super::{DecodeError, VERSION, field};
use crate::match_table::Seated;

/// A match for an instance: it keeps the seats from now on, and names the match in its heartbeats.
/// The players get their tokens when it has said [`Verdict::Taken`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assign {
    /// Whom it is for: a call reaches whatever instance runs on the node.
    pub instance: InstanceId,
    /// Which match.
    pub match_id: MatchId,
    /// Who sits where, in the order of seats.
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

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] says what does not fit.
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

/// What a server says to an [`Assign`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The seats are kept; also where it had said so before.
    Taken,
    /// There is no room, or it takes no new matches.
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

    /// Reads an answer.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] says what does not fit.
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
