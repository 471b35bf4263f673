//! Events and counters of a hub.

use wire::{InstanceId, NodeId, UnixTime};

use crate::id::Epoch;
use crate::record::DownReason;
use crate::role::Role;

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
    /// The disk has failed. End the process and restart it from the disk's contents.
    StoreFailed,
}

/// Counters of a hub since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Mails stored on disk.
    pub mail_stored: u64,
    /// Mails rejected permanently.
    pub mail_refused: u64,
    /// Mails rejected with `Busy`; the sender retries.
    pub mail_busy: u64,
    /// Mails delivered to nodes, including repeats.
    pub mail_given: u64,
    /// Mails deleted because they expired.
    pub mail_expired: u64,
    /// Acknowledgements, claims and releases from nodes that do not hold the player.
    pub stale: u64,
    /// Acknowledgements of ended claims that were dropped, since the store is too slow. That mail
    /// is delivered again.
    pub acks_dropped: u64,
    /// Broadcasts forwarded, counted per receiver.
    pub broadcasts: u64,
    /// Broadcasts dropped because a receiver reads too slowly.
    pub broadcasts_dropped: u64,
    /// Batches of counts stored on disk.
    pub batches: u64,
    /// Completions of commands that are unknown or already completed.
    pub completions_unknown: u64,
    /// Events dropped because the queue was full.
    pub events_dropped: u64,
}
