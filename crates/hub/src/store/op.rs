//! Store commands and their outcomes.

use core::fmt;
use core::time::Duration;

use bytes::Bytes;
use wire::{ClientId, Effect, InstanceId, NodeId, UnixTime};

use super::room::StoreStatus;
use crate::field::{BatchSeq, CountKey, Epoch, GroupId, LogId, MailSeq, Redacted, Role, SenderSeq};
use crate::kv::{KvEntry, KvError, KvKey, KvLease, Revision};
use crate::log::SenderUsage;
use crate::log::format::StoredMail;
use crate::record::{GroupError, MailTo, MailVerdict, PartRefusal, PlayerIds, StatsVerdict};
use crate::stats::StatsOp;

/// A command for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Pass it to the store.
    Store(StoreOp),
    /// Pass it to the store of statistics; if there is none, complete it with
    /// [`StoreError::Busy`].
    Stats(StatsOp),
}

impl Effect for Command {
    type Outcome = Outcome;
}

/// How a command ended.
pub type Outcome = Result<Completed, StoreError>;

/// A store operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreOp {
    /// Assigns an epoch to a run of a node: the last one if the instance is the same, else the
    /// next.
    Join {
        /// The node.
        node: NodeId,
        /// The run of the node.
        instance: InstanceId,
        /// The epoch that this run was assigned before; 0 for none.
        epoch: Epoch,
        /// The role with which it joins.
        role: Role,
    },
    /// Stores mails, in this order.
    Append(Vec<NewMail>),
    /// Reads a mailbox.
    Read {
        /// The player.
        player: ClientId,
        /// Only mails after this one.
        after: MailSeq,
        /// Stop once the mails take this many bytes in the log; at least one is read.
        bytes_max: usize,
        /// Expired mails are left out.
        now: UnixTime,
    },
    /// Deletes the mails of a mailbox up to `upto`.
    Ack {
        /// The player.
        player: ClientId,
        /// The last mail deleted.
        upto: MailSeq,
    },
    /// Deletes all mails of a mailbox.
    Clear {
        /// The player.
        player: ClientId,
    },
    /// Adds a batch of counts, once.
    Count {
        /// The node.
        node: NodeId,
        /// The epoch of its run.
        epoch: Epoch,
        /// The node's number of the batch.
        batch: BatchSeq,
        /// Keys and their increases.
        entries: Vec<(CountKey, u64)>,
    },
    /// Deletes some of the expired mails.
    Expire {
        /// The current time.
        now: UnixTime,
    },
    /// Reads or changes groups.
    Group(GroupOp),
    /// Deletes all stored mail of a sender, in one step that visits every mail in the store.
    Purge {
        /// The sender.
        from: NodeId,
    },
    /// Returns how much stored mail a sender has.
    Sent {
        /// The sender.
        from: NodeId,
    },
    /// Reports the state of the store; if it is full, it looks for room.
    Status,
    /// Records how long the hub has run since the newest time in the log, with a wall clock far from
    /// it.
    Ran(Duration),
    /// Reads or changes durable keys.
    Kv(KvOp),
}

/// An operation on a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupOp {
    /// Makes a player a member. Refused if a limit is reached.
    Join {
        /// The group.
        group: GroupId,
        /// The player.
        player: ClientId,
    },
    /// Ends a membership.
    Leave {
        /// The group.
        group: GroupId,
        /// The player.
        player: ClientId,
    },
    /// Reads a page of members.
    Members {
        /// The group.
        group: GroupId,
        /// The first player of the page, if it is a member.
        first: ClientId,
    },
}

/// How an operation on a group ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupOutcome {
    /// The membership is on disk.
    Done,
    /// Nothing was changed.
    Refused(GroupError),
    /// Members of the group.
    Members {
        /// In increasing order; `None` if there are none.
        players: Option<PlayerIds>,
        /// Whether more follow.
        more: bool,
    },
}

/// An operation on durable keys. A store executes these operations in the order given, and each change has
/// a larger revision than the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvOp {
    /// Reads a page of keys, ordered by key; ends with [`KvOutcome::Loaded`]. The first page assigns a new
    /// revision without a change, so that those in memory since the last start are not assigned again.
    Load {
        /// Only keys after this one; `None` for the first page.
        after: Option<KvKey>,
        /// Stop once the entries take this many bytes; at least one is read.
        bytes_max: usize,
    },
    /// Sets a key. Refused with [`KvError::Conflict`], [`KvError::Full`], [`KvError::TooLarge`], or
    /// [`KvError::HubDown`] if `by` is not the last run of its node.
    Put {
        /// The node's run that requests it; `None` for the hub's own process.
        by: Option<KvLease>,
        /// Whether the key is stored with `by` as its lease.
        lease: bool,
        /// The key.
        key: KvKey,
        /// The revision that the key must have; [`Revision::NONE`] if it must not exist.
        expected: Option<Revision>,
        /// The value.
        value: Redacted<Bytes>,
    },
    /// Deletes a key. Refused with [`KvError::NotFound`], [`KvError::Conflict`] or as above with
    /// [`KvError::HubDown`].
    Delete {
        /// The node's run that requests it; `None` for the hub's own process, and at the end of a lease.
        by: Option<KvLease>,
        /// The key.
        key: KvKey,
        /// The revision that the key must have.
        expected: Option<Revision>,
    },
    /// Assigns a revision without a change, so that changes in memory have new ones.
    Advance,
}

