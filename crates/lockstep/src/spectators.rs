//! Those who watch: what each has, and what all are sent. A server has them, and a fan.
//!
//! All get slices of one chain. What most of them get in a tick, the newest few bundles, is laid
//! out once for all; what remains for each is a choice, a head and a copy.

mod datagrams;
mod snapshots;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use wire::{Generator, Instant, Lookup};

use crate::chain::{CHAIN_LEN, Chain};
use crate::event::{CloseReason, JoinError, LeaveReason};
use crate::message::{TURNS_HEAD_LEN_MAX, Welcome};
use crate::repair::{Closed, Repair, RepairLimits, Wanted, newest};
use crate::stats::SpectatorStats;
use crate::tick::{PeerId, Tick};
use crate::transfer::TransferLimits;
use datagrams::write_turns;
use snapshots::SnapshotTransfers;

/// Ticks from one report of a spectator to its next, where it lacks nothing: a quarter of the
/// datagrams up. What is lost while it is silent, the usual copies bring.
pub(crate) const SPECTATOR_REPORT_TICKS: u32 = 4;

/// Time between welcomes, give or take a quarter by lot.
const WELCOME_INTERVAL_MILLIS: u64 = 50;

/// Ticks from one look at who is too far behind to the next.
const LAG_CHECK_TICKS: u32 = 64;

/// What holds for all who watch.
#[derive(Clone, Debug)]
pub(crate) struct SpectatorSetConfig {
    /// Most who may watch.
    pub(crate) spectators_max: usize,
    /// How long to wait for somebody's first word.
    pub(crate) ready_timeout: Duration,
    /// How fast each gets a snapshot.
    pub(crate) transfer: TransferLimits,
    pub(crate) limits: RepairLimits,
}

/// What there is to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownTicks<'a> {
    pub(crate) chain: &'a Chain,
    /// First tick from which on the chain has all, or had.
    pub(crate) begin: Tick,
    /// First tick that is not shown yet.
    pub(crate) end: Tick,
}

/// Somebody watches no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) peer: PeerId,
    pub(crate) reason: LeaveReason,
}

/// All who watch.
#[derive(Debug)]
pub(crate) struct SpectatorSet {
    set_config: SpectatorSetConfig,
    /// What they are told of the match, once that is known.
    welcome: Option<Welcome>,
    /// In no order.
    members: Vec<Spectator>,
    /// Where each is in `members`.
    places: Lookup<PeerId, usize>,
    closing: ClosingSpectators,
    transfers: SnapshotTransfers,
    /// When ticks were shown.
    tick_times: TickTimes,
    /// The newest bundles.
    tail: Tail,
    /// No feed below it has a datagram due.
    cursor: usize,
    /// When somebody is due a word without a tick.
    timer: Option<Instant>,
    /// What the application was not told yet.
    departures: VecDeque<Departure>,
}

impl SpectatorSet {
    pub(crate) fn new(set_config: SpectatorSetConfig, generator: &mut Generator) -> Self {
        Self {
            set_config,
            welcome: None,
            members: Vec::new(),
            places: Lookup::new(generator),
            closing: ClosingSpectators::default(),
            transfers: SnapshotTransfers::default(),
            tick_times: TickTimes::default(),
            tail: Tail::default(),
            cursor: 0,
            timer: None,
            departures: VecDeque::new(),
        }
    }

    /// Takes what there is to know of the match.
    pub(crate) const fn set_welcome(&mut self, welcome: Welcome) {
        self.welcome = Some(welcome);
    }

    /// Takes what there is to know of a match that others close, and what its ticks add to budgets.
    pub(crate) const fn follow(&mut self, welcome: Welcome, gain: u32) {
        let limits = &mut self.set_config.limits;
        limits.ticks = welcome.repair as u32;
        limits.period_nanos = welcome.period_nanos as u64;
        limits.gain = gain;
        self.set_welcome(welcome);
    }

