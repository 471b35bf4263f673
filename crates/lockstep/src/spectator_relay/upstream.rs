//! Upstream side of a relay: the received match, and datagrams to the server.

use core::time::Duration;
use std::sync::Arc;

use wire::Instant;

use super::SpectatorRelayConfig;
use crate::bundle::Shape;
use crate::chain::{CHAIN_LEN, Chain};
use crate::config::snapshot_bytes_max;
use crate::message::{
    Chunk, Direction, ReportHead, Turns, Welcome, write_ready, write_report, write_snapshot_request,
};
use crate::snapshot;
use crate::spectators::{SPECTATOR_REPORT_TICKS, ShownTicks};
use crate::stats::SpectatorRelayStats;
use crate::tick::Tick;
use crate::transfer::Incoming;

/// Ticks kept past the first missing one: the slots of the chain minus those that children may
/// lack.
const AHEAD_MAX: u32 = 256;

/// Time before an unanswered datagram is repeated.
const REPEAT_INTERVAL: Duration = Duration::from_millis(50);

/// Time before a snapshot request is repeated.
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);

/// How long to wait for a requested snapshot, which arrives at its sender's rate.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A match as received.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) welcome: Welcome,
    chain: Chain,
    /// First tick ever received; all from there to `end` have arrived.
    begin: Tick,
    /// First tick that has not arrived.
    end: Tick,
    /// One past the newest tick that arrived.
    seen_end: Tick,
    incoming: Box<Incoming>,
    /// When to repeat `Ready`; `None` once it is answered.
    ready_at: Option<Instant>,
    /// When to send the next report; `None` until turns arrive.
    report_at: Option<Instant>,
    /// Set while children need a snapshot.
    request: Option<SnapshotRequest>,
    /// The datagram that is due.
    due: Due,
}

#[derive(Debug)]
struct SnapshotRequest {
    /// When to repeat it.
    again_at: Instant,
    /// When to give up.
    until: Instant,
}

/// A datagram to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Ready,
    Report,
    SnapshotRequest,
}

impl Upstream {
    pub(super) fn new(now: Instant, welcome: Welcome, config: &SpectatorRelayConfig) -> Self {
        let shape = welcome.shape;
        Self {
            welcome,
            chain: Chain::with_len(shape, CHAIN_LEN.saturating_add(AHEAD_MAX)),
            begin: Tick(0),
            end: Tick(0),
            seen_end: Tick(0),
            incoming: incoming(shape, config),
            ready_at: Some(now),
            report_at: None,
            request: None,
            due: Due::Nothing,
        }
    }

