//! Records of a hub link.
//!
//! The driver frames each record with its length. The first byte is its [code](mod@code); numbers are
//! big-endian; a body is the rest of the record. If a record has an unknown code, a field out of
//! range or trailing bytes, it is rejected and its link closed.

mod group;
mod kv;
mod live;
mod mail;
mod presence;
mod stats;
mod to_hub;
mod to_node;

use core::fmt;

use wire::{Encode, Reader, Writer};

use crate::field::{CountKey, DecodeError, Name, Redacted, decode_list, encode_list};
pub use group::{GroupAction, GroupToHub, GroupToNode};
pub use kv::{KvItem, KvToHub, KvToNode};
pub use live::{LiveOutcome, LiveToHub, LiveToNode, PlayerIds, PlayerList};
pub use mail::{GROUP_BODY_BYTES_MAX, MailManySubmission, MailTo, PartRefusal, Recipients};
pub use presence::{NodeFilter, PlayerFilter, PresenceFilter};
pub use stats::{StatsToHub, StatsToNode};
pub use to_hub::{CallRequest, ClaimRequest, Join, MailSubmission, ToHub};
pub use to_node::{Delivery, NodeInfo, Request, ToNode};

/// Version of these records, as sent in the first record of a link.
pub const VERSION: u16 = 3;

/// Longest body of a message, bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1_024;

/// Longest record, bytes: the longest body, and 1 KiB for the fields before it. A batch of counts
/// is cut to fit.
pub const RECORD_BYTES_MAX: usize = BODY_BYTES_MAX + 1_024;

/// Longest note of a claim, bytes.
pub const META_BYTES_MAX: usize = 256;

/// Longest query of statistics, bytes.
pub const QUERY_BYTES_MAX: usize = 2_048;

/// Most services of one node.
pub const SERVICES_MAX: usize = 16;

/// Most topics that one node subscribes to.
pub const TOPICS_MAX: usize = 1_024;

/// Most keys in one batch of counts.
pub const COUNTS_MAX: usize = 64;

/// Defines an enum with a wire code and a message per variant.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$case_doc])* $case = $code,)*
        }

        impl Encode for $name {
            fn encode(&self, out: &mut Writer<'_>) {
                out.u8(*self as u8);
            }
        }

        impl $name {
            pub(crate) const fn from_code(code: u8) -> Result<Self, DecodeError> {
                match code {
                    $($code => Ok(Self::$case),)*
                    _ => Err(DecodeError::Choice(code)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$case => $text,)* })
            }
        }
    };
}

choices! {
    /// Why the hub closes a link.
    DownReason {
        /// The join file does not list the key.
        NotListed = 1, "the join file does not list this key";
        /// The join file does not grant the key this role.
        RoleRefused = 2, "the join file does not give this key the role";
        /// The join file does not grant the key one of the services.
        ServiceRefused = 3, "the join file does not give this key the service";
        /// The node uses another version of the records.
        Version = 4, "the version of the records is not known";
        /// A record that does not decode, or is not allowed in this state.
        Protocol = 5, "a record that does not belong here";
        /// A later run of the same node has joined.
        Fenced = 6, "a later run of this node has joined";
        /// A later link of the same run has joined.
        Replaced = 7, "a later link of this run has joined";
        /// The hub's disk has failed; the hub restarts from its contents.
        StoreFailed = 8, "the disk of the hub has failed";
        /// The hub has no room for this node now.
        Busy = 9, "the hub has no room for this node now";
        /// Idle timeout.
        Silent = 10, "nothing came for too long";
        /// The node reads too slowly.
        Overrun = 11, "the node reads too slowly";
        /// The hub is shutting down; the node may rejoin once it is back.
        Draining = 12, "the hub is shutting down";
        /// The node's join file lists other hubs than this hub's, or in another order; or the node has used a
        /// player of another shard.
        WrongShard = 13, "the join files of the node and the hub list other hubs, or in another order";
    }
}

choices! {
    /// What the hub has done with a batch of statistics.
    StatsVerdict {
        /// It is on disk, and counted once.
        Stored = 0, "stored";
        /// It does not decode, or the hub counts for no more nodes; the node drops it.
        Refused = 1, "the batch is refused";
        /// Not stored now; the node resends it after a delay.
        Busy = 255, "not now";
    }
}

