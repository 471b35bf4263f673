//! Replies of the matchmaker to a game server.

use core::time::Duration;

use wire::{MatchId, Writer};

use super::{DecodeError, RELEASE_MAX, VERSION, field};

/// A reply of the matchmaker.
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
    Malformed,
    /// The node is not a server of this matchmaker.
    NotAllowed,
    /// The server is of another game or build.
    OtherApp,
    /// None of the identity keys matches the link.
    OtherIdentity,
    /// The token key is older than the registered one, or differs from one with the same id.
    OldKey,
    /// The limit of servers or matches is reached; retry later.
    Full,
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

    const fn code(self) -> u8 {
        match self {
            Self::Malformed => 0,
            Self::NotAllowed => 1,
            Self::OtherApp => 2,
            Self::OtherIdentity => 3,
            Self::OldKey => 4,
            Self::Full => 5,
        }
    }
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
                Renewal {
                    lease: *lease,
                    heartbeat: *heartbeat,
                }
                .encode(release.iter().copied(), out);
            }
            Self::Noted => out.extend_from_slice(&[VERSION, NOTED]),
            Self::Register => out.extend_from_slice(&[VERSION, REGISTER]),
            Self::Retired => out.extend_from_slice(&[VERSION, RETIRED]),
            Self::Refused(reason) => out.extend_from_slice(&[VERSION, REFUSED, reason.code()]),
        }
    }

    /// Decodes a reply.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the reply is invalid.
    pub fn decode(answer: &[u8]) -> Result<Self, DecodeError> {
        let (status, mut reader) = field::begin(answer)?;
        let decoded = match status {
            RENEWED => Self::Renewed {
                lease: Duration::from_millis(reader.u32()?.into()),
                heartbeat: Duration::from_millis(reader.u32()?.into()),
                release: {
                    let count = field::count(&mut reader, 0..=RELEASE_MAX)?;
                    let ids = field::match_ids(&mut reader, count)?;
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
                    .find(|reason| reason.code() == code);
                Self::Refused(reason.ok_or(DecodeError::Kind(code))?)
            }
            other => return Err(DecodeError::Kind(other)),
        };
        field::end(&reader)?;
        Ok(decoded)
    }
}

/// The fields of [`Reply::Renewed`] that are equal for all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    /// How long the lease lasts.
    pub(crate) lease: Duration,
    /// Time to the next heartbeat.
    pub(crate) heartbeat: Duration,
}

impl Renewal {
    /// Appends a [`Reply::Renewed`] with the first [`RELEASE_MAX`] of `release`, in ascending
    /// order; does not allocate if `out` has room.
    pub(crate) fn encode(self, release: impl Iterator<Item = MatchId>, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.bytes(&[VERSION, RENEWED]);
        writer.u32(millis(self.lease));
        writer.u32(millis(self.heartbeat));
        let at = writer.position();
        writer.u16(0);
        let mut count = 0_u16;
        for id in release.take(RELEASE_MAX) {
            writer.bytes(&id.0);
            count = count.saturating_add(1);
        }
        if let Some(field) = out.get_mut(at..at.saturating_add(2)) {
            field.copy_from_slice(&count.to_be_bytes());
        }
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