    /// Lets `peer` watch; `kind` is what it may ask for.
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
        self.places.insert(peer, self.members.len());
        let until = after(now, self.set_config.ready_timeout);
        self.members.push(Spectator::new(
            (peer, kind),
            now,
            until,
            &self.set_config.limits,
        ));
        self.wake_at(now);
        Ok(())
    }

    /// Puts `peer` out and tells it; false where it does not watch.
    pub(crate) fn remove(&mut self, peer: PeerId, reason: LeaveReason, close: CloseReason) -> bool {
        let Some(place) = self.places.remove(&peer) else {
            return false;
        };
        if place < self.members.len() {
            self.members.swap_remove(place);
        }
        if let Some(moved) = self.members.get(place) {
            self.places.insert(moved.peer, place);
        }
        // Whoever was moved down may be due.
        self.cursor = self.cursor.min(place);
        self.transfers.forget(peer);
        self.closing
            .add(peer, close, self.set_config.spectators_max);
        if !reason.is_players() {
            self.closing.mark_due(peer);
        }
        self.departures.push_back(Departure { peer, reason });
        true
    }

    /// Puts all out.
    pub(crate) fn remove_all(&mut self, reason: LeaveReason, close: CloseReason) {
        while let Some(last) = self.members.last() {
            let peer = last.peer;
            self.remove(peer, reason, close);
        }
    }

    /// Forgets that `peer` watched once: it is told so no more.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.closing.forget(peer);
    }

    /// Takes note that all before `shown_ticks.end` is shown, and all before `shown` was.
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

    /// Has all get turns again who lack some, though nothing more is shown.
    pub(crate) fn mark_due(&mut self, shown_ticks: &ShownTicks<'_>) {
        for spectator in &mut self.members {
            spectator.is_due |= spectator.repair.next() < shown_ticks.end;
        }
        self.cursor = 0;
    }

    /// Has all who watch get a snapshot, or be out: what lies before `shown_ticks.begin` is lost.
    pub(crate) fn restart(&mut self, now: Instant, shown_ticks: &ShownTicks<'_>) {
        for spectator in &mut self.members {
            if spectator.state == SpectatorState::Watching
                && spectator.repair.next() < shown_ticks.begin
            {
                spectator.state = SpectatorState::AwaitsSnapshot;
                spectator.wants_snapshot = true;
                // What is on its way to it is too old, and two at once would hold each other up.
                self.transfers.forget(spectator.peer);
                self.transfers.queue(now, spectator.peer);
            }
        }
    }

    /// Runs what is due at `now`: repeats welcomes, and gives up on those who never answered, or do
    /// not take their snapshot.
    pub(crate) fn on_timeout(&mut self, now: Instant, generator: &mut Generator) {
        self.drop_stalled(now);
        if self.timer.is_none_or(|timer| timer > now) {
            return;
        }
        self.timer = None;
        self.cursor = 0;
        let mut place = 0;
        while let Some(spectator) = self.members.get_mut(place) {
            let SpectatorState::Arriving { again_at, until } = &mut spectator.state else {
                place = place.saturating_add(1);
                continue;
            };
            if *until <= now {
                let peer = spectator.peer;
                self.remove(peer, LeaveReason::NotReady, CloseReason::NotReady);
                continue;
            }
            if *again_at <= now {
                let quarter = WELCOME_INTERVAL_MILLIS / 4;
                let (low, high) = (
                    WELCOME_INTERVAL_MILLIS.saturating_sub(quarter),
                    WELCOME_INTERVAL_MILLIS.saturating_add(quarter),
                );
                let wait = Duration::from_millis(generator.between(low, high));
                *again_at = after(now, wait);
                spectator.is_due = true;
            }
            let at = (*again_at).min(*until);
            self.wake_at(at);
            place = place.saturating_add(1);
        }
    }

    /// When [`on_timeout`](Self::on_timeout) is due, or a piece of a snapshot.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let pieces = self.transfers.poll_timeout();
        self.timer.into_iter().chain(pieces).min()
    }

    /// Who is gone.
    pub(crate) fn poll_departure(&mut self) -> Option<Departure> {
        self.departures.pop_front()
    }

    pub(crate) fn has(&self, peer: PeerId) -> bool {
        self.places.contains(&peer)
    }

    pub(crate) const fn len(&self) -> usize {
        self.members.len()
    }

    /// Bytes that it holds on the heap, snapshots left out.
    pub(crate) fn memory_len(&self) -> usize {
        let place = size_of::<(PeerId, usize)>().saturating_add(1);
        [
            self.members
                .capacity()
                .saturating_mul(size_of::<Spectator>()),
            self.places.len().saturating_mul(place.saturating_mul(2)),
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
        let mut place = 0;
        while let Some(spectator) = self.members.get(place) {
            let is_lost = spectator.state == SpectatorState::Watching
                && shown_ticks.end.since(spectator.repair.next()) > CHAIN_LEN;
            if is_lost {
                let peer = spectator.peer;
                self.remove(peer, LeaveReason::Behind, CloseReason::Behind);
            } else {
                place = place.saturating_add(1);
            }
        }
    }
}

