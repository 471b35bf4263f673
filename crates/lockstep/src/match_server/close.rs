//! Closing ticks.

use core::time::Duration;

use wire::{Instant, Seat};

use super::MatchServer;
use super::pace::{PlayerPace, StretchNeed};
use super::snapshots::{Delivery, Loaded};
use crate::bits::BitWriter;
use crate::bundle;
use crate::bundle::Shape;
use crate::chain::CHAIN_LEN;
use crate::config::{ClosePolicy, Config, Substitute};
use crate::event::{CloseReason, LeaveReason, Phase, ServerEvent};
use crate::input::{Input, Origin, Row, Width};
use crate::input_log::InputLog;
use crate::message::{EarlyWriter, write_early_head};
use crate::repair::{Repair, RepairLimits};
use crate::stats::ServerStats;
use crate::tick::{PeerId, Tick};

/// Most overdue ticks that are closed at once. After a longer pause of the process the match goes
/// on from its last tick: no input could have arrived meanwhile.
const LATE_MAX: u64 = 8;

impl<I: Input> MatchServer<I> {
    pub(super) fn close_due(&mut self, now: Instant) {
        if self.phase != Phase::Running || now < self.close_time(self.end) {
            return;
        }
        self.skip_pause(now);
        while self.phase == Phase::Running && self.is_due(now) {
            self.close_tick(now);
        }
        self.expire_hashes(now);
        self.poll_bisect(now);
    }

    /// As [`leave`](Self::leave), but closes no tick.
    pub(crate) fn kick(&mut self, now: Instant, peer: PeerId) {
        self.advance(now);
        if let Some(seat) = self.peers.get(&peer).copied() {
            self.remove(seat, LeaveReason::Removed, CloseReason::Removed);
        }
        self.remove_spectator(peer);
    }

    pub(crate) fn close_if_complete(&mut self, now: Instant) {
        if self.waits_until.is_some() {
            self.close_due(now);
        }
    }

    /// While a tick waits: keep-alives, repairs and checks for silent players.
    pub(super) fn handle_waiting(&mut self, now: Instant) {
        if self.keepalive_at.is_none_or(|at| now < at) {
            return;
        }
        self.keepalive_at = Some(now + Duration::from_nanos(self.limits.period_nanos));
        self.transmit_from = 0;
        for entry in &mut self.seats {
            if let Some(player) = &mut entry.player {
                player.is_due |= player.has_turns();
            }
        }
        self.judge_silence(now);
    }

    fn skip_pause(&mut self, now: Instant) {
        let due = self.close_time(self.end) + self.config.close.cap();
        let period = self.limits.period_nanos.max(1);
        let late = now.saturating_since(due).as_nanos();
        let late = u64::try_from(late).unwrap_or(u64::MAX);
        let late = late.checked_div(period).unwrap_or(0);
        if late >= LATE_MAX {
            let skipped = Duration::from_nanos(late.saturating_mul(period));
            self.origin += skipped;
            self.waits_until = None;
            self.keepalive_at = None;
            self.extend_deadline(skipped);
            self.stats.pauses = self.stats.pauses.saturating_add(1);
        }
    }

    /// When `tick` closes if it waits for nobody.
    pub(super) fn close_time(&self, tick: Tick) -> Instant {
        // Open ticks are as long as the next one; `origin` includes what earlier ones were longer.
        let period = self.limits.period_nanos;
        let each = period.saturating_add(self.stretch_nanos());
        let closed = period.saturating_mul(self.end.since(self.base).into());
        let ahead = u64::from(tick.plus(1).since(self.end));
        let back = u64::from(self.end.since(tick.plus(1)));
        let nanos = closed
            .saturating_add(each.saturating_mul(ahead))
            .saturating_sub(each.saturating_mul(back));
        self.origin + Duration::from_nanos(nanos) + self.config.close.grace()
    }

