//! What a hub asks of its store, and how that ends.

use core::fmt;

use bytes::Bytes;
use wire::{ClientId, Effect, InstanceId, NodeId, UnixTime};

use crate::address::Addr;
use crate::count::CountKey;
use crate::id::{BatchSeq, Epoch, LogId, MailSeq, SenderSeq};
use crate::log::format::StoredMail;
use crate::record::MailVerdict;
use crate::redact::Redacted;

/// An effect that a hub asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Something for the store.
    Store(StoreOp),
}

impl Effect for Command {
    type Outcome = Outcome;
}

/// How a command ended.
pub type Outcome = Result<Completed, StoreError>;

/// Something for the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreOp {
    /// Gives a run of a node its epoch: that of before where it is the same instance, else the
    /// next one.
    Join {
        /// Which node.
        node: NodeId,
        /// Which run of it.
        instance: InstanceId,
        /// The epoch that this run says it was given before; 0 for none.
        epoch: Epoch,
    },
    /// Keeps mails, in this order.
    Append(Vec<NewMail>),
    /// Reads a mailbox.
    Read {
        /// Whose.
        player: ClientId,
        /// Only what comes after this mail.
        after: MailSeq,
        /// Enough once the mails read take this many bytes in the log; at least one is read.
        bytes_max: usize,
        /// Mails whose time is over are left out.
        now: UnixTime,
    },
    /// Forgets the mails of a mailbox up to `upto`.
    Ack {
        /// Whose mailbox.
        player: ClientId,
        /// The last one.
        upto: MailSeq,
    },
    /// Adds a batch of counts, once.
    Count {
        /// Who counted.
        node: NodeId,
        /// In which run.
        epoch: Epoch,
        /// The node's number of the batch.
        batch: BatchSeq,
        /// What, and how often.
        entries: Vec<(CountKey, u64)>,
    },
    /// Drops some of the mails whose time is over.
    Expire {
        /// The wall clock.
        now: UnixTime,
    },
}

/// A mail to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMail {
    /// Whose mailbox.
    pub to: Addr,
    /// Who sends it.
    pub node: NodeId,
    /// In which run.
    pub epoch: Epoch,
    /// The sender's number.
    pub seq: SenderSeq,
    /// The sender knows what became of all up to this one.
    pub settled: SenderSeq,
    /// When it is dropped.
    pub expires: UnixTime,
    /// What it says.
    pub body: Redacted<Bytes>,
}

/// What came of a command that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completed {
    /// The run has its epoch, on disk.
    Joined {
        /// The epoch.
        epoch: Epoch,
        /// How often the hub has started.
        boot: u32,
        /// Which log it is.
        log: LogId,
        /// The wall clock, as the hub last believed it before; 0 where it never did.
        newest: UnixTime,
        /// What became of the run's mails up to this one is on disk.
        mail_mark: SenderSeq,
        /// The run's batches of counts up to this one are on disk.
        count_mark: BatchSeq,
    },
    /// A later run of the node has an epoch already.
    Fenced,
    /// What became of each mail, in their order.
    Appended(Vec<Settled>),
    /// What the mailbox holds.
    Mails {
        /// Oldest first.
        mails: Vec<Mail>,
        /// Whether there is more behind them.
        more: bool,
    },
    /// The mails are forgotten, on disk.
    Acked,
    /// The counts are on disk.
    Counted,
    /// Mails were dropped.
    Expired {
        /// How many.
        count: u32,
    },
}

/// What became of a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Who sent it.
    pub node: NodeId,
    /// In which run.
    pub epoch: Epoch,
    /// The sender's number.
    pub seq: SenderSeq,
    /// Whose mailbox.
    pub to: Addr,
    /// What became of it.
    pub verdict: MailVerdict,
}

/// A mail that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Its place in the mailbox.
    pub seq: MailSeq,
    /// Who sent it.
    pub node: NodeId,
    /// In which run.
    pub epoch: Epoch,
    /// The sender's number.
    pub sender_seq: SenderSeq,
    /// What it says.
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

/// Why a command came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no room now.
    Busy,
    /// The disk has failed: nothing of this batch is acknowledged, and nothing is taken any more.
    Failed,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the store has no room now",
            Self::Failed => "the disk of the store has failed",
        })
    }
}

impl core::error::Error for StoreError {}
