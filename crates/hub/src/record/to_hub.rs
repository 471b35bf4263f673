//! What a node says.

use wire::{ClientId, InstanceId, Reader, Writer};

use super::{
    BODY_BYTES_MAX, COUNTS_MAX, CallError, DecodeError, META_BYTES_MAX, SERVICES_MAX, bounded,
    code, ended,
};
use crate::address::Addr;
use crate::count::CountKey;
use crate::id::{BatchSeq, CallId, ClaimNumber, Epoch, Lease, MailSeq, RequestId, SenderSeq};
use crate::name::Name;
use crate::redact::Redacted;
use crate::role::Role;

/// A record from a node to the hub; the tables give offsets from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToHub<'a> {
    /// `code 1, version 2, role 1, instance 8, epoch 4, watch 1, count 1, services...`
    Join(Join),
    /// `code 1`
    Heartbeat,
    /// `code 1`
    Leave,
    /// `code 1, call 8, timeout ms 4, address, body...`
    Call {
        /// The caller's number.
        call: CallId,
        /// How long the caller waits, milliseconds.
        timeout_ms: u32,
        /// Who shall answer.
        to: Addr,
        /// What is asked.
        body: Redacted<&'a [u8]>,
    },
    /// `code 1, request 8, status 1, body...`; status 0 is an answer, else a [`CallError`].
    Reply {
        /// The hub's number.
        request: RequestId,
        /// The answer, or why there is none.
        result: Result<Redacted<&'a [u8]>, CallError>,
    },
    /// `code 1, seq 8, settled 8, ttl s 4, address, body...`
    Mail(MailSubmission<'a>),
    /// `code 1, player 8, upto 8`
    MailAck {
        /// Whose mailbox.
        player: ClientId,
        /// The last mail that is handled; all before it are, too.
        upto: MailSeq,
    },
    /// `code 1, player 8, claim 8, lease 8, delivered 8, acknowledged 8, meta...`
    Claim {
        /// Who is here.
        player: ClientId,
        /// The node's number of the session.
        claim: ClaimNumber,
        /// The lease held before, or none.
        lease: Lease,
        /// The last mail that the player's handler has been given.
        delivered: MailSeq,
        /// The last mail that it has acknowledged.
        acknowledged: MailSeq,
        /// A note for watchers, at most 256 bytes.
        meta: Redacted<&'a [u8]>,
    },
    /// `code 1, player 8, claim 8`
    Release {
        /// Who has gone.
        player: ClientId,
        /// The session that ends.
        claim: ClaimNumber,
    },
    /// `code 1, topic, body...`
    Broadcast {
        /// What it is about.
        topic: Name,
        /// What is said.
        body: Redacted<&'a [u8]>,
    },
    /// `code 1, batch 8, count 1, (key, increase 8)...`
    Counts {
        /// The node's number of this batch.
        batch: BatchSeq,
        /// What was counted, and how often.
        entries: Vec<(CountKey, u64)>,
    },
}

/// Who a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Version of the records.
    pub version: u16,
    /// What it joins as.
    pub role: Role,
    /// Which run of it.
    pub instance: InstanceId,
    /// The epoch that the hub gave to this run before; 0 where it gave none yet. A run that was
    /// superseded while its link was away is found out by it.
    pub epoch: Epoch,
    /// Whether it wants to hear of nodes (bit 0) and of players (bit 1).
    pub watch: u8,
    /// What it serves.
    pub services: Vec<Name>,
}

/// A mail on its way to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailSubmission<'a> {
    /// The sender's number of it.
    pub seq: SenderSeq,
    /// The sender knows what became of all its mails up to this one, and asks about none of them
    /// again.
    pub settled: SenderSeq,
    /// How long it is kept, seconds; 0 leaves it to the hub.
    pub ttl_s: u32,
    /// Whose mailbox.
    pub to: Addr,
    /// What it says.
    pub body: Redacted<&'a [u8]>,
}