    /// Whether the next tick closes now; if it has to wait, sets the deadline.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.close_time(self.end);
        if now < due {
            return false;
        }
        let cap = self.config.close.cap();
        if cap.is_zero() {
            return true;
        }
        let until = due + cap;
        let is_complete = self.is_complete(self.end);
        if !is_complete && now < until {
            if self.waits_until.is_none() {
                self.keepalive_at = Some(now);
                self.count_awaited();
            }
            self.waits_until = Some(until);
            return false;
        }
        if !is_complete {
            self.give_up_on_missing();
        }
        self.keepalive_at = None;
        if self.waits_until.take().is_some() {
            // All later ticks move with it, so none gets shorter.
            let waited = now.min(until).saturating_since(due);
            self.origin += waited;
            self.stats.ticks_delayed = self.stats.ticks_delayed.saturating_add(1);
        }
        true
    }

    fn is_complete(&self, tick: Tick) -> bool {
        let (mut there, mut missing) = (0_u16, 0_u16);
        for entry in &self.seats {
            let Some(PlayerState::Playing { awaited_from }) =
                entry.player.as_ref().map(|player| player.state)
            else {
                continue;
            };
            if entry.log.get(tick).is_some() {
                there = there.saturating_add(1);
            } else if awaited_from.is_some_and(|from| from <= tick) {
                missing = missing.saturating_add(1);
            }
        }
        match self.config.close {
            ClosePolicy::Clock { .. } => true,
            ClosePolicy::WaitAll { .. } => missing == 0,
            ClosePolicy::Quorum { seats, .. } => missing == 0 || there >= seats,
        }
    }

    fn count_awaited(&mut self) {
        let tick = self.end;
        for entry in &mut self.seats {
            let is_missing = entry.log.get(tick).is_none();
            if let Some(player) = &mut entry.player
                && is_missing
                && player.is_awaited(tick)
            {
                player.pace.on_awaited();
            }
        }
    }

    /// Players that let a tick reach its deadline are not awaited for a while.
    fn give_up_on_missing(&mut self) {
        let tick = self.end;
        for (entry, seat) in self.seats.iter_mut().zip((0..=u16::MAX).map(Seat)) {
            let is_missing = entry.log.get(tick).is_none();
            if let Some(player) = &mut entry.player
                && let PlayerState::Playing { awaited_from } = &mut player.state
                && is_missing
                && awaited_from.is_some_and(|from| from <= tick)
            {
                *awaited_from = None;
                self.events.push_back(ServerEvent::Missed { seat, tick });
            }
        }
    }

    fn close_tick(&mut self, now: Instant) {
        let tick = self.end;
        self.after.copy_from(&self.before);
        for (entry, seat) in self.seats.iter_mut().zip((0..=u16::MAX).map(Seat)) {
            let SeatState { player, log, .. } = entry;
            let input = log.get(tick);
            if let Some(player) = player
                && player.state == PlayerState::InStep
                && input.is_some()
            {
                player.state = PlayerState::Playing {
                    awaited_from: Some(tick),
                };
                self.events.push_back(ServerEvent::Entered { seat, tick });
            }
            let state = player.as_ref().map(|player| player.state);
            let is_playing = matches!(state, Some(PlayerState::Playing { .. }));
            if !is_playing {
                self.after.set(seat, &self.neutral, Origin::Absent);
            } else if let Some(input) = input {
                self.after.set(seat, input, Origin::Confirmed);
            } else {
                let input = match self.config.substitute {
                    Substitute::Repeat => self.before.value(seat),
                    Substitute::Neutral => &self.neutral,
                };
                self.after.set(seat, input, Origin::Substituted);
                self.stats.inputs_substituted = self.stats.inputs_substituted.saturating_add(1);
            }
        }
        self.scratch.clear();
        bundle::encode(&self.before, &self.after, &mut self.scratch);
        self.chain.put(tick, &self.scratch);
        self.stats.bundles_encoded = self.stats.bundles_encoded.saturating_add(1);
        core::mem::swap(&mut self.before, &mut self.after);
        if let Some(at) = self.closed_at.get_mut(tick.slot(CHAIN_LEN)) {
            *at = now;
        }
        self.end = tick.plus(1);
        self.stats.ticks_closed = self.stats.ticks_closed.saturating_add(1);
        self.on_tick_closed();
        self.judge_pace(now);
        self.stretch_ticks(now);
        self.show_closed_tick(now);
        if tick >= Tick::LAST {
            self.close(now);
        }
    }

    fn on_tick_closed(&mut self) {
        self.transmit_from = 0;
        self.gather_early_inputs();
        self.review_snapshots();
        for index in 0..self.shape.seats {
            let Some(player) = player_mut(&mut self.seats, Seat(index)) else {
                continue;
            };
            player.repair.on_tick(&self.limits);
            let has_turns = player.has_turns();
            player.is_due |= has_turns;
            if has_turns && self.end.since(player.repair.next) > CHAIN_LEN {
                self.remove(Seat(index), LeaveReason::Behind, CloseReason::Behind);
            }
        }
    }
}

