//! A seated client: the chain so far, its own inputs, its clock.

use core::time::Duration;

use wire::Instant;

use super::clock::{DUE_MAX, DelayControl, TickClock};
use super::report::{Answers, Hashes};
use super::stepping::Stepping;
use super::{ClientPeer, Expected, State};
use crate::bundle::Shape;
use crate::chain::{
    CHAIN_LEN, Chain, ChainReader, SnapshotHead, write_snapshot, write_snapshot_at,
};
use crate::checksum::{LogHash, StateHasher};
use crate::config::ClientConfig;
use crate::event::ReportError;
use crate::hash_history::HashHistory;
use crate::input::{Input, Origin, Row};
use crate::input_log::{AHEAD_MAX, History};
use crate::match_server::Past;
use crate::message::{
    Bundles, EarlyInputs, HashSlice, ReportHead, Turns, Welcome, fitting_inputs, write_report,
};
use crate::playout::PlayoutDelay;
use crate::spectators::SPECTATOR_REPORT_TICKS;
use crate::stats::ClientStats;
use crate::stepper::StepAction;
use crate::tick::{PeerId, Tick};

/// A client's session in a match.
#[derive(Debug)]
pub(super) struct Session {
    welcome: Welcome,
    /// Input of an absent player.
    neutral: Vec<u8>,
    /// Bundles that arrived, possibly with gaps.
    chain: Chain,
    /// Position of the application in the chain.
    reader: ChainReader,
    /// First tick never returned.
    returned_end: Tick,
    /// First tick that has not arrived.
    end: Tick,
    /// When the tick before it arrived.
    advanced_at: Instant,
    /// One past the newest tick that arrived.
    seen_end: Tick,
    /// Own unacknowledged inputs.
    history: History,
    /// Last tick with a stamped input.
    stamped: Option<Tick>,
    /// Ticks returned to the application by `submit`.
    promised: Promised,
    /// How long before its tick's close the newest input arrived, in quarter ticks.
    slack: Option<i8>,
    delay: DelayControl,
    /// Set when the first turn arrives.
    clock: Option<TickClock>,
    /// How long turns are delayed.
    playout: PlayoutDelay,
    hashes: Hashes,
    /// Progress of the game, if it predicts.
    stepping: Option<Stepping>,
    /// The input being unpacked; reused memory.
    scratch: Vec<u8>,
    /// Id of the last loaded snapshot's transfer.
    loaded: Option<u8>,
    /// First returned tick that is not reported.
    reported_end: Tick,
    pub(super) hash_history: HashHistory,
    pub(super) answers: Answers,
    /// Boundaries since a spectator's last report.
    unsaid: u32,
}

/// A turn just read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) tick: Tick,
    /// Whether the server substituted an input that we had promised.
    pub(super) is_own_substituted: bool,
}

impl Session {
    pub(super) fn new(welcome: Welcome, neutral: Vec<u8>, config: &ClientConfig) -> Self {
        Self {
            welcome,
            chain: Chain::new(welcome.shape),
            reader: ChainReader::new(welcome.shape, &neutral, welcome.match_id),
            returned_end: Tick(0),
            end: Tick(0),
            advanced_at: Instant::ZERO,
            seen_end: Tick(0),
            history: History::new(neutral.len()),
            stepping: Stepping::new(config, &welcome, &neutral),
            scratch: Vec::with_capacity(neutral.len()),
            neutral,
            stamped: None,
            promised: Promised::default(),
            slack: None,
            delay: DelayControl::new(welcome.input_delay, welcome.period_nanos),
            clock: None,
            playout: PlayoutDelay::new(config.playout),
            hashes: Hashes::new(),
            loaded: None,
            reported_end: Tick(0),
            hash_history: HashHistory::new(config.hashes_kept),
            answers: Answers::new(),
            unsaid: 0,
        }
    }