fn after(at: Instant, span: Duration) -> Instant {
    at + span
}

/// Who is out and may not know: each is told once, and again when it is heard from.
#[derive(Debug, Default)]
struct ClosingSpectators {
    /// Why each is out, and whether it is in `due`.
    reasons: BTreeMap<PeerId, (CloseReason, bool)>,
    /// Who is to be told now.
    due: VecDeque<PeerId>,
}

impl ClosingSpectators {
    /// Takes note that `peer` is out, and knows it; of more than `most`, one is forgotten.
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

    /// Has `peer` told; false where it is not known.
    fn mark_due(&mut self, peer: PeerId) -> bool {
        let Some((_, is_due)) = self.reasons.get_mut(&peer) else {
            return false;
        };
        if !core::mem::replace(is_due, true) {
            self.due.push_back(peer);
        }
        true
    }

    /// Whom to tell, and why it is out.
    fn poll(&mut self) -> Option<(PeerId, CloseReason)> {
        loop {
            let peer = self.due.pop_front()?;
            if let Some((reason, is_due)) = self.reasons.get_mut(&peer) {
                *is_due = false;
                return Some((peer, *reason));
            }
        }
    }

    /// Bytes that it holds.
    fn memory_len(&self) -> usize {
        let reason = size_of::<(PeerId, (CloseReason, bool))>();
        let reasons = self.reasons.len().saturating_mul(reason);
        let due = self.due.capacity().saturating_mul(size_of::<PeerId>());
        reasons.saturating_add(due)
    }
}

/// What somebody has who watches, and is to get.
#[derive(Debug)]
struct Spectator {
    peer: PeerId,
    kind: SpectatorKind,
    state: SpectatorState,
    repair: Repair,
    /// What was shown when it was last sent turns; it is due some once more is.
    sent_end: Tick,
    /// Whether it is due a word though nothing more is shown.
    is_due: bool,
    /// Whether it waits for a snapshot.
    wants_snapshot: bool,
    /// Snapshots that it got in a row without getting along.
    deliveries: u8,
    /// When it may be given another one.
    snapshot_from: Instant,
}

/// As what somebody watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpectatorKind {
    /// For itself.
    Spectator,
    /// For others too: it may ask for snapshots that it does not need itself.
    Relay,
}

/// How far somebody has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpectatorState {
    /// It does not hold the welcome.
    Arriving {
        /// When to send it again.
        again_at: Instant,
        /// When it is put out.
        until: Instant,
    },
    /// It lacks more than the chain holds.
    AwaitsSnapshot,
    /// It gets turns.
    Watching,
}

impl Spectator {
    /// Somebody who is due a welcome at once.
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

    /// Has it get turns from `next` on.
    const fn begin_at(&mut self, next: Tick) {
        self.state = SpectatorState::Watching;
        self.repair.begin_at(next);
        self.sent_end = next;
        self.deliveries = 0;
    }

