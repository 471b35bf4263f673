//! Statistics of a node: samples in batches, which are resent until the hub has stored them.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{Instant, UnixTime};

use crate::field::{BatchSeq, QueryId, Redacted};
use crate::record::{StatsToHub, StatsVerdict};
use crate::stats::{BatchWriter, Query, StatKey, StatRecord, Tallies};

/// Limits of a node's statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatsConfig {
    /// Encoded samples that the hub has not stored yet, bytes. Default 8 MiB. While the hub is away
    /// they wait; beyond the limit new ones are dropped and counted.
    pub bytes_max: usize,
    /// Interval at which samples become a batch. Default 1 s; a full batch is sent at once.
    pub interval: Duration,
    /// Open queries. Default 16.
    pub queries_max: usize,
}

impl Default for NodeStatsConfig {
    fn default() -> Self {
        Self {
            bytes_max: 8 << 20,
            interval: Duration::from_secs(1),
            queries_max: 16,
        }
    }
}

/// Counters of a node's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatsCounters {
    /// Samples dropped, since too many waited, or buffers of threads were full.
    pub dropped: u64,
    /// Samples that the hub has refused.
    pub refused: u64,
    /// Batches that the hub has stored.
    pub stored: u64,
    /// Batches sent again, over another link or after `Busy`.
    pub resent: u64,
}

/// Samples of a node on their way to the hub, and its queries.
///
/// Batches are numbered in the order of their samples and sent one at a time; the next one follows
/// when the hub has stored it. So the hub counts each once, however often it is sent.
#[derive(Debug, Default)]
pub struct Statistics {
    config: NodeStatsConfig,
    writer: BatchWriter,
    /// Closed batches, each with its number of samples.
    batches: VecDeque<(BatchSeq, Bytes, usize)>,
    bytes: usize,
    last: BatchSeq,
    /// The first batch is on its way.
    is_sent: bool,
    /// The largest batch that was sent.
    last_sent: BatchSeq,
    paused_until: Option<Instant>,
    next_close: Instant,
    last_query: QueryId,
    open_queries: BTreeSet<QueryId>,
    /// Queries to send.
    queries: VecDeque<(QueryId, Bytes)>,
    counters: NodeStatsCounters,
}

/// Why a query was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuerySendError {
    /// Too many queries are open.
    Full,
    /// The text exceeds [`Query::TEXT_BYTES_MAX`].
    TooLong,
    /// No link to the hub is up.
    HubDown,
}

impl core::fmt::Display for QuerySendError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Full => f.write_str("too many queries are open"),
            Self::TooLong => write!(f, "the query exceeds {} bytes", Query::TEXT_BYTES_MAX),
            Self::HubDown => f.write_str("no link to the hub is up"),
        }
    }
}

impl core::error::Error for QuerySendError {}

impl Statistics {
    pub(super) fn new(config: NodeStatsConfig, now: Instant) -> Self {
        Self {
            config,
            next_close: now,
            ..Self::default()
        }
    }

    /// Records a sample. Without room it is dropped and counted.
    pub fn record(&mut self, record: &StatRecord) {
        if self.writer.push(record).is_err() {
            self.close();
            // An empty batch has room for the longest record.
            self.writer.push(record).unwrap_or_default();
        }
    }

    /// Moves what a thread has counted into batches, with the keys of its
    /// [`Counters`](crate::stats::Counters). Samples that the thread or this node dropped for want of
    /// room are counted.
    pub fn add(&mut self, tallies: &mut Tallies, keys: &[StatKey], time: UnixTime) {
        self.drop_samples(tallies.dropped());
        while tallies.encode(keys, time, &mut self.writer).is_err() {
            self.close();
        }
    }

    /// Counts samples that were dropped before they reached this node.
    pub const fn drop_samples(&mut self, count: u64) {
        self.counters.dropped = self.counters.dropped.saturating_add(count);
    }

    /// Returns the counters.
    pub const fn counters(&self) -> NodeStatsCounters {
        self.counters
    }

    /// Returns whether every sample that was not dropped is stored by the hub.
    pub fn is_stored(&self) -> bool {
        self.batches.is_empty() && self.writer.is_empty()
    }