    /// Handles closed ticks; returns the input delay if it changes.
    pub(super) fn on_turns(
        &mut self,
        now: Instant,
        turns: &Turns<'_>,
        stats: &mut ClientStats,
    ) -> Option<u8> {
        let Some(first) = self.end.widen_near(turns.first_low) else {
            stats.dropped_window = stats.dropped_window.saturating_add(1);
            return None;
        };
        let (mut tick, mut newest) = (first, None);
        for bundle in turns.bundles.iter() {
            if tick > Tick::LAST || tick >= self.reader.next().plus(CHAIN_LEN) {
                stats.bundles_early = stats.bundles_early.saturating_add(1);
            } else if tick < self.end || self.chain.has(tick) {
                stats.bundles_repeated = stats.bundles_repeated.saturating_add(1);
            } else {
                self.chain.put(tick, bundle);
                newest = Some(tick);
            }
            tick = tick.plus(1);
        }
        if let Some(tick) = newest {
            self.on_new_bundle(now, tick, turns.stretch);
        }
        while self.chain.has(self.end) {
            self.on_in_order(now, self.end);
            self.end = self.end.plus(1);
            self.advanced_at = now;
        }
        stats.playout = self.playout.get();
        let delay = self.on_input_ack(now, turns.next_input_low, turns.slack);
        // Closed ticks take no more inputs.
        self.history.forget_before(self.end);
        if self.slack.is_some() {
            stats.slack_quarter_ticks = self.slack;
        }
        if let Some(low) = turns.wanted_low {
            self.hashes.on_wanted(low);
        }
        delay
    }

    /// Continues from another participant's state. Ticks received after it are kept.
    pub(super) fn resume_from(&mut self, head: &SnapshotHead, transfer: u8) {
        self.loaded = Some(transfer);
        let next = head.next;
        self.reader.resume_from(next, &head.row, head.log);
        if let Some(stepping) = &mut self.stepping {
            stepping.resume_from(head);
        }
        if next > self.end || !self.chain.has(next) {
            self.end = next;
        }
        while self.chain.has(self.end) {
            self.end = self.end.plus(1);
        }
        self.seen_end = self.seen_end.max(self.end);
        let interval = u32::from(self.welcome.hash_interval.get());
        let step = next.minus(1).0.div_ceil(interval);
        self.hashes.resume_from(step);
        // The snapshot's own tick may be reported as well.
        self.reported_end = next.minus(1);
        self.history.forget_before(self.end);
    }

    /// Writes the snapshot of `state`, number `next`; `None` stands for the turn returned last.
    /// Returns `None` if no such state is final, or it is too old.
    pub(super) fn write_snapshot(&self, next: Option<Tick>, state: &[u8]) -> Option<Vec<u8>> {
        let Some(stepping) = &self.stepping else {
            let is_current = next.is_none_or(|next| next == self.reader.next());
            let is_any = is_current && self.reader.next() > Tick(0);
            return is_any.then(|| write_snapshot(&self.reader, &self.neutral, state));
        };
        let next = next.unwrap_or_else(|| stepping.at());
        let (row, log) = stepping.before(next)?;
        Some(write_snapshot_at(next, log, row, &self.neutral, state))
    }

    /// Restarts with a server that has none of our inputs.
    pub(super) const fn forget_acks(&mut self) {
        self.history.forget_reference();
        self.loaded = None;
    }

    pub(super) fn read_turn(&mut self, now: Instant) -> Option<Read> {
        if self.next_turn_at()? > now {
            return None;
        }
        self.read()
    }

    /// Passes the next closed tick to a predicting game; `None` if there is none, or none is
    /// needed.
    pub(super) fn confirm_next(&mut self) -> Option<Read> {
        if !self.stepping.as_ref()?.wants_row() {
            return None;
        }
        let read = self.read()?;
        let (row, log) = (self.reader.row(), self.reader.log());
        self.stepping.as_mut()?.confirm(read.tick, row, log);
        Some(read)
    }

    /// Handles others' inputs for ticks that are not closed.
    pub(super) fn on_early(&mut self, early: &EarlyInputs<'_>) {
        let Some(stepping) = &mut self.stepping else {
            return;
        };
        let Some(first) = self.end.widen_near(early.first_low) else {
            return;
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.neutral);
        early.unpack(&mut self.scratch, &self.neutral, |seat, ahead, input| {
            stepping.on_early(seat, first.plus(ahead), input);
        });
    }

