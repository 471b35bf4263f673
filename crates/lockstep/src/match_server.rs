//! The server: closes ticks by its clock, and sends them to all clients.

mod close;
mod datagrams;
mod desync;
mod pace;
mod snapshots;
mod spectators;

use core::marker::PhantomData;
use std::collections::{BTreeMap, VecDeque};

use wire::{Arrival, Generator, Instant, Machine, MatchId, Seat, Seed, Transmit};

use crate::bisect::DesyncBisect;
use crate::bundle::Shape;
use crate::chain::{CHAIN_LEN, Chain, ChainReader, REACH};
use crate::config::{ClosePolicy, Config, StartPolicy};
use crate::event::{
    CloseReason, ConfigError, JoinError, LeaveReason, Phase, ReportError, ServerEvent, StartError,
};
use crate::hash_comparator::{HashComparator, SettlePolicy};
use crate::input::{Input, Row, Turn, encode_into};
use crate::message::{TURNS_HEAD_LEN_MAX, bisect_ticks_max};
use crate::repair::{EncodedTicks, RUN_LEN_SMALL, RepairLimits};
use crate::repeat::jittered;
use crate::spectators::{SpectatorSet, WELCOME_INTERVAL_MILLIS};
use crate::stats::ServerStats;
use crate::tick::{PeerId, Tick};
use close::{Forwarding, Player, PlayerState, SeatState, player_mut};
use pace::Stretch;
use snapshots::Snapshots;
use spectators::{SpectatorView, spectator_set};

/// One match: takes inputs, closes ticks, sends them to all clients, compares state hashes.
///
/// All memory is allocated in [`new`](Self::new), except for peers and events, which are limited to
/// a few per seat. Malformed datagrams are counted in [`stats`](Self::stats) and dropped.
#[derive(Debug)]
pub struct MatchServer<I> {
    config: Config,
    match_id: MatchId,
    shape: Shape,
    phase: Phase,
    generator: Generator,
    /// Input of an absent seat, `shape.width` bits.
    neutral: Vec<u8>,
    seats: Vec<SeatState>,
    peers: BTreeMap<PeerId, Seat>,
    /// Former players: why they left, and whether that is still to be sent to them. At most one
    /// per seat.
    departed: BTreeMap<PeerId, (CloseReason, bool)>,
    /// The last closed ticks, encoded.
    chain: Chain,
    /// When each tick of the chain closed, at slot `tick % CHAIN_LEN`.
    closed_at: Vec<Instant>,
    /// First tick that has not closed.
    end: Tick,
    /// First tick that this server closes: 0, unless it took over a match.
    base: Tick,
    /// When tick `base` begins, once running.
    origin: Instant,
    /// When tick `end` closes at the latest, while it waits for inputs.
    waits_until: Option<Instant>,
    /// When keep-alives, repairs and checks for silent players are next due, while tick `end` waits.
    keepalive_at: Option<Instant>,
    /// Latest start, while ready players wait for others.
    start_at: Option<Instant>,
    /// Inputs of the tick closed last.
    before: Row,
    /// Inputs of the tick that is being closed.
    after: Row,
    /// Buffer for one encoded bundle.
    scratch: Vec<u8>,
    /// Buffer for the ticks of one datagram.
    body: EncodedTicks,
    /// How much longer than configured ticks are, for slow players.
    stretch: Stretch,
    /// Position of [`poll_turn`](Self::poll_turn).
    reader: ChainReader,
    hash_comparator: HashComparator,
    /// Searches for the tick and the section in which players diverged.
    bisect: DesyncBisect,
    limits: RepairLimits,
    /// Inputs to forward to other players before their tick closes.
    forwarding: Forwarding,
    snapshots: Snapshots,
    spectators: SpectatorSet,
    /// The part of the match that spectators may see.
    spectator_view: SpectatorView,
    /// Seat from which [`poll_transmit`](Self::poll_transmit) looks for the next datagram.
    transmit_from: usize,
    events: VecDeque<ServerEvent>,
    stats: ServerStats,
    /// The latest time that the driver passed.
    now: Instant,
    input: PhantomData<fn(I)>,
}