    pub(super) const fn shown_ticks(&self) -> ShownTicks<'_> {
        ShownTicks {
            chain: &self.chain,
            begin: self.begin,
            end: self.end,
        }
    }

    /// Continues in a new session, maybe with another server, which numbers its own transfers:
    /// drops transfers in progress, and repeats a request.
    pub(super) fn restart(&mut self, now: Instant, config: &SpectatorRelayConfig) {
        self.incoming = incoming(self.welcome.shape, config);
        if let Some(request) = &mut self.request {
            request.again_at = now;
        }
        self.say_ready(now);
    }

    /// Repeats `Ready`, for a server that did not get it.
    pub(super) const fn say_ready(&mut self, now: Instant) {
        self.ready_at = Some(now);
    }

    /// Handles closed ticks.
    pub(super) fn on_turns(
        &mut self,
        now: Instant,
        turns: &Turns<'_>,
        stats: &mut SpectatorRelayStats,
    ) {
        self.ready_at = None;
        let Some(first) = self.end.widen_near(turns.first_low) else {
            stats.dropped_window = stats.dropped_window.saturating_add(1);
            return;
        };
        let mut tick = first;
        for bundle in turns.bundles.iter() {
            if tick > Tick::LAST || tick >= self.end.plus(AHEAD_MAX) {
                stats.bundles_early = stats.bundles_early.saturating_add(1);
            } else if tick < self.end || self.chain.has(tick) {
                stats.bundles_repeated = stats.bundles_repeated.saturating_add(1);
            } else {
                self.chain.put(tick, bundle);
                self.seen_end = self.seen_end.max(tick.plus(1));
                let at = after(now, self.report_interval());
                self.report_at.get_or_insert(at);
            }
            tick = tick.plus(1);
        }
        self.advance(stats);
        if self.is_gap() {
            let soon = after(now, self.period());
            self.report_at = Some(self.report_at.map_or(soon, |at| at.min(soon)));
        }
    }

    /// Handles a chunk; after the last one returns the snapshot and the first tick after it.
    pub(super) fn on_chunk(
        &mut self,
        now: Instant,
        chunk: &Chunk<'_>,
        stats: &mut SpectatorRelayStats,
    ) -> Option<(Tick, Arc<[u8]>)> {
        self.ready_at = None;
        self.incoming.on_chunk(now, chunk);
        let bytes = self.incoming.take()?;
        let Some(next) = snapshot::next_of(&bytes, self.welcome.shape) else {
            stats.dropped_malformed = stats.dropped_malformed.saturating_add(1);
            return None;
        };
        stats.snapshots = stats.snapshots.saturating_add(1);
        if next > self.end {
            // The ticks in between will not arrive.
            (self.begin, self.end) = (next, next);
            self.seen_end = self.seen_end.max(next);
            self.advance(stats);
        }
        Some((next, bytes.into()))
    }

    /// Whether to request a snapshot for children; false if the request has timed out.
    pub(super) fn request(&mut self, now: Instant) -> bool {
        let request = self.request.get_or_insert_with(|| SnapshotRequest {
            again_at: now,
            until: after(now, REQUEST_TIMEOUT),
        });
        let has_time = request.until > now;
        if !has_time {
            self.request = None;
        }
        has_time
    }

    /// No child needs one any more.
    pub(super) const fn cancel_request(&mut self) {
        self.request = None;
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.ready_at) {
            self.ready_at = Some(after(now, REPEAT_INTERVAL));
            self.due = Due::Ready;
        } else if is_due(self.report_at) {
            let wait = if self.is_gap() {
                self.period()
            } else {
                self.report_interval()
            };
            self.report_at = Some(after(now, wait));
            self.due = Due::Report;
        }
        if let Some(request) = &mut self.request
            && request.again_at <= now
        {
            request.again_at = after(now, REQUEST_INTERVAL);
            self.due = Due::SnapshotRequest;
        }
    }

    /// Writes a due datagram.
    pub(super) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        match core::mem::replace(&mut self.due, Due::Nothing) {
            Due::Nothing => return self.incoming.poll_ack(now, out),
            Due::Ready => write_ready(out, self.end),
            Due::Report => {
                let head = ReportHead {
                    next_low: self.end.low(),
                    is_gap: self.is_gap(),
                    ..ReportHead::default()
                };
                let width = self.welcome.shape.width;
                write_report(out, &head, width, &[], core::iter::empty());
            }
            Due::SnapshotRequest => write_snapshot_request(out),
        }
        true
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let request = self
            .request
            .as_ref()
            .map(|request| request.again_at.min(request.until));
        [
            self.ready_at,
            self.report_at,
            request,
            self.incoming.poll_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Heap bytes in use, without an incoming snapshot.
    pub(super) const fn memory_len(&self) -> usize {
        size_of::<Self>()
            .saturating_add(size_of::<Incoming>())
            .saturating_add(self.chain.memory_len())
    }

    fn advance(&mut self, stats: &mut SpectatorRelayStats) {
        while self.chain.has(self.end) {
            self.end = self.end.plus(1);
            stats.ticks = stats.ticks.saturating_add(1);
        }
    }

    /// Whether a tick is missing that redundancy no longer covers.
    fn is_gap(&self) -> bool {
        self.end.plus(self.welcome.repair.into()) < self.seen_end
    }

    fn period(&self) -> Duration {
        Duration::from_nanos(self.welcome.period_nanos.into())
    }

    fn report_interval(&self) -> Duration {
        self.period().saturating_mul(SPECTATOR_REPORT_TICKS)
    }
}

fn incoming(shape: Shape, config: &SpectatorRelayConfig) -> Box<Incoming> {
    let len_max = snapshot_bytes_max(config.snapshot_len_max, shape);
    Box::new(Incoming::new(Direction::Down, len_max))
}

fn after(at: Instant, span: Duration) -> Instant {
    at + span
}