    /// Returns the next action of a game with rollback.
    pub(super) fn next_action(&mut self) -> Option<StepAction> {
        self.stepping.as_mut()?.next(self.end)
    }

    /// Returns when a waiting game with rollback has more to do, by the clock.
    pub(super) fn wait_until(&self) -> Option<Instant> {
        let is_due = self.stepping.as_ref()?.waits_for_clock();
        self.boundary().filter(|_| is_due)
    }

    fn read(&mut self) -> Option<Read> {
        let tick = self.reader.read(&self.chain)?;
        let seat = self.welcome.seat.map(|seat| usize::from(seat.0));
        let origin = seat.and_then(|seat| self.reader.row().origins.get(seat));
        let was_promised = self.promised.has(tick);
        // After a snapshot, a turn may be returned a second time.
        let is_new = tick >= self.returned_end;
        self.returned_end = self.returned_end.max(tick.plus(1));
        let is_own_substituted = is_new && was_promised && origin == Some(&Origin::Substituted);
        if is_own_substituted {
            self.delay.on_late(self.advanced_at);
        }
        Some(Read {
            tick,
            is_own_substituted,
        })
    }

    pub(super) fn next_turn_at(&self) -> Option<Instant> {
        let next = self.reader.next();
        if next >= self.end || self.stepping.is_some() {
            return None;
        }
        let playout = self.playout.get();
        if playout.is_zero() {
            return Some(Instant::ZERO);
        }
        Some(self.clock.as_ref()?.arrival(next) + playout)
    }

    /// The first turn that has not arrived, after the first one has.
    pub(super) fn expected(&self) -> Option<Expected> {
        let clock = self.clock.as_ref()?;
        let period = Duration::from_nanos(self.welcome.period_nanos.into());
        // After a wait of the server, the fastest recent arrival is no measure for some ticks.
        let next = self.advanced_at + period;
        Some(Expected {
            tick: self.end,
            at: clock.arrival(self.end).max(next),
            period,
        })
    }

    pub(super) fn boundary(&self) -> Option<Instant> {
        self.clock.as_ref().map(TickClock::deadline)
    }

    pub(super) const fn is_spectator(&self) -> bool {
        self.welcome.seat.is_none()
    }

    pub(super) const fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    pub(super) const fn shape(&self) -> Shape {
        self.welcome.shape
    }

    /// The bundle `index` ticks after the one nearest to this low half, if it is held.
    pub(super) fn bundle_near(&self, first_low: u16, index: u32) -> Option<&[u8]> {
        self.chain.get(self.end.widen_near(first_low)?.plus(index))
    }

    pub(super) const fn end(&self) -> Tick {
        self.end
    }

    pub(super) fn neutral(&self) -> &[u8] {
        &self.neutral
    }

    /// First tick not yet returned.
    pub(super) const fn next_turn(&self) -> Tick {
        self.reader.next()
    }

    /// Inputs of the last requested step.
    pub(super) fn row(&self) -> &Row {
        match &self.stepping {
            Some(stepping) => stepping.row(),
            None => self.reader.row(),
        }
    }

    /// Whether the game may run ahead of closed ticks.
    pub(super) const fn predicts(&self) -> bool {
        self.stepping.is_some()
    }

    pub(super) const fn stepping_mut(&mut self) -> Option<&mut Stepping> {
        self.stepping.as_mut()
    }

    pub(super) fn memory_len(&self) -> usize {
        let stepping = self.stepping.as_ref().map_or(0, Stepping::memory_len);
        size_of::<Self>()
            .saturating_add(stepping)
            .saturating_add(self.chain.memory_len())
            .saturating_add(self.promised.memory_len())
            .saturating_add(self.history.memory_len())
            .saturating_add(self.hashes.memory_len())
            .saturating_add(self.delay.memory_len())
            .saturating_add(self.hash_history.memory_len())
            .saturating_add(self.answers.memory_len())
            .saturating_add(self.reader.row().memory_len())
    }

    pub(super) fn log_hash(&self) -> u64 {
        self.log().finish()
    }

