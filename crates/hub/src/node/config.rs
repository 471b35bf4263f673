//! Configuration, events, commands, errors and counters of a node.

use core::fmt;
use core::time::Duration;

use bytes::Bytes;
use wire::{ClientId, ConnectionId, Effect, InstanceId, NodeId};

use super::kv::{KvAnswer, KvClientConfig};
use super::live::LiveOverflow;
use super::shards::ShardsConfig;
use super::stats::NodeStatsConfig;
use crate::field::{
    Addr, CallId, ClaimNumber, Epoch, GroupRequest, KvRequest, LiveSeq, LogId, MailSeq, Name,
    QueryId, Redacted, RequestId, Role, SenderSeq, WatchId,
};
use crate::kv::{KvChange, KvError, Revision};
use crate::record::{
    CallError, DownReason, GroupError, Join, LiveOutcome, MailRefusal, NodeInfo, PresenceFilter,
    RevokeReason,
};

/// Role, limits and timeouts of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeConfig {
    /// Role to join with; a game node.
    pub role: Role,
    /// Role of the hub to dial; the hub. With [`Role::Stats`] the node joins a hub that is for
    /// statistics only.
    pub hub_role: Role,
    /// Services provided, at most 16; none.
    pub services: Vec<Name>,
    /// Whether to watch other nodes; yes.
    pub watch_nodes: bool,
    /// Whether to watch players of other nodes; no.
    pub watch_players: bool,
    /// Which presence to watch, instead of the two above. Default none.
    pub presence: Option<PresenceFilter>,
    /// Interval of heartbeats. Default 1 s.
    pub heartbeat: Duration,
    /// Idle timeout: time without a whole record. Default 3 s. A link must carry at least 22 KiB/s,
    /// so that the longest record fits.
    pub silence_max: Duration,
    /// Timeout of a dial. Default 5 s.
    pub dial_timeout: Duration,
    /// First redial delay, doubled each time. Default 50 ms.
    pub redial_min: Duration,
    /// Longest redial delay. Default 500 ms, so that all nodes rejoin within a second of a hub
    /// restart.
    pub redial_max: Duration,
    /// Redial delay if the hub rejects this node. Default 5 s.
    pub refused_wait: Duration,
    /// Mails not confirmed as stored. Default 4,096.
    pub mails_max: usize,
    /// Bytes of these mails. Default 16 MiB.
    pub mail_bytes_max: usize,
    /// Calls, replies and broadcasts that wait to be written, bytes. Default 4 MiB.
    pub outbox_bytes_max: usize,
    /// Open calls. Default 1,024.
    pub calls_max: usize,
    /// Open requests about groups. Default 1,024.
    pub group_requests_max: usize,
    /// Events queued for the application. Default 16,384. Beyond it, requests are answered with
    /// `Busy`, and broadcasts are dropped and counted.
    pub events_max: usize,
    /// Claimed players. Default 65,536.
    pub players_max: usize,
    /// Live messages that wait for one player. Default 256.
    pub live_queue_max: usize,
    /// Bytes of these messages. Default 64 KiB; a body is shared by its receivers, and counts for
    /// each.
    pub live_queue_bytes_max: usize,
    /// Bytes of the live messages that wait for all players. Default 64 MiB; a body that several queues
    /// share counts once.
    pub live_bytes_max: usize,
    /// What happens if the queue of a player is full. Default: the message is dropped.
    pub live_overflow: LiveOverflow,
    /// How long a message that was mailed since the queue was full is kept. Default 1 day. Such mail is
    /// this node's: it names this node as sender, and may use half of `mails_max` and
    /// `mail_bytes_max`. Beyond that the message is dropped.
    pub spill_ttl: Duration,
    /// Interval at which counts are sent. Default 1 s.
    pub counts_interval: Duration,
    /// Keys counted per interval. Default 1,024. Increases of further keys are dropped and counted.
    pub count_keys_max: usize,
    /// Limits of requests to the key-value store.
    pub kv: KvClientConfig,
    /// Limits of statistics.
    pub statistics: NodeStatsConfig,
    /// Options if there are several hubs.
    pub shards: ShardsConfig,
}

