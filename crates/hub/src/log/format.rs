//! Encoding of log records.
//!
//! ```text
//! 0        4        8                8 + len
//! +--------+--------+----------------+
//! | CRC32C | length | payload        |
//! +--------+--------+----------------+
//! ```
//!
//! Big-endian. The checksum (RFC 3720, appendix B.4: Castagnoli) covers the segment's number, the
//! record's offset, the length and the payload, so a record is valid only where it was written. A
//! length of zero ends a segment, which is allocated full of zeros. The first byte of the payload
//! is its code; codes 28-31 are reserved for statistics.

use wire::{ClientId, InstanceId, NodeId, Reader, UnixTime, Writer};

use super::segment::SegmentId;
use crate::field::{
    BatchSeq, CountKey, DecodeError, Epoch, GroupId, LogId, MailSeq, Redacted, Role, SenderSeq,
};
use crate::kv::{KvKey, KvLease};
use crate::record::{
    MailRefusal, PartRefusal, PlayerIds, PlayerList, RECORD_BYTES_MAX, decode_counts, encode_counts,
};
use crate::shard::Shard;

/// Bytes before a payload.
pub const HEAD_BYTES: usize = 8;

/// Longest payload: one record of a link, and 1 KiB that the log adds.
pub const PAYLOAD_BYTES_MAX: usize = RECORD_BYTES_MAX + 1_024;

/// First bytes of a [`LogRecord::Start`].
pub const MAGIC: [u8; 8] = *b"TWHUBLOG";

/// Version of this format.
pub const VERSION: u16 = 2;

/// Oldest version that this release reads. Version 2 adds codes 16 and up.
pub const VERSION_MIN: u16 = 1;

/// Size of a [`LogRecord::Start`], bytes. It fits a sector, so a disk writes it whole or not at
/// all.
pub(super) const START_BYTES: usize = HEAD_BYTES + 1 + 8 + 2 + 4 + 8 + 8 + 8;

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogRecord<'a> {
    /// First of a segment: `code 1, magic 8, version 2, boot 4, last mail 8, log 8, time ms 8`.
    /// Records up to [`Ready`](Self::Ready) repeat all small state, so that older segments can be
    /// removed.
    Start(Start),
    /// Ends the state that `Start` begins: `code 1`.
    Ready,
    /// A start of the hub: `code 1, boot 4`.
    Boot(u32),
    /// A node's run: `code 1, node 32, instance 8, epoch 4, mail mark 8, count mark 8 [, role 1]`. With
    /// a role it has another code.
    Node(NodeRun),
    /// A mail: `code 1, seq 8, player 8, expires ms 8, node 32, epoch 4, sender seq 8, body...`
    Mail(StoredMail<'a>),
    /// An acknowledgement: `code 1, player 8, upto 8`.
    Ack {
        /// The player.
        player: ClientId,
        /// The last mail acknowledged.
        upto: MailSeq,
    },
    /// A rejected mail: `code 1, node 32, epoch 4, sender seq 8, reason 1`.
    Refusal {
        /// The sending node.
        node: NodeId,
        /// The epoch of its run.
        epoch: Epoch,
        /// The sender's number.
        seq: SenderSeq,
        /// The reason.
        reason: MailRefusal,
    },
    /// A batch of counts: `code 1, node 32, epoch 4, batch 8, count 1, (key, increase 8)...`
    Counts {
        /// The node.
        node: NodeId,
        /// The epoch of its run.
        epoch: Epoch,
        /// The node's number of the batch.
        batch: BatchSeq,
        /// Keys and their increases.
        entries: Vec<(CountKey, u64)>,
    },
    /// A total: `code 1, total 8, key`.
    Total {
        /// The key.
        key: CountKey,
        /// Its total.
        total: u64,
    },
    /// The accepted wall clock: `code 1, time ms 8`.
    Time(UnixTime),
    /// A player joined a group: `code 1, group 8, player 8`.
    GroupJoin {
        /// The group.
        group: GroupId,
        /// The player.
        player: ClientId,
    },
    /// A player left a group: `code 1, group 8, player 8`.
    GroupLeave {
        /// The group.
        group: GroupId,
        /// The player.
        player: ClientId,
    },
    /// All members of a group: `code 1, group 8, players`.
    GroupMembers {
        /// The group.
        group: GroupId,
        /// The members.
        players: PlayerIds,
    },
    /// A key: `code 1, sequence 8 [, by 32], lease 1 [, node 32, epoch 4], key, value...` With the node
    /// that set it, it has another code.
    KvSet(StoredKv<'a>),
    /// A deleted key: `code 1, sequence 8, key`.
    KvDelete {
        /// Number of the change.
        sequence: u64,
        /// The key.
        key: KvKey,
    },
    /// The number of the last change of a key: `code 1, sequence 8`.
    KvMark(u64),
    /// A mail to several players, or with a priority: `code 1, seq 8, expires ms 8, node 32, epoch
    /// 4, sender seq 8, priority 1, players, is part 1 [, refusal], body...`
    Mailing(StoredMailing<'a>),
    /// A mail that some of its recipients' mailboxes rejected: `code 1, node 32, epoch 4, sender
    /// seq 8, refusal`.
    PartRefusal {
        /// The sending node.
        node: NodeId,
        /// The epoch of its run.
        epoch: Epoch,
        /// The sender's number.
        seq: SenderSeq,
        /// The recipients that were rejected.
        part: PartRefusal,
    },
    /// Mails that full mailboxes dropped for others: `code 1, count 2, (player 8, seq 8)...`; at
    /// least one and at most [`DROPS_MAX`].
    Dropped(Vec<(ClientId, MailSeq)>),
    /// All mail of a sender is deleted: `code 1, node 32`.
    Purged(NodeId),
    /// How long the hub has run since the last [`Time`](Self::Time) with a wall clock far from that:
    /// `code 1, ran ms 8`.
    Ran(u64),
    /// The hub's part, if there are several hubs: `code 1, index 1, count 1`.
    Shard(Shard),
}

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Version of the format, from 1 to [`VERSION`].
    pub version: u16,
    /// Starts of the hub.
    pub boot: u32,
    /// The last mail number assigned.
    pub last_mail: MailSeq,
    /// The log.
    pub log: LogId,
    /// The newest accepted wall clock; 0 if none.
    pub time: UnixTime,
}

/// The newest run of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRun {
    /// The node.
    pub node: NodeId,
    /// The run.
    pub instance: InstanceId,
    /// The epoch of the run.
    pub epoch: Epoch,
    /// All mails up to this one have verdicts.
    pub mail_mark: SenderSeq,
    /// All batches up to this one are stored.
    pub count_mark: BatchSeq,
    /// The role with which it joined last; `None` in a log of an earlier release.
    pub role: Option<Role>,
}