    /// Hash over all ticks that are final for the game.
    fn log(&self) -> LogHash {
        match &self.stepping {
            Some(stepping) => stepping
                .log()
                .unwrap_or_else(|| LogHash::new(self.welcome.match_id)),
            None => self.reader.log(),
        }
    }

    /// First tick that the game has not simulated.
    fn simulated(&self) -> Tick {
        self.stepping
            .as_ref()
            .map_or_else(|| self.reader.next(), Stepping::at)
    }

    /// Whether a tick is missing that redundancy no longer covers.
    pub(super) fn is_gap(&self) -> bool {
        self.end.plus(self.welcome.repair.into()) < self.seen_end
    }

    fn on_new_bundle(&mut self, now: Instant, tick: Tick, stretch: u16) {
        if tick < self.seen_end {
            return;
        }
        self.seen_end = tick.plus(1);
        let usual = self.welcome.period_nanos;
        if let Some(clock) = &mut self.clock {
            clock.on_arrival(now, tick);
        }
        let clock = self
            .clock
            .get_or_insert_with(|| TickClock::new(now, usual, tick));
        // Applies from the next tick on.
        clock.set_period(stretched(usual, stretch), tick);
    }

    /// How long after `now` the turn of `tick` arrives on a fast network.
    fn lead(&self, now: Instant, tick: Tick) -> Duration {
        let arrival = self.clock.as_ref().map(|clock| clock.arrival(tick));
        arrival.map_or(Duration::ZERO, |at| at.saturating_since(now))
    }

    /// All ticks up to `tick` have arrived.
    fn on_in_order(&mut self, now: Instant, tick: Tick) {
        if let Some(clock) = &self.clock {
            let late = now.saturating_since(clock.arrival(tick));
            self.playout.on_late(now, late);
        }
    }

    /// Handles the acknowledgement of our newest input; `i8::MIN` as slack stands for none.
    fn on_input_ack(&mut self, now: Instant, next_low: u16, slack: i8) -> Option<u8> {
        if slack == i8::MIN {
            return None;
        }
        self.slack = Some(slack);
        let newest = self
            .stamped?
            .plus(1)
            .widen_back(next_low)?
            .0
            .checked_sub(1)?;
        self.history.on_ack(Tick(newest));
        self.delay.on_slack(now, Tick(newest), slack)
    }
}

/// Tick length extended by `per_mille` thousandths.
fn stretched(period_nanos: u32, per_mille: u16) -> u32 {
    let more = u64::from(period_nanos).saturating_mul(per_mille.into()) / 1_000;
    period_nanos.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
}

/// Ticks promised and not revoked.
///
/// This is one range until another server takes over; ticks it revoked separate two ranges. Ranges
/// are dropped once their ticks were returned, so there is at most one per server.
#[derive(Debug, Default)]
struct Promised {
    /// First and last tick of each, in order.
    ranges: Vec<(Tick, Tick)>,
    /// Whether the next promise starts a new range.
    is_cut: bool,
}

impl Promised {
    fn add(&mut self, tick: Tick) {
        match self.ranges.last_mut().filter(|_| !self.is_cut) {
            Some((_, last)) => *last = tick.max(*last),
            None => self.ranges.push((tick, tick)),
        }
        self.is_cut = false;
    }

    /// Forgets ticks from `next` on, and those before `returned`.
    fn revoke(&mut self, next: Tick, returned: Tick) {
        self.ranges
            .retain(|(first, last)| *first < next && *last >= returned);
        for (_, last) in &mut self.ranges {
            *last = (*last).min(next.minus(1));
        }
        self.is_cut = true;
    }

    fn has(&self, tick: Tick) -> bool {
        let is_in = |(first, last): &(Tick, Tick)| *first <= tick && tick <= *last;
        self.ranges.iter().any(is_in)
    }

    /// Heap bytes in use.
    const fn memory_len(&self) -> usize {
        self.ranges
            .capacity()
            .saturating_mul(size_of::<(Tick, Tick)>())
    }
}

/// Most ticks skipped by a boundary that are filled with the held input: the largest delay.
const DELAY_GAP_MAX: u32 = 60;

