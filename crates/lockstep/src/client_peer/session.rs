//! What a client knows once it is seated: the chain so far, its own inputs, its clock.

#![warn(clippy::arithmetic_side_effects)]

use core::time::Duration;

use wire::Instant;

use super::delay::DelayControl;
use super::hashes::Hashes;
use crate::audience::SPECTATOR_REPORT_TICKS;
use crate::bundle::Shape;
use crate::chain::{CHAIN_LEN, Chain, ChainReader};
use crate::event::ReportError;
use crate::history::History;
use crate::input_log::AHEAD_MAX;
use crate::message::{HashRun, ReportHead, Turns, Welcome, write_report};
use crate::snapshot::{self, SnapshotHead};
use crate::tick_clock::{DUE_MAX, TickClock};
use crate::turn::{Origin, Row};
use crate::{ClientStats, Tick};

/// Reports up to this length, in bytes, are not worth shortening: the transport's own 59 bytes
/// weigh more.
const REPORT_LEN_SMALL: usize = 24;

/// Ticks left out by a boundary that are filled with the input held: as far as a delay goes up.
const DELAY_GAP_MAX: u32 = 60;

/// A seat in a match, and all that came of it.
#[derive(Debug)]
pub(super) struct Session {
    welcome: Welcome,
    /// What an absent player does.
    neutral: Vec<u8>,
    /// Bundles that arrived, in order or not.
    chain: Chain,
    /// What was returned to the application.
    reader: ChainReader,
    /// First tick that was never returned.
    returned_end: Tick,
    /// First tick that has not arrived.
    end: Tick,
    /// One past the newest tick that has arrived.
    seen_end: Tick,
    /// Own inputs on their way.
    history: History,
    /// Last tick that an input was stamped for.
    stamped: Option<Tick>,
    /// First and last tick that the application was told its input is for.
    promised: Option<(Tick, Tick)>,
    /// How long before its tick's close the newest input arrived, in quarter ticks.
    slack: Option<i8>,
    delay: DelayControl,
    /// Ticks, since the first turn came.
    clock: Option<TickClock>,
    hashes: Hashes,
    /// Transfer of the snapshot that was loaded last.
    loaded: Option<u8>,
    /// Boundaries since a spectator said what it has.
    unsaid: u32,
}

/// A turn that was just read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) tick: Tick,
    /// Whether the server filled in an input that we had promised.
    pub(super) is_own_substituted: bool,
}

impl Session {
    pub(super) fn new(welcome: Welcome, neutral: Vec<u8>) -> Self {
        Self {
            welcome,
            chain: Chain::new(welcome.shape),
            reader: ChainReader::new(welcome.shape, &neutral, welcome.match_id),
            returned_end: Tick(0),
            end: Tick(0),
            seen_end: Tick(0),
            history: History::new(neutral.len()),
            neutral,
            stamped: None,
            promised: None,
            slack: None,
            delay: DelayControl::new(welcome.input_delay),
            clock: None,
            hashes: Hashes::new(),
            loaded: None,
            unsaid: 0,
        }
    }

