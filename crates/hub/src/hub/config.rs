//! Configuration, events and counters of a hub.

use core::fmt;
use core::time::Duration;

use wire::{ClientId, InstanceId, NodeId, UnixTime};

use super::access::AccessConfig;
use super::kv::KvConfig;
use super::stats::StatsLinkConfig;
use crate::field::{Epoch, Role};
use crate::kv::{KvError, Revision};
use crate::record::DownReason;
use crate::shard::Shard;
use crate::store::{FullReason, StoreStatus};

/// Limits and timeouts of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubConfig {
    /// Connections. Default 4,096. Further ones are closed at once.
    pub links_max: usize,
    /// Connections of one node. Default 4: the one in use, one with an undetected failure, and the
    /// next.
    pub node_links_max: usize,
    /// Claimed players. Default 1 million, at most 250 bytes each.
    pub players_max: usize,
    /// Claimed players of one node. Default 65,536.
    pub node_players_max: usize,
    /// Outbox of one link, bytes. Default 4 MiB. Broadcasts may use half of it, requests and
    /// replies all. What exceeds it is dropped, rejected or fails. If records that cannot be
    /// dropped exceed twice the limit, the link is closed. Open requests of one calling node may
    /// use half of it.
    pub link_bytes_max: usize,
    /// Mail delivered to one node and not acknowledged, plus room for reads in flight, bytes.
    /// Default 1 MiB. Beyond it, a player that has acknowledged all its mail still gets one mail at
    /// a time.
    pub unacknowledged_bytes_max: usize,
    /// The same for one player, bytes. Default 64 KiB. A longer mail is delivered alone.
    pub unacknowledged_player_bytes_max: usize,
    /// Mails delivered to one player and not acknowledged. Default 256.
    pub unacknowledged_mails_max: usize,
    /// Store commands in flight. Default 1,024. Reads and acknowledgements may use half.
    pub ops_in_flight: usize,
    /// Mail not yet stored on disk, bytes. Default 16 MiB. A sender gets `Busy` once its own mail takes
    /// as much as is left for all.
    pub store_bytes_in_flight: usize,
    /// Open calls of one node. Default 1,024.
    pub calls_max: usize,
    /// Longest timeout of a call. Default 60 s.
    pub call_timeout_max: Duration,
    /// Time within which a connection must join. Default 5 s.
    pub join_timeout: Duration,
    /// Idle timeout: time without a whole record. Default 5 s. Nodes send a heartbeat each second.
    /// A link must carry at least 13 KiB/s, so that the longest record fits.
    pub silence_max: Duration,
    /// How long a disconnected node keeps its players. Default 10 s.
    pub lease: Duration,
    /// How long mail is kept if its sender sets no time. Default 30 days.
    pub mail_ttl: Duration,
    /// How long a step of the wall clock by more than a minute must persist until it is accepted; 6
    /// h. Mail that a wrong step expires is lost.
    pub clock_step_wait: Duration,
    /// Receivers of live messages to players and groups that one link may address in 250 ms. Default
    /// 262,144. Those of a message beyond it are reported as busy.
    pub live_receivers_max: usize,
    /// Delay before a sender retries after `Busy`. Default 100 ms.
    pub retry_after: Duration,
    /// What happens when a second node claims a player.
    pub duplicate_claim: DuplicateClaim,
    /// Roles that may disconnect a player of another node. Default: admins and matchmakers.
    pub kick_roles: Vec<Role>,
    /// Presence changes queued for one watcher. Default 4,096. Beyond it, the stream restarts with
    /// a snapshot.
    pub watch_changes_max: usize,
    /// Events queued for the application. Default 1,024. Further ones are dropped and counted.
    /// [`HubEvent::PlayerTaken`] may use an eighth, so that nodes which take players over hide no other
    /// event.
    pub events_max: usize,
    /// Limits of the key-value store.
    pub kv: KvConfig,
    /// Limits of statistics.
    pub stats: StatsLinkConfig,
    /// Which claims are granted, and how fast nodes may send mail.
    pub access: AccessConfig,
    /// Its part, if the join file lists several hubs: see [`JoinFile::shard_of`](crate::JoinFile::shard_of). Default the only one.
    pub shard: Shard,
}