impl Session {
    /// Stamps `held` for each boundary before `now`; returns whether there was one.
    pub(super) fn pass_boundaries(
        &mut self,
        now: Instant,
        held: &[u8],
        stats: &mut ClientStats,
    ) -> bool {
        let mut has_passed = false;
        let phase = self.delay.phase();
        if let Some(clock) = &mut self.clock {
            clock.set_phase(phase);
        }
        for _ in 0..DUE_MAX {
            let Some(index) = self.clock.as_mut().and_then(|clock| clock.pass(now)) else {
                break;
            };
            if self.is_spectator() {
                self.unsaid = self.unsaid.saturating_add(1);
                has_passed |= self.unsaid >= SPECTATOR_REPORT_TICKS || self.is_gap();
                continue;
            }
            has_passed = true;
            let tick = self.tick_for(index);
            if let Some(stepping) = &mut self.stepping {
                stepping.on_boundary(Tick(index), tick);
            }
            // The server accepts none further ahead of its closed ticks, and it has closed all
            // ticks seen, also those after a gap.
            if tick >= self.end.max(self.seen_end).plus(AHEAD_MAX) {
                continue;
            }
            // A longer delay skips ticks; after a jump there is no previous input to continue.
            let first = self.stamped.map_or(tick, |last| last.plus(1));
            let first = if tick.since(first) > DELAY_GAP_MAX {
                tick
            } else {
                first.max(self.end)
            };
            for tick in (first.0..=tick.0).map(Tick) {
                self.history.push(tick, held);
                self.delay.on_stamped(tick, self.lead(now, tick));
                self.stamped = Some(tick);
                if let Some(stepping) = &mut self.stepping {
                    stepping.on_stamped(tick, held);
                }
                stats.inputs = stats.inputs.saturating_add(1);
            }
        }
        stats.input_delay = self.delay.ticks();
        stats.clock_jumps = self.clock.as_ref().map_or(0, TickClock::jumps);
        has_passed
    }

    /// Returns the tick that the next boundary stamps, and records the promise.
    pub(super) fn promise(&mut self) -> Option<Tick> {
        let index = self.clock.as_ref()?.index();
        let tick = self.tick_for(index);
        let tick = self.stamped.map_or(tick, |last| tick.max(last.plus(1)));
        self.promised.add(tick);
        Some(tick)
    }

    /// The tick that boundary `index` stamps; never a closed one.
    fn tick_for(&self, index: u32) -> Tick {
        let delay = self.delay.ticks();
        Tick(index).plus(delay.into()).max(self.end)
    }
}

/// Reports up to this length, in bytes, are not shortened: transport overhead is 59 bytes.
const REPORT_LEN_SMALL: usize = 24;

impl Session {
    /// Takes the root of a state, and its sections if it has any.
    pub(super) fn report(
        &mut self,
        tick: Tick,
        root: u64,
        state: Option<&StateHasher>,
    ) -> Result<(), ReportError> {
        let next = self
            .stepping
            .as_ref()
            .map_or_else(|| self.reader.next(), Stepping::settled);
        if tick.plus(1) != next || tick < self.reported_end {
            return Err(ReportError::OutOfOrder);
        }
        if self.is_spectator() {
            self.reported_end = tick.plus(1);
            return Ok(());
        }
        let log = self.log();
        let hash = log.report(root);
        let interval = u32::from(self.welcome.hash_interval.get());
        if tick.0.is_multiple_of(interval) && !self.is_spectator() {
            let step = tick.0.checked_div(interval).unwrap_or(0);
            self.hashes.push(step, hash)?;
        }
        let sections = state.into_iter().flat_map(StateHasher::sections);
        self.hash_history.push(tick, (hash, log.short()), sections);
        self.reported_end = tick.plus(1);
        Ok(())
    }