impl<'a> ToHub<'a> {
    /// Takes `record` apart; allocates only for the lists of `Join` and `Counts`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] says what does not fit.
    pub fn decode(record: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(record);
        let decoded = match reader.u8()? {
            code::JOIN => Self::Join(Join::decode(&mut reader)?),
            code::HEARTBEAT => Self::Heartbeat,
            code::LEAVE => Self::Leave,
            code::CALL => Self::Call {
                call: CallId(reader.u64()?),
                timeout_ms: reader.u32()?,
                to: Addr::decode(&mut reader)?,
                body: Redacted(bounded(reader.take_rest(), BODY_BYTES_MAX)?),
            },
            code::REPLY => Self::Reply {
                request: RequestId(reader.u64()?),
                result: decode_result(&mut reader)?,
            },
            code::MAIL => Self::Mail(MailSubmission {
                seq: SenderSeq(reader.u64()?),
                settled: SenderSeq(reader.u64()?),
                ttl_s: reader.u32()?,
                to: Addr::decode(&mut reader)?,
                body: Redacted(bounded(reader.take_rest(), BODY_BYTES_MAX)?),
            }),
            code::MAIL_ACK => Self::MailAck {
                player: ClientId(reader.u64()?),
                upto: MailSeq(reader.u64()?),
            },
            code::CLAIM => Self::Claim {
                player: ClientId(reader.u64()?),
                claim: ClaimNumber(reader.u64()?),
                lease: Lease(reader.u64()?),
                delivered: MailSeq(reader.u64()?),
                acknowledged: MailSeq(reader.u64()?),
                meta: Redacted(bounded(reader.take_rest(), META_BYTES_MAX)?),
            },
            code::RELEASE => Self::Release {
                player: ClientId(reader.u64()?),
                claim: ClaimNumber(reader.u64()?),
            },
            code::BROADCAST => Self::Broadcast {
                topic: Name::decode(&mut reader)?,
                body: Redacted(bounded(reader.take_rest(), BODY_BYTES_MAX)?),
            },
            code::COUNTS => Self::Counts {
                batch: BatchSeq(reader.u64()?),
                entries: decode_counts(&mut reader)?,
            },
            code => return Err(DecodeError::Code(code)),
        };
        ended(decoded, reader.rest())
    }

    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer::new(out);
        match self {
            Self::Join(join) => join.encode(&mut out),
            Self::Heartbeat => out.u8(code::HEARTBEAT),
            Self::Leave => out.u8(code::LEAVE),
            Self::Call {
                call,
                timeout_ms,
                to,
                body,
            } => {
                out.u8(code::CALL);
                out.u64(call.0);
                out.u32(*timeout_ms);
                to.encode(&mut out);
                out.bytes(body);
            }
            Self::Reply { request, result } => {
                out.u8(code::REPLY);
                out.u64(request.0);
                encode_result(*result, &mut out);
            }
            Self::Mail(mail) => mail.encode(&mut out),
            Self::MailAck { player, upto } => {
                out.u8(code::MAIL_ACK);
                out.u64(player.0);
                out.u64(upto.0);
            }
            Self::Claim {
                player,
                claim,
                lease,
                delivered,
                acknowledged,
                meta,
            } => {
                out.u8(code::CLAIM);
                out.u64(player.0);
                out.u64(claim.0);
                out.u64(lease.0);
                out.u64(delivered.0);
                out.u64(acknowledged.0);
                out.bytes(meta);
            }
            Self::Release { player, claim } => {
                out.u8(code::RELEASE);
                out.u64(player.0);
                out.u64(claim.0);
            }
            Self::Broadcast { topic, body } => {
                out.u8(code::BROADCAST);
                topic.encode(&mut out);
                out.bytes(body);
            }
            Self::Counts { batch, entries } => {
                out.u8(code::COUNTS);
                out.u64(batch.0);
                encode_counts(entries, &mut out);
            }
        }
    }
}

impl Join {
    /// Bit of [`watch`](Self::watch): tell me of nodes.
    pub const WATCH_NODES: u8 = 1;
    /// Bit of [`watch`](Self::watch): tell me of players.
    pub const WATCH_PLAYERS: u8 = 2;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = reader.u16()?;
        let role = reader.u8()?;
        let role = Role::from_code(role).ok_or(DecodeError::Choice(role))?;
        let instance = InstanceId(reader.u64()?);
        let epoch = Epoch(reader.u32()?);
        let watch = reader.u8()?;
        if watch & !(Self::WATCH_NODES | Self::WATCH_PLAYERS) != 0 {
            return Err(DecodeError::Choice(watch));
        }
        Ok(Self {
            version,
            role,
            instance,
            epoch,
            watch,
            services: decode_names(reader)?,
        })
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(code::JOIN);
        out.u16(self.version);
        out.u8(self.role.code());
        out.u64(self.instance.0);
        out.u32(self.epoch.0);
        out.u8(self.watch);
        encode_names(&self.services, out);
    }
}

impl MailSubmission<'_> {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(code::MAIL);
        out.u64(self.seq.0);
        out.u64(self.settled.0);
        out.u32(self.ttl_s);
        self.to.encode(out);
        out.bytes(&self.body);
    }
}

pub(super) fn decode_names(reader: &mut Reader<'_>) -> Result<Vec<Name>, DecodeError> {
    let count = usize::from(reader.u8()?);
    if count > SERVICES_MAX {
        return Err(DecodeError::Count);
    }
    (0..count).map(|_| Name::decode(reader)).collect()
}

pub(super) fn encode_names(names: &[Name], out: &mut Writer<'_>) {
    out.u8(u8::try_from(names.len()).unwrap_or(u8::MAX));
    for name in names {
        name.encode(out);
    }
}

pub(super) fn decode_result<'a>(
    reader: &mut Reader<'a>,
) -> Result<Result<Redacted<&'a [u8]>, CallError>, DecodeError> {
    match reader.u8()? {
        0 => bounded(reader.take_rest(), BODY_BYTES_MAX).map(|body| Ok(Redacted(body))),
        status => CallError::from_code(status).map(Err),
    }
}

pub(super) fn encode_result(result: Result<Redacted<&[u8]>, CallError>, out: &mut Writer<'_>) {
    match result {
        Ok(body) => {
            out.u8(0);
            out.bytes(&body);
        }
        Err(error) => out.u8(error.code()),
    }
}

pub(crate) fn decode_counts(reader: &mut Reader<'_>) -> Result<Vec<(CountKey, u64)>, DecodeError> {
    let count = usize::from(reader.u8()?);
    if count > COUNTS_MAX {
        return Err(DecodeError::Count);
    }
    (0..count)
        .map(|_| Ok((CountKey::decode(reader)?, reader.u64()?)))
        .collect()
}

pub(crate) fn encode_counts(entries: &[(CountKey, u64)], out: &mut Writer<'_>) {
    out.u8(u8::try_from(entries.len()).unwrap_or(u8::MAX));
    for (key, increase) in entries {
        key.encode(out);
        out.u64(*increase);
    }
}