impl<I: Input> MatchServer<I> {
    /// Creates a match that waits for its players.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if such a match cannot be played.
    pub fn new(
        config: Config,
        match_id: MatchId,
        seed: Seed,
        now: Instant,
    ) -> Result<Self, ConfigError> {
        let shape = Shape {
            seats: config.seats,
            width: I::WIDTH,
        };
        if config.seats == 0 {
            return Err(ConfigError::NoSeats);
        }
        if let ClosePolicy::Quorum { seats, .. } = config.close
            && !(1..=config.seats).contains(&seats)
        {
            return Err(ConfigError::QuorumOutOfRange);
        }
        let len_max = usize::from(config.datagram_len_max)
            .saturating_sub(TURNS_HEAD_LEN_MAX)
            .saturating_sub(config.stretch_len());
        if shape.bundle_len_max() > len_max {
            return Err(ConfigError::BundleTooLong);
        }
        let mut neutral = Vec::new();
        encode_into(&I::default(), &mut neutral);
        let limits = repair_limits(&config, len_max);
        let initial = Row::initial(shape.seats, shape.width, &neutral);
        let chain_len = CHAIN_LEN.saturating_add(config.spectator_delay.into());
        let slots = usize::try_from(CHAIN_LEN).unwrap_or(usize::MAX);
        let spectators = spectator_set(&config, limits, &mut seed.generator(1));
        let mut server = Self {
            match_id,
            shape,
            phase: Phase::Gathering,
            generator: seed.generator(0),
            seats: (0..shape.seats)
                .map(|_| SeatState::new(shape.width))
                .collect(),
            peers: BTreeMap::new(),
            departed: BTreeMap::new(),
            chain: Chain::with_len(shape, chain_len),
            closed_at: vec![now; slots],
            end: Tick(0),
            base: Tick(0),
            origin: now,
            waits_until: None,
            keepalive_at: None,
            start_at: None,
            before: initial.clone(),
            after: initial,
            scratch: Vec::with_capacity(shape.bundle_len_max().max(neutral.len())),
            body: EncodedTicks::with_capacity(len_max),
            stretch: Stretch::default(),
            reader: ChainReader::new(shape, &neutral, match_id),
            hash_comparator: HashComparator::new(shape.seats, SettlePolicy::Early),
            bisect: DesyncBisect::new(
                config.hashes_kept,
                bisect_ticks_max(config.datagram_len_max),
            ),
            neutral,
            limits,
            forwarding: Forwarding::new(&config, shape),
            snapshots: Snapshots::default(),
            spectators,
            spectator_view: SpectatorView::default(),
            transmit_from: 0,
            events: VecDeque::new(),
            stats: ServerStats::default(),
            now,
            input: PhantomData,
            config,
        };
        server.spectators.set_welcome(server.welcome(None));
        Ok(server)
    }

    /// Seats the player that the driver knows as `peer`, after the driver checked its right to
    /// `seat`. The seat's previous player must have left. If ticks already close, the seat is
    /// absent until the player has caught up ([`ServerEvent::Entered`]).
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn join(&mut self, now: Instant, peer: PeerId, seat: Seat) -> Result<(), JoinError> {
        let now = self.advance(now);
        if self.phase == Phase::Closed {
            return Err(JoinError::Closed);
        }
        if self.peers.contains_key(&peer) || self.spectators.has(peer) {
            return Err(JoinError::PeerTaken);
        }
        let entry = self.seats.get(usize::from(seat.0));
        if entry.ok_or(JoinError::NoSuchSeat)?.player.is_some() {
            return Err(JoinError::SeatTaken);
        }
        self.seat(now, peer, seat);
        Ok(())
    }

    /// Begins with tick 0, regardless of who is ready; only needed with
    /// [`StartPolicy::ByHand`](crate::StartPolicy::ByHand).
    ///
    /// # Errors
    ///
    /// [`StartError`] if ticks have already begun.
    pub fn start(&mut self, now: Instant) -> Result<(), StartError> {
        let now = self.advance(now);
        match self.phase {
            Phase::Gathering => {
                self.begin(now);
                Ok(())
            }
            Phase::Running => Err(StartError::Started),
            Phase::Closed => Err(StartError::Closed),
        }
    }