choices! {
    /// Why a call has no reply.
    CallError {
        /// The timeout has passed.
        TimedOut = 1, "no answer came in time";
        /// There is no such node, service or player.
        Unreachable = 2, "nobody is at the address";
        /// The callee's link has closed.
        NodeDown = 3, "the node that was asked is gone";
        /// The link to the hub has closed.
        HubDown = 4, "the link to the hub has ended";
        /// Too many calls are open, or the callee reads too slowly.
        Busy = 5, "too many calls are open";
        /// The callee refuses.
        Refused = 6, "the node that was asked refuses";
    }
}

choices! {
    /// Why a mail is rejected permanently.
    MailRefusal {
        /// The mailbox is full.
        MailboxFull = 1, "the mailbox is full";
        /// The address is neither a player nor a group.
        Address = 2, "mail goes to players and groups only";
        /// The group has no member.
        NoMember = 3, "the group has no member";
        /// The body is longer than a message to a group may be.
        TooLong = 4, "the body is too long for a group";
    }
}

choices! {
    /// Why a claim has ended.
    RevokeReason {
        /// A later claim of the player was granted.
        Taken = 1, "a later claim has taken the player";
        /// Another node holds the player, and the hub is configured to keep it.
        Held = 2, "another node holds the player";
        /// The hub has no room for another player.
        Busy = 3, "the hub has no room for another player";
        /// The hub grants claims with a grant only.
        GrantNeeded = 4, "a claim needs a grant";
        /// The grant has expired, or the hub has no wall clock.
        GrantExpired = 5, "the grant has expired";
        /// The grant is for another node or player, or no issuer has signed it.
        GrantInvalid = 6, "the grant does not prove this claim";
    }
}

choices! {
    /// Why a request about a group has failed.
    GroupError {
        /// The group has as many members as are permitted.
        GroupFull = 1, "the group is full";
        /// The player is in as many groups as are permitted.
        PlayerFull = 2, "the player is in too many groups";
        /// The hub has no room for another group or member.
        Full = 3, "the hub has no room for the group";
        /// The hub has too much to do; try again.
        Busy = 4, "the hub has too much to do";
        /// The link to the hub has closed; whether the request was executed is unknown.
        HubDown = 5, "the link to the hub has ended";
    }
}

/// Verdict on a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MailVerdict {
    /// Stored; it will be delivered.
    Stored,
    /// Rejected permanently.
    Refused(MailRefusal),
    /// Not stored now; the sender resends it and all later ones after a delay.
    Busy,
    /// As `Busy`, since the store is full; [`ToNode::HasRoom`] follows when it has room again.
    Full,
    /// As `Busy`, since the stored mail of this node, or of all nodes of its role, has the
    /// [share](crate::SenderShare) that the hub permits.
    OverShare,
}

impl Encode for MailVerdict {
    /// 0 stored, 253 over the share, 254 full, 255 busy, else the refusal's code.
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(match self {
            Self::Stored => 0,
            Self::Refused(refusal) => *refusal as u8,
            Self::OverShare => OVER_SHARE,
            Self::Full => FULL,
            Self::Busy => u8::MAX,
        });
    }
}

const FULL: u8 = 254;

const OVER_SHARE: u8 = 253;

impl MailVerdict {
    /// Returns whether the mail is settled: the sender need not send it again.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Stored | Self::Refused(_) => true,
            Self::Busy | Self::Full | Self::OverShare => false,
        }
    }

    fn from_code(code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::Stored),
            OVER_SHARE => Ok(Self::OverShare),
            FULL => Ok(Self::Full),
            u8::MAX => Ok(Self::Busy),
            code => MailRefusal::from_code(code).map(Self::Refused),
        }
    }
}

fn decode_flag(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        flag => Err(DecodeError::Choice(flag)),
    }
}

fn decode_names(reader: &mut Reader<'_>) -> Result<Vec<Name>, DecodeError> {
    decode_list(reader, SERVICES_MAX, Name::decode)
}

fn encode_names(names: &[Name], out: &mut Writer<'_>) {
    encode_list(names, out, Name::encode);
}