/// Early inputs of open ticks, encoded as a prefix of turns.
#[derive(Debug)]
pub(super) struct Forwarding {
    /// By seat: first tick not yet forwarded. Empty if nothing is forwarded.
    next: Vec<Tick>,
    /// Seat to start with when the block has no room for all.
    first: u16,
    /// The prefix of each client's turns; empty if there is nothing to forward.
    block: Vec<u8>,
    /// Longest block, in bytes: half a datagram.
    block_len_max: usize,
    datagram_len_max: usize,
}

impl Forwarding {
    pub(super) fn new(config: &Config, shape: Shape) -> Self {
        let len_max = usize::from(config.datagram_len_max);
        let datagram_len_max = len_max.saturating_sub(config.stretch_len());
        let block_len_max = datagram_len_max / 2;
        let (seats, capacity) = if config.forward_inputs {
            (shape.seats.into(), block_len_max)
        } else {
            (0, 0)
        };
        Self {
            next: vec![Tick(0); seats],
            first: 0,
            block: Vec::with_capacity(capacity),
            block_len_max,
            datagram_len_max,
        }
    }

    pub(super) fn put(&self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(&self.block);
    }

    pub(super) fn truncate_if_long(&self, buf: &mut Vec<u8>, start: usize) {
        if buf.len().saturating_sub(start) > self.datagram_len_max {
            buf.drain(start..start.saturating_add(self.block.len()));
        }
    }

    pub(super) const fn memory_len(&self) -> usize {
        self.block
            .capacity()
            .saturating_add(self.next.len().saturating_mul(size_of::<Tick>()))
    }

    /// Encodes new inputs from the first open tick, `end`, on; `closed` is the row before it.
    fn gather(
        &mut self,
        seats: &[SeatState],
        closed: &Row,
        neutral: &[u8],
        at: &mut EarlyInputs<'_>,
    ) {
        self.block.clear();
        write_early_head(&mut self.block, at.end.low());
        let len_max = EarlyWriter::input_len_max(at.shape);
        let mut writer = EarlyWriter::new(BitWriter::new(&mut self.block), at.shape);
        let from = core::mem::take(&mut self.first);
        let mut count = 0_u64;
        let nexts = (0..=u16::MAX).map(Seat).zip(seats).zip(&mut self.next);
        'seats: for ((seat, entry), next) in nexts.skip(from.into()) {
            if entry.player.is_none() {
                continue;
            }
            let mut before = neutral;
            let start = at.end.max(*next);
            for tick in (start.0..entry.log.next.0).map(Tick) {
                let Some(input) = entry.log.get(tick) else {
                    continue;
                };
                if predicted_input(entry, closed, at.end, seat, tick) == Some(input) {
                    *next = tick.plus(1);
                    continue;
                }
                if writer.out_len().saturating_add(len_max) > self.block_len_max {
                    self.first = seat.0;
                    break 'seats;
                }
                writer.input(seat, tick.since(at.end), before, input);
                *next = tick.plus(1);
                before = input;
                count = count.saturating_add(1);
            }
        }
        writer.finish();
        if count == 0 {
            self.block.clear();
        }
        at.stats.inputs_forwarded = at.stats.inputs_forwarded.saturating_add(count);
    }
}

struct EarlyInputs<'a> {
    end: Tick,
    shape: Shape,
    stats: &'a mut ServerStats,
}

/// The input that a client predicts for `tick` if it has the closed ticks and every earlier input
/// of the seat; `None` if it has none to predict from, or that one is no input of the player.
fn predicted_input<'a>(
    entry: &'a SeatState,
    closed: &'a Row,
    end: Tick,
    seat: Seat,
    tick: Tick,
) -> Option<&'a [u8]> {
    if tick == end {
        closed.is_confirmed(seat).then(|| closed.value(seat))
    } else {
        entry.log.get(tick.minus(1))
    }
}