/// A mail in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredMail<'a> {
    /// Its number in the mailbox.
    pub seq: MailSeq,
    /// The player.
    pub player: ClientId,
    /// When it expires.
    pub expires: UnixTime,
    /// The sending node.
    pub node: NodeId,
    /// The epoch of its run.
    pub epoch: Epoch,
    /// The sender's number.
    pub sender_seq: SenderSeq,
    /// The payload.
    pub body: Redacted<&'a [u8]>,
}

/// A key in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKv<'a> {
    /// Number of the change: larger than those of all changes before.
    pub sequence: u64,
    /// The node that set it; `None` for the hub's own process, and in a log of an earlier release.
    pub by: Option<NodeId>,
    /// The run of a node whose end deletes the key, if any.
    pub lease: Option<KvLease>,
    /// The key.
    pub key: KvKey,
    /// The value.
    pub value: Redacted<&'a [u8]>,
}

/// A mail in the log that is stored once for several players, or that has a priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMailing<'a> {
    /// Its number in each of the mailboxes.
    pub seq: MailSeq,
    /// When it expires.
    pub expires: UnixTime,
    /// The sending node.
    pub node: NodeId,
    /// The epoch of its run.
    pub epoch: Epoch,
    /// The sender's number.
    pub sender_seq: SenderSeq,
    /// Its priority.
    pub priority: u8,
    /// The players with this mail in their mailboxes.
    pub players: PlayerList<'a>,
    /// The recipients that were rejected, if any. Copies of the record leave it out.
    pub part: Option<PartRefusal>,
    /// The payload.
    pub body: Redacted<&'a [u8]>,
}

/// Most mails of one [`LogRecord::Dropped`].
pub const DROPS_MAX: usize = 4_096;

const START: u8 = 0;
const READY: u8 = 1;
const BOOT: u8 = 2;
const NODE: u8 = 3;
const MAIL: u8 = 4;
const ACK: u8 = 5;
const REFUSAL: u8 = 6;
const COUNTS: u8 = 7;
const TOTAL: u8 = 8;
const TIME: u8 = 9;
const GROUP_JOIN: u8 = 24;
const GROUP_LEAVE: u8 = 25;
const GROUP_MEMBERS: u8 = 26;
const KV_SET: u8 = 20;
const KV_DELETE: u8 = 21;
const KV_MARK: u8 = 22;
const MAILING: u8 = 16;
const PART_REFUSAL: u8 = 17;
const DROPPED: u8 = 18;
const RAN: u8 = 32;
const PURGED: u8 = 33;
const NODE_WITH_ROLE: u8 = 34;
const KV_SET_BY: u8 = 35;
const SHARD: u8 = 36;

