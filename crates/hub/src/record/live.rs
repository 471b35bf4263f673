//! Records of live messages: to players and topics, with outcomes.

use std::collections::BTreeSet;

use bytes::Bytes;
use wire::{ClientId, Encode, NodeId, Reader, Writer};

use super::{BODY_BYTES_MAX, META_BYTES_MAX, code};
use crate::field::{ClaimNumber, DecodeError, LiveSeq, Name, Redacted};

/// A live message from a node, or a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LiveToHub<'a> {
    /// `code 1, live 8, count 2, players 8 each, body...`
    Forward {
        /// The sender's number of the message.
        live: LiveSeq,
        /// The players.
        players: PlayerList<'a>,
        /// The payload.
        body: Redacted<&'a [u8]>,
    },
    /// `code 1, live 8, topic, body...`
    Cast {
        /// The sender's number of the message.
        live: LiveSeq,
        /// The topic.
        topic: Name,
        /// The payload.
        body: Redacted<&'a [u8]>,
    },
    /// `code 1, live 8, player 8, reason...`
    Kick {
        /// The sender's number of the request.
        live: LiveSeq,
        /// The player.
        player: ClientId,
        /// The reason, for the player's node; at most 256 bytes.
        reason: Redacted<&'a [u8]>,
    },
    /// `code 1, topic`
    Subscribe(Name),
    /// `code 1, topic`
    Unsubscribe(Name),
}

impl<'a> LiveToHub<'a> {
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            code::FORWARD => {
                let live = LiveSeq(reader.u64()?);
                let players = PlayerList::decode(reader)?;
                let body = Redacted::decode(reader, players.body_bytes_max())?;
                Self::Forward {
                    live,
                    players,
                    body,
                }
            }
            code::CAST => Self::Cast {
                live: LiveSeq(reader.u64()?),
                topic: Name::decode(reader)?,
                body: Redacted::decode(reader, BODY_BYTES_MAX)?,
            },
            code::KICK => Self::Kick {
                live: LiveSeq(reader.u64()?),
                player: ClientId(reader.u64()?),
                reason: Redacted::decode(reader, META_BYTES_MAX)?,
            },
            code::SUBSCRIBE => Self::Subscribe(Name::decode(reader)?),
            code::UNSUBSCRIBE => Self::Unsubscribe(Name::decode(reader)?),
            code => return Err(DecodeError::Code(code)),
        })
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Forward {
                live,
                players,
                body,
            } => out.fields(&[&code::FORWARD, live, players, body]),
            Self::Cast { live, topic, body } => out.fields(&[&code::CAST, live, topic, body]),
            Self::Kick {
                live,
                player,
                reason,
            } => out.fields(&[&code::KICK, live, player, reason]),
            Self::Subscribe(topic) => out.fields(&[&code::SUBSCRIBE, topic]),
            Self::Unsubscribe(topic) => out.fields(&[&code::UNSUBSCRIBE, topic]),
        }
    }
}

/// A live message for a node, or the outcome of its own messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LiveToNode<'a> {
    /// `code 1, from 32, count 2, players 8 each, body...`
    Forward {
        /// The sending node.
        from: NodeId,
        /// The addressed players with claims of this node.
        players: PlayerList<'a>,
        /// The payload.
        body: Redacted<&'a [u8]>,
    },
    /// `code 1, from 32, topic, body...`
    Cast {
        /// The sending node.
        from: NodeId,
        /// The topic.
        topic: Name,
        /// The payload.
        body: Redacted<&'a [u8]>,
    },
    /// `code 1, player 8, claim 8, from 32, reason...`
    Kick {
        /// The player.
        player: ClientId,
        /// The session.
        claim: ClaimNumber,
        /// The node that requests it.
        from: NodeId,
        /// The reason, at most 256 bytes.
        reason: Redacted<&'a [u8]>,
    },
    /// `code 1, first 8, last 8, reached 2, offline 2, busy 2, refused 2`
    Sent {
        /// The first message of a run with equal outcomes.
        first: LiveSeq,
        /// The last message of the run.
        last: LiveSeq,
        /// The outcome of each.
        outcome: LiveOutcome,
    },
    /// `code 1, count 8`: broadcasts and casts that were dropped since the last such record.
    Missed(u64),
}

impl<'a> LiveToNode<'a> {
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            code::HUB_FORWARD => {
                let from = NodeId(reader.array()?);
                let players = PlayerList::decode(reader)?;
                let body = Redacted::decode(reader, players.body_bytes_max())?;
                Self::Forward {
                    from,
                    players,
                    body,
                }
            }
            code::HUB_CAST => Self::Cast {
                from: NodeId(reader.array()?),
                topic: Name::decode(reader)?,
                body: Redacted::decode(reader, BODY_BYTES_MAX)?,
            },
            code::HUB_KICK => Self::Kick {
                player: ClientId(reader.u64()?),
                claim: ClaimNumber(reader.u64()?),
                from: NodeId(reader.array()?),
                reason: Redacted::decode(reader, META_BYTES_MAX)?,
            },
            code::LIVE_SENT => Self::Sent {
                first: LiveSeq(reader.u64()?),
                last: LiveSeq(reader.u64()?),
                outcome: LiveOutcome::decode(reader)?,
            },
            code::MISSED => Self::Missed(reader.u64()?),
            code => return Err(DecodeError::Code(code)),
        })
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Forward {
                from,
                players,
                body,
            } => out.fields(&[&code::HUB_FORWARD, from, players, body]),
            Self::Cast { from, topic, body } => out.fields(&[&code::HUB_CAST, from, topic, body]),
            Self::Kick {
                player,
                claim,
                from,
                reason,
            } => out.fields(&[&code::HUB_KICK, player, claim, from, reason]),
            Self::Sent {
                first,
                last,
                outcome,
            } => out.fields(&[&code::LIVE_SENT, first, last, outcome]),
            Self::Missed(count) => out.fields(&[&code::MISSED, count]),
        }
    }
}

