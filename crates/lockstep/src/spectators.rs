//! Spectators of a server or of a spectator relay. The newest few bundles, which most of them get
//! each tick, are encoded once for all.

mod datagrams;
mod snapshots;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use wire::{Generator, Instant, Lookup};

use crate::chain::{CHAIN_LEN, Chain};
use crate::event::{CloseReason, JoinError, LeaveReason};
use crate::message::{TURNS_HEAD_LEN_MAX, Welcome};
use crate::repair::{Closed, Repair, RepairLimits, Wanted, newest};
use crate::repeat::jittered;
use crate::stats::SpectatorStats;
use crate::tick::{PeerId, Tick};
use crate::transfer::TransferLimits;
use datagrams::write_turns;
use snapshots::SnapshotTransfers;

/// Ticks between two reports of a spectator that lacks nothing: a quarter of a player's uplink
/// datagrams. Redundancy covers losses in between.
pub(crate) const SPECTATOR_REPORT_TICKS: u32 = 4;

pub(crate) const WELCOME_INTERVAL_MILLIS: u64 = 50;

/// Ticks between checks for spectators that lag too far behind.
const LAG_CHECK_TICKS: u32 = 64;

#[derive(Clone, Debug)]
pub(crate) struct SpectatorSetConfig {
    pub(crate) spectators_max: usize,
    pub(crate) ready_timeout: Duration,
    pub(crate) transfer: TransferLimits,
    pub(crate) limits: RepairLimits,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownTicks<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) begin: Tick,
    pub(crate) end: Tick,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) peer: PeerId,
    pub(crate) reason: LeaveReason,
}

#[derive(Debug)]
pub(crate) struct SpectatorSet {
    set_config: SpectatorSetConfig,
    welcome: Option<Welcome>,
    members: Vec<Spectator>,
    indices: Lookup<PeerId, usize>,
    closing: ClosingSpectators,
    transfers: SnapshotTransfers,
    tick_times: TickTimes,
    tail: Tail,
    /// No spectator below this index has a datagram due.
    cursor: usize,
    timer: Option<Instant>,
    departures: VecDeque<Departure>,
}

impl SpectatorSet {
    pub(crate) fn new(set_config: SpectatorSetConfig, generator: &mut Generator) -> Self {
        Self {
            set_config,
            welcome: None,
            members: Vec::new(),
            indices: Lookup::new(generator),
            closing: ClosingSpectators::default(),
            transfers: SnapshotTransfers::default(),
            tick_times: TickTimes::default(),
            tail: Tail::default(),
            cursor: 0,
            timer: None,
            departures: VecDeque::new(),
        }
    }

    pub(crate) const fn set_welcome(&mut self, welcome: Welcome) {
        self.welcome = Some(welcome);
    }

    /// Sets the parameters of a match that another node closes, and the budget gained per tick.
    pub(crate) const fn follow(&mut self, welcome: Welcome, gain: u32) {
        let limits = &mut self.set_config.limits;
        limits.ticks = welcome.repair as u32;
        limits.period_nanos = welcome.period_nanos as u64;
        limits.gain = gain;
        self.set_welcome(welcome);
    }

    pub(crate) fn admit(
        &mut self,
        now: Instant,
        peer: PeerId,
        kind: SpectatorKind,
    ) -> Result<(), JoinError> {
        if self.has(peer) {
            return Err(JoinError::PeerTaken);
        }
        if self.members.len() >= self.set_config.spectators_max {
            return Err(JoinError::Full);
        }
        self.tick_times.prepare();
        self.tail.prepare(self.set_config.limits.len_max);
        self.closing.forget(peer);
        self.indices.insert(peer, self.members.len());
        let until = now + self.set_config.ready_timeout;
        self.members.push(Spectator::new(
            (peer, kind),
            now,
            until,
            &self.set_config.limits,
        ));
        self.wake_at(now);
        Ok(())
    }

