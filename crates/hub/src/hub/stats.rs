//! Batches and queries of statistics, between links and the store of statistics.

use std::collections::{BTreeMap, VecDeque};

use wire::{CommandId, ConnectionId, NodeId, UnixTime};

use crate::field::{BatchSeq, Epoch, LogId, QueryId, Redacted, Role};
use crate::record::{StatsToHub, StatsToNode, StatsVerdict, ToNode};
use crate::stats::{QueryReason, QueryRefusal, StatsOp, encode_answer};
use crate::store::{Command, Completed, Outcome, StoreError};

/// Limits of statistics on the links of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatsLinkConfig {
    /// Batches not yet stored on disk, bytes. Default 16 MiB. Each link has at most one; beyond the
    /// limit a node gets `Busy`.
    pub bytes_in_flight: usize,
    /// Queries that are not answered yet. Default 4; one of each link. Further ones are refused with
    /// `Busy`.
    pub queries_in_flight: usize,
    /// Roles that may query. Default: admins and matchmakers.
    pub query_roles: Vec<Role>,
}

impl Default for StatsLinkConfig {
    fn default() -> Self {
        Self {
            bytes_in_flight: 16 << 20,
            queries_in_flight: 4,
            query_roles: vec![Role::Admin, Role::Matchmaker],
        }
    }
}

/// Counters of statistics on the links of a hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StatsLinkStats {
    /// Batches stored on disk, with those that were stored before.
    pub stored: u64,
    /// Batches refused permanently.
    pub refused: u64,
    /// Batches rejected with `Busy`; the node resends them.
    pub busy: u64,
    /// Batches and queries ignored, since the link's last one was not answered yet.
    pub ignored: u64,
    /// Queries answered.
    pub queries: u64,
    /// Queries refused, for whatever reason.
    pub queries_refused: u64,
}

/// The node that a record is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatsSender {
    pub(super) link: ConnectionId,
    pub(super) node: NodeId,
    pub(super) epoch: Epoch,
    pub(super) role: Role,
}

/// Passes batches and queries to the store of statistics, one of each link at a time.
#[derive(Debug, Default)]
pub(super) struct StatsRouter {
    /// The log that assigns epochs; known from the first join on.
    log: LogId,
    last: u64,
    queue: VecDeque<(CommandId, Command)>,
    in_flight: BTreeMap<CommandId, InFlight>,
    /// Links with a batch in flight, and its length.
    batches: BTreeMap<ConnectionId, usize>,
    /// Links with a query in flight.
    queries: BTreeMap<ConnectionId, QueryId>,
    bytes: usize,
    stats: StatsLinkStats,
    /// The disk of statistics has failed; everything is `Busy`.
    has_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    Batch(ConnectionId, BatchSeq),
    Query(ConnectionId, QueryId),
}

/// A reply to a node.
pub(super) type StatsReply = (ConnectionId, Vec<u8>);

/// Commands of statistics have ids from here on, apart from those of mail.
const FIRST_ID: u64 = 1 << 63;

impl StatsRouter {
    pub(super) const fn set_log(&mut self, log: LogId) {
        self.log = log;
    }

    /// Handles a record; returns the reply if there is one at once. Without a wall clock, or while
    /// the hub shuts down, `now` is `None`.
    pub(super) fn on_record(
        &mut self,
        config: &StatsLinkConfig,
        from: StatsSender,
        now: Option<UnixTime>,
        record: StatsToHub<'_>,
    ) -> Option<Vec<u8>> {
        match record {
            StatsToHub::Batch { batch, bytes } => {
                if self.batches.contains_key(&from.link) {
                    self.stats.ignored = self.stats.ignored.saturating_add(1);
                    return None;
                }
                let all = self.bytes.saturating_add(bytes.len());
                let has_room = all <= config.bytes_in_flight && !self.has_failed;
                let Some(now) = now.filter(|_| has_room) else {
                    return Some(self.settle(batch, StatsVerdict::Busy));
                };
                self.bytes = all;
                self.batches.insert(from.link, bytes.len());
                let op = StatsOp::Append {
                    log: self.log,
                    node: from.node,
                    epoch: from.epoch,
                    batch,
                    now,
                    bytes: bytes.to_bytes(),
                };
                self.push(op, InFlight::Batch(from.link, batch));
                None
            }
            StatsToHub::Query { query, text } => {
                if !config.query_roles.contains(&from.role) {
                    let reason = QueryReason::Refused;
                    return Some(self.refuse(query, reason, "this role may not query statistics"));
                }
                let is_busy = self.queries.contains_key(&from.link)
                    || self.queries.len() >= config.queries_in_flight
                    || self.has_failed;
                let Some(now) = now.filter(|_| !is_busy) else {
                    let sentence = "the hub answers other queries; try again";
                    return Some(self.refuse(query, QueryReason::Busy, sentence));
                };
                self.queries.insert(from.link, query);
                let text = text.to_bytes();
                let op = StatsOp::Query { text, now };
                self.push(op, InFlight::Query(from.link, query));
                None
            }
        }
    }

