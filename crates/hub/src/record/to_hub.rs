//! Records from a node to the hub.

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

/// A record from a node to the hub. Layouts list the size of each field in bytes.
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
        /// The caller's number of the call.
        call: CallId,
        /// The caller's timeout, milliseconds.
        timeout_ms: u32,
        /// The address.
        to: Addr,
        /// The payload.
        body: Redacted<&'a [u8]>,
    },
    /// `code 1, request 8, status 1, body...`; status 0 is a reply, else a [`CallError`].
    Reply {
        /// The hub's number of the request.
        request: RequestId,
        /// The reply, or why there is none.
        result: Result<Redacted<&'a [u8]>, CallError>,
    },
    /// `code 1, seq 8, settled 8, ttl s 4, address, body...`
    Mail(MailSubmission<'a>),
    /// `code 1, player 8, upto 8`
    MailAck {
        /// The player.
        player: ClientId,
        /// The last mail processed, and with it all before.
        upto: MailSeq,
    },
    /// `code 1, player 8, claim 8, lease 8, delivered 8, acknowledged 8, meta...`
    Claim {
        /// The player.
        player: ClientId,
        /// The node's number of the session.
        claim: ClaimNumber,
        /// The lease granted before, or none.
        lease: Lease,
        /// The last mail delivered to the player's handler.
        delivered: MailSeq,
        /// The last mail acknowledged by it.
        acknowledged: MailSeq,
        /// A note for watchers, at most 256 bytes.
        meta: Redacted<&'a [u8]>,
    },
    /// `code 1, player 8, claim 8`
    Release {
        /// The player.
        player: ClientId,
        /// The session that ends.
        claim: ClaimNumber,
    },
    /// `code 1, topic, body...`
    Broadcast {
        /// The topic.
        topic: Name,
        /// The payload.
        body: Redacted<&'a [u8]>,
    },
    /// `code 1, batch 8, count 1, (key, increase 8)...`
    Counts {
        /// The node's number of the batch.
        batch: BatchSeq,
        /// Keys and their increases.
        entries: Vec<(CountKey, u64)>,
    },
}

/// Identifies a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Version of the records.
    pub version: u16,
    /// The role.
    pub role: Role,
    /// The run of the node.
    pub instance: InstanceId,
    /// The epoch that the hub assigned to this run before; 0 if none. With it the hub detects a run
    /// that was superseded while it was disconnected.
    pub epoch: Epoch,
    /// Whether to watch nodes (bit 0) and players (bit 1).
    pub watch: u8,
    /// Services that it provides.
    pub services: Vec<Name>,
}

/// A mail sent to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailSubmission<'a> {
    /// The sender's number.
    pub seq: SenderSeq,
    /// The sender has verdicts on all its mails up to this one, and will not resend them.
    pub settled: SenderSeq,
    /// How long to keep it, seconds; 0 for the hub's default.
    pub ttl_s: u32,
    /// The address.
    pub to: Addr,
    /// The payload.
    pub body: Redacted<&'a [u8]>,
}

impl<'a> ToHub<'a> {
    /// Decodes `record`; allocates for the lists of `Join` and `Counts` only.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the record is invalid.
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
    /// Bit of [`watch`](Self::watch) for nodes.
    pub const WATCH_NODES: u8 = 1;
    /// Bit of [`watch`](Self::watch) for players.
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