    /// Removes `peer`: from the next tick on its seat, if any, is absent. Unknown peers are
    /// ignored.
    ///
    /// Call it when the transport lost the session, or to kick a player.
    pub fn leave(&mut self, now: Instant, peer: PeerId) {
        self.kick(now, peer);
        self.close_if_complete(self.now);
    }

    /// Ends the match: all peers are notified, and no more ticks close.
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        if self.phase == Phase::Closed {
            return;
        }
        self.phase = Phase::Closed;
        self.start_at = None;
        self.waits_until = None;
        self.keepalive_at = None;
        for seat in (0..self.shape.seats).map(Seat) {
            self.remove(seat, LeaveReason::Finished, CloseReason::Ended);
        }
        self.end_for_spectators();
    }

    /// Returns the next closed tick, for a server that simulates too.
    ///
    /// `None` until one closes, and forever if 1,024 ticks were not read.
    pub fn poll_turn(&mut self) -> Option<Turn<'_, I>> {
        let tick = self.reader.read(&self.chain)?;
        Some(Turn::new(tick, &self.reader.row))
    }

    /// Takes the server's own state hash of `tick`, the turn returned last. Players are then judged
    /// by it instead of by their majority. If the state has sections, call
    /// [`report_state`](Self::report_state) instead.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick.
    pub fn report(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        self.record_report(tick, state_hash, None)
    }

    /// Handles one datagram.
    pub fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        let now = self.advance(now);
        self.on_datagram(now, arrival.peer, datagram);
        self.close_if_complete(now);
    }

    /// Closes the ticks that are due at `now`, repeats welcomes, and starts the match if players
    /// have waited for others long enough.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        self.start_if_overdue(now);
        self.repeat_welcomes(now);
        self.poll_spectator_delay(now);
        self.close_due(now);
        self.poll_donation(now);
        self.handle_waiting(now);
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
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let close = (self.phase == Phase::Running).then(|| {
            self.waits_until
                .unwrap_or_else(|| self.close_time(self.end))
        });
        let welcomes = self
            .seats
            .iter()
            .filter_map(|entry| entry.player.as_ref()?.welcome_at());
        let snapshots = (self.phase == Phase::Running)
            .then(|| self.snapshot_timeout())
            .flatten();
        let others = close
            .into_iter()
            .chain(self.keepalive_at)
            .chain(self.start_at);
        let others = others.chain(snapshots).chain(self.spectator_timeout());
        others.chain(welcomes).min()
    }

    /// Returns the state of the match.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the number of closed ticks.
    pub const fn ticks_closed(&self) -> u32 {
        self.end.0
    }

    /// Returns the match.
    pub const fn match_id(&self) -> MatchId {
        self.match_id
    }

    /// Returns the hash over all ticks that [`poll_turn`](Self::poll_turn) returned; equal logs
    /// have equal hashes on all participants.
    pub const fn log_hash(&self) -> u64 {
        self.reader.log.finish()
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &ServerStats {
        &self.stats
    }

    /// Returns the heap bytes in use, accurate to about one allocation.
    pub fn memory_len(&self) -> usize {
        let logs = self.seats.iter().map(|entry| entry.log.memory_len());
        let rows = [&self.before, &self.after, &self.reader.row].map(Row::memory_len);
        let peer = size_of::<(PeerId, Seat)>();
        let departed = size_of::<(PeerId, (CloseReason, bool))>();
        [
            self.chain.memory_len(),
            self.hash_comparator.memory_len(),
            self.bisect.memory_len(),
            self.forwarding.memory_len(),
            self.closed_at.len().saturating_mul(size_of::<Instant>()),
            self.seats.len().saturating_mul(size_of::<SeatState>()),
            self.peers.len().saturating_mul(peer),
            self.departed.len().saturating_mul(departed),
            self.events
                .capacity()
                .saturating_mul(size_of::<ServerEvent>()),
            self.scratch.capacity(),
            self.snapshots.memory_len(),
            self.body.memory_len(),
            self.spectators.memory_len(),
        ]
        .into_iter()
        .chain(logs)
        .chain(rows)
        .fold(0, usize::saturating_add)
    }

    fn advance(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "the driver's clock went back");
        self.now = self.now.max(now);
        self.now
    }

    /// Removes the player of `seat`, if any. It is sent `close` unless it left by itself.
    fn remove(&mut self, seat: Seat, reason: LeaveReason, close: CloseReason) {
        let Some(entry) = self.seats.get_mut(usize::from(seat.0)) else {
            return;
        };
        let Some(player) = &entry.player else {
            return;
        };
        let peer = player.peer;
        entry.player = None;
        self.stop_waiting();
        self.peers.remove(&peer);
        self.hash_comparator.exclude(seat);
        self.stop_bisect(seat);
        if self.departed.len() >= self.seats.len() {
            self.departed.pop_first();
        }
        let is_due = reason != LeaveReason::Quit;
        self.departed.insert(peer, (close, is_due));
        self.on_donor_left(seat);
        self.events.push_back(ServerEvent::Left {
            seat,
            peer,
            tick: self.end,
            reason,
        });
    }

    /// Returns when `tick` closed, if the chain still has it.
    fn closed_at(&self, tick: Tick) -> Option<Instant> {
        let is_known = tick < self.end && self.end.since(tick) <= CHAIN_LEN;
        is_known
            .then(|| self.closed_at.get(tick.slot(CHAIN_LEN)).copied())
            .flatten()
    }
}