/// Why no record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// Zeros: nothing was written here.
    End,
    /// The checksum does not match: a torn write, corruption, or bytes from elsewhere.
    Broken,
    /// A valid record of a release with other record types.
    Unknown(DecodeError),
}

/// Appends `record` to `out`, encoded for `offset` of `segment`.
pub fn encode(record: &LogRecord<'_>, segment: SegmentId, offset: u64, out: &mut Vec<u8>) {
    frame(segment, offset, out, |out| {
        record.encode_payload(&mut Writer::new(out));
    });
}

/// Appends a checksum, a length, and what `encode` appends.
pub(crate) fn frame(
    segment: SegmentId,
    offset: u64,
    out: &mut Vec<u8>,
    encode: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    encode(out);
    let payload_at = start.saturating_add(HEAD_BYTES);
    let payload = out.get(payload_at..).unwrap_or_default();
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let crc = checksum(segment, offset, len, payload);
    let head = crc.to_be_bytes().into_iter().chain(len.to_be_bytes());
    for (target, byte) in out.iter_mut().skip(start).zip(head) {
        *target = byte;
    }
}

/// Decodes the record at the front of `bytes`, which is at `offset` of `segment`; returns its whole
/// length.
///
/// # Errors
///
/// [`ReadError`]. It never allocates more than the length of `bytes`.
pub fn decode(
    bytes: &[u8],
    segment: SegmentId,
    offset: u64,
) -> Result<(LogRecord<'_>, usize), ReadError> {
    let (payload, whole) = check(bytes, segment, offset)?;
    let record = LogRecord::decode_payload(payload).map_err(ReadError::Unknown)?;
    Ok((record, whole))
}

/// Returns the payload and the whole length, if the checksum matches.
pub(crate) fn check(
    bytes: &[u8],
    segment: SegmentId,
    offset: u64,
) -> Result<(&[u8], usize), ReadError> {
    let mut reader = Reader::new(bytes);
    let (Ok(crc), Ok(len)) = (reader.u32(), reader.u32()) else {
        return Err(ReadError::End);
    };
    if len == 0 {
        return Err(if crc == 0 {
            ReadError::End
        } else {
            ReadError::Broken
        });
    }
    let payload_len = usize::try_from(len).map_err(|_| ReadError::Broken)?;
    if payload_len > PAYLOAD_BYTES_MAX {
        return Err(ReadError::Broken);
    }
    let payload = reader.bytes(payload_len).map_err(|_| ReadError::Broken)?;
    if checksum(segment, offset, len, payload) != crc {
        return Err(ReadError::Broken);
    }
    Ok((payload, HEAD_BYTES.saturating_add(payload_len)))
}

fn checksum(segment: SegmentId, offset: u64, len: u32, payload: &[u8]) -> u32 {
    let place = crc32c::crc32c(&segment.0.to_be_bytes());
    let place = crc32c::crc32c_append(place, &offset.to_be_bytes());
    let place = crc32c::crc32c_append(place, &len.to_be_bytes());
    crc32c::crc32c_append(place, payload)
}

impl<'a> LogRecord<'a> {
    /// Returns the number of a mail; `None` for other records.
    pub(crate) const fn mail_seq(&self) -> Option<MailSeq> {
        if let Self::Mail(StoredMail { seq, .. }) | Self::Mailing(StoredMailing { seq, .. }) = self
        {
            Some(*seq)
        } else {
            None
        }
    }

