//! Records from a node to the hub.

use wire::{ClientId, InstanceId, Reader, Writer};

use super::{
    BODY_BYTES_MAX, CallError, GroupToHub, KvToHub, LiveToHub, META_BYTES_MAX, MailManySubmission,
    PresenceFilter, StatsToHub, code,
};
use crate::claim_grant::ClaimGrant;
use crate::field::{
    Addr, BatchSeq, CallId, ClaimNumber, CountKey, DecodeError, Epoch, Lease, MailSeq, Name,
    Redacted, RequestId, Role, SenderSeq,
};
use crate::shard::{Shard, ShardView};

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
    Call(CallRequest<'a>),
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
    Claim(ClaimRequest<'a>),
    /// `code 1, player 8, claim 8, lease 8, delivered 8, acknowledged 8, grant 178, meta...`
    ClaimGranted {
        /// The claim.
        claim: ClaimRequest<'a>,
        /// An encoded [`ClaimGrant`](crate::ClaimGrant).
        grant: &'a [u8],
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
    /// `code 1, call 8`
    Cancel {
        /// The caller's number of the call.
        call: CallId,
    },
    /// `code 1, seq 8, settled 8, ttl s 4, priority 1, recipients, body...`
    MailMany(MailManySubmission<'a>),
    /// A live message, or a subscription.
    Live(LiveToHub<'a>),
    /// `code 1, filter`: replaces the presence that the node watches.
    Watch(PresenceFilter),
    /// A request about a group.
    Group(GroupToHub<'a>),
    /// A request to the key-value store, or a watch.
    Kv(KvToHub<'a>),
    /// A batch or a query of statistics.
    Stats(StatsToHub<'a>),
    /// `code 1, index 1, count 1, hubs 8`: the hub that the node has dialed, as its join file says. It
    /// precedes `Join` if there are several hubs.
    Shard(ShardView),
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
    /// Whether to watch all nodes (bit 0) and all players (bit 1), until a
    /// [`Watch`](ToHub::Watch) record replaces it.
    pub watch: u8,
    /// Services that it provides.
    pub services: Vec<Name>,
}

/// A call of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRequest<'a> {
    /// The caller's number of the call.
    pub call: CallId,
    /// The caller's timeout, milliseconds.
    pub timeout_ms: u32,
    /// The address.
    pub to: Addr,
    /// The payload.
    pub body: Redacted<&'a [u8]>,
}

/// A claim of a player by a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRequest<'a> {
    /// The player.
    pub player: ClientId,
    /// The node's number of the session.
    pub claim: ClaimNumber,
    /// The lease granted before, or none.
    pub lease: Lease,
    /// The last mail delivered to the player's handler.
    pub delivered: MailSeq,
    /// The last mail acknowledged by it.
    pub acknowledged: MailSeq,
    /// A note for watchers, at most 256 bytes.
    pub meta: Redacted<&'a [u8]>,
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
    /// Decodes `record`; allocates for the lists of `Join` and `Counts`, and for keys.
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
            code::CALL => Self::Call(CallRequest {
                call: CallId(reader.u64()?),
                timeout_ms: reader.u32()?,
                to: Addr::decode(&mut reader)?,
                body: Redacted::decode(&mut reader, BODY_BYTES_MAX)?,
            }),
            code::REPLY => Self::Reply {
                request: RequestId(reader.u64()?),
                result: super::decode_result(&mut reader)?,
            },
            code::MAIL => Self::Mail(MailSubmission {
                seq: SenderSeq(reader.u64()?),
                settled: SenderSeq(reader.u64()?),
                ttl_s: reader.u32()?,
                to: Addr::decode(&mut reader)?,
                body: Redacted::decode(&mut reader, BODY_BYTES_MAX)?,
            }),
            code::MAIL_ACK => Self::MailAck {
                player: ClientId(reader.u64()?),
                upto: MailSeq(reader.u64()?),
            },
            code::CLAIM => Self::Claim(ClaimRequest::decode(&mut reader, 0)?.0),
            code::CLAIM_GRANTED => {
                let (claim, grant) = ClaimRequest::decode(&mut reader, ClaimGrant::LEN)?;
                Self::ClaimGranted { claim, grant }
            }
            code::RELEASE => Self::Release {
                player: ClientId(reader.u64()?),
                claim: ClaimNumber(reader.u64()?),
            },
            code::BROADCAST => Self::Broadcast {
                topic: Name::decode(&mut reader)?,
                body: Redacted::decode(&mut reader, BODY_BYTES_MAX)?,
            },
            code::COUNTS => Self::Counts {
                batch: BatchSeq(reader.u64()?),
                entries: super::decode_counts(&mut reader)?,
            },
            code::CANCEL => Self::Cancel {
                call: CallId(reader.u64()?),
            },
            code::WATCH => Self::Watch(PresenceFilter::decode(&mut reader)?),
            code::MAIL_MANY => Self::MailMany(MailManySubmission::decode(&mut reader)?),
            code::SHARD => {
                let shard = Shard::decode(&mut reader)?;
                let hubs = reader.u64()?;
                Self::Shard(ShardView { shard, hubs })
            }
            code @ 0x20..=0x23 => Self::Group(GroupToHub::decode(code, &mut reader)?),
            code @ 0x18..=0x1f => Self::Kv(KvToHub::decode(code, &mut reader)?),
            code @ (code::STATS_BATCH | code::STATS_QUERY) => {
                Self::Stats(StatsToHub::decode(code, &mut reader)?)
            }
            code => Self::Live(LiveToHub::decode(code, &mut reader)?),
        };
        reader.finish(DecodeError::Trailing)?;
        Ok(decoded)
    }

    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer::new(out);
        match self {
            Self::Join(join) => join.encode(&mut out),
            Self::Heartbeat => out.u8(code::HEARTBEAT),
            Self::Leave => out.u8(code::LEAVE),
            Self::Call(it) => {
                out.fields(&[&code::CALL, &it.call, &it.timeout_ms, &it.to, &it.body]);
            }
            Self::Reply { request, result } => {
                out.fields(&[&code::REPLY, request]);
                super::encode_result(*result, &mut out);
            }
            Self::Mail(it) => {
                out.fields(&[&code::MAIL, &it.seq, &it.settled, &it.ttl_s]);
                out.fields(&[&it.to, &it.body]);
            }
            Self::MailAck { player, upto } => out.fields(&[&code::MAIL_ACK, player, upto]),
            Self::Claim(it) => {
                out.u8(code::CLAIM);
                it.encode(&[], &mut out);
            }
            Self::ClaimGranted { claim, grant } => {
                out.u8(code::CLAIM_GRANTED);
                claim.encode(grant, &mut out);
            }
            Self::Release { player, claim } => out.fields(&[&code::RELEASE, player, claim]),
            Self::Broadcast { topic, body } => out.fields(&[&code::BROADCAST, topic, body]),
            Self::Counts { batch, entries } => {
                out.fields(&[&code::COUNTS, batch]);
                super::encode_counts(entries, &mut out);
            }
            Self::Cancel { call } => out.fields(&[&code::CANCEL, call]),
            Self::MailMany(it) => it.encode(&mut out),
            Self::Live(it) => it.encode(&mut out),
            Self::Watch(filter) => out.fields(&[&code::WATCH, filter]),
            Self::Group(it) => it.encode(&mut out),
            Self::Kv(it) => it.encode(&mut out),
            Self::Stats(it) => it.encode(&mut out),
            Self::Shard(view) => out.fields(&[&code::SHARD, &view.shard, &view.hubs]),
        }
    }
}

impl<'a> ClaimRequest<'a> {
    /// Decodes a claim with a grant of `grant_len` bytes.
    fn decode(reader: &mut Reader<'a>, grant_len: usize) -> Result<(Self, &'a [u8]), DecodeError> {
        let player = ClientId(reader.u64()?);
        let claim = ClaimNumber(reader.u64()?);
        let lease = Lease(reader.u64()?);
        let delivered = MailSeq(reader.u64()?);
        let acknowledged = MailSeq(reader.u64()?);
        let grant = reader.bytes(grant_len)?;
        let request = Self {
            player,
            claim,
            lease,
            delivered,
            acknowledged,
            meta: Redacted::decode(reader, META_BYTES_MAX)?,
        };
        Ok((request, grant))
    }

    fn encode(&self, grant: &[u8], out: &mut Writer<'_>) {
        out.fields(&[&self.player, &self.claim, &self.lease]);
        out.fields(&[&self.delivered, &self.acknowledged]);
        out.bytes(grant);
        out.fields(&[&self.meta]);
    }
}

impl Join {
    /// Bit of [`watch`](Self::watch) for nodes.
    pub const WATCH_NODES: u8 = 1;
    /// Bit of [`watch`](Self::watch) for players.
    pub const WATCH_PLAYERS: u8 = 2;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = reader.u16()?;
        let role = Role::decode(reader)?;
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
            services: super::decode_names(reader)?,
        })
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.fields(&[&code::JOIN, &self.version, &self.role, &self.instance]);
        out.fields(&[&self.epoch, &self.watch]);
        super::encode_names(&self.services, out);
    }
}