fn decode_result<'a>(
    reader: &mut Reader<'a>,
) -> Result<Result<Redacted<&'a [u8]>, CallError>, DecodeError> {
    match reader.u8()? {
        0 => Redacted::decode(reader, BODY_BYTES_MAX).map(Ok),
        status => CallError::from_code(status).map(Err),
    }
}

fn encode_result(result: Result<Redacted<&[u8]>, CallError>, out: &mut Writer<'_>) {
    match result {
        Ok(body) => out.fields(&[&0_u8, &body]),
        Err(error) => error.encode(out),
    }
}

pub(crate) fn decode_counts(reader: &mut Reader<'_>) -> Result<Vec<(CountKey, u64)>, DecodeError> {
    decode_list(reader, COUNTS_MAX, |reader| {
        Ok((CountKey::decode(reader)?, reader.u64()?))
    })
}

pub(crate) fn encode_counts(entries: &[(CountKey, u64)], out: &mut Writer<'_>) {
    encode_list(entries, out, |(key, increase), out| {
        out.fields(&[key, increase]);
    });
}

/// First bytes of records. A code is never reused.
pub mod code {
    /// Node: identifies itself; the first record of a link.
    pub const JOIN: u8 = 0x01;
    /// Node: is alive; renews all its leases.
    pub const HEARTBEAT: u8 = 0x02;
    /// Node: leaves; ends all its leases.
    pub const LEAVE: u8 = 0x03;
    /// Node: a call, which gets one reply.
    pub const CALL: u8 = 0x04;
    /// Node: the reply to a request.
    pub const REPLY: u8 = 0x05;
    /// Node: a mail to store.
    pub const MAIL: u8 = 0x06;
    /// Node: acknowledges all mail of a mailbox up to a number.
    pub const MAIL_ACK: u8 = 0x07;
    /// Node: claims a player.
    pub const CLAIM: u8 = 0x08;
    /// Node: releases a player.
    pub const RELEASE: u8 = 0x09;
    /// Node: a broadcast to all other nodes.
    pub const BROADCAST: u8 = 0x0a;
    /// Node: a batch of counts.
    pub const COUNTS: u8 = 0x0b;
    /// Node: claims a player, with a grant.
    pub const CLAIM_GRANTED: u8 = 0x0c;
    /// Node: which of several hubs it has dialed; sent before `JOIN`.
    pub const SHARD: u8 = 0x0d;
    /// Node: a live message to one or more players.
    pub const FORWARD: u8 = 0x10;
    /// Node: a mail to several players or a group, stored once.
    pub const MAIL_MANY: u8 = 0x12;
    /// Node: cancels a call.
    pub const CANCEL: u8 = 0x13;
    /// Node: subscribes to a topic.
    pub const SUBSCRIBE: u8 = 0x14;
    /// Node: ends a subscription.
    pub const UNSUBSCRIBE: u8 = 0x15;
    /// Node: a live message to the subscribers of a topic.
    pub const CAST: u8 = 0x16;
    /// Node: requests that a player is disconnected.
    pub const KICK: u8 = 0x17;
    /// Node: a player joins a group.
    pub const GROUP_JOIN: u8 = 0x20;
    /// Node: a player leaves a group.
    pub const GROUP_LEAVE: u8 = 0x21;
    /// Node: reads a page of a group's members.
    pub const GROUP_LIST: u8 = 0x22;
    /// Node: a live message to the members of a group.
    pub const GROUP_SEND: u8 = 0x23;
    /// Node: sets a key.
    pub const KV_PUT: u8 = 0x18;
    /// Node: deletes a key.
    pub const KV_DELETE: u8 = 0x19;
    /// Node: reads a key.
    pub const KV_GET: u8 = 0x1a;
    /// Node: reads a page of keys.
    pub const KV_RANGE: u8 = 0x1b;
    /// Node: watches the keys with a prefix.
    pub const KV_WATCH: u8 = 0x1c;
    /// Node: ends a watch.
    pub const KV_UNWATCH: u8 = 0x1d;
    /// Node: which presence to watch.
    pub const WATCH: u8 = 0x1e;
    /// Node: a batch of statistics.
    pub const STATS_BATCH: u8 = 0x28;
    /// Node: a query of statistics.
    pub const STATS_QUERY: u8 = 0x29;