    /// Whether turns go to it now, all before `end` being shown.
    fn is_due_turns(&self, end: Tick) -> bool {
        match self.state {
            SpectatorState::Watching => self.sent_end != end || self.is_due,
            SpectatorState::AwaitsSnapshot => self.is_due,
            SpectatorState::Arriving { .. } => false,
        }
    }
}

/// When each of the last [`CHAIN_LEN`] ticks was shown.
#[derive(Debug, Default)]
struct TickTimes {
    /// At place `tick % CHAIN_LEN`; empty until somebody watches.
    at: Vec<Instant>,
    /// First tick that is remembered.
    begin: Tick,
    /// First tick that is not.
    end: Tick,
}

impl TickTimes {
    /// Takes the memory that it needs.
    fn prepare(&mut self) {
        if self.at.is_empty() {
            let places = usize::try_from(CHAIN_LEN).unwrap_or(0);
            self.at = vec![Instant::ZERO; places];
            self.begin = self.end;
        }
    }

    /// Takes note that the ticks from `from` to before `end` are shown at `now`.
    fn set(&mut self, now: Instant, from: Tick, end: Tick) {
        if from != self.end {
            self.begin = from;
        }
        self.end = end;
        if self.at.is_empty() {
            return;
        }
        for tick in from.max(end.minus(CHAIN_LEN)).0..end.0 {
            if let Some(at) = self.at.get_mut(place(Tick(tick))) {
                *at = now;
            }
        }
    }

    /// When `tick` was shown, where that is known.
    fn get(&self, tick: Tick) -> Option<Instant> {
        let oldest = self.begin.max(self.end.minus(CHAIN_LEN));
        let is_known = oldest <= tick && tick < self.end;
        is_known
            .then(|| self.at.get(place(tick)).copied())
            .flatten()
    }

    const fn memory_len(&self) -> usize {
        self.at.len().saturating_mul(size_of::<Instant>())
    }
}

fn place(tick: Tick) -> usize {
    usize::try_from(tick.0 % CHAIN_LEN).unwrap_or(0)
}

/// Ticks that go out unasked, at most; in a burst more may.
const TICKS: usize = 8;

/// The datagrams that hold the last tick and up to seven before it.
#[derive(Debug, Default)]
struct Tail {
    /// First tick of the longest datagram.
    begin: Tick,
    /// One past the last tick.
    end: Tick,
    /// Where the datagram that begins with each tick lies in `bytes`, and one without any.
    spans: [(u32, u32); TICKS + 1],
    bytes: Vec<u8>,
    /// Whether there was room for no more: no datagram holds what lies before `begin`.
    is_cut: bool,
}

impl Tail {
    /// Takes the memory that it needs.
    fn prepare(&mut self, run_len_max: usize) {
        let datagram = run_len_max.saturating_add(TURNS_HEAD_LEN_MAX);
        let most = datagram.saturating_mul(TICKS + 1);
        self.bytes.reserve(most.saturating_sub(self.bytes.len()));
    }

    /// Lays out what is shown, where that has not been done.
    fn lay_out(&mut self, shown_ticks: &ShownTicks<'_>, limits: &RepairLimits) {
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
            let place = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
            *span = (place(start), place(self.bytes.len()));
        }
    }

    /// The first tick of what goes to somebody who is to get all from `oldest` on, where that is
    /// laid out.
    fn first_from(&self, oldest: Tick) -> Option<Tick> {
        if oldest >= self.begin {
            Some(oldest.min(self.end))
        } else {
            self.is_cut.then_some(self.begin)
        }
    }

    /// The datagram that begins with `first`, one that [`first_from`](Self::first_from) returned.
    fn datagram(&self, first: Tick) -> &[u8] {
        let place = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
        let span = self.spans.get(place(first.since(self.begin)));
        let (start, end) = span.copied().unwrap_or_default();
        self.bytes.get(place(start)..place(end)).unwrap_or_default()
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
