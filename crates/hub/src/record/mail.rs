//! Records of mail to several players or to a group.

use wire::{ClientId, Encode, Reader, Writer};

use super::{MailRefusal, PlayerIds, PlayerList};
use crate::field::{Addr, DecodeError, GroupId, Redacted, SenderSeq};

/// A mail of a node to several players or to a group, or with a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailManySubmission<'a> {
    /// The sender's number.
    pub seq: SenderSeq,
    /// The sender has verdicts on all mails up to this one.
    pub settled: SenderSeq,
    /// Seconds until it expires; 0 for the hub's limit.
    pub ttl_s: u32,
    /// A full mailbox drops mails of the lowest priority first, if it is configured so.
    pub priority: u8,
    /// The recipients.
    pub to: Recipients<'a>,
    /// The payload.
    pub body: Redacted<&'a [u8]>,
}

impl<'a> MailManySubmission<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let seq = SenderSeq(reader.u64()?);
        let settled = SenderSeq(reader.u64()?);
        let ttl_s = reader.u32()?;
        let priority = reader.u8()?;
        let to = Recipients::decode(reader)?;
        Ok(Self {
            seq,
            settled,
            ttl_s,
            priority,
            to,
            body: Redacted::decode(reader, to.body_bytes_max())?,
        })
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        out.fields(&[&super::code::MAIL_MANY, &self.seq, &self.settled]);
        out.fields(&[&self.ttl_s, &self.priority, &self.to, &self.body]);
    }
}

/// Recipients of a mail.
///
/// Encoding: `kind 1`, then the [`PlayerList`] for kind 0, or `group 8` for kind 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recipients<'a> {
    /// These players.
    Players(PlayerList<'a>),
    /// The members of the group when the mail is stored.
    Group(GroupId),
}

impl<'a> Recipients<'a> {
    /// Returns the longest body for these recipients, bytes.
    #[must_use]
    pub const fn body_bytes_max(&self) -> usize {
        match self {
            Self::Players(players) => players.body_bytes_max(),
            Self::Group(_) => GROUP_BODY_BYTES_MAX,
        }
    }

    /// Copies the recipients.
    #[must_use]
    pub fn to_mail_to(self) -> MailTo {
        match self {
            Self::Players(players) => MailTo::Many(players.to_ids()),
            Self::Group(group) => MailTo::One(Addr::Group(group)),
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => PlayerList::decode(reader).map(Self::Players),
            1 => Ok(Self::Group(GroupId(reader.u64()?))),
            kind => Err(DecodeError::Choice(kind)),
        }
    }
}

impl Encode for Recipients<'_> {
    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Players(players) => out.fields(&[&0_u8, players]),
            Self::Group(group) => out.fields(&[&1_u8, group]),
        }
    }
}

/// Longest body of a message to a group, bytes: with the longest list of members it fits one
/// record.
pub const GROUP_BODY_BYTES_MAX: usize = super::BODY_BYTES_MAX - PlayerList::LEN_MAX * 8;

/// Recipients of a mail, as the store gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MailTo {
    /// A player or a group. Mail to another address is rejected.
    One(Addr),
    /// These players.
    Many(PlayerIds),
}

impl MailTo {
    /// Returns the players that are named, in increasing order; none for a group.
    pub fn players(&self) -> impl Iterator<Item = ClientId> {
        let (one, many) = match self {
            Self::One(Addr::Player(player)) => (Some(*player), None),
            Self::One(_) => (None, None),
            Self::Many(players) => (None, Some(players.list())),
        };
        let many = many.into_iter().flat_map(|players| players.iter());
        one.into_iter().chain(many)
    }
}

impl From<Addr> for MailTo {
    fn from(to: Addr) -> Self {
        Self::One(to)
    }
}

/// Recipients that were rejected while others were not.
///
/// Encoding: `reason 1, stored 2, refused 2, length 2, bits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRefusal {
    /// Why they were rejected.
    pub reason: MailRefusal,
    /// Mailboxes that have the mail, at least 1.
    pub stored: u16,
    /// Recipients that were rejected, at least 1.
    pub refused: u16,
    /// One bit for each listed player in order, from the highest bit on: 1 for each that was
    /// rejected. Empty for a group.
    bits: Box<[u8]>,
}

