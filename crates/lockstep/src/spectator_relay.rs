//! A spectator that serves other spectators: a node of a tree.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use wire::{Arrival, Generator, Instant, Machine, MatchId, Seed, Transmit};

use crate::bundle::Shape;
use crate::chain::{CHAIN_LEN, Chain, ReceivedChain, snapshot_next};
use crate::config::{ClientConfig, snapshot_bytes_max};
use crate::event::{CloseReason, JoinError, LeaveReason, Phase, Refusal};
use crate::message::{
    Chunk, Direction, Down, ReportHead, TURNS_HEAD_LEN_MAX, Turns, Welcome, decode_chunk,
    decode_down, write_leave, write_ready, write_report, write_snapshot_request,
};
use crate::repair::RepairLimits;
use crate::repeat::LEAVE_COPIES;
use crate::spectators::{
    SPECTATOR_REPORT_TICKS, ShownTicks, SpectatorKind, SpectatorSet, SpectatorSetConfig,
};
use crate::stats::SpectatorRelayStats;
use crate::tick::{PeerId, Tick};
use crate::transfer::{Incoming, TransferLimits};

/// A spectator that relays the match to further spectators. Its children, each a
/// [`ClientPeer`](crate::ClientPeer) or another relay, treat it as their server. If each relay has
/// `k` children, `d` levels of relays reach `k` to the power of `d` spectators.
///
/// It forwards bundles unchanged, and repairs losses on each link separately.
///
/// A child that needs a snapshot gets the one that this relay loaded, if it is recent enough.
/// Otherwise the relay requests one from its own server. If it cannot forward one within 20 s, the
/// child is removed with [`CloseReason::Behind`]. A snapshot may be about 768 ticks old when the
/// last level has it, so a deep tree needs short snapshots or fast transfers.
///
/// Memory is allocated when the welcome arrives, within the limits of [`SpectatorRelayConfig`], and
/// when children and snapshots arrive.
#[derive(Debug)]
pub struct SpectatorRelay {
    config: SpectatorRelayConfig,
    server: PeerId,
    generator: Generator,
    state: State,
    spectators: SpectatorSet,
    events: VecDeque<SpectatorRelayEvent>,
    stats: SpectatorRelayStats,
    now: Instant,
}

#[derive(Debug)]
enum State {
    Waiting,
    Following(Box<Upstream>),
    Leaving {
        copies: u8,
        at: Instant,
        is_due: bool,
    },
    Closed,
}

/// Events of a [`SpectatorRelay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpectatorRelayEvent {
    /// The server admitted us.
    Watching {
        /// Seats of the match.
        seats: u16,
        /// The match.
        match_id: MatchId,
    },
    /// A child left.
    ChildLeft {
        /// The driver's id for it, which may be reused.
        peer: PeerId,
        /// The reason.
        reason: LeaveReason,
    },
    /// The match exceeds our limits. The machine has ended.
    Refused(Refusal),
    /// We and all children are out of the match. The machine has ended.
    Closed(CloseReason),
}

const LEAVE_INTERVAL: Duration = Duration::from_millis(50);

impl SpectatorRelay {
    /// Creates a relay that waits for the welcome of `server`, a
    /// [`MatchServer`](crate::MatchServer) or another relay.
    #[must_use]
    pub fn new(config: SpectatorRelayConfig, server: PeerId, seed: Seed, now: Instant) -> Self {
        let mut generator = seed.generator(0);
        let terms = SpectatorSetConfig {
            spectators_max: usize::try_from(config.children_max).unwrap_or(usize::MAX),
            ready_timeout: config.ready_timeout,
            transfer: config.transfer,
            limits: RepairLimits {
                ticks: 1,
                period_nanos: 0,
                report_ticks: SPECTATOR_REPORT_TICKS.into(),
                len_max: run_len_max(&config),
                reserved_len: 0,
                len_small: 0,
                burst: config.catch_up_burst,
                gain: 0,
            },
        };
        Self {
            spectators: SpectatorSet::new(terms, &mut generator),
            config,
            server,
            generator,
            state: State::Waiting,
            events: VecDeque::new(),
            stats: SpectatorRelayStats::default(),
            now,
        }
    }

    /// Admits a spectator, which the driver knows as `peer`, also before the welcome.
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn watch(&mut self, now: Instant, peer: PeerId) -> Result<(), JoinError> {
        self.admit(now, peer, SpectatorKind::Spectator)
    }