    /// Closes the batch that is being written.
    fn close(&mut self) {
        let samples = self.writer.len();
        if samples == 0 {
            return;
        }
        let bytes = Bytes::from(self.writer.take());
        let all = self.bytes.saturating_add(bytes.len());
        if all > self.config.bytes_max {
            self.drop_samples(u64::try_from(samples).unwrap_or(u64::MAX));
            return;
        }
        self.bytes = all;
        self.last = BatchSeq(self.last.0.saturating_add(1));
        self.batches.push_back((self.last, bytes, samples));
    }

    pub(super) fn query(&mut self, text: &str) -> Result<QueryId, QuerySendError> {
        if text.len() > Query::TEXT_BYTES_MAX {
            return Err(QuerySendError::TooLong);
        }
        if self.open_queries.len() >= self.config.queries_max {
            return Err(QuerySendError::Full);
        }
        self.last_query = QueryId(self.last_query.0.saturating_add(1));
        self.open_queries.insert(self.last_query);
        let text = Bytes::copy_from_slice(text.as_bytes());
        self.queries.push_back((self.last_query, text));
        Ok(self.last_query)
    }

    /// Ends a query; returns whether it was open.
    pub(super) fn on_answer(&mut self, query: QueryId) -> bool {
        self.open_queries.remove(&query)
    }

    pub(super) const fn on_joined(&mut self) {
        self.is_sent = false;
        self.paused_until = None;
    }

    /// Ends the next open query after the link has closed.
    pub(super) fn pop_query(&mut self) -> Option<QueryId> {
        self.queries.clear();
        self.open_queries.pop_first()
    }

    /// Handles the verdict on a batch. `retry_at` is when to send it again after `Busy`.
    pub(super) fn on_settled(&mut self, batch: BatchSeq, verdict: StatsVerdict, retry_at: Instant) {
        let Some((first, bytes, samples)) = self.batches.front() else {
            return;
        };
        // Of an earlier link, or of no batch of this node.
        if *first != batch || !self.is_sent {
            return;
        }
        self.is_sent = false;
        let samples = u64::try_from(*samples).unwrap_or(u64::MAX);
        match verdict {
            StatsVerdict::Busy => {
                self.paused_until = Some(retry_at);
                return;
            }
            StatsVerdict::Stored => self.counters.stored = self.counters.stored.saturating_add(1),
            StatsVerdict::Refused => {
                self.counters.refused = self.counters.refused.saturating_add(samples);
            }
        }
        self.bytes = self.bytes.saturating_sub(bytes.len());
        self.batches.pop_front();
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
        }
        if self.next_close <= now {
            self.next_close = now + self.config.interval;
            self.close();
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let close = (!self.writer.is_empty()).then_some(self.next_close);
        [close, self.paused_until].into_iter().flatten().min()
    }

    /// Returns the next record to send.
    pub(super) fn next(&self) -> Option<StatsToHub<'_>> {
        if let Some((query, text)) = self.queries.front() {
            let (query, text) = (*query, Redacted(&text[..]));
            return Some(StatsToHub::Query { query, text });
        }
        if self.is_sent || self.paused_until.is_some() {
            return None;
        }
        let (batch, bytes, _) = self.batches.front()?;
        let (batch, bytes) = (*batch, Redacted(&bytes[..]));
        Some(StatsToHub::Batch { batch, bytes })
    }

    pub(super) fn on_sent(&mut self) {
        if self.queries.pop_front().is_some() {
            return;
        }
        let Some((batch, _, _)) = self.batches.front() else {
            return;
        };
        if *batch <= self.last_sent {
            self.counters.resent = self.counters.resent.saturating_add(1);
        }
        self.last_sent = self.last_sent.max(*batch);
        self.is_sent = true;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let texts: usize = self.queries.iter().map(|(_, text)| text.len()).sum();
        let entries = self.batches.len().saturating_add(self.open_queries.len());
        let writer = if self.writer.is_empty() {
            0
        } else {
            WRITER_BYTES
        };
        self.bytes
            .saturating_add(texts)
            .saturating_add(entries.saturating_mul(ENTRY_BYTES))
            .saturating_add(writer)
    }
}

/// Memory of a batch or query without its bytes.
const ENTRY_BYTES: usize = 64;

/// Memory of a batch that is being written, at most: its bytes, and tables of what it has defined.
const WRITER_BYTES: usize = 512 << 10;
