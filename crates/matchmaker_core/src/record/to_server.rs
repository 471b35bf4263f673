//! Records from the matchmaker to a game server: replies to its calls, and the call that assigns a match.

use core::time::Duration;

use wire::{InstanceId, MatchId, Writer};

use super::{DecodeError, RELEASE_MAX, Seated, VERSION};

/// A reply of the matchmaker to a game server.
///
/// | status | fields |
/// |---|---|
/// | 0 renewed | lease ms 4, heartbeat ms 4, count 2 (0 to 32) and match ids 16 each |
/// | 1 noted | |
/// | 2 register | |
/// | 3 retired | |
/// | 4 refused | reason 1 |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// Answers register and heartbeat: the lease is renewed.
    Renewed {
        /// Length of the lease, from when the call was sent.
        lease: Duration,
        /// Time to the next heartbeat.
        heartbeat: Duration,
        /// Matches to release: no player has a token for them.
        release: Vec<MatchId>,
    },
    /// Answers result, left and bye: do not repeat.
    Noted,
    /// The instance is unknown: register, then repeat.
    Register,
    /// The instance was retired or replaced: end.
    Retired,
    /// Rejected.
    Refused(RefuseReason),
}

/// Why a record was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefuseReason {
    /// It does not decode.
    Malformed = 0,
    /// The node is not a server of this matchmaker.
    NotAllowed = 1,
    /// The server is of another game or build.
    OtherApp = 2,
    /// None of the identity keys matches the link.
    OtherIdentity = 3,
    /// The token key is older than the registered one, or differs from one with the same id.
    OldKey = 4,
    /// The limit of servers or matches is reached; retry later.
    Full = 5,
}

impl RefuseReason {
    const ALL: [Self; 6] = [
        Self::Malformed,
        Self::NotAllowed,
        Self::OtherApp,
        Self::OtherIdentity,
        Self::OldKey,
        Self::Full,
    ];
}

impl Reply {
    /// Appends the reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Renewed {
                lease,
                heartbeat,
                release,
            } => {
                let (lease, heartbeat) = (*lease, *heartbeat);
                Renewal { lease, heartbeat }.encode(release.iter().copied(), out);
            }
            Self::Noted => out.extend_from_slice(&[VERSION, NOTED]),
            Self::Register => out.extend_from_slice(&[VERSION, REGISTER]),
            Self::Retired => out.extend_from_slice(&[VERSION, RETIRED]),
            Self::Refused(reason) => out.extend_from_slice(&[VERSION, REFUSED, *reason as u8]),
        }
    }

    /// Decodes a reply.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the reply is invalid.
    pub fn decode(answer: &[u8]) -> Result<Self, DecodeError> {
        let (status, mut reader) = super::begin(answer)?;
        let decoded = match status {
            RENEWED => Self::Renewed {
                lease: Duration::from_millis(reader.u32()?.into()),
                heartbeat: Duration::from_millis(reader.u32()?.into()),
                release: {
                    let count = super::count(&mut reader, 0..=RELEASE_MAX)?;
                    let ids = super::match_ids(&mut reader, count)?;
                    ids.iter().copied().map(MatchId).collect()
                },
            },
            NOTED => Self::Noted,
            REGISTER => Self::Register,
            RETIRED => Self::Retired,
            REFUSED => {
                let code = reader.u8()?;
                let reason = RefuseReason::ALL
                    .into_iter()
                    .find(|reason| *reason as u8 == code);
                Self::Refused(reason.ok_or(DecodeError::Kind(code))?)
            }
            other => return Err(DecodeError::Kind(other)),
        };
        reader.finish(DecodeError::Trailing)?;
        Ok(decoded)
    }
}

/// The fields of [`Reply::Renewed`] that are equal for all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    pub(crate) lease: Duration,
    pub(crate) heartbeat: Duration,
}

impl Renewal {
    /// Appends a [`Reply::Renewed`] with the first [`RELEASE_MAX`] of `release`, in ascending
    /// order; does not allocate if `out` has room.
    pub(crate) fn encode(self, release: impl Iterator<Item = MatchId>, out: &mut Vec<u8>) {
        let mut out = Writer::new(out);
        out.bytes(&[VERSION, RENEWED]);
        out.u32(millis(self.lease));
        out.u32(millis(self.heartbeat));
        out.list(release.take(RELEASE_MAX), |out, id| out.bytes(&id.0));
    }
}

/// Whole milliseconds, at most 49 days.
fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

const RENEWED: u8 = 0;
const NOTED: u8 = 1;
const REGISTER: u8 = 2;
const RETIRED: u8 = 3;
const REFUSED: u8 = 4;

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
        super::write_players(&mut out, &self.players);
    }

    /// Decodes a record.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the record is invalid.
    pub fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (kind, mut reader) = super::begin(record)?;
        if kind != ASSIGN {
            return Err(DecodeError::Kind(kind));
        }
        let decoded = Self {
            instance: InstanceId(reader.u64()?),
            match_id: super::match_id(&mut reader)?,
            players: super::players(&mut reader, 1)?,
        };
        reader.finish(DecodeError::Trailing)?;
        Ok(decoded)
    }
}

/// A server's answer to an [`Assign`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The seats are reserved, now or by an earlier answer.
    Taken = 0,
    /// There is no room, or it accepts no new matches.
    Full = 1,
    /// It is another instance.
    OtherInstance = 2,
}

impl Verdict {
    /// Appends the answer.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, self as u8]);
    }

    /// Decodes an answer.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the answer is invalid.
    pub fn decode(answer: &[u8]) -> Result<Self, DecodeError> {
        let (code, reader) = super::begin(answer)?;
        reader.finish(DecodeError::Trailing)?;
        match code {
            0 => Ok(Self::Taken),
            1 => Ok(Self::Full),
            2 => Ok(Self::OtherInstance),
            other => Err(DecodeError::Kind(other)),
        }
    }
}

const ASSIGN: u8 = 16;