    /// Admits another relay: as [`watch`](Self::watch), but it may also request snapshots that it
    /// does not need itself, for its children.
    ///
    /// Requests may be forwarded upstream and cost the match a snapshot, at most every 5 s. Use it
    /// only for relays that the driver trusts.
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn watch_as_relay(&mut self, now: Instant, peer: PeerId) -> Result<(), JoinError> {
        self.admit(now, peer, SpectatorKind::Relay)
    }

    fn admit(&mut self, now: Instant, peer: PeerId, kind: SpectatorKind) -> Result<(), JoinError> {
        let now = self.advance(now);
        if matches!(self.state, State::Leaving { .. } | State::Closed) {
            return Err(JoinError::Closed);
        }
        if peer == self.server {
            return Err(JoinError::PeerTaken);
        }
        self.spectators.admit(now, peer, kind)
    }

    /// Removes a child. Unknown peers are ignored.
    pub fn leave(&mut self, now: Instant, peer: PeerId) {
        self.advance(now);
        self.spectators
            .remove(peer, LeaveReason::Removed, CloseReason::Removed);
        self.report_departures();
    }

    /// Stops watching: notifies upstream a few times, and all children.
    pub fn close(&mut self, now: Instant) {
        let now = self.advance(now);
        match self.state {
            State::Following(_) => self.start_leaving(now),
            State::Waiting => self.state = State::Closed,
            State::Leaving { .. } | State::Closed => return,
        }
        self.remove_children(LeaveReason::Removed, CloseReason::Removed);
    }

    /// Continues in a new session after the old one was lost, or with another relay or server.
    /// `server` is the driver's id for it; the driver must also have it admit us.
    pub fn reconnect(&mut self, now: Instant, server: PeerId) {
        let now = self.advance(now);
        self.server = server;
        if let State::Following(upstream) = &mut self.state {
            upstream.restart(now, &self.config);
        }
    }

