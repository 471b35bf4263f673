//! What a hub tells its application, and counts.

use wire::{InstanceId, NodeId, UnixTime};

use crate::id::Epoch;
use crate::record::DownReason;
use crate::role::Role;

/// What a hub tells its application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubEvent {
    /// A node has joined.
    NodeUp {
        /// Which.
        node: NodeId,
        /// Which run of it.
        instance: InstanceId,
        /// Its number.
        epoch: Epoch,
        /// What it joined as.
        role: Role,
    },
    /// A node's link has ended.
    NodeDown {
        /// Which.
        node: NodeId,
        /// Which run of it.
        epoch: Epoch,
    },
    /// The hub has ended a link, or let none begin.
    Refused {
        /// Whose key was proved; none where none was.
        node: Option<NodeId>,
        /// Why.
        reason: DownReason,
    },
    /// The wall clock reads more than a minute away from where it should be, or a time before the
    /// newest in the log. It is not believed until it has stood for
    /// [`HubConfig::clock_step_wait`](super::HubConfig::clock_step_wait); mail expires by what is
    /// believed, and none is taken where that is nothing.
    ClockRejected {
        /// What it reads.
        read: UnixTime,
        /// What is believed.
        believed: Option<UnixTime>,
    },
    /// The disk has failed. The process shall end and start again, with what the disk holds.
    StoreFailed,
}

/// What a hub has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubStats {
    /// Records that were none.
    pub malformed: u64,
    /// Calls passed on.
    pub calls: u64,
    /// Calls that could not be passed on, or were not answered.
    pub calls_failed: u64,
    /// Replies to calls that nobody waits for.
    pub replies_unknown: u64,
    /// Mails put on disk.
    pub mail_stored: u64,
    /// Mails refused for good.
    pub mail_refused: u64,
    /// Mails not taken for now.
    pub mail_busy: u64,
    /// Mails given to nodes, those given again included.
    pub mail_given: u64,
    /// Mails dropped because their time was over.
    pub mail_expired: u64,
    /// Acknowledgements, claims and releases of nodes that do not hold the player.
    pub stale: u64,
    /// Acknowledgements of players that are gone, dropped because the store takes too few. Their mail
    /// comes again.
    pub acks_dropped: u64,
    /// Broadcasts passed on, counted for each receiver.
    pub broadcasts: u64,
    /// Broadcasts dropped because a receiver reads too slowly.
    pub broadcasts_dropped: u64,
    /// Batches of counts put on disk.
    pub batches: u64,
    /// Completions of commands that are not known, or were completed before.
    pub completions_unknown: u64,
    /// Events dropped because nobody takes them.
    pub events_dropped: u64,
}