    /// Takes closed ticks; returns the input delay where it changes.
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
            self.on_new_bundle(now, tick);
        }
        while self.chain.has(self.end) {
            self.end = self.end.plus(1);
        }
        let delay = self.on_input_ack(now, turns.next_input_low, turns.slack);
        // A closed tick takes no more inputs.
        self.history.forget_before(self.end);
        if self.slack.is_some() {
            stats.slack_quarter_ticks = self.slack;
        }
        if let Some(low) = turns.wanted_low {
            self.hashes.on_wanted(low);
        }
        delay
    }

    /// Goes on from another participant's state. What came of later ticks stays.
    pub(super) fn go_on_from(&mut self, head: &SnapshotHead, transfer: u8) {
        self.loaded = Some(transfer);
        let next = head.next;
        self.reader.go_on_from(next, &head.row, head.log);
        if next > self.end || !self.chain.has(next) {
            self.end = next;
        }
        while self.chain.has(self.end) {
            self.end = self.end.plus(1);
        }
        self.seen_end = self.seen_end.max(self.end);
        let interval = u32::from(self.welcome.hash_interval.get());
        let step = next.minus(1).0.div_ceil(interval);
        self.hashes.go_on_from(step);
        self.history.forget_before(self.end);
    }

    /// Writes the snapshot of what was returned, which led to `state`.
    pub(super) fn write_snapshot(&self, state: &[u8]) -> Vec<u8> {
        snapshot::write(&self.reader, &self.neutral, state)
    }

    /// Begins anew with a server that has none of our inputs.
    pub(super) const fn forget_acks(&mut self) {
        self.history.forget_reference();
        self.loaded = None;
    }

    /// Stamps `held` for each boundary behind `now`; returns whether there was one.
    pub(super) fn pass_boundaries(
        &mut self,
        now: Instant,
        held: &[u8],
        stats: &mut ClientStats,
    ) -> bool {
        let mut has_passed = false;
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
            // The server takes none further ahead than that.
            if tick >= self.end.plus(AHEAD_MAX) {
                continue;
            }
            // A longer delay leaves ticks between; after a jump there is nothing to go on from.
            let first = self.stamped.map_or(tick, |last| last.plus(1));
            let first = if tick.since(first) > DELAY_GAP_MAX {
                tick
            } else {
                first.max(self.end)
            };
            for tick in (first.0..=tick.0).map(Tick) {
                self.history.push(tick, held);
                self.delay.on_stamped(tick, tick.since(Tick(index)));
                self.stamped = Some(tick);
                stats.inputs = stats.inputs.saturating_add(1);
            }
        }
        stats.input_delay = self.delay.ticks();
        stats.clock_jumps = self.clock.as_ref().map_or(0, TickClock::jumps);
        has_passed
    }

    /// Returns the tick that the next boundary stamps, and remembers that it was promised.
    pub(super) fn promise(&mut self) -> Option<Tick> {
        let index = self.clock.as_ref()?.index();
        let tick = self.tick_for(index);
        let tick = self.stamped.map_or(tick, |last| tick.max(last.plus(1)));
        let (first, last) = self.promised.unwrap_or((tick, tick));
        self.promised = Some((first, last.max(tick)));
        Some(tick)
    }

    pub(super) fn read_turn(&mut self, now: Instant, playout: Duration) -> Option<Read> {
        if self.next_turn_at(playout)? > now {
            return None;
        }
        let tick = self.reader.read(&self.chain)?;
        let seat = self.welcome.seat.map(|seat| usize::from(seat.0));
        let origin = seat.and_then(|seat| self.reader.row().origins.get(seat));
        let was_promised = self
            .promised
            .is_some_and(|(first, last)| first <= tick && tick <= last);
        // After a snapshot, turns may be returned a second time.
        let is_new = tick >= self.returned_end;
        self.returned_end = self.returned_end.max(tick.plus(1));
        Some(Read {
            tick,
            is_own_substituted: is_new && was_promised && origin == Some(&Origin::Substituted),
        })
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "arithmetic on instants saturates"
    )]
    pub(super) fn next_turn_at(&self, playout: Duration) -> Option<Instant> {
        let next = self.reader.next();
        if next >= self.end {
            return None;
        }
        if playout.is_zero() {
            return Some(Instant::ZERO);
        }
        Some(self.clock.as_ref()?.arrival(next) + playout)
    }

    pub(super) fn report(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        if tick.plus(1) != self.reader.next() {
            return Err(ReportError::OutOfOrder);
        }
        let interval = u32::from(self.welcome.hash_interval.get());
        if !tick.0.is_multiple_of(interval) || self.is_spectator() {
            return Ok(());
        }
        let step = tick.0.checked_div(interval).unwrap_or(0);
        self.hashes.push(step, self.reader.log().report(state_hash))
    }

    pub(super) fn write_report(&mut self, out: &mut Vec<u8>) {
        self.unsaid = 0;
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
            // Nobody waits for who watches.
            lag: if self.is_spectator() {
                0
            } else {
                self.end.since(self.reader.next())
            },
            hashes: newest.map_or_else(HashRun::default, |newest| self.hashes.take(newest)),
            ahead: self.history.first().since(self.end),
            is_fresh: reference.is_none(),
        };
        let before = reference.unwrap_or(&self.neutral);
        let width = self.welcome.shape.width;
        let start = out.len();
        write_report(out, &head, width, before, self.history.inputs());
        let all = self.history.inputs().len();
        let copies = self.useful_copies();
        if out.len().saturating_sub(start) <= REPORT_LEN_SMALL || all <= copies {
            return;
        }
        // Inputs that change all the time: those that would come too late anyway stay out.
        let skipped = all.saturating_sub(copies);
        out.truncate(start);
        head.ahead = head
            .ahead
            .saturating_add(u32::try_from(skipped).unwrap_or(u32::MAX));
        head.is_fresh = true;
        let inputs = self.history.inputs().skip(skipped);
        write_report(out, &head, width, &self.neutral, inputs);
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

    pub(super) const fn end(&self) -> Tick {
        self.end
    }

    pub(super) fn neutral(&self) -> &[u8] {
        &self.neutral
    }

    /// First tick that was not returned yet.
    pub(super) const fn next_turn(&self) -> Tick {
        self.reader.next()
    }

    pub(super) const fn row(&self) -> &Row {
        self.reader.row()
    }

    pub(super) const fn memory_len(&self) -> usize {
        size_of::<Self>()
            .saturating_add(self.chain.memory_len())
            .saturating_add(self.history.memory_len())
            .saturating_add(self.hashes.memory_len())
            .saturating_add(self.delay.memory_len())
            .saturating_add(self.reader.row().memory_len())
    }

    pub(super) const fn log_hash(&self) -> u64 {
        self.reader.log().finish()
    }

    /// Whether a tick is missing that the usual copies bring no more.
    fn is_gap(&self) -> bool {
        self.end.plus(self.welcome.repair.into()) < self.seen_end
    }

    /// The tick that boundary `index` stamps; never one that is closed.
    fn tick_for(&self, index: u32) -> Tick {
        let delay = self.delay.ticks();
        Tick(index).plus(delay.into()).max(self.end)
    }

    /// How many of the newest inputs can still arrive in time: the newest comes `slack` before its
    /// tick's close, and each older one a tick less.
    fn useful_copies(&self) -> usize {
        let repair = usize::from(self.welcome.repair);
        let Some(slack) = self.slack else {
            return usize::MAX;
        };
        let ticks = usize::try_from(slack.div_euclid(4)).unwrap_or(0);
        repair.max(ticks.saturating_add(2))
    }

    fn on_new_bundle(&mut self, now: Instant, tick: Tick) {
        if tick < self.seen_end {
            return;
        }
        self.seen_end = tick.plus(1);
        match &mut self.clock {
            Some(clock) => clock.on_arrival(now, tick),
            None => {
                self.clock = Some(TickClock::new(now, self.welcome.period_nanos, tick));
            }
        }
    }

    /// Takes word of the newest input that arrived; without a slack, none did.
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