/// Players in a record, decoded without an allocation.
///
/// Encoding: `count 2, players 8 each`, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayerList<'a> {
    /// 8 bytes each, big-endian.
    bytes: &'a [u8],
}

impl<'a> PlayerList<'a> {
    /// Most players in a list. Each takes 8 bytes of the longest body.
    pub const LEN_MAX: usize = 4_096;

    /// Encodes `players` into `buf`, sorted and each once, and returns the list.
    ///
    /// Returns `None` if there is no player, or more than [`LEN_MAX`](Self::LEN_MAX).
    pub fn encode_into(players: &[ClientId], buf: &'a mut Vec<u8>) -> Option<Self> {
        if players.is_empty() || players.len() > Self::LEN_MAX {
            return None;
        }
        let players: BTreeSet<_> = players.iter().collect();
        buf.clear();
        buf.extend(players.iter().flat_map(|player| player.0.to_be_bytes()));
        Some(Self { bytes: buf })
    }

    /// Returns the list of one player, with its id in big-endian order.
    pub(crate) const fn single(id: &'a [u8; ID_BYTES]) -> Self {
        Self { bytes: id }
    }

    /// Returns the number of players, at least 1.
    pub const fn len(&self) -> usize {
        self.bytes.len() / ID_BYTES
    }

    /// Returns false: a list has at least one player.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the players, in increasing order.
    pub fn iter(&self) -> impl Iterator<Item = ClientId> + use<'a> {
        let (ids, _) = self.bytes.as_chunks();
        ids.iter().map(|id| ClientId(u64::from_be_bytes(*id)))
    }

    /// Returns whether the list has `player`.
    pub fn contains(&self, player: ClientId) -> bool {
        let (ids, _) = self.bytes.as_chunks::<ID_BYTES>();
        ids.binary_search(&player.0.to_be_bytes()).is_ok()
    }

    /// Returns the longest body with this list, bytes.
    pub const fn body_bytes_max(&self) -> usize {
        BODY_BYTES_MAX.saturating_sub(self.bytes.len())
    }

    /// Copies the list.
    #[must_use]
    pub fn to_ids(self) -> PlayerIds {
        PlayerIds(Bytes::copy_from_slice(self.bytes))
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = usize::from(reader.u16()?);
        if count == 0 || count > Self::LEN_MAX {
            return Err(DecodeError::Count);
        }
        let bytes = reader.bytes(count.saturating_mul(ID_BYTES))?;
        let list = Self { bytes };
        // A player that is listed twice would get the message twice.
        if !list.iter().is_sorted_by(|before, after| before < after) {
            return Err(DecodeError::Count);
        }
        Ok(list)
    }
}

/// Players, as in a [`PlayerList`], that outlive the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayerIds(Bytes);

impl PlayerIds {
    /// Returns the list.
    pub fn list(&self) -> PlayerList<'_> {
        PlayerList { bytes: &self.0 }
    }
}

/// Size of a player's id, bytes.
const ID_BYTES: usize = size_of::<ClientId>();

impl Encode for PlayerList<'_> {
    fn encode(&self, out: &mut Writer<'_>) {
        // At most `LEN_MAX`.
        out.u16(u16::try_from(self.len()).unwrap_or(u16::MAX));
        out.bytes(self.bytes);
    }
}

/// Outcome of a live message: how many receivers there were of each kind.
///
/// Receivers are players for a forward or a kick, and nodes for a cast. What is `reached` was
/// passed on to the receiver's link, in order; it is lost if that link closes before it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveOutcome {
    /// Passed on.
    pub reached: u16,
    /// No node holds the player, or the node's link is down.
    pub offline: u16,
    /// Dropped, since the receiving node reads too slowly.
    pub busy: u16,
    /// The sender's role does not permit it.
    pub refused: u16,
}

impl LiveOutcome {
    /// Returns whether every receiver was reached.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.offline == 0 && self.busy == 0 && self.refused == 0
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            reached: reader.u16()?,
            offline: reader.u16()?,
            busy: reader.u16()?,
            refused: reader.u16()?,
        })
    }
}

impl Encode for LiveOutcome {
    fn encode(&self, out: &mut Writer<'_>) {
        out.fields(&[&self.reached, &self.offline, &self.busy, &self.refused]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_written_and_neither_empty_nor_over_the_limit() {
        let players: Vec<_> = (0..PlayerList::LEN_MAX as u64).map(ClientId).collect();
        let mut buf = Vec::new();
        let list = PlayerList::encode_into(&players, &mut buf).unwrap();
        let mut record = Vec::new();
        list.encode(&mut Writer::new(&mut record));
        let read = PlayerList::decode(&mut Reader::new(&record)).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), players);
        let error = |record: &[u8]| PlayerList::decode(&mut Reader::new(record)).unwrap_err();
        let cut = record.get(..record.len() - 1).unwrap();
        assert_eq!(error(cut), DecodeError::Truncated);
        assert_eq!(error(&[0, 0]), DecodeError::Count);
        assert_eq!(error(&[0x10, 0x01]), DecodeError::Count);
        let mut buf = Vec::new();
        assert_eq!(PlayerList::encode_into(&[], &mut buf), None);
        let over = vec![ClientId(1); PlayerList::LEN_MAX + 1];
        assert_eq!(PlayerList::encode_into(&over, &mut buf), None);
    }
}