    /// Returns the mail as `player` has it, if the record holds one for it.
    pub(crate) fn mail_for(&self, player: ClientId) -> Option<StoredMail<'a>> {
        if let Self::Mailing(mailing) = self {
            mailing.for_player(player)
        } else if let Self::Mail(mail) = self {
            (mail.player == player).then_some(*mail)
        } else {
            None
        }
    }

    fn encode_payload(&self, out: &mut Writer<'_>) {
        match self {
            Self::Start(it) => {
                out.fields(&[&START, &MAGIC, &it.version, &it.boot, &it.last_mail]);
                out.fields(&[&it.log, &it.time.as_millis()]);
            }
            Self::Ready => out.u8(READY),
            Self::Boot(boot) => out.fields(&[&BOOT, boot]),
            Self::Node(it) => it.encode(out),
            Self::Mail(it) => {
                out.fields(&[&MAIL, &it.seq, &it.player, &it.expires.as_millis()]);
                out.fields(&[&it.node, &it.epoch, &it.sender_seq, &it.body]);
            }
            Self::Ack { player, upto } => out.fields(&[&ACK, player, upto]),
            Self::Refusal {
                node,
                epoch,
                seq,
                reason,
            } => out.fields(&[&REFUSAL, node, epoch, seq, reason]),
            Self::Counts {
                node,
                epoch,
                batch,
                entries,
            } => {
                out.fields(&[&COUNTS, node, epoch, batch]);
                encode_counts(entries, out);
            }
            Self::Total { key, total } => out.fields(&[&TOTAL, total, key]),
            Self::Time(time) => out.fields(&[&TIME, &time.as_millis()]),
            Self::GroupJoin { group, player } => out.fields(&[&GROUP_JOIN, group, player]),
            Self::GroupLeave { group, player } => out.fields(&[&GROUP_LEAVE, group, player]),
            Self::GroupMembers { group, players } => {
                out.fields(&[&GROUP_MEMBERS, group, &players.list()]);
            }
            Self::KvSet(it) => {
                match &it.by {
                    None => out.fields(&[&KV_SET, &it.sequence]),
                    Some(by) => out.fields(&[&KV_SET_BY, &it.sequence, by]),
                }
                KvLease::encode_option(it.lease.as_ref(), out);
                out.fields(&[&it.key, &it.value]);
            }
            Self::KvDelete { sequence, key } => out.fields(&[&KV_DELETE, sequence, key]),
            Self::KvMark(sequence) => out.fields(&[&KV_MARK, sequence]),
            Self::Shard(shard) => out.fields(&[&SHARD, shard]),
            Self::Mailing(it) => it.encode(out),
            Self::PartRefusal {
                node,
                epoch,
                seq,
                part,
            } => out.fields(&[&PART_REFUSAL, node, epoch, seq, part]),
            Self::Dropped(mails) => {
                out.u8(DROPPED);
                // At most `DROPS_MAX`.
                out.u16(u16::try_from(mails.len()).unwrap_or(u16::MAX));
                for (player, seq) in mails {
                    out.fields(&[player, seq]);
                }
            }
            Self::Ran(ran) => out.fields(&[&RAN, ran]),
            Self::Purged(node) => out.fields(&[&PURGED, node]),
        }
    }

    fn decode_payload(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let record = match reader.u8()? {
            START => Self::Start(Start::decode(&mut reader)?),
            READY => Self::Ready,
            BOOT => Self::Boot(reader.u32()?),
            NODE => Self::Node(NodeRun::decode(&mut reader)?),
            NODE_WITH_ROLE => {
                let run = NodeRun::decode(&mut reader)?;
                let role = Some(Role::decode(&mut reader)?);
                Self::Node(NodeRun { role, ..run })
            }
            MAIL => Self::Mail(StoredMail::decode(&mut reader)?),
            ACK => Self::Ack {
                player: ClientId(reader.u64()?),
                upto: MailSeq(reader.u64()?),
            },
            REFUSAL => Self::Refusal {
                node: NodeId(reader.array()?),
                epoch: Epoch(reader.u32()?),
                seq: SenderSeq(reader.u64()?),
                reason: MailRefusal::from_code(reader.u8()?)?,
            },
            COUNTS => Self::Counts {
                node: NodeId(reader.array()?),
                epoch: Epoch(reader.u32()?),
                batch: BatchSeq(reader.u64()?),
                entries: decode_counts(&mut reader)?,
            },
            TOTAL => Self::Total {
                total: reader.u64()?,
                key: CountKey::decode(&mut reader)?,
            },
            TIME => Self::Time(UnixTime::from_millis(reader.u64()?)),
            GROUP_JOIN => Self::GroupJoin {
                group: GroupId(reader.u64()?),
                player: ClientId(reader.u64()?),
            },
            GROUP_LEAVE => Self::GroupLeave {
                group: GroupId(reader.u64()?),
                player: ClientId(reader.u64()?),
            },
            GROUP_MEMBERS => Self::GroupMembers {
                group: GroupId(reader.u64()?),
                players: PlayerList::decode(&mut reader)?.to_ids(),
            },
            code @ (KV_SET | KV_SET_BY) => Self::KvSet(StoredKv::decode(code, &mut reader)?),
            KV_DELETE => Self::KvDelete {
                sequence: reader.u64()?,
                key: KvKey::decode(&mut reader)?,
            },
            KV_MARK => Self::KvMark(reader.u64()?),
            SHARD => Self::Shard(Shard::decode(&mut reader)?),
            MAILING => Self::Mailing(StoredMailing::decode(&mut reader)?),
            PART_REFUSAL => Self::PartRefusal {
                node: NodeId(reader.array()?),
                epoch: Epoch(reader.u32()?),
                seq: SenderSeq(reader.u64()?),
                part: PartRefusal::decode(&mut reader)?,
            },
            DROPPED => Self::Dropped(decode_drops(&mut reader)?),
            RAN => Self::Ran(reader.u64()?),
            PURGED => Self::Purged(NodeId(reader.array()?)),
            code => return Err(DecodeError::Code(code)),
        };
        reader.finish(DecodeError::Trailing)?;
        Ok(record)
    }
}