/// What happens if a second node claims a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DuplicateClaim {
    /// The second node gets the player; the first is notified.
    NewestWins,
    /// The second node is rejected.
    Refuse,
}

impl Default for HubConfig {
    fn default() -> Self {
        Self {
            links_max: 4_096,
            node_links_max: 4,
            players_max: 1_000_000,
            node_players_max: 65_536,
            link_bytes_max: 4 << 20,
            unacknowledged_bytes_max: 1 << 20,
            unacknowledged_player_bytes_max: 64 << 10,
            unacknowledged_mails_max: 256,
            ops_in_flight: 1_024,
            store_bytes_in_flight: 16 << 20,
            calls_max: 1_024,
            call_timeout_max: Duration::from_secs(60),
            join_timeout: Duration::from_secs(5),
            silence_max: Duration::from_secs(5),
            lease: Duration::from_secs(10),
            mail_ttl: Duration::from_secs(30 * 86_400),
            clock_step_wait: Duration::from_secs(6 * 3_600),
            live_receivers_max: 262_144,
            retry_after: Duration::from_millis(100),
            duplicate_claim: DuplicateClaim::NewestWins,
            kick_roles: vec![Role::Admin, Role::Matchmaker],
            watch_changes_max: 4_096,
            events_max: 1_024,
            kv: KvConfig::default(),
            stats: StatsLinkConfig::default(),
            access: AccessConfig::default(),
            shard: Shard::ONLY,
        }
    }
}

/// An event for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubEvent {
    /// A node has joined.
    NodeUp {
        /// The node.
        node: NodeId,
        /// The run of the node.
        instance: InstanceId,
        /// The epoch of this run.
        epoch: Epoch,
        /// The role.
        role: Role,
    },
    /// A node's link has closed.
    NodeDown {
        /// The node.
        node: NodeId,
        /// The epoch of its run.
        epoch: Epoch,
    },
    /// The hub has closed or rejected a link.
    Refused {
        /// The authenticated node, if any.
        node: Option<NodeId>,
        /// The reason.
        reason: DownReason,
    },
    /// A node has taken a player over from another node.
    PlayerTaken {
        /// The player.
        player: ClientId,
        /// The node that held it.
        from: NodeId,
        /// The node that holds it now.
        by: NodeId,
    },
    /// A wall-clock reading was rejected: it deviates by more than a minute, or is earlier than the
    /// newest time in the log. It is accepted once it has persisted for
    /// [`HubConfig::clock_step_wait`](super::HubConfig::clock_step_wait). Until then mail expires
    /// by the last accepted time; if there is none, no mail is accepted.
    ClockRejected {
        /// The rejected reading.
        read: UnixTime,
        /// The time used instead.
        believed: Option<UnixTime>,
    },
    /// A write of the hub's own process, [`Hub::kv_write`](crate::Hub::kv_write), has ended. It is not
    /// dropped if too many events wait.
    KvDone {
        /// The number that the caller has given.
        ticket: u64,
        /// The revision of the change.
        result: Result<Revision, KvError>,
    },
    /// Full mailboxes have dropped mails for others, see
    /// [`StoreConfig::on_full`](crate::StoreConfig::on_full). Reported at most once a second. Their senders
    /// and players get no report.
    MailDropped {
        /// Mails dropped since the last event.
        count: u64,
    },
    /// The wall clock is more than a day after the newest time in the log. Mail is accepted by it, and
    /// none expires until both agree within a day, or the hub has run for an hour, over all its
    /// starts. Reported each 10 minutes.
    ClockAhead {
        /// The reading.
        read: UnixTime,
        /// The newest time in the log.
        newest: UnixTime,
    },
    /// The disk has failed. End the process and restart it from the disk's contents.
    StoreFailed,
    /// The disk of statistics has failed. Mail, calls and presence continue; nodes keep their samples
    /// until the process is restarted.
    StatsFailed,
    /// The store has no room for mail; senders keep theirs. Reported at once, and each minute while
    /// it stays full.
    StoreFull {
        /// The reason.
        reason: FullReason,
        /// Mails refused since the store is full.
        refused: u64,
    },
    /// The store has room for mail again.
    StoreHasRoom {
        /// Mails that were refused meanwhile; their senders resend them.
        refused: u64,
        /// How long it was full.
        after: Duration,
    },
    /// Mail of a node is not stored since it, or all nodes of its role, exceed their
    /// [share](crate::SenderShare) of the store. Reported at once, and each minute while it lasts.
    SenderOverShare {
        /// The node.
        node: NodeId,
        /// Its role.
        role: Role,
        /// Mails of it that were not stored since the last event.
        refused: u64,
    },
    /// The disk has lost mail that was acknowledged to its sender; the rest is kept.
    MailCorrupt {
        /// Mails lost since the last event.
        mails: u64,
    },
}