impl NodeConfig {
    /// Returns what [`Join::watch`](crate::record::Join::watch) says without a filter.
    pub(super) const fn watch_bits(&self) -> u8 {
        let nodes = if self.watch_nodes {
            Join::WATCH_NODES
        } else {
            0
        };
        let players = if self.watch_players {
            Join::WATCH_PLAYERS
        } else {
            0
        };
        nodes | players
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            role: Role::GameNode,
            hub_role: Role::Hub,
            services: Vec::new(),
            watch_nodes: true,
            watch_players: false,
            presence: None,
            heartbeat: Duration::from_secs(1),
            silence_max: Duration::from_secs(3),
            dial_timeout: Duration::from_secs(5),
            redial_min: Duration::from_millis(50),
            redial_max: Duration::from_millis(500),
            refused_wait: Duration::from_secs(5),
            mails_max: 4_096,
            mail_bytes_max: 16 << 20,
            outbox_bytes_max: 4 << 20,
            calls_max: 1_024,
            group_requests_max: 1_024,
            events_max: 16_384,
            players_max: 65_536,
            live_queue_max: 256,
            live_queue_bytes_max: 64 << 10,
            live_bytes_max: 64 << 20,
            live_overflow: LiveOverflow::DropNewest,
            spill_ttl: Duration::from_secs(86_400),
            counts_interval: Duration::from_secs(1),
            count_keys_max: 1_024,
            kv: KvClientConfig::default(),
            statistics: NodeStatsConfig::default(),
            shards: ShardsConfig::default(),
        }
    }
}

