//! Records from the hub to a node.

use wire::{ClientId, InstanceId, NodeId, Reader, Writer};

use super::{
    BODY_BYTES_MAX, CallError, DownReason, GroupToNode, KvToNode, LiveToNode, META_BYTES_MAX,
    MailVerdict, PartRefusal, RevokeReason, StatsToNode, code,
};
use crate::field::{
    Addr, BatchSeq, CallId, ClaimNumber, DecodeError, Epoch, Lease, LogId, MailSeq, Name, Redacted,
    RequestId, Role, SenderSeq,
};

/// A record from the hub to a node. Layouts list the size of each field in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToNode<'a> {
    /// `code 1, epoch 4, boot 4, log 8, mail mark 8, count mark 8`
    Joined {
        /// The epoch of this run of the node.
        epoch: Epoch,
        /// Starts of the hub.
        boot: u32,
        /// The hub's log; mail numbers of another log are void.
        log: LogId,
        /// The verdicts on all mails of this run up to this one are on disk.
        mail_mark: SenderSeq,
        /// All batches of this run up to this one are on disk.
        count_mark: BatchSeq,
    },
    /// `code 1`
    Heartbeat,
    /// `code 1, reason 1`
    Down(DownReason),
    /// `code 1, request 8, from 32, instance 8, timeout ms 4, address, body...`
    Request(Request<'a>),
    /// `code 1, call 8, status 1, body...`; status 0 is a reply, else a [`CallError`].
    Reply {
        /// The caller's number of the call.
        call: CallId,
        /// The reply, or why there is none.
        result: Result<Redacted<&'a [u8]>, CallError>,
    },
    /// `code 1, first 8, last 8, verdict 1, retry ms 4`; verdict 0 is stored, 253 over the share, 254
    /// full, 255 busy, else a refusal.
    MailSettled {
        /// The first mail of the run.
        first: SenderSeq,
        /// The last mail of the run.
        last: SenderSeq,
        /// The verdict.
        verdict: MailVerdict,
        /// If the mail is not settled, the delay before a retry, milliseconds.
        retry_ms: u32,
    },
    /// `code 1, player 8, claim 8, seq 8, from 32, epoch 4, sender seq 8, body...`
    Deliver(Delivery<'a>),
    /// `code 1, player 8, claim 8, lease 8`
    Granted {
        /// The player.
        player: ClientId,
        /// The node's number of the session.
        claim: ClaimNumber,
        /// The lease, to send with the next claim of the player.
        lease: Lease,
    },
    /// `code 1, player 8, claim 8, reason 1`
    Revoked {
        /// The player.
        player: ClientId,
        /// The session that has ended, or was not granted.
        claim: ClaimNumber,
        /// The reason.
        reason: RevokeReason,
    },
    /// `code 1, from 32, topic, body...`
    Broadcast {
        /// The sending node.
        from: NodeId,
        /// The topic.
        topic: Name,
        /// The payload.
        body: Redacted<&'a [u8]>,
    },
    /// `code 1, upto 8`
    Counted {
        /// The last batch on disk.
        upto: BatchSeq,
    },
    /// `code 1`
    PresenceReset,
    /// `code 1, node 32, up 1 [, instance 8, epoch 4, role 1, count 1, services...]`
    PresenceNode {
        /// The node.
        node: NodeId,
        /// The run that is joined, if any.
        info: Option<NodeInfo>,
    },
    /// `code 1, player 8, held 1 [, node 32, meta...]`
    PresencePlayer {
        /// The player.
        player: ClientId,
        /// The node that holds the claim, and its note.
        holder: Option<(NodeId, Redacted<&'a [u8]>)>,
    },
    /// `code 1`
    PresenceComplete,
    /// `code 1, request 8`
    Cancelled {
        /// The hub's number of the request.
        request: RequestId,
    },
    /// `code 1, player 8, claim 8, settled 8`
    MailboxEmpty {
        /// The player.
        player: ClientId,
        /// The session.
        claim: ClaimNumber,
        /// The last mail of this node with a verdict when the mailbox was read.
        settled: SenderSeq,
    },
    /// `code 1, seq 8, refusal`: the mail is stored for some of its recipients.
    MailPartRefused {
        /// The mail.
        seq: SenderSeq,
        /// The recipients that were rejected.
        part: PartRefusal,
    },
    /// `code 1`. Sent to each node that got [`MailVerdict::Full`]: it resends its mail at once.
    HasRoom,
    /// A live message, or the outcome of one.
    Live(LiveToNode<'a>),
    /// The answer to a request about a group.
    Group(GroupToNode),
    /// An answer of the key-value store, or a change for a watcher.
    Kv(KvToNode<'a>),
    /// A verdict on a batch of statistics, or the answer to a query.
    Stats(StatsToNode<'a>),
}

/// A run of a node, as shown to watchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The run of the node.
    pub instance: InstanceId,
    /// The epoch of the run.
    pub epoch: Epoch,
    /// The role.
    pub role: Role,
    /// Services that it provides.
    pub services: Vec<Name>,
}

/// A request to answer. The hub sets the caller's identity from its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The hub's number.
    pub request: RequestId,
    /// The calling node.
    pub from: NodeId,
    /// The run of the calling node.
    pub instance: InstanceId,
    /// Remaining time of the call, milliseconds.
    pub timeout_ms: u32,
    /// The address called.
    pub to: Addr,
    /// The payload.
    pub body: Redacted<&'a [u8]>,
}

/// A mail for a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The player.
    pub player: ClientId,
    /// The session that it is for.
    pub claim: ClaimNumber,
    /// Its number in the mailbox.
    pub seq: MailSeq,
    /// The sending node.
    pub from: NodeId,
    /// The run of the sending node.
    pub epoch: Epoch,
    /// The sender's number.
    pub sender_seq: SenderSeq,
    /// The payload.
    pub body: Redacted<&'a [u8]>,
}

impl<'a> ToNode<'a> {
    /// Decodes `record`; allocates for the services of `PresenceNode`, the refusal of
    /// `MailPartRefused`, and for keys and pages.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the record is invalid.
    pub fn decode(record: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(record);
        let decoded = match reader.u8()? {
            code::JOINED => Self::Joined {
                epoch: Epoch(reader.u32()?),
                boot: reader.u32()?,
                log: LogId(reader.u64()?),
                mail_mark: SenderSeq(reader.u64()?),
                count_mark: BatchSeq(reader.u64()?),
            },
            code::HUB_HEARTBEAT => Self::Heartbeat,
            code::DOWN => Self::Down(DownReason::from_code(reader.u8()?)?),
            code::REQUEST => Self::Request(Request {
                request: RequestId(reader.u64()?),
                from: NodeId(reader.array()?),
                instance: InstanceId(reader.u64()?),
                timeout_ms: reader.u32()?,
                to: Addr::decode(&mut reader)?,
                body: Redacted::decode(&mut reader, BODY_BYTES_MAX)?,
            }),
            code::CALL_REPLY => Self::Reply {
                call: CallId(reader.u64()?),
                result: super::decode_result(&mut reader)?,
            },
            code::MAIL_SETTLED => Self::MailSettled {
                first: SenderSeq(reader.u64()?),
                last: SenderSeq(reader.u64()?),
                verdict: MailVerdict::from_code(reader.u8()?)?,
                retry_ms: reader.u32()?,
            },
            code::DELIVER => Self::Deliver(Delivery {
                player: ClientId(reader.u64()?),
                claim: ClaimNumber(reader.u64()?),
                seq: MailSeq(reader.u64()?),
                from: NodeId(reader.array()?),
                epoch: Epoch(reader.u32()?),
                sender_seq: SenderSeq(reader.u64()?),
                body: Redacted::decode(&mut reader, BODY_BYTES_MAX)?,
            }),
            code::GRANTED => Self::Granted {
                player: ClientId(reader.u64()?),
                claim: ClaimNumber(reader.u64()?),
                lease: Lease(reader.u64()?),
            },
            code::REVOKED => Self::Revoked {
                player: ClientId(reader.u64()?),
                claim: ClaimNumber(reader.u64()?),
                reason: RevokeReason::from_code(reader.u8()?)?,
            },
            code::HUB_BROADCAST => Self::Broadcast {
                from: NodeId(reader.array()?),
                topic: Name::decode(&mut reader)?,
                body: Redacted::decode(&mut reader, BODY_BYTES_MAX)?,
            },
            code::COUNTED => Self::Counted {
                upto: BatchSeq(reader.u64()?),
            },
            code if code <= code::PRESENCE_COMPLETE => Self::decode_presence(code, &mut reader)?,
            code => Self::decode_later(code, &mut reader)?,
        };
        reader.finish(DecodeError::Trailing)?;
        Ok(decoded)
    }

    /// Decodes a record with a code after those of presence.
    fn decode_later(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            code::CANCELLED => Self::Cancelled {
                request: RequestId(reader.u64()?),
            },
            code::MAILBOX_EMPTY => Self::MailboxEmpty {
                player: ClientId(reader.u64()?),
                claim: ClaimNumber(reader.u64()?),
                settled: SenderSeq(reader.u64()?),
            },
            code::MAIL_PART => Self::MailPartRefused {
                seq: SenderSeq(reader.u64()?),
                part: PartRefusal::decode(reader)?,
            },
            code::HAS_ROOM => Self::HasRoom,
            code @ 0x60..=0x63 => Self::Group(GroupToNode::decode(code, reader)?),
            code => Self::decode_part(code, reader)?,
        })
    }

    /// Decodes a record of live messages, keys or statistics.
    fn decode_part(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match code {
            code::STATS_SETTLED | code::STATS_ANSWER => {
                StatsToNode::decode(code, reader).map(Self::Stats)
            }
            code @ 0x58..=0x5f => KvToNode::decode(code, reader).map(Self::Kv),
            code => LiveToNode::decode(code, reader).map(Self::Live),
        }
    }

    fn decode_presence(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            code::PRESENCE_RESET => Self::PresenceReset,
            code::PRESENCE_COMPLETE => Self::PresenceComplete,
            code::PRESENCE_NODE => Self::PresenceNode {
                node: NodeId(reader.array()?),
                info: super::decode_flag(reader)?
                    .then(|| NodeInfo::decode(reader))
                    .transpose()?,
            },
            code::PRESENCE_PLAYER => Self::PresencePlayer {
                player: ClientId(reader.u64()?),
                holder: if super::decode_flag(reader)? {
                    let node = NodeId(reader.array()?);
                    Some((node, Redacted::decode(reader, META_BYTES_MAX)?))
                } else {
                    None
                },
            },
            code => return Err(DecodeError::Code(code)),
        })
    }

    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer::new(out);
        match self {
            Self::Joined {
                epoch,
                boot,
                log,
                mail_mark,
                count_mark,
            } => out.fields(&[&code::JOINED, epoch, boot, log, mail_mark, count_mark]),
            Self::Heartbeat => out.u8(code::HUB_HEARTBEAT),
            Self::Down(reason) => out.fields(&[&code::DOWN, reason]),
            Self::Request(it) => it.encode(&mut out),
            Self::Reply { call, result } => {
                out.fields(&[&code::CALL_REPLY, call]);
                super::encode_result(*result, &mut out);
            }
            Self::MailSettled {
                first,
                last,
                verdict,
                retry_ms,
            } => out.fields(&[&code::MAIL_SETTLED, first, last, verdict, retry_ms]),
            Self::Deliver(it) => {
                out.fields(&[&code::DELIVER, &it.player, &it.claim, &it.seq]);
                out.fields(&[&it.from, &it.epoch, &it.sender_seq, &it.body]);
            }
            Self::Granted {
                player,
                claim,
                lease,
            } => out.fields(&[&code::GRANTED, player, claim, lease]),
            Self::Revoked {
                player,
                claim,
                reason,
            } => out.fields(&[&code::REVOKED, player, claim, reason]),
            Self::Broadcast { from, topic, body } => {
                out.fields(&[&code::HUB_BROADCAST, from, topic, body]);
            }
            Self::Counted { upto } => out.fields(&[&code::COUNTED, upto]),
            Self::PresenceReset => out.u8(code::PRESENCE_RESET),
            Self::PresenceNode { node, info } => {
                out.fields(&[&code::PRESENCE_NODE, node, &u8::from(info.is_some())]);
                if let Some(it) = info {
                    out.fields(&[&it.instance, &it.epoch, &it.role]);
                    super::encode_names(&it.services, &mut out);
                }
            }
            Self::PresencePlayer { player, holder } => {
                out.fields(&[&code::PRESENCE_PLAYER, player, &u8::from(holder.is_some())]);
                if let Some((node, meta)) = holder {
                    out.fields(&[node, meta]);
                }
            }
            Self::PresenceComplete => out.u8(code::PRESENCE_COMPLETE),
            Self::Cancelled { request } => out.fields(&[&code::CANCELLED, request]),
            Self::MailboxEmpty {
                player,
                claim,
                settled,
            } => out.fields(&[&code::MAILBOX_EMPTY, player, claim, settled]),
            Self::MailPartRefused { seq, part } => out.fields(&[&code::MAIL_PART, seq, part]),
            Self::HasRoom => out.u8(code::HAS_ROOM),
            Self::Live(it) => it.encode(&mut out),
            Self::Group(it) => it.encode(&mut out),
            Self::Kv(it) => it.encode(&mut out),
            Self::Stats(it) => it.encode(&mut out),
        }
    }
}

impl Request<'_> {
    fn encode(&self, out: &mut Writer<'_>) {
        out.fields(&[&code::REQUEST, &self.request, &self.from, &self.instance]);
        out.fields(&[&self.timeout_ms, &self.to, &self.body]);
    }
}

impl NodeInfo {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            instance: InstanceId(reader.u64()?),
            epoch: Epoch(reader.u32()?),
            role: Role::decode(reader)?,
            services: super::decode_names(reader)?,
        })
    }
}