/// State of a hub for reports and health checks, by [`Hub::health`](super::Hub::health).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubHealth {
    /// Summary of the other fields.
    pub status: HubStatus,
    /// Why no mail is stored now; `None` if it is.
    pub full: Option<FullReason>,
    /// Mails refused since the store is full.
    pub refused: u64,
    /// Whether the wall clock is implausible: see [`HubEvent::ClockRejected`].
    pub is_clock_doubted: bool,
    /// State of the store, at most about a second old.
    pub store: StoreStatus,
}

/// Summary of a hub's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubStatus {
    /// Everything works.
    Ok,
    /// Messages pass, but the store has no room, has lost mail, or the wall clock is implausible.
    Degraded,
    /// The disk has failed; the process is to be restarted.
    Failed,
}

impl fmt::Display for HubStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        })
    }
}

/// Counters of a hub since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HubStats {
    /// Records that do not decode.
    pub malformed: u64,
    /// Calls forwarded.
    pub calls: u64,
    /// Calls that could not be forwarded, or got no reply.
    pub calls_failed: u64,
    /// Replies to calls that are not open.
    pub replies_unknown: u64,
    /// Mails stored on disk, one for each recipient.
    pub mail_stored: u64,
    /// Mails rejected permanently, one for each recipient.
    pub mail_refused: u64,
    /// Stored mails that full mailboxes dropped for others, see
    /// [`StoreConfig::on_full`](crate::StoreConfig::on_full).
    pub mail_dropped: u64,
    /// Mails rejected with `Busy`; the sender retries.
    pub mail_busy: u64,
    /// Mails not stored since the store was full; the sender retries.
    pub mail_full: u64,
    /// Mails not stored since their sender exceeds its [share](crate::SenderShare); the sender retries.
    pub mail_over_share: u64,
    /// Mails rejected with `Busy`, since their sender exceeds its [rate](super::SenderRate).
    pub mail_over_rate: u64,
    /// Claims without a grant, if one is needed.
    pub claims_ungranted: u64,
    /// Claims with a grant for another node or player.
    pub claims_foreign: u64,
    /// Claims with a grant that has expired, or was replaced by a later one of the player.
    pub claims_expired: u64,
    /// Claims with a grant that no issuer has signed.
    pub claims_forged: u64,
    /// Mails delivered to nodes, including repeats.
    pub mail_given: u64,
    /// Mails deleted because they expired.
    pub mail_expired: u64,
    /// Acknowledgements, claims and releases from nodes that do not hold the player.
    pub stale: u64,
    /// Acknowledgements of ended claims that were dropped, since the store is too slow. That mail
    /// is delivered again.
    pub acks_dropped: u64,
    /// Players that a node has taken over from another node.
    pub players_taken: u64,
    /// Calls that their caller cancelled.
    pub calls_cancelled: u64,
    /// Broadcasts forwarded, counted per receiver.
    pub broadcasts: u64,
    /// Broadcasts dropped because a receiver reads too slowly.
    pub broadcasts_dropped: u64,
    /// Live messages forwarded, counted per player.
    pub forwards: u64,
    /// Live messages to players that no connected node holds.
    pub forwards_offline: u64,
    /// Live messages dropped because the player's node reads too slowly.
    pub forwards_dropped: u64,
    /// Messages to topics forwarded, counted per receiving node.
    pub casts: u64,
    /// Messages to topics dropped because a receiving node reads too slowly.
    pub casts_dropped: u64,
    /// Players that were to be disconnected, at the request of another node.
    pub kicks: u64,
    /// Such requests from roles that may not.
    pub kicks_refused: u64,
    /// Batches of counts stored on disk.
    pub batches: u64,
    /// Completions of commands that are unknown or already completed.
    pub completions_unknown: u64,
    /// Events dropped because the queue was full.
    pub events_dropped: u64,
}