/// An event for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// The node has joined the hub; if there are several, the first of them.
    Joined {
        /// The epoch of this run.
        epoch: Epoch,
        /// The hub's log. If it has changed, for example after a disk was replaced, all mail
        /// numbers are void, including those that clients have persisted. Several hubs have several logs,
        /// see [`Node::log_of`](crate::Node::log_of).
        log: LogId,
    },
    /// The link to that hub has closed; the node redials by itself.
    HubDown,
    /// That hub has closed the link. After [`DownReason::Fenced`] the node does not redial.
    Refused(DownReason),
    /// The node has joined another hub than the first.
    ShardJoined {
        /// Number of the hub in the join file, from 1.
        shard: u8,
        /// The epoch of this run there.
        epoch: Epoch,
        /// The log of this hub.
        log: LogId,
    },
    /// The link to another hub than the first has closed; the node redials by itself.
    ShardDown {
        /// Number of the hub.
        shard: u8,
    },
    /// Another hub than the first has closed the link.
    ShardRefused {
        /// Number of the hub.
        shard: u8,
        /// The reason.
        reason: DownReason,
    },
    /// A call has ended.
    Reply {
        /// The caller's number of the call.
        call: CallId,
        /// The reply, or why there is none.
        result: Result<Redacted<Bytes>, CallError>,
    },
    /// A request from another node; answer it with [`Node::reply`](crate::Node::reply).
    Request {
        /// Handle for the reply.
        ticket: Ticket,
        /// The calling node, as authenticated by the hub.
        from: NodeId,
        /// The run of the calling node.
        instance: InstanceId,
        /// The address called: this node, or a service or player on it.
        to: Addr,
        /// The request.
        body: Redacted<Bytes>,
    },
    /// A mail from this node is on the hub's disk.
    MailStored(SenderSeq),
    /// The store of a hub has no room. Mail of this node waits here, and is sent again when the hub has
    /// room or after a second; [`SendError::Full`] follows when too much waits.
    HubFull,
    /// The stored mail of this node, or of all nodes of its role, has its
    /// [share](crate::SenderShare) of the hub's store. Mail waits as for [`HubFull`](Self::HubFull), and is
    /// sent again each second: players must read some of it first.
    OverShare,
    /// The hub stores mail of this node again.
    HubHasRoom,
    /// A mail from this node was rejected permanently; by all of its recipients' mailboxes, if there
    /// are several.
    MailRefused(SenderSeq, MailRefusal),
    /// A mail from this node to several players is on the hub's disk for some of them only. The
    /// verdict on the others is final.
    MailPartRefused {
        /// The mail.
        seq: SenderSeq,
        /// Mailboxes that have it.
        stored: u16,
        /// Mailboxes that rejected it.
        refused_count: u16,
        /// Their players, in increasing order; empty for a mail to a group.
        refused: Vec<ClientId>,
        /// The reason.
        reason: MailRefusal,
    },
    /// A request about a group has ended. If the link has closed, it may have been executed: repeat it
    /// after the next join.
    GroupDone {
        /// The request.
        request: GroupRequest,
        /// Whether the membership is on the hub's disk.
        result: Result<(), GroupError>,
    },
    /// A page of a group's members.
    GroupMembers {
        /// The request.
        request: GroupRequest,
        /// The members, in increasing order.
        players: Vec<ClientId>,
        /// Whether more follow the last one.
        more: bool,
    },
    /// A live message to a group has an outcome.
    GroupSent {
        /// The request.
        request: GroupRequest,
        /// How many members it reached.
        outcome: LiveOutcome,
    },
    /// A mail for a player on this node; confirm it with
    /// [`Node::acknowledge`](crate::Node::acknowledge).
    Mail {
        /// The claim that it is for. If the player has been claimed again since, it is not for the
        /// client that is connected now.
        claim: ClaimId,
        /// Its number in the mailbox.
        seq: MailSeq,
        /// The sending node.
        from: NodeId,
        /// The payload.
        body: Redacted<Bytes>,
    },
    /// A claim was granted.
    Claimed(ClaimId),
    /// A claim has ended.
    ClaimLost(ClaimId, RevokeReason),
    /// A broadcast from another node.
    Broadcast {
        /// The sending node.
        from: NodeId,
        /// The topic.
        topic: Name,
        /// The payload.
        body: Redacted<Bytes>,
    },
    /// Live messages of this node have an outcome; with several hubs, one message.
    LiveSent {
        /// The first of a run with equal outcomes.
        first: LiveSeq,
        /// The last of the run.
        last: LiveSeq,
        /// The outcome of each; `None` if the link closed before the hub reported it.
        outcome: Option<LiveOutcome>,
    },
    /// The first message was put into the empty queue of a player; take it with
    /// [`Node::next_message`](crate::Node::next_message).
    MessageReady(ClaimId),
    /// The queue of a player is full, and [`LiveOverflow::Kick`] is configured: disconnect the
    /// player and release the claim. Reported once for each claim.
    SlowPlayer(ClaimId),
    /// All mail that was stored for the player was delivered to this node. Reported after a claim,
    /// and after mail that this node sent to the player.
    MailboxEmpty(ClaimId),
    /// The hub has dropped this many broadcasts and messages to topics, since this node reads too
    /// slowly. They would have arrived before the next one.
    Missed(u64),
    /// A player of this node is to be disconnected. The claim stays until it is released.
    Kicked {
        /// The claim.
        claim: ClaimId,
        /// The node that requests it.
        from: NodeId,
        /// The reason, as given to [`Node::kick`](crate::Node::kick).
        reason: Redacted<Bytes>,
    },
    /// The caller has cancelled a request; a reply is ignored.
    Cancelled(Ticket),
    /// The answer to a query of statistics.
    StatsAnswer {
        /// The query.
        query: QueryId,
        /// The answer; [`decode_answer`](crate::stats::decode_answer) reads it.
        answer: Redacted<Bytes>,
    },
    /// All presence received so far is void; a snapshot follows. With several hubs it is reported once for
    /// each filter; when a hub restarts, its players that are gone are reported one by one.
    PresenceReset,
    /// State of a node; `None` if it is not joined.
    NodePresence(NodeId, Option<NodeInfo>),
    /// The node that holds a player, with its note; `None` if nobody holds it.
    PlayerPresence(ClientId, Option<(NodeId, Redacted<Bytes>)>),
    /// The snapshot is complete; changes follow.
    PresenceComplete,
    /// A request to the key-value store has ended.
    KvAnswer {
        /// The request.
        request: KvRequest,
        /// The answer.
        result: Result<KvAnswer, KvError>,
    },
    /// What this watch has reported is void; a snapshot follows.
    KvReset(WatchId),
    /// An entry of the snapshot, or a change.
    KvChanged {
        /// The watch.
        watch: WatchId,
        /// The change.
        change: KvChange,
    },
    /// The watch has reported all changes up to this revision: the snapshot is complete, or what was
    /// missed while no link was up.
    KvComplete {
        /// The watch.
        watch: WatchId,
        /// The revision.
        revision: Revision,
    },
}

/// Options of a mail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailOptions {
    /// How long it is kept; if zero, for the hub's own limit.
    pub ttl: Duration,
    /// Decides which mails a full mailbox drops, if it is configured so: the lowest first. It does not
    /// change the order of delivery.
    pub priority: u8,
}

impl MailOptions {
    /// Returns the time in whole seconds, rounded up.
    pub(super) fn ttl_s(&self) -> u32 {
        u32::try_from(self.ttl.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX)
    }
}

/// Identifies a claim, as returned by [`Node::claim`](crate::Node::claim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimId {
    pub(super) player: ClientId,
    pub(super) number: ClaimNumber,
}