/// Repair limits for each player; runs of bundles have at most `len_max` bytes.
fn repair_limits(config: &Config, len_max: usize) -> RepairLimits {
    let period = config.tick_rate.period_nanos();
    let gain = u64::from(config.catch_up_rate).saturating_mul(period.into()) / 1_000_000_000;
    RepairLimits {
        ticks: config.repair.get().into(),
        period_nanos: period.into(),
        report_ticks: 1,
        len_max,
        reserved_len: 0,
        len_small: RUN_LEN_SMALL,
        burst: config.catch_up_burst,
        gain: u32::try_from(gain).unwrap_or(u32::MAX),
    }
}

impl<I: Input> Machine for MatchServer<I> {
    crate::event::machine!(ServerEvent);
}

/// Most turns that may be pending in the simulation of a client that is in step.
const LAG_IN_STEP: u32 = 2;

impl<I: Input> MatchServer<I> {
    fn seat(&mut self, now: Instant, peer: PeerId, seat: Seat) {
        let until = (self.phase == Phase::Running).then(|| now + self.config.start_timeout);
        let end = self.end;
        let Some(entry) = self.seats.get_mut(usize::from(seat.0)) else {
            return;
        };
        entry.log.clear();
        entry.player = Some(Player::new(peer, now, until, &self.limits));
        self.departed.remove(&peer);
        self.spectators.forget(peer);
        self.peers.insert(peer, seat);
        if self.phase == Phase::Gathering {
            debug_assert_eq!(end, self.base, "no tick closes before the start");
            if end == Tick(0) {
                self.hash_comparator.admit(seat);
            } else {
                let step = self.step_after(end);
                self.hash_comparator.admit_late(seat, step);
            }
        }
    }

    fn on_ready(&mut self, now: Instant, seat: Seat, next: Tick) {
        let (end, is_in_reach) = (self.end, self.is_in_reach(next));
        let Some(player) = player_mut(&mut self.seats, seat).filter(|player| !player.is_ready())
        else {
            return;
        };
        if self.phase == Phase::Running {
            self.on_late_ready(now, seat, next);
            return;
        }
        if end > Tick(0) {
            // A player that lacks more than is kept needs a snapshot, and so ticks that close.
            if !is_in_reach {
                return;
            }
            player.repair.begin_at(next);
        }
        player.state = PlayerState::Playing { awaited_from: None };
        player.is_due = false;
        self.events.push_back(ServerEvent::Ready { seat });
        if self.phase != Phase::Gathering || self.config.start != StartPolicy::AllReady {
            return;
        }
        if self.seats.iter().all(SeatState::is_ready) {
            self.begin(now);
        } else if self.start_at.is_none() {
            self.start_at = Some(now + self.config.start_timeout);
        }
    }