    /// Hub: accepts the join.
    pub const JOINED: u8 = 0x41;
    /// Hub: is alive.
    pub const HUB_HEARTBEAT: u8 = 0x42;
    /// Hub: closes the link, with the reason.
    pub const DOWN: u8 = 0x43;
    /// Hub: a request to answer.
    pub const REQUEST: u8 = 0x44;
    /// Hub: the reply to a call.
    pub const CALL_REPLY: u8 = 0x45;
    /// Hub: the verdict on a run of mails.
    pub const MAIL_SETTLED: u8 = 0x46;
    /// Hub: a mail for a player.
    pub const DELIVER: u8 = 0x47;
    /// Hub: grants a claim.
    pub const GRANTED: u8 = 0x48;
    /// Hub: a claim has ended.
    pub const REVOKED: u8 = 0x49;
    /// Hub: a broadcast from another node.
    pub const HUB_BROADCAST: u8 = 0x4a;
    /// Hub: confirms batches of counts.
    pub const COUNTED: u8 = 0x4b;
    /// Hub: presence so far is void; a snapshot follows.
    pub const PRESENCE_RESET: u8 = 0x4c;
    /// Hub: state of a node.
    pub const PRESENCE_NODE: u8 = 0x4d;
    /// Hub: holder of a player.
    pub const PRESENCE_PLAYER: u8 = 0x4e;
    /// Hub: the snapshot is complete.
    pub const PRESENCE_COMPLETE: u8 = 0x4f;
    /// Hub: a live message for players of this node.
    pub const HUB_FORWARD: u8 = 0x50;
    /// Hub: the outcome of a run of live messages.
    pub const LIVE_SENT: u8 = 0x51;
    /// Hub: the caller has cancelled a request.
    pub const CANCELLED: u8 = 0x52;
    /// Hub: a live message to subscribers of a topic.
    pub const HUB_CAST: u8 = 0x53;
    /// Hub: all mail of a player was delivered.
    pub const MAILBOX_EMPTY: u8 = 0x54;
    /// Hub: broadcasts or casts to this node were dropped.
    pub const MISSED: u8 = 0x55;
    /// Hub: a player of this node is to be disconnected.
    pub const HUB_KICK: u8 = 0x56;
    /// Hub: the verdict on a mail that some of its recipients' mailboxes rejected.
    pub const MAIL_PART: u8 = 0x57;
    /// Hub: a request about a group has ended.
    pub const GROUP_DONE: u8 = 0x60;
    /// Hub: a page of a group's members.
    pub const GROUP_MEMBERS: u8 = 0x61;
    /// Hub: the outcome of a live message to a group.
    pub const GROUP_SENT: u8 = 0x62;
    /// Hub: a write of a key has ended, or a request has failed.
    pub const KV_DONE: u8 = 0x58;
    /// Hub: a key with its value.
    pub const KV_ENTRY: u8 = 0x59;
    /// Hub: a page of keys.
    pub const KV_PAGE: u8 = 0x5a;
    /// Hub: what a watch has reported is void; a snapshot follows.
    pub const KV_RESET: u8 = 0x5b;
    /// Hub: a key that is watched, and its value.
    pub const KV_CHANGE: u8 = 0x5c;
    /// Hub: a watch has reported all changes up to a revision.
    pub const KV_COMPLETE: u8 = 0x5d;
    /// Hub: its store has room again.
    pub const HAS_ROOM: u8 = 0x64;
    /// Hub: the verdict on a batch of statistics.
    pub const STATS_SETTLED: u8 = 0x68;
    /// Hub: the answer to a query of statistics.
    pub const STATS_ANSWER: u8 = 0x69;

    /// Codes reserved for later records; a decoder rejects them.
    ///
    /// | code | record |
    /// |---|---|
    /// | 0x1f, 0x5e-0x5f | KV |
    /// | 0x2a-0x2b | statistics |
    /// | 0x30-0x37 | hub to hub |
    /// | 0x63 | groups |
    /// | 0x6a-0x6b | statistics |
    /// | 0x70-0x77 | hub to hub |
    pub const RESERVED: [(u8, u8); 8] = [
        (0x1f, 0x1f),
        (0x2a, 0x2b),
        (0x30, 0x37),
        (0x5e, 0x5f),
        (0x63, 0x63),
        (0x6a, 0x6b),
        (0x70, 0x77),
        (0xf0, 0xff),
    ];
}