    /// Handles one datagram.
    pub fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        let now = self.advance(now);
        if arrival.peer != self.server {
            self.on_childs_datagram(now, arrival.peer, datagram);
        } else if let Ok(chunk) = decode_chunk(datagram, Direction::Down) {
            self.on_chunk(now, &chunk);
        } else {
            self.on_servers_datagram(now, datagram);
        }
        self.request_snapshot(now);
        self.report_departures();
    }

    /// Runs timers, upstream and downstream.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        self.spectators.on_timeout(now, &mut self.generator);
        self.request_snapshot(now);
        match &mut self.state {
            State::Following(upstream) => upstream.on_timeout(now),
            State::Leaving { copies: 0, at, .. } if *at <= now => self.state = State::Closed,
            State::Leaving { copies, at, is_due } if *at <= now => {
                *copies = copies.saturating_sub(1);
                *at = now + LEAVE_INTERVAL;
                *is_due = true;
            }
            State::Waiting | State::Leaving { .. } | State::Closed => {}
        }
        self.report_departures();
    }

    /// Appends the next datagram to `buf`; `None` if there is none.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerId>> {
        let now = self.advance(now);
        let start = buf.len();
        let peer = self.transmit(now, buf)?;
        let len = u64::try_from(buf.len().saturating_sub(start)).unwrap_or(u64::MAX);
        self.stats.datagrams_sent = self.stats.datagrams_sent.saturating_add(1);
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(len);
        Some(Transmit::to(peer))
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<SpectatorRelayEvent> {
        self.events.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let upward = match &self.state {
            State::Following(upstream) => upstream.poll_timeout(),
            State::Leaving { at, .. } => Some(*at),
            State::Waiting | State::Closed => None,
        };
        upward
            .into_iter()
            .chain(self.spectators.poll_timeout())
            .min()
    }

    /// Returns the state of the match, as far as known.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Following(upstream) if upstream.shown_ticks().end > Tick(0) => Phase::Running,
            State::Waiting | State::Following(_) => Phase::Gathering,
            State::Leaving { .. } | State::Closed => Phase::Closed,
        }
    }

    /// Returns the first tick that has not arrived.
    pub fn ticks_confirmed(&self) -> u32 {
        match &self.state {
            State::Following(upstream) => upstream.shown_ticks().end.0,
            State::Waiting | State::Leaving { .. } | State::Closed => 0,
        }
    }

    /// Returns the number of children.
    pub const fn child_count(&self) -> usize {
        self.spectators.len()
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &SpectatorRelayStats {
        &self.stats
    }

    /// Returns the heap bytes in use, accurate to about one allocation; of snapshots, only that for
    /// children.
    pub fn memory_len(&self) -> usize {
        let upstream = match &self.state {
            State::Following(upstream) => upstream.memory_len(),
            State::Waiting | State::Leaving { .. } | State::Closed => 0,
        };
        let events = self
            .events
            .capacity()
            .saturating_mul(size_of::<SpectatorRelayEvent>());
        upstream
            .saturating_add(self.spectators.memory_len())
            .saturating_add(events)
    }

    fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        match &mut self.state {
            State::Following(upstream) => {
                if upstream.transmit(now, buf) {
                    return Some(self.server);
                }
                let shown_ticks = upstream.shown_ticks();
                self.spectators
                    .transmit(now, &shown_ticks, buf, &mut self.stats.children)
            }
            State::Leaving {
                is_due: is_due @ true,
                ..
            } => {
                *is_due = false;
                write_leave(buf, LeaveReason::Quit);
                Some(self.server)
            }
            State::Waiting | State::Leaving { .. } | State::Closed => {
                self.spectators.transmit_close(buf)
            }
        }
    }

    fn on_childs_datagram(&mut self, now: Instant, peer: PeerId, datagram: &[u8]) {
        let received = (peer, datagram);
        let is_known = if let State::Following(upstream) = &self.state {
            let shown_ticks = upstream.shown_ticks();
            self.spectators
                .on_datagram(now, &shown_ticks, received, &mut self.stats.children)
        } else {
            self.spectators.on_early_datagram(peer)
        };
        let unknown = u64::from(!is_known);
        self.stats.dropped_unknown_peer = self.stats.dropped_unknown_peer.saturating_add(unknown);
    }

    fn on_servers_datagram(&mut self, now: Instant, datagram: &[u8]) {
        let shape = match &self.state {
            State::Following(upstream) => Some(upstream.welcome.shape),
            State::Waiting => None,
            State::Leaving { .. } | State::Closed => return,
        };
        match (decode_down(datagram, shape), &mut self.state) {
            (Ok(Down::Turns(turns)), State::Following(upstream)) => {
                let shown = upstream.shown_ticks().end;
                upstream.on_turns(now, &turns, &mut self.stats);
                if upstream.shown_ticks().end > shown {
                    self.show(now, shown);
                }
            }
            (Ok(Down::Welcome(_)), State::Following(upstream)) => upstream.schedule_ready(now),
            (Ok(Down::Welcome(welcome)), _) if welcome.seat.is_none() => {
                self.on_welcome(now, welcome);
            }
            (Ok(Down::Bye(reason)), _) => {
                self.state = State::Closed;
                self.remove_children(LeaveReason::Finished, reason);
                self.events.push_back(SpectatorRelayEvent::Closed(reason));
            }
            // A spectator has no state of its own to give, and no seat.
            (Ok(_) | Err(_), _) => {
                self.stats.dropped_malformed = self.stats.dropped_malformed.saturating_add(1);
            }
        }
    }

    fn on_welcome(&mut self, now: Instant, welcome: Welcome) {
        let shape = welcome.shape;
        let bundle_len_max = usize::from(self.config.bundle_len_max).min(run_len_max(&self.config));
        if shape.seats > self.config.seats_max || shape.bundle_len_max() > bundle_len_max {
            let seats = shape.seats;
            let refusal = SpectatorRelayEvent::Refused(Refusal::TooLarge { seats });
            self.events.push_back(refusal);
            self.start_leaving(now);
            self.remove_children(LeaveReason::Removed, CloseReason::Removed);
            return;
        }
        let period = u64::from(welcome.period_nanos);
        let rate = u64::from(self.config.catch_up_rate);
        let gain = rate.saturating_mul(period) / 1_000_000_000;
        self.spectators
            .follow(welcome, u32::try_from(gain).unwrap_or(u32::MAX));
        self.state = State::Following(Box::new(Upstream::new(now, welcome, &self.config)));
        self.events.push_back(SpectatorRelayEvent::Watching {
            seats: shape.seats,
            match_id: welcome.match_id,
        });
    }

    fn on_chunk(&mut self, now: Instant, chunk: &Chunk<'_>) {
        let State::Following(upstream) = &mut self.state else {
            return;
        };
        let shown = upstream.shown_ticks().end;
        let Some((next, bytes)) = upstream.on_chunk(now, chunk, &mut self.stats) else {
            return;
        };
        let shown_ticks = upstream.shown_ticks();
        self.spectators.offer_snapshot(next, bytes);
        if next > shown {
            self.spectators.restart(now, &shown_ticks);
        }
        let from = if next > shown { next } else { shown };
        self.show(now, from);
    }

    fn show(&mut self, now: Instant, shown: Tick) {
        if let State::Following(upstream) = &self.state {
            let shown_ticks = upstream.shown_ticks();
            self.spectators
                .on_shown(now, &shown_ticks, shown, &mut self.stats.children);
        }
    }

    fn request_snapshot(&mut self, now: Instant) {
        let State::Following(upstream) = &mut self.state else {
            return;
        };
        if !self.spectators.wants_snapshot(&upstream.shown_ticks()) {
            upstream.cancel_request();
        } else if !upstream.request(now) {
            self.spectators.give_up_on_waiting(now, Duration::ZERO);
        }
    }

    fn start_leaving(&mut self, now: Instant) {
        self.state = State::Leaving {
            copies: LEAVE_COPIES,
            at: now,
            is_due: false,
        };
    }

    fn remove_children(&mut self, reason: LeaveReason, close: CloseReason) {
        self.spectators.remove_all(reason, close);
        self.report_departures();
    }

    fn report_departures(&mut self) {
        while let Some(departures) = self.spectators.poll_departure() {
            self.events.push_back(SpectatorRelayEvent::ChildLeft {
                peer: departures.peer,
                reason: departures.reason,
            });
        }
    }

    fn advance(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "the driver's clock went back");
        self.now = self.now.max(now);
        self.now
    }
}