    fn on_late_ready(&mut self, now: Instant, seat: Seat, next: Tick) {
        let is_in_reach = self.is_in_reach(next);
        let Some(player) = player_mut(&mut self.seats, seat) else {
            return;
        };
        player.is_due = false;
        self.events.push_back(ServerEvent::Ready { seat });
        if !is_in_reach {
            player.state = PlayerState::AwaitsSnapshot;
            self.request_for(now, seat);
            return;
        }
        player.state = PlayerState::CatchingUp;
        player.repair.begin_at(next);
        player.is_due = true;
        self.transmit_from = 0;
        let interval = u32::from(self.config.hash_interval.get());
        self.hash_comparator
            .admit_late(seat, next.0.div_ceil(interval));
    }

    fn is_in_reach(&self, next: Tick) -> bool {
        next <= self.end && self.end.since(next) <= REACH
    }

    pub(crate) fn are_all_ready(&self) -> bool {
        let mut players = self.seats.iter().filter_map(|seat| seat.player.as_ref());
        players.all(Player::is_ready)
    }

    fn repeat_welcomes(&mut self, now: Instant) {
        for index in 0..self.shape.seats {
            let Some(player) = player_mut(&mut self.seats, Seat(index)) else {
                continue;
            };
            let PlayerState::Welcomed { again_at, until } = &mut player.state else {
                continue;
            };
            if until.is_some_and(|until| until <= now) {
                self.remove(Seat(index), LeaveReason::NotReady, CloseReason::NotReady);
            } else if *again_at <= now {
                *again_at = now + jittered(&mut self.generator, WELCOME_INTERVAL_MILLIS);
                player.is_due = true;
                self.transmit_from = 0;
            }
        }
    }

    fn start_if_overdue(&mut self, now: Instant) {
        if self.start_at.is_none_or(|at| now < at) {
            return;
        }
        for seat in (0..self.shape.seats).map(Seat) {
            let entry = self.seats.get(usize::from(seat.0));
            if entry.is_some_and(|entry| entry.player.is_some() && !entry.is_ready()) {
                self.remove(seat, LeaveReason::NotReady, CloseReason::NotReady);
            }
        }
        self.begin(now);
    }

    fn stop_waiting(&mut self) {
        if !self.seats.iter().any(SeatState::is_ready) {
            self.start_at = None;
        }
    }

    fn begin(&mut self, now: Instant) {
        debug_assert_eq!(self.phase, Phase::Gathering, "a match begins once");
        self.phase = Phase::Running;
        self.origin = now;
        self.start_at = None;
        let late = Some(now + self.config.start_timeout);
        for entry in &mut self.seats {
            if let Some(player) = &mut entry.player
                && let PlayerState::Welcomed { until, .. } = &mut player.state
            {
                *until = late;
            }
        }
        self.events.push_back(ServerEvent::Started);
    }
}

/// The ticks that another server of the match closed before this one takes over.
#[derive(Debug)]
pub(crate) struct Past<'a> {
    pub(crate) chain: &'a Chain,
    /// Positioned after the last closed tick: its inputs, and the hash over all.
    pub(crate) reader: ChainReader,
}

impl<I: Input> MatchServer<I> {
    /// Creates a server that continues after the ticks of `past`, which it serves, and starts by
    /// hand.
    pub(crate) fn resume(
        config: Config,
        (match_id, seed): (MatchId, Seed),
        now: Instant,
        past: &Past<'_>,
    ) -> Result<Self, ConfigError> {
        let mut config = config;
        config.start = StartPolicy::ByHand;
        let mut server = Self::new(config, match_id, seed, now)?;
        let end = past.reader.next;
        for tick in (end.minus(CHAIN_LEN).0..end.0).map(Tick) {
            if let Some(bundle) = past.chain.get(tick) {
                server.chain.put(tick, bundle);
            }
        }
        server.end = end;
        server.base = end;
        server.before.copy_from(&past.reader.row);
        server
            .reader
            .resume_from(end, &past.reader.row, past.reader.log);
        let step = server.step_after(end);
        server.hash_comparator.begin_at(step);
        server.skip_shown();
        Ok(server)
    }

    fn step_after(&self, tick: Tick) -> u32 {
        tick.0.div_ceil(self.config.hash_interval.get().into())
    }
}