impl PartRefusal {
    /// Creates the refusal of those of `players` for which `is_refused` returns true. Returns
    /// `None` if it is so for none or for all.
    pub fn of_players(
        reason: MailRefusal,
        players: PlayerList<'_>,
        mut is_refused: impl FnMut(ClientId) -> bool,
    ) -> Option<Self> {
        let mut bits = vec![0; players.len().div_ceil(8)];
        let mut refused = 0_u16;
        for (at, player) in players.iter().enumerate() {
            if is_refused(player)
                && let Some(byte) = bits.get_mut(at / 8)
            {
                *byte |= bit(at);
                refused = refused.saturating_add(1);
            }
        }
        let stored = u16::try_from(players.len()).unwrap_or(u16::MAX);
        let stored = stored.saturating_sub(refused);
        (stored > 0 && refused > 0).then(|| Self {
            reason,
            stored,
            refused,
            bits: bits.into(),
        })
    }

    /// Returns the refusal without the positions, for a sender that has no list of the players.
    #[must_use]
    pub fn without_positions(mut self) -> Self {
        self.bits = Box::default();
        self
    }

    /// Returns those of `players` that were rejected; none if the positions are not known.
    pub fn refused_of(&self, players: PlayerList<'_>) -> Vec<ClientId> {
        let is_set = |at: usize| {
            self.bits
                .get(at / 8)
                .is_some_and(|byte| byte & bit(at) != 0)
        };
        let players = players.iter().enumerate();
        let refused = players.filter(|(at, _)| is_set(*at));
        refused.map(|(_, player)| player).collect()
    }

    /// Returns its encoded size, bytes.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.bits.len().saturating_add(7)
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let reason = MailRefusal::from_code(reader.u8()?)?;
        let (stored, refused) = (reader.u16()?, reader.u16()?);
        let len = usize::from(reader.u16()?);
        let bits = reader.bytes(len)?;
        let total = usize::from(stored).saturating_add(refused.into());
        let is_empty = stored == 0 || refused == 0 || total > PlayerList::LEN_MAX;
        if is_empty || !(bits.is_empty() || is_valid(bits, total, refused)) {
            return Err(DecodeError::Count);
        }
        Ok(Self {
            reason,
            stored,
            refused,
            bits: bits.into(),
        })
    }
}

impl Encode for PartRefusal {
    fn encode(&self, out: &mut Writer<'_>) {
        out.fields(&[&self.reason, &self.stored, &self.refused]);
        // At most `PlayerList::LEN_MAX / 8`.
        out.u16(u16::try_from(self.bits.len()).unwrap_or(u16::MAX));
        out.bytes(&self.bits);
    }
}

/// Returns whether `bits` has a place for each of `total` players, and `refused` are set.
fn is_valid(bits: &[u8], total: usize, refused: u16) -> bool {
    let set: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
    let unused = bits.len().saturating_mul(8).saturating_sub(total);
    let padding = bits.last().map_or(0, |last| last.trailing_zeros());
    bits.len() == total.div_ceil(8)
        && set == u32::from(refused)
        && usize::try_from(padding).is_ok_and(|padding| padding >= unused)
}

const fn bit(at: usize) -> u8 {
    0x80 >> (at % 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: u64) -> PlayerIds {
        let players: Vec<_> = (0..count).map(ClientId).collect();
        let mut buf = Vec::new();
        PlayerList::encode_into(&players, &mut buf)
            .unwrap()
            .to_ids()
    }

    #[test]
    fn a_part_refusal_names_the_players_and_only_valid_bits_decode() {
        for count in [2, 7, 8, 9, 4_096] {
            let players = ids(count);
            let is_refused = |player: ClientId| player.0 % 3 == 1;
            let full = MailRefusal::MailboxFull;
            let part = PartRefusal::of_players(full, players.list(), is_refused).unwrap();
            let expected: Vec<_> = players.list().iter().filter(|it| is_refused(*it)).collect();
            assert_eq!(part.refused_of(players.list()), expected);
            let mut bytes = Vec::new();
            part.encode(&mut Writer::new(&mut bytes));
            assert_eq!(bytes.len(), part.encoded_bytes());
            assert_eq!(
                PartRefusal::decode(&mut Reader::new(&bytes)),
                Ok(part.clone())
            );
            for at in 7..bytes.len() {
                for bit in 0..8 {
                    let mut other = bytes.clone();
                    other[at] ^= 1 << bit;
                    let decoded = PartRefusal::decode(&mut Reader::new(&other));
                    assert!(decoded.is_err(), "byte {at} of {count} players");
                }
            }
            assert!(
                part.without_positions()
                    .refused_of(players.list())
                    .is_empty()
            );
        }
        let players = ids(3);
        for all in [true, false] {
            let part = PartRefusal::of_players(MailRefusal::MailboxFull, players.list(), |_| all);
            assert_eq!(part, None);
        }
    }
}