fn run_len_max(config: &SpectatorRelayConfig) -> usize {
    usize::from(config.datagram_len_max).saturating_sub(TURNS_HEAD_LEN_MAX)
}

impl Machine for SpectatorRelay {
    crate::event::machine!(SpectatorRelayEvent);
}

/// Configuration of a [`SpectatorRelay`](crate::SpectatorRelay).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpectatorRelayConfig {
    /// Most children. Default 64. Each costs about 200 bytes, and one datagram per tick.
    pub children_max: u32,
    /// How long to wait for a child's first datagram. Default 30 s.
    pub ready_timeout: Duration,
    /// Most seats of a match to accept. Default 64. With `bundle_len_max` it bounds the memory that
    /// a server can make the relay hold: 1,280 bundles.
    pub seats_max: u16,
    /// Longest bundle to accept, in bytes. Default 1,200.
    pub bundle_len_max: u16,
    /// Longest state of a snapshot to accept and keep for children, in bytes. Default 6 MiB.
    pub snapshot_len_max: u32,
    /// Send rate of snapshots, per child. Default 10 Mbit/s.
    pub transfer: TransferLimits,
    /// Longest datagram to a child, in bytes. Default 1,100.
    pub datagram_len_max: u16,
    /// Bytes per second that a lagging child gets in addition to its share. Default 72,000.
    pub catch_up_rate: u32,
    /// Bytes that a lagging child may get in one burst. Default 64,000.
    pub catch_up_burst: u32,
}

impl Default for SpectatorRelayConfig {
    fn default() -> Self {
        let client = ClientConfig::default();
        Self {
            children_max: 64,
            ready_timeout: Duration::from_secs(30),
            seats_max: client.seats_max,
            bundle_len_max: client.bundle_len_max,
            snapshot_len_max: client.snapshot_len_max,
            transfer: client.transfer,
            datagram_len_max: 1_100,
            catch_up_rate: 72_000,
            catch_up_burst: 64_000,
        }
    }
}

/// Ticks kept past the first missing one: the slots of the chain minus those that children may
/// lack.
const AHEAD_MAX: u32 = 256;

const REPEAT_INTERVAL: Duration = Duration::from_millis(50);

const REQUEST_INTERVAL: Duration = Duration::from_millis(500);

/// How long to wait for a requested snapshot, which arrives at its sender's rate.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Upstream {
    welcome: Welcome,
    received: ReceivedChain,
    /// First tick ever received; all from there to the first missing one have arrived.
    begin: Tick,
    incoming: Box<Incoming>,
    /// When to repeat `Ready`; `None` once it is answered.
    ready_at: Option<Instant>,
    report_at: Option<Instant>,
    request: Option<SnapshotRequest>,
    due: Due,
}

#[derive(Debug)]
struct SnapshotRequest {
    again_at: Instant,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Ready,
    Report,
    SnapshotRequest,
}

impl Upstream {
    fn new(now: Instant, welcome: Welcome, config: &SpectatorRelayConfig) -> Self {
        let shape = welcome.shape;
        let chain = Chain::with_len(shape, CHAIN_LEN.saturating_add(AHEAD_MAX));
        Self {
            welcome,
            received: ReceivedChain::new(chain),
            begin: Tick(0),
            incoming: incoming(shape, config),
            ready_at: Some(now),
            report_at: None,
            request: None,
            due: Due::Nothing,
        }
    }