    pub(crate) fn remove(&mut self, peer: PeerId, reason: LeaveReason, close: CloseReason) -> bool {
        let Some(index) = self.indices.remove(&peer) else {
            return false;
        };
        if index < self.members.len() {
            self.members.swap_remove(index);
        }
        if let Some(moved) = self.members.get(index) {
            self.indices.insert(moved.peer, index);
        }
        // The spectator that moved down may have a datagram due.
        self.cursor = self.cursor.min(index);
        self.transfers.forget(peer);
        self.closing
            .add(peer, close, self.set_config.spectators_max);
        if !reason.is_players() {
            self.closing.mark_due(peer);
        }
        self.departures.push_back(Departure { peer, reason });
        true
    }

    pub(crate) fn remove_all(&mut self, reason: LeaveReason, close: CloseReason) {
        while let Some(last) = self.members.last() {
            let peer = last.peer;
            self.remove(peer, reason, close);
        }
    }

    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.closing.forget(peer);
    }

    /// All ticks before `shown_ticks.end` are now shown; before this, all before `shown` were.
    pub(crate) fn on_shown(
        &mut self,
        now: Instant,
        shown_ticks: &ShownTicks<'_>,
        shown: Tick,
        stats: &mut SpectatorStats,
    ) {
        self.tick_times.set(now, shown, shown_ticks.end);
        self.cursor = 0;
        if shown_ticks.end.0 / LAG_CHECK_TICKS != shown.0 / LAG_CHECK_TICKS {
            self.evict_lagging(shown_ticks);
        }
        self.drop_late(now, shown_ticks);
        self.serve(now, shown_ticks, stats);
    }

    pub(crate) fn mark_due(&mut self, shown_ticks: &ShownTicks<'_>) {
        for spectator in &mut self.members {
            spectator.is_due |= spectator.repair.next < shown_ticks.end;
        }
        self.cursor = 0;
    }

    /// Makes all spectators load a snapshot or leave: ticks before `shown_ticks.begin` are lost.
    pub(crate) fn restart(&mut self, now: Instant, shown_ticks: &ShownTicks<'_>) {
        for spectator in &mut self.members {
            if spectator.state == SpectatorState::Watching
                && spectator.repair.next < shown_ticks.begin
            {
                spectator.state = SpectatorState::AwaitsSnapshot;
                spectator.wants_snapshot = true;
                // Its transfer is outdated, and two at once would delay each other.
                self.transfers.forget(spectator.peer);
                self.transfers.queue(now, spectator.peer);
            }
        }
    }

    /// Runs timers due at `now`: repeats welcomes, and removes spectators that never answered or do
    /// not acknowledge their snapshot.
    pub(crate) fn on_timeout(&mut self, now: Instant, generator: &mut Generator) {
        self.drop_stalled(now);
        if self.timer.is_none_or(|timer| timer > now) {
            return;
        }
        self.timer = None;
        self.cursor = 0;
        let mut index = 0;
        while let Some(spectator) = self.members.get_mut(index) {
            let SpectatorState::Arriving { again_at, until } = &mut spectator.state else {
                index = index.saturating_add(1);
                continue;
            };
            if *until <= now {
                let peer = spectator.peer;
                self.remove(peer, LeaveReason::NotReady, CloseReason::NotReady);
                continue;
            }
            if *again_at <= now {
                *again_at = now + jittered(generator, WELCOME_INTERVAL_MILLIS);
                spectator.is_due = true;
            }
            let at = (*again_at).min(*until);
            self.wake_at(at);
            index = index.saturating_add(1);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let pieces = self.transfers.poll_timeout();
        self.timer.into_iter().chain(pieces).min()
    }

    pub(crate) fn poll_departure(&mut self) -> Option<Departure> {
        self.departures.pop_front()
    }

    pub(crate) fn has(&self, peer: PeerId) -> bool {
        self.indices.contains(&peer)
    }

    fn member_mut(&mut self, peer: PeerId) -> Option<&mut Spectator> {
        let index = self.indices.get(&peer)?;
        self.members.get_mut(*index)
    }

    pub(crate) const fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn memory_len(&self) -> usize {
        let index = size_of::<(PeerId, usize)>().saturating_add(1);
        [
            self.members
                .capacity()
                .saturating_mul(size_of::<Spectator>()),
            self.indices.len().saturating_mul(index.saturating_mul(2)),
            self.departures
                .capacity()
                .saturating_mul(size_of::<Departure>()),
            self.closing.memory_len(),
            self.transfers.memory_len(),
            self.tick_times.memory_len(),
            self.tail.memory_len(),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    fn wake_at(&mut self, at: Instant) {
        self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
    }

    fn evict_lagging(&mut self, shown_ticks: &ShownTicks<'_>) {
        let mut index = 0;
        while let Some(spectator) = self.members.get(index) {
            let is_lost = spectator.state == SpectatorState::Watching
                && shown_ticks.end.since(spectator.repair.next) > CHAIN_LEN;
            if is_lost {
                let peer = spectator.peer;
                self.remove(peer, LeaveReason::Behind, CloseReason::Behind);
            } else {
                index = index.saturating_add(1);
            }
        }
    }
}

/// Each gets one final packet, and another whenever it sends a datagram.
#[derive(Debug, Default)]
struct ClosingSpectators {
    /// Close reason of each, and whether it is in `due`.
    reasons: BTreeMap<PeerId, (CloseReason, bool)>,
    due: VecDeque<PeerId>,
}

impl ClosingSpectators {
    fn add(&mut self, peer: PeerId, reason: CloseReason, most: usize) {
        if self.reasons.len() >= most {
            self.reasons.pop_first();
        }
        self.reasons.insert(peer, (reason, false));
    }

    fn forget(&mut self, peer: PeerId) {
        if let Some((_, true)) = self.reasons.remove(&peer) {
            self.due.retain(|due| *due != peer);
        }
    }

    fn knows(&self, peer: PeerId) -> bool {
        self.reasons.contains_key(&peer)
    }

    fn mark_due(&mut self, peer: PeerId) -> bool {
        let Some((_, is_due)) = self.reasons.get_mut(&peer) else {
            return false;
        };
        if !core::mem::replace(is_due, true) {
            self.due.push_back(peer);
        }
        true
    }

    fn poll(&mut self) -> Option<(PeerId, CloseReason)> {
        loop {
            let peer = self.due.pop_front()?;
            if let Some((reason, is_due)) = self.reasons.get_mut(&peer) {
                *is_due = false;
                return Some((peer, *reason));
            }
        }
    }

    fn memory_len(&self) -> usize {
        let reason = size_of::<(PeerId, (CloseReason, bool))>();
        let reasons = self.reasons.len().saturating_mul(reason);
        let due = self.due.capacity().saturating_mul(size_of::<PeerId>());
        reasons.saturating_add(due)
    }
}

#[derive(Debug)]
struct Spectator {
    peer: PeerId,
    kind: SpectatorKind,
    state: SpectatorState,
    repair: Repair,
    /// End of the shown ticks when it was last sent turns; more are due once this grows.
    sent_end: Tick,
    /// Whether a datagram is due though no new tick is shown.
    is_due: bool,
    wants_snapshot: bool,
    deliveries: u8,
    snapshot_from: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpectatorKind {
    Spectator,
    /// Serves others: it may request snapshots that it does not need itself.
    Relay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpectatorState {
    Arriving {
        again_at: Instant,
        until: Instant,
    },
    /// It lacks more than the chain holds.
    AwaitsSnapshot,
    Watching,
}

impl Spectator {
    const fn new(
        (peer, kind): (PeerId, SpectatorKind),
        now: Instant,
        until: Instant,
        limits: &RepairLimits,
    ) -> Self {
        Self {
            peer,
            kind,
            state: SpectatorState::Arriving {
                again_at: now,
                until,
            },
            repair: Repair::new(limits),
            sent_end: Tick(0),
            is_due: false,
            wants_snapshot: false,
            deliveries: 0,
            snapshot_from: Instant::ZERO,
        }
    }

    const fn begin_at(&mut self, next: Tick) {
        self.state = SpectatorState::Watching;
        self.repair.begin_at(next);
        self.sent_end = next;
        self.deliveries = 0;
    }

    fn is_due_turns(&self, end: Tick) -> bool {
        match self.state {
            SpectatorState::Watching => self.sent_end != end || self.is_due,
            SpectatorState::AwaitsSnapshot => self.is_due,
            SpectatorState::Arriving { .. } => false,
        }
    }
}

#[derive(Debug, Default)]
struct TickTimes {
    /// Slot `tick % CHAIN_LEN`; empty until the first spectator joins.
    at: Vec<Instant>,
    begin: Tick,
    end: Tick,
}

impl TickTimes {
    fn prepare(&mut self) {
        if self.at.is_empty() {
            let indices = usize::try_from(CHAIN_LEN).unwrap_or(0);
            self.at = vec![Instant::ZERO; indices];
            self.begin = self.end;
        }
    }

    fn set(&mut self, now: Instant, from: Tick, end: Tick) {
        if from != self.end {
            self.begin = from;
        }
        self.end = end;
        if self.at.is_empty() {
            return;
        }
        for tick in from.max(end.minus(CHAIN_LEN)).0..end.0 {
            if let Some(at) = self.at.get_mut(Tick(tick).slot(CHAIN_LEN)) {
                *at = now;
            }
        }
    }

    fn get(&self, tick: Tick) -> Option<Instant> {
        let oldest = self.begin.max(self.end.minus(CHAIN_LEN));
        let is_known = oldest <= tick && tick < self.end;
        is_known
            .then(|| self.at.get(tick.slot(CHAIN_LEN)).copied())
            .flatten()
    }

    const fn memory_len(&self) -> usize {
        self.at.len().saturating_mul(size_of::<Instant>())
    }
}

/// Ticks sent without a request, outside bursts.
const TICKS: usize = 8;

/// Encoded datagrams that hold the last tick and up to seven before it.
#[derive(Debug, Default)]
struct Tail {
    begin: Tick,
    end: Tick,
    /// Span in `bytes` of the datagram that begins with each tick, and of an empty one.
    spans: [(u32, u32); TICKS + 1],
    bytes: Vec<u8>,
    /// Whether space ran out: no datagram holds ticks before `begin`.
    is_cut: bool,
}

impl Tail {
    fn prepare(&mut self, run_len_max: usize) {
        let datagram = run_len_max.saturating_add(TURNS_HEAD_LEN_MAX);
        let most = datagram.saturating_mul(TICKS + 1);
        self.bytes.reserve(most.saturating_sub(self.bytes.len()));
    }

    fn encode(&mut self, shown_ticks: &ShownTicks<'_>, limits: &RepairLimits) {
        if self.end == shown_ticks.end && !self.bytes.is_empty() {
            return;
        }
        let oldest = shown_ticks.end.minus(u32::try_from(TICKS).unwrap_or(0));
        let closed = Closed {
            chain: shown_ticks.chain,
            end: shown_ticks.end,
            next_at: None,
        };
        let oldest = oldest.max(shown_ticks.begin);
        let wanted = Wanted {
            from: oldest,
            spare: oldest,
        };
        let ticks = newest(&closed, wanted, limits);
        (self.begin, self.end) = (Tick(ticks.start), shown_ticks.end);
        self.is_cut = self.begin > oldest;
        self.bytes.clear();
        for (span, first) in self.spans.iter_mut().zip(ticks.start..=ticks.end) {
            let start = self.bytes.len();
            write_turns(&(first..ticks.end), shown_ticks, &mut self.bytes);
            let index = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
            *span = (index(start), index(self.bytes.len()));
        }
    }

    /// First tick of the datagram with all ticks from `oldest` on, if encoded.
    fn first_from(&self, oldest: Tick) -> Option<Tick> {
        if oldest >= self.begin {
            Some(oldest.min(self.end))
        } else {
            self.is_cut.then_some(self.begin)
        }
    }

    fn datagram(&self, first: Tick) -> &[u8] {
        let index = |index: u32| usize::try_from(index).unwrap_or(usize::MAX);
        let span = self.spans.get(index(first.since(self.begin)));
        let (start, end) = span.copied().unwrap_or_default();
        self.bytes.get(index(start)..index(end)).unwrap_or_default()
    }

    const fn memory_len(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests;