fn decode_drops(reader: &mut Reader<'_>) -> Result<Vec<(ClientId, MailSeq)>, DecodeError> {
    let count = usize::from(reader.u16()?);
    if count == 0 || count > DROPS_MAX {
        return Err(DecodeError::Count);
    }
    (0..count)
        .map(|_| Ok((ClientId(reader.u64()?), MailSeq(reader.u64()?))))
        .collect()
}

impl NodeRun {
    fn encode(&self, out: &mut Writer<'_>) {
        let code = self.role.map_or(NODE, |_| NODE_WITH_ROLE);
        out.fields(&[&code, &self.node, &self.instance, &self.epoch]);
        out.fields(&[&self.mail_mark, &self.count_mark]);
        if let Some(role) = self.role {
            out.fields(&[&role]);
        }
    }

    /// Decodes a run without its role.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            node: NodeId(reader.array()?),
            instance: InstanceId(reader.u64()?),
            epoch: Epoch(reader.u32()?),
            mail_mark: SenderSeq(reader.u64()?),
            count_mark: BatchSeq(reader.u64()?),
            role: None,
        })
    }
}

impl Start {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (magic, version) = (reader.array()?, reader.u16()?);
        if magic != MAGIC || !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(DecodeError::Code(START));
        }
        Ok(Self {
            version,
            boot: reader.u32()?,
            last_mail: MailSeq(reader.u64()?),
            log: LogId(reader.u64()?),
            time: UnixTime::from_millis(reader.u64()?),
        })
    }
}

impl<'a> StoredKv<'a> {
    fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let sequence = reader.u64()?;
        let by = match code {
            KV_SET_BY => Some(NodeId(reader.array()?)),
            _ => None,
        };
        Ok(Self {
            sequence,
            by,
            lease: KvLease::decode_option(reader)?,
            key: KvKey::decode(reader)?,
            value: Redacted(reader.take_rest()),
        })
    }
}

impl<'a> StoredMail<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            seq: MailSeq(reader.u64()?),
            player: ClientId(reader.u64()?),
            expires: UnixTime::from_millis(reader.u64()?),
            node: NodeId(reader.array()?),
            epoch: Epoch(reader.u32()?),
            sender_seq: SenderSeq(reader.u64()?),
            body: Redacted(reader.take_rest()),
        })
    }
}

impl<'a> StoredMailing<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            seq: MailSeq(reader.u64()?),
            expires: UnixTime::from_millis(reader.u64()?),
            node: NodeId(reader.array()?),
            epoch: Epoch(reader.u32()?),
            sender_seq: SenderSeq(reader.u64()?),
            priority: reader.u8()?,
            players: PlayerList::decode(reader)?,
            part: match reader.u8()? {
                0 => None,
                1 => Some(PartRefusal::decode(reader)?),
                flag => return Err(DecodeError::Choice(flag)),
            },
            body: Redacted(reader.take_rest()),
        })
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.fields(&[&MAILING, &self.seq, &self.expires.as_millis(), &self.node]);
        out.fields(&[&self.epoch, &self.sender_seq, &self.priority, &self.players]);
        match &self.part {
            None => out.u8(0),
            Some(part) => out.fields(&[&1_u8, part]),
        }
        out.fields(&[&self.body]);
    }

    /// Returns the mail as one of its players has it.
    pub(crate) fn for_player(&self, player: ClientId) -> Option<StoredMail<'a>> {
        self.players.contains(player).then_some(StoredMail {
            seq: self.seq,
            player,
            expires: self.expires,
            node: self.node,
            epoch: self.epoch,
            sender_seq: self.sender_seq,
            body: self.body,
        })
    }
}