    const fn shown_ticks(&self) -> ShownTicks<'_> {
        ShownTicks {
            chain: &self.received.chain,
            begin: self.begin,
            end: self.received.end,
        }
    }

    /// Continues in a new session, maybe with another server, which numbers its own transfers:
    /// drops transfers in progress, and repeats a request.
    fn restart(&mut self, now: Instant, config: &SpectatorRelayConfig) {
        self.incoming = incoming(self.welcome.shape, config);
        if let Some(request) = &mut self.request {
            request.again_at = now;
        }
        self.schedule_ready(now);
    }

    const fn schedule_ready(&mut self, now: Instant) {
        self.ready_at = Some(now);
    }

    fn on_turns(&mut self, now: Instant, turns: &Turns<'_>, stats: &mut SpectatorRelayStats) {
        self.ready_at = None;
        let (end, seen_end) = (self.received.end, self.received.seen_end);
        let Some(first) = end.widen_near(turns.first_low) else {
            stats.dropped_window = stats.dropped_window.saturating_add(1);
            return;
        };
        let limit = end.plus(AHEAD_MAX).min(Tick::LAST.plus(1));
        let (early, repeated) = self.received.extend(first, limit, turns.bundles.iter());
        stats.bundles_early = stats.bundles_early.saturating_add(early);
        stats.bundles_repeated = stats.bundles_repeated.saturating_add(repeated);
        stats.ticks = stats
            .ticks
            .saturating_add(self.received.end.since(end).into());
        if self.received.end > end || self.received.seen_end > seen_end {
            let at = now + self.report_interval();
            self.report_at.get_or_insert(at);
        }
        if self.is_gap() {
            let soon = now + self.period();
            self.report_at = Some(self.report_at.map_or(soon, |at| at.min(soon)));
        }
    }

    fn on_chunk(
        &mut self,
        now: Instant,
        chunk: &Chunk<'_>,
        stats: &mut SpectatorRelayStats,
    ) -> Option<(Tick, Arc<[u8]>)> {
        self.ready_at = None;
        self.incoming.on_chunk(now, chunk);
        let bytes = self.incoming.take()?;
        let Some(next) = snapshot_next(&bytes, self.welcome.shape) else {
            stats.dropped_malformed = stats.dropped_malformed.saturating_add(1);
            return None;
        };
        stats.snapshots = stats.snapshots.saturating_add(1);
        if next > self.received.end {
            // The ticks in between will not arrive.
            self.begin = next;
            self.received.begin_at(next);
            stats.ticks = stats
                .ticks
                .saturating_add(self.received.end.since(next).into());
        }
        Some((next, bytes.into()))
    }

    /// Whether to request a snapshot for children; false if the request has timed out.
    fn request(&mut self, now: Instant) -> bool {
        let request = self.request.get_or_insert_with(|| SnapshotRequest {
            again_at: now,
            until: now + REQUEST_TIMEOUT,
        });
        let has_time = request.until > now;
        if !has_time {
            self.request = None;
        }
        has_time
    }

    const fn cancel_request(&mut self) {
        self.request = None;
    }

    fn on_timeout(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.ready_at) {
            self.ready_at = Some(now + REPEAT_INTERVAL);
            self.due = Due::Ready;
        } else if is_due(self.report_at) {
            let wait = if self.is_gap() {
                self.period()
            } else {
                self.report_interval()
            };
            self.report_at = Some(now + wait);
            self.due = Due::Report;
        }
        if let Some(request) = &mut self.request
            && request.again_at <= now
        {
            request.again_at = now + REQUEST_INTERVAL;
            self.due = Due::SnapshotRequest;
        }
    }

    fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        match core::mem::replace(&mut self.due, Due::Nothing) {
            Due::Nothing => return self.incoming.poll_ack(now, out),
            Due::Ready => write_ready(out, self.received.end),
            Due::Report => {
                let head = ReportHead {
                    next_low: self.received.end.low(),
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

    fn poll_timeout(&self) -> Option<Instant> {
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

    const fn memory_len(&self) -> usize {
        size_of::<Self>()
            .saturating_add(size_of::<Incoming>())
            .saturating_add(self.received.chain.memory_len())
    }

    fn is_gap(&self) -> bool {
        self.received.is_gap(self.welcome.repair.into())
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