impl ClaimId {
    /// Returns the player.
    #[must_use]
    pub const fn player(self) -> ClientId {
        self.player
    }
}

/// Identifies a request, and the link that it arrived on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    pub(super) link: ConnectionId,
    pub(super) request: RequestId,
}

/// A command for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeCommand {
    /// Open an authenticated connection.
    Dial {
        /// The required identity of the peer.
        hub: NodeId,
        /// Address as `host:port`.
        address: String,
    },
}

impl Effect for NodeCommand {
    /// The result of the dial. `handle_opened` reports the connection, before or after this.
    type Outcome = Result<(), DialError>;
}

/// The dial failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialError;

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the hub was not reached")
    }
}

impl core::error::Error for DialError {}

/// Why something was not accepted; returns the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// No link to the hub is up.
    HubDown(Redacted<Bytes>),
    /// A limit is reached.
    Full(Redacted<Bytes>),
    /// The body exceeds 64 KiB (less 8 bytes for each player of a multicast), or the note or
    /// reason 256 bytes.
    TooLong(Redacted<Bytes>),
    /// No player, or more than [`PlayerList::LEN_MAX`](crate::record::PlayerList::LEN_MAX).
    Players(Redacted<Bytes>),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HubDown(_) => f.write_str("no link to the hub is up"),
            Self::Full(_) => f.write_str("what waits has reached its bound"),
            Self::TooLong(body) => write!(f, "{} bytes are over the limit", body.len()),
            Self::Players(_) => f.write_str("a message needs 1 to 4096 players"),
        }
    }
}

impl core::error::Error for SendError {}

/// Counters of a node since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// Dials started.
    pub dials: u64,
    /// Connections to a peer that was not the hub.
    pub strangers: u64,
    /// Records that do not decode.
    pub malformed: u64,
    /// Repeated mails, which were not delivered to the application again.
    pub mail_repeated: u64,
    /// Mails for players that are not claimed here.
    pub mail_stray: u64,
    /// Replies to calls that are not open.
    pub replies_unknown: u64,
    /// Replies from the application after the link of the request had closed.
    pub replies_stale: u64,
    /// Requests answered with `Busy`, since the event queue was full.
    pub requests_refused: u64,
    /// Broadcasts dropped, since the event queue was full.
    pub broadcasts_dropped: u64,
    /// Live messages queued for players.
    pub live_queued: u64,
    /// Live messages dropped, since the queue of the player was full.
    pub live_dropped: u64,
    /// Live messages mailed to the player, since its queue was full.
    pub live_spilled: u64,
    /// Live messages for players that are not claimed here.
    pub live_stray: u64,
    /// Broadcasts and messages to topics that the hub dropped, since this node reads too slowly.
    pub missed: u64,
    /// Answers to requests that are not open, and changes for watches that have ended.
    pub kv_stray: u64,
    /// Increases dropped, since too many keys were counted.
    pub counts_dropped: u64,
    /// Completions of commands that are unknown or already completed.
    pub completions_unknown: u64,
    /// Changes of presence dropped, since several hubs report too many players, see
    /// [`ShardsConfig::watched_players_max`].
    pub presence_dropped: u64,
}

impl NodeStats {
    /// Adds the counters of another link.
    pub(super) fn plus(mut self, other: Self) -> Self {
        for (sum, more) in [
            (&mut self.dials, other.dials),
            (&mut self.strangers, other.strangers),
            (&mut self.malformed, other.malformed),
            (&mut self.mail_repeated, other.mail_repeated),
            (&mut self.mail_stray, other.mail_stray),
            (&mut self.replies_unknown, other.replies_unknown),
            (&mut self.replies_stale, other.replies_stale),
            (&mut self.requests_refused, other.requests_refused),
            (&mut self.broadcasts_dropped, other.broadcasts_dropped),
            (&mut self.live_queued, other.live_queued),
            (&mut self.live_dropped, other.live_dropped),
            (&mut self.live_spilled, other.live_spilled),
            (&mut self.live_stray, other.live_stray),
            (&mut self.missed, other.missed),
            (&mut self.kv_stray, other.kv_stray),
            (&mut self.counts_dropped, other.counts_dropped),
            (&mut self.completions_unknown, other.completions_unknown),
            (&mut self.presence_dropped, other.presence_dropped),
        ] {
            *sum = sum.saturating_add(more);
        }
        self
    }
}