    /// Appends a report of at most `len_max` bytes.
    pub(super) fn write_report(&mut self, now: Instant, len_max: usize, out: &mut Vec<u8>) {
        self.unsaid = 0;
        if self.is_spectator() {
            self.write_spectators_report(out);
            return;
        }
        let interval = u32::from(self.welcome.hash_interval.get());
        let newest = self
            .end
            .0
            .checked_sub(1)
            .and_then(|tick| tick.checked_div(interval));
        let reference = self.history.reference();
        let mut head = ReportHead {
            loaded: self.loaded,
            next_low: self.end.low(),
            is_gap: self.is_gap(),
            lag: self.lag(now),
            hashes: newest.map_or_else(HashSlice::default, |newest| self.hashes.take(newest)),
            ahead: self.history.first().since(self.end),
            is_fresh: reference.is_none(),
        };
        let before = reference.unwrap_or(&self.neutral);
        let width = self.welcome.shape.width;
        let start = out.len();
        write_report(out, &head, width, before, self.history.inputs());
        let all = self.history.inputs().len();
        let len = out.len().saturating_sub(start);
        // Inputs that change every tick: omit those that would be late anyway.
        let mut copies = all;
        if len > REPORT_LEN_SMALL {
            copies = copies.min(self.useful_copies());
        }
        if len > len_max {
            // Each input is sent in several reports; the newest has the most time left.
            let fitting = fitting_inputs(len_max, width, &self.neutral, self.history.inputs());
            copies = copies.min(fitting);
        }
        if copies == all {
            return;
        }
        let skipped = all.saturating_sub(copies);
        out.truncate(start);
        head.ahead = head
            .ahead
            .saturating_add(u32::try_from(skipped).unwrap_or(u32::MAX));
        head.is_fresh = true;
        let inputs = self.history.inputs().skip(skipped);
        write_report(out, &head, width, &self.neutral, inputs);
    }

    /// Turns pending in the game: those that arrived and are not held back by playout.
    fn lag(&self, now: Instant) -> u32 {
        let playout = self.playout.get();
        let due = match &self.clock {
            Some(clock) if self.stepping.is_none() && !playout.is_zero() => {
                clock.count_by(now, playout).min(self.end)
            }
            Some(_) | None => self.end,
        };
        due.since(self.simulated())
    }

    /// Reports what arrived; a spectator has nothing else to report.
    fn write_spectators_report(&self, out: &mut Vec<u8>) {
        let head = ReportHead {
            next_low: self.end.low(),
            is_gap: self.is_gap(),
            ..ReportHead::default()
        };
        let width = self.welcome.shape.width;
        write_report(out, &head, width, &self.neutral, core::iter::empty());
    }

    /// How many of the newest inputs can still be in time: the newest arrives `slack` before its
    /// tick's close, each older one a tick later.
    fn useful_copies(&self) -> usize {
        let repair = usize::from(self.welcome.repair);
        let Some(slack) = self.slack else {
            return usize::MAX;
        };
        let ticks = usize::try_from(slack.div_euclid(4)).unwrap_or(0);
        repair.max(ticks.saturating_add(2))
    }
}

impl<I: Input> ClientPeer<I> {
    /// Continues with `server`, which closes `next` and all later ticks. Bundles for these, inputs
    /// stamped for them, and snapshot transfers are dropped.
    pub(crate) fn migrate(&mut self, now: Instant, server: PeerId, next: Tick) {
        self.reconnect(now, server);
        if let State::Seated { session, .. } = &mut self.state {
            session.restart(next);
        }
    }

    /// Returns the welcome, once it arrived.
    pub(crate) fn welcome(&self) -> Option<&Welcome> {
        self.session().map(Session::welcome)
    }

    /// Returns the closed ticks held; `None` before the welcome.
    pub(crate) fn past(&self) -> Option<Past<'_>> {
        Some(self.session()?.past())
    }

    /// Takes closed ticks before `end` from another player.
    pub(crate) fn take_closed(
        &mut self,
        now: Instant,
        first: Tick,
        end: Tick,
        bundles: &Bundles<'_>,
    ) {
        if let State::Seated { session, .. } = &mut self.state {
            session.take_closed(now, (first, end), bundles, &mut self.stats);
        }
    }

    /// Appends up to `len_max` bytes of closed ticks from `first` on; returns their number.
    pub(crate) fn write_closed(&self, first: Tick, len_max: usize, buf: &mut Vec<u8>) -> u32 {
        let Some(session) = self.session() else {
            return 0;
        };
        let start = buf.len();
        let mut tick = first;
        while tick < session.end()
            && let Some(bundle) = session.bundle(tick)
            && buf.len().saturating_sub(start).saturating_add(bundle.len()) <= len_max
        {
            buf.extend_from_slice(bundle);
            tick = tick.plus(1);
        }
        tick.since(first)
    }
}