    fn push(&mut self, op: StatsOp, in_flight: InFlight) {
        let id = CommandId(FIRST_ID.saturating_add(self.last));
        self.last = self.last.saturating_add(1);
        self.in_flight.insert(id, in_flight);
        self.queue.push_back((id, Command::Stats(op)));
    }

    pub(super) fn poll(&mut self) -> Option<(CommandId, Command)> {
        self.queue.pop_front()
    }

    /// Returns whether a command is one of statistics.
    pub(super) const fn owns(id: CommandId) -> bool {
        id.0 >= FIRST_ID
    }

    /// Completes a command; `None` if it is unknown. Returns the reply, and whether the disk has
    /// failed just now.
    pub(super) fn complete(
        &mut self,
        id: CommandId,
        outcome: Outcome,
    ) -> Option<(StatsReply, bool)> {
        let in_flight = self.in_flight.remove(&id)?;
        let failed_now = outcome == Err(StoreError::Failed) && !self.has_failed;
        self.has_failed |= failed_now;
        let reply = match in_flight {
            InFlight::Batch(link, batch) => {
                let freed = self.batches.remove(&link).unwrap_or(0);
                self.bytes = self.bytes.saturating_sub(freed);
                let verdict = match outcome {
                    Ok(Completed::StatsSettled(verdict)) => verdict,
                    Ok(_) | Err(_) => StatsVerdict::Busy,
                };
                (link, self.settle(batch, verdict))
            }
            InFlight::Query(link, query) => {
                self.queries.remove(&link);
                let bytes = if let Ok(Completed::StatsAnswer(bytes)) = outcome {
                    self.stats.queries = self.stats.queries.saturating_add(1);
                    let bytes = Redacted(&bytes[..]);
                    encode(&StatsToNode::Answer { query, bytes })
                } else {
                    let sentence = "this hub has no statistics now";
                    self.refuse(query, QueryReason::Refused, sentence)
                };
                (link, bytes)
            }
        };
        Some((reply, failed_now))
    }

    fn settle(&mut self, batch: BatchSeq, verdict: StatsVerdict) -> Vec<u8> {
        let count = match verdict {
            StatsVerdict::Stored => &mut self.stats.stored,
            StatsVerdict::Refused => &mut self.stats.refused,
            StatsVerdict::Busy => &mut self.stats.busy,
        };
        *count = count.saturating_add(1);
        let retry_ms = match verdict {
            StatsVerdict::Busy => RETRY_MS,
            StatsVerdict::Stored | StatsVerdict::Refused => 0,
        };
        encode(&StatsToNode::Settled {
            batch,
            verdict,
            retry_ms,
        })
    }

    fn refuse(&mut self, query: QueryId, reason: QueryReason, sentence: &str) -> Vec<u8> {
        self.stats.queries_refused = self.stats.queries_refused.saturating_add(1);
        let bytes = encode_answer(&Err(QueryRefusal::new(reason, sentence)));
        encode(&StatsToNode::Answer {
            query,
            bytes: Redacted(&bytes),
        })
    }

    /// Returns whether no command is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) const fn stats(&self) -> StatsLinkStats {
        self.stats
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let entries = self.in_flight.len().saturating_mul(ENTRY_BYTES);
        self.bytes.saturating_add(entries)
    }
}

/// How long a node waits after `Busy`, milliseconds.
const RETRY_MS: u32 = 500;

/// Memory of a command without its batch, bytes.
const ENTRY_BYTES: usize = 512;

fn encode(record: &StatsToNode<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    ToNode::Stats(*record).encode(&mut bytes);
    bytes
}