impl<I: Input> MatchServer<I> {
    pub(super) fn gather_early_inputs(&mut self) {
        if self.forwarding.next.is_empty() {
            return;
        }
        let mut at = EarlyInputs {
            end: self.end,
            shape: self.shape,
            stats: &mut self.stats,
        };
        self.forwarding
            .gather(&self.seats, &self.before, &self.neutral, &mut at);
    }
}

#[derive(Debug)]
pub(super) struct SeatState {
    pub(super) player: Option<Player>,
    pub(super) log: InputLog,
    pub(super) need: StretchNeed,
}

#[derive(Debug)]
pub(super) struct Player {
    pub(super) peer: PeerId,
    pub(super) state: PlayerState,
    pub(super) is_due: bool,
    pub(super) repair: Repair,
    /// Turns pending in its simulation, as last reported.
    pub(super) lag: u32,
    pub(super) pace: PlayerPace,
    pub(super) waits_since: Option<Instant>,
    pub(super) delivery: Option<Delivery>,
    /// Snapshots sent without a lasting match since.
    pub(super) deliveries: u8,
    pub(super) loaded: Option<Loaded>,
    /// Quarter ticks from the newest input to its tick's close; -128 at first.
    pub(super) slack: i8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlayerState {
    Welcomed {
        again_at: Instant,
        /// When the player is removed; `None` before ticks begin.
        until: Option<Instant>,
    },
    /// It joined a running match and lacks more than the chain holds; its seat is absent.
    AwaitsSnapshot,
    /// It joined a running match and gets the ticks it lacks; its seat is absent.
    CatchingUp,
    /// It caught up: its seat plays from the first tick for which an input arrives.
    InStep,
    Playing {
        /// First tick that waits for its input, if the policy allows; `None` before its first
        /// input, and after a tick waited in vain, until an input arrives in time.
        awaited_from: Option<Tick>,
    },
}

impl SeatState {
    pub(super) fn new(width: Width) -> Self {
        Self {
            player: None,
            log: InputLog::new(width.byte_len()),
            need: StretchNeed::default(),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.player.as_ref().is_some_and(Player::is_ready)
    }
}

pub(super) fn player(seats: &[SeatState], seat: Seat) -> Option<&Player> {
    seats.get(usize::from(seat.0))?.player.as_ref()
}

pub(super) fn player_mut(seats: &mut [SeatState], seat: Seat) -> Option<&mut Player> {
    seats.get_mut(usize::from(seat.0))?.player.as_mut()
}

impl Player {
    pub(super) fn new(
        peer: PeerId,
        now: Instant,
        until: Option<Instant>,
        limits: &RepairLimits,
    ) -> Self {
        Self {
            peer,
            state: PlayerState::Welcomed {
                again_at: now,
                until,
            },
            is_due: false,
            repair: Repair::new(limits),
            lag: 0,
            pace: PlayerPace::default(),
            waits_since: None,
            delivery: None,
            deliveries: 0,
            loaded: None,
            slack: i8::MIN,
        }
    }

    pub(super) const fn is_ready(&self) -> bool {
        !matches!(self.state, PlayerState::Welcomed { .. })
    }

    /// Whether `tick` waits for its input, if the policy allows.
    pub(super) fn is_awaited(&self, tick: Tick) -> bool {
        match self.state {
            PlayerState::Playing { awaited_from } => awaited_from.is_some_and(|from| from <= tick),
            PlayerState::Welcomed { .. }
            | PlayerState::AwaitsSnapshot
            | PlayerState::CatchingUp
            | PlayerState::InStep => false,
        }
    }

    pub(super) const fn has_turns(&self) -> bool {
        self.is_ready() && !matches!(self.state, PlayerState::AwaitsSnapshot)
    }

    pub(super) fn welcome_at(&self) -> Option<Instant> {
        match self.state {
            PlayerState::Welcomed { again_at, until } => {
                Some(until.map_or(again_at, |until| again_at.min(until)))
            }
            PlayerState::AwaitsSnapshot
            | PlayerState::CatchingUp
            | PlayerState::InStep
            | PlayerState::Playing { .. } => None,
        }
    }
}