impl Session {
    /// Restarts with a server that closes `next`, which is not before `end`, and all later ticks.
    /// It has none of our inputs, and its own clock.
    fn restart(&mut self, next: Tick) {
        debug_assert!(next >= self.end, "nobody goes on before what we hold");
        // Later ticks received out of order were closed by the previous server.
        self.chain.forget_from(next);
        self.seen_end = self.seen_end.min(next).max(self.end);
        self.forget_acks();
        self.history.forget_before(Tick(u32::MAX));
        self.stamped = None;
        // Substitutions in earlier ticks are still reported.
        self.promised.revoke(next, self.returned_end);
        if let Some(stepping) = &mut self.stepping {
            stepping.restart(next);
        }
        self.slack = None;
        self.clock = None;
    }

    /// Continues as a spectator if `welcome` has no seat for us any more; returns whether it does.
    pub(super) fn lose_seat(&mut self, welcome: &Welcome) -> bool {
        let is_lost = self.welcome.seat.is_some() && welcome.seat.is_none();
        if !is_lost || welcome.match_id != self.welcome.match_id {
            return false;
        }
        self.welcome.seat = None;
        self.history.forget_before(Tick(u32::MAX));
        if let Some(stepping) = &mut self.stepping {
            stepping.lose_seat();
        }
        true
    }

    /// Returns all ticks before `end`.
    fn past(&self) -> Past<'_> {
        let mut reader = self.reader.clone();
        while reader.next() < self.end && reader.read(&self.chain).is_some() {}
        Past {
            chain: &self.chain,
            reader,
        }
    }

    fn bundle(&self, tick: Tick) -> Option<&[u8]> {
        self.chain.get(tick)
    }

    /// Takes closed ticks before `end` from another peer than the server.
    fn take_closed(
        &mut self,
        now: Instant,
        (first, end): (Tick, Tick),
        bundles: &Bundles<'_>,
        stats: &mut ClientStats,
    ) {
        let end = end.min(self.reader.next().plus(CHAIN_LEN)).min(Tick::LAST);
        let mut tick = first;
        for bundle in bundles.iter() {
            if tick >= end {
                stats.bundles_early = stats.bundles_early.saturating_add(1);
            } else if tick < self.end || self.chain.has(tick) {
                stats.bundles_repeated = stats.bundles_repeated.saturating_add(1);
            } else {
                self.chain.put(tick, bundle);
            }
            tick = tick.plus(1);
        }
        while self.chain.has(self.end) {
            self.end = self.end.plus(1);
            self.advanced_at = now;
        }
        self.seen_end = self.seen_end.max(self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ls_16_what_another_server_took_back_is_no_promise() {
        let mut promised = Promised::default();
        for tick in 10..30 {
            promised.add(Tick(tick));
        }
        promised.revoke(Tick(20), Tick(5));
        assert!(promised.has(Tick(19)) && !promised.has(Tick(20)));
        promised.add(Tick(26));
        promised.add(Tick(28));
        let held: Vec<_> = (0..40).filter(|tick| promised.has(Tick(*tick))).collect();
        let kept: Vec<_> = (10..20).chain(26..29).collect();
        assert_eq!(held, kept);
        // Another takeover, before any tick of the previous one.
        promised.revoke(Tick(22), Tick(20));
        assert_eq!(promised.ranges.len(), 0);
        promised.add(Tick(30));
        promised.revoke(Tick(28), Tick(22));
        assert!(!promised.has(Tick(30)));
    }

    #[test]
    fn l9_servers_that_take_over_again_and_again_leave_one_range() {
        let mut promised = Promised::default();
        for next in (0..1_000).map(|number| number * 10) {
            promised.revoke(Tick(next), Tick(next));
            promised.add(Tick(next + 5));
        }
        assert!(promised.memory_len() <= 4 * size_of::<(Tick, Tick)>());
    }
}