/// How an operation on durable keys ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvOutcome {
    /// Keys of the store.
    Loaded {
        /// Ordered by key.
        entries: Vec<KvEntry>,
        /// Whether more follow.
        more: bool,
        /// The last revision assigned.
        revision: Revision,
    },
    /// The change with this revision is on disk.
    Done(Revision),
    /// Nothing was changed.
    Refused(KvError),
}

/// A mail to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMail {
    /// The recipients.
    pub to: MailTo,
    /// The sending node.
    pub node: NodeId,
    /// The epoch of its run.
    pub epoch: Epoch,
    /// The sender's number.
    pub seq: SenderSeq,
    /// The sender has verdicts on all mails up to this one.
    pub settled: SenderSeq,
    /// When it expires.
    pub expires: UnixTime,
    /// Its priority in a full mailbox, see [`OnFull`](super::OnFull).
    pub priority: u8,
    /// The payload.
    pub body: Redacted<Bytes>,
}

/// Result of a store operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completed {
    /// The epoch is on disk.
    Joined {
        /// The epoch of the run.
        epoch: Epoch,
        /// Starts of the hub.
        boot: u32,
        /// The log.
        log: LogId,
        /// The newest time in the log; 0 if none.
        newest: UnixTime,
        /// How long the hub has run since then with a wall clock far from it.
        ran: Duration,
        /// The number of the last mail in the log.
        last_mail: MailSeq,
        /// The verdicts on the run's mails up to this one are on disk.
        mail_mark: SenderSeq,
        /// The run's batches up to this one are on disk.
        count_mark: BatchSeq,
    },
    /// A later run of the node has an epoch.
    Fenced,
    /// The verdict on each mail, in order.
    Appended(Vec<Settled>),
    /// Mails of the mailbox.
    Mails {
        /// Oldest first.
        mails: Vec<Mail>,
        /// Whether more follow.
        more: bool,
    },
    /// The mails are deleted, on disk.
    Acked,
    /// The mailbox is empty, on disk.
    Cleared {
        /// The mails that were deleted.
        count: u64,
    },
    /// The counts are on disk.
    Counted,
    /// Mails were deleted.
    Expired {
        /// Their number.
        count: u32,
    },
    /// The operation on a group has ended.
    Group(GroupOutcome),
    /// The operation on keys has ended.
    Kv(KvOutcome),
    /// What became of a batch of statistics.
    StatsSettled(StatsVerdict),
    /// The encoded [`StatsAnswer`](crate::stats::StatsAnswer) to a query of statistics.
    StatsAnswer(Bytes),
    /// The state.
    Status(StoreStatus),
    /// What was deleted.
    Purged(SenderUsage),
    /// What the sender has.
    Sent(SenderUsage),
    /// The time is on disk.
    Ran,
}

/// A mail with its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The sending node.
    pub node: NodeId,
    /// The epoch of its run.
    pub epoch: Epoch,
    /// The sender's number.
    pub seq: SenderSeq,
    /// The recipients; the members, once a mail to a group is stored.
    pub to: MailTo,
    /// The verdict.
    pub verdict: MailVerdict,
    /// The recipients that were rejected, if it is stored for others.
    pub part: Option<PartRefusal>,
    /// Mails that were dropped from full mailboxes for it.
    pub dropped: u32,
}

/// A stored mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Its number in the mailbox.
    pub seq: MailSeq,
    /// The sending node.
    pub node: NodeId,
    /// The epoch of its run.
    pub epoch: Epoch,
    /// The sender's number.
    pub sender_seq: SenderSeq,
    /// The payload.
    pub body: Redacted<Bytes>,
}

impl Mail {
    pub(super) fn from_stored(stored: &StoredMail<'_>) -> Self {
        Self {
            seq: stored.seq,
            node: stored.node,
            epoch: stored.epoch,
            sender_seq: stored.sender_seq,
            body: stored.body.to_bytes(),
        }
    }
}

/// Why an operation was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// Not now.
    Busy,
    /// The store has no room: see [`StoreStatus::full`].
    Full,
    /// The disk has failed: nothing of this batch is confirmed, and the store accepts nothing more.
    Failed,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the store is not ready for this now",
            Self::Full => "the store has no room now",
            Self::Failed => "the disk of the store has failed",
        })
    }
}

impl core::error::Error for StoreError {}
