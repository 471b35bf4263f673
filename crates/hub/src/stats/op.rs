//! Operations of the store of statistics.

use bytes::Bytes;
use wire::{NodeId, UnixTime};

use crate::field::{BatchSeq, Epoch, LogId, Redacted};

/// An operation of a [`StatsStore`](crate::stats_store::StatsStore).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatsOp {
    /// Stores a batch of a node and counts it, once.
    Append {
        /// The log that assigned the epoch.
        log: LogId,
        /// The node.
        node: NodeId,
        /// The epoch of its run.
        epoch: Epoch,
        /// The node's number of the batch.
        batch: BatchSeq,
        /// The current time.
        now: UnixTime,
        /// The encoded [`Batch`](super::Batch).
        bytes: Redacted<Bytes>,
    },
    /// Answers a query.
    Query {
        /// The [`Query`](super::Query) as text.
        text: Redacted<Bytes>,
        /// The current time.
        now: UnixTime,
    },
}
