//! A seated client: the ticks received so far, its own inputs, its clock.

use core::time::Duration;

use wire::Instant;

use super::Expected;
use super::clock::{DUE_MAX, DelayControl, TickClock};
use super::report::{Answers, UnsentHashes};
use super::stepping::Stepping;
use crate::bundle::Shape;
use crate::chain::{
    CHAIN_LEN, Chain, ChainReader, ReceivedChain, SnapshotHead, write_snapshot, write_snapshot_at,
};
use crate::checksum::LogHash;
use crate::config::ClientConfig;
use crate::hash_history::HashHistory;
use crate::input::{Origin, Row};
use crate::input_log::History;
use crate::match_server::Past;
use crate::message::{Bundles, EarlyInputs, INPUT_AHEAD_MAX, Turns, Welcome};
use crate::playout::PlayoutDelay;
use crate::spectators::SPECTATOR_REPORT_TICKS;
use crate::stats::ClientStats;
use crate::stepper::StepAction;
use crate::tick::Tick;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) welcome: Welcome,
    pub(super) neutral: Vec<u8>,
    pub(super) received: ReceivedChain,
    pub(super) reader: ChainReader,
    returned_end: Tick,
    advanced_at: Instant,
    pub(super) history: History,
    stamped: Option<Tick>,
    promised: PromisedTicks,
    /// How long before its tick's close the newest input arrived, in quarter ticks.
    pub(super) slack: Option<i8>,
    delay: DelayControl,
    pub(super) clock: Option<TickClock>,
    pub(super) playout: PlayoutDelay,
    pub(super) hashes: UnsentHashes,
    pub(super) stepping: Option<Stepping>,
    scratch: Vec<u8>,
    pub(super) loaded: Option<u8>,
    pub(super) reported_end: Tick,
    pub(super) hash_history: HashHistory,
    pub(super) answers: Answers,
    pub(super) unreported: u32,
    /// When to repeat `Ready`; `None` once turns arrive.
    pub(super) ready_at: Option<Instant>,
    pub(super) is_due: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) tick: Tick,
    /// Whether the server substituted an input that we had promised.
    pub(super) is_own_substituted: bool,
}

impl Session {
    pub(super) fn new(
        now: Instant,
        welcome: Welcome,
        neutral: Vec<u8>,
        config: &ClientConfig,
    ) -> Self {
        Self {
            welcome,
            received: ReceivedChain::new(Chain::new(welcome.shape)),
            reader: ChainReader::new(welcome.shape, &neutral, welcome.match_id),
            returned_end: Tick(0),
            advanced_at: Instant::ZERO,
            history: History::new(neutral.len()),
            stepping: Stepping::new(config, &welcome, &neutral),
            scratch: Vec::with_capacity(neutral.len()),
            neutral,
            stamped: None,
            promised: PromisedTicks::default(),
            slack: None,
            delay: DelayControl::new(welcome.input_delay, welcome.period_nanos),
            clock: None,
            playout: PlayoutDelay::new(config.playout),
            hashes: UnsentHashes::new(),
            loaded: None,
            reported_end: Tick(0),
            hash_history: HashHistory::new(config.hashes_kept),
            answers: Answers::new(),
            unreported: 0,
            ready_at: Some(now),
            is_due: false,
        }
    }

    pub(super) fn on_turns(
        &mut self,
        now: Instant,
        turns: &Turns<'_>,
        stats: &mut ClientStats,
    ) -> Option<u8> {
        let (end, seen_end) = (self.received.end, self.received.seen_end);
        let Some(first) = end.widen_near(turns.first_low) else {
            stats.dropped_window = stats.dropped_window.saturating_add(1);
            return None;
        };
        self.keep(first, Tick::LAST.plus(1), turns.bundles, stats);
        if self.received.seen_end > seen_end {
            self.on_newest(now, turns.stretch);
        }
        self.on_in_order(now, end);
        stats.playout = self.playout.get();
        let delay = self.on_input_ack(now, turns.next_input_low, turns.slack);
        // Closed ticks take no more inputs.
        self.history.forget_before(self.received.end);
        if self.slack.is_some() {
            stats.slack_quarter_ticks = self.slack;
        }
        if let Some(low) = turns.wanted_low {
            self.hashes.on_wanted(low);
        }
        delay
    }

    /// Keeps the ticks before `end` that a participant forwards. They arrive late, so they leave the
    /// clock as it is, even where they are the newest seen.
    pub(super) fn take_closed(
        &mut self,
        now: Instant,
        (first, end): (Tick, Tick),
        bundles: Bundles<'_>,
        stats: &mut ClientStats,
    ) {
        let before = self.received.end;
        self.keep(first, end.min(Tick::LAST), bundles, stats);
        if self.received.end > before {
            self.advanced_at = now;
        }
    }

    fn keep(&mut self, first: Tick, limit: Tick, bundles: Bundles<'_>, stats: &mut ClientStats) {
        let limit = limit.min(self.reader.next.plus(CHAIN_LEN));
        let (early, repeated) = self.received.extend(first, limit, bundles.iter());
        stats.bundles_early = stats.bundles_early.saturating_add(early);
        stats.bundles_repeated = stats.bundles_repeated.saturating_add(repeated);
    }

    /// Continues from another participant's state. Ticks received after it are kept.
    pub(super) fn resume_from(&mut self, head: &SnapshotHead, transfer: u8) {
        self.loaded = Some(transfer);
        let next = head.next;
        self.reader.resume_from(next, &head.row, head.log);
        if let Some(stepping) = &mut self.stepping {
            stepping.resume_from(head);
        }
        if next > self.received.end || !self.received.chain.has(next) {
            self.received.begin_at(next);
        }
        let step = next.minus(1).0.div_ceil(self.hash_interval());
        self.hashes.resume_from(step);
        // The snapshot's own tick may be reported as well.
        self.reported_end = next.minus(1);
        self.history.forget_before(self.received.end);
    }

    /// Writes the snapshot of `state`, number `next`; `None` stands for the turn returned last.
    /// Returns `None` if no such state is final, or it is too old.
    pub(super) fn write_snapshot(&self, next: Option<Tick>, state: &[u8]) -> Option<Vec<u8>> {
        let Some(stepping) = &self.stepping else {
            let is_current = next.is_none_or(|next| next == self.reader.next);
            let is_any = is_current && self.reader.next > Tick(0);
            return is_any.then(|| write_snapshot(&self.reader, &self.neutral, state));
        };
        let next = next.unwrap_or(stepping.stepper.at);
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

    /// Passes the next closed tick to a predicting game, if it needs one.
    pub(super) fn confirm_next(&mut self) -> Option<Read> {
        if !self.stepping.as_ref()?.stepper.wants_row() {
            return None;
        }
        let read = self.read()?;
        let stepping = self.stepping.as_mut()?;
        stepping.confirm(read.tick, &self.reader.row, self.reader.log);
        Some(read)
    }

    pub(super) fn on_early(&mut self, early: &EarlyInputs<'_>) {
        let Some(stepping) = &mut self.stepping else {
            return;
        };
        let Some(first) = self.received.end.widen_near(early.first_low) else {
            return;
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.neutral);
        early.unpack(&mut self.scratch, &self.neutral, |seat, ahead, input| {
            stepping.on_early(seat, first.plus(ahead), input);
        });
    }

    pub(super) fn next_action(&mut self) -> Option<StepAction> {
        self.stepping.as_mut()?.next(self.received.end)
    }

    pub(super) fn wait_until(&self) -> Option<Instant> {
        let is_due = self.stepping.as_ref()?.waits_for_clock();
        self.boundary().filter(|_| is_due)
    }

    fn read(&mut self) -> Option<Read> {
        let tick = self.reader.read(&self.received.chain)?;
        let seat = self.welcome.seat.map(|seat| usize::from(seat.0));
        let origin = seat.and_then(|seat| self.reader.row.origins.get(seat));
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
        let next = self.reader.next;
        if next >= self.received.end || self.stepping.is_some() {
            return None;
        }
        let playout = self.playout.get();
        if playout.is_zero() {
            return Some(Instant::ZERO);
        }
        Some(self.clock.as_ref()?.arrival(next) + playout)
    }

    pub(super) fn expected(&self) -> Option<Expected> {
        let clock = self.clock.as_ref()?;
        let (tick, period) = (self.received.end, self.period());
        // After a wait of the server, the fastest recent arrival is no measure for some ticks.
        let at = clock.arrival(tick).max(self.advanced_at + period);
        Some(Expected { tick, at, period })
    }

    pub(super) fn boundary(&self) -> Option<Instant> {
        self.clock.as_ref().map(TickClock::deadline)
    }

    pub(super) const fn is_spectator(&self) -> bool {
        self.welcome.seat.is_none()
    }

    pub(super) const fn shape(&self) -> Shape {
        self.welcome.shape
    }

    pub(super) fn hash_interval(&self) -> u32 {
        self.welcome.hash_interval.get().into()
    }

    fn period(&self) -> Duration {
        Duration::from_nanos(self.welcome.period_nanos.into())
    }

    pub(super) fn row(&self) -> &Row {
        match &self.stepping {
            Some(stepping) => stepping.stepper.row(),
            None => &self.reader.row,
        }
    }

    pub(super) fn memory_len(&self) -> usize {
        let stepping = self.stepping.as_ref().map_or(0, Stepping::memory_len);
        size_of::<Self>()
            .saturating_add(stepping)
            .saturating_add(self.received.chain.memory_len())
            .saturating_add(self.promised.memory_len())
            .saturating_add(self.history.memory_len())
            .saturating_add(self.hashes.memory_len())
            .saturating_add(self.delay.memory_len())
            .saturating_add(self.hash_history.memory_len())
            .saturating_add(self.answers.memory_len())
            .saturating_add(self.reader.row.memory_len())
    }

    pub(super) fn log(&self) -> LogHash {
        match &self.stepping {
            Some(stepping) => stepping
                .log()
                .unwrap_or_else(|| LogHash::new(self.welcome.match_id)),
            None => self.reader.log,
        }
    }

    /// Whether a tick is missing that redundancy no longer covers.
    pub(super) fn is_gap(&self) -> bool {
        self.received.is_gap(self.welcome.repair.into())
    }

    fn on_newest(&mut self, now: Instant, stretch: u16) {
        let (tick, usual) = (self.received.seen_end.minus(1), self.welcome.period_nanos);
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

    fn on_in_order(&mut self, now: Instant, first: Tick) {
        for tick in (first.0..self.received.end.0).map(Tick) {
            self.advanced_at = now;
            if let Some(clock) = &self.clock {
                let late = now.saturating_since(clock.arrival(tick));
                self.playout.on_late(now, late);
            }
        }
    }

    /// Handles the acknowledgement of our newest input; `i8::MIN` as slack stands for none.
    fn on_input_ack(&mut self, now: Instant, next_low: u16, slack: i8) -> Option<u8> {
        if slack == i8::MIN {
            return None;
        }
        self.slack = Some(slack);
        let next = self.stamped?.plus(1).widen_back(next_low)?;
        let newest = Tick(next.0.checked_sub(1)?);
        self.history.on_ack(newest);
        self.delay.on_slack(now, newest, slack)
    }

    /// Restarts with a server that closes `next`, which is not before `end`, and all later ticks.
    /// It has none of our inputs, and its own clock.
    pub(super) fn restart(&mut self, next: Tick) {
        let received = &mut self.received;
        debug_assert!(next >= received.end, "no server resumes before our ticks");
        // Later ticks received out of order were closed by the previous server.
        received.chain.forget_from(next);
        received.seen_end = received.seen_end.min(next).max(received.end);
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
            stepping.own = None;
        }
        true
    }

    pub(super) fn past(&self) -> Past<'_> {
        let mut reader = self.reader.clone();
        let chain = &self.received.chain;
        while reader.next < self.received.end && reader.read(chain).is_some() {}
        Past { chain, reader }
    }

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
                self.unreported = self.unreported.saturating_add(1);
                has_passed |= self.unreported >= SPECTATOR_REPORT_TICKS || self.is_gap();
                continue;
            }
            has_passed = true;
            let tick = self.tick_for(index);
            if let Some(stepping) = &mut self.stepping {
                stepping.on_boundary(Tick(index), tick);
            }
            self.stamp(now, tick, held, stats);
        }
        stats.input_delay = self.delay.ticks();
        stats.clock_jumps = self.clock.as_ref().map_or(0, |clock| clock.jumps);
        has_passed
    }

    /// Stamps `held` for `tick`, and for ticks that a longer delay skipped.
    fn stamp(&mut self, now: Instant, tick: Tick, held: &[u8], stats: &mut ClientStats) {
        let ReceivedChain { end, seen_end, .. } = self.received;
        // The server accepts none further ahead of its closed ticks, and it has closed all ticks
        // seen, also those after a gap.
        if tick >= end.max(seen_end).plus(INPUT_AHEAD_MAX) {
            return;
        }
        // After a jump there is no previous input to continue.
        let first = self.stamped.map_or(tick, |last| last.plus(1));
        let first = if tick.since(first) > DELAY_GAP_MAX {
            tick
        } else {
            first.max(end)
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

    /// Returns the tick that the next boundary stamps, and records the promise.
    pub(super) fn promise(&mut self) -> Option<Tick> {
        let tick = self.tick_for(self.clock.as_ref()?.index);
        let tick = self.stamped.map_or(tick, |last| tick.max(last.plus(1)));
        self.promised.add(tick);
        Some(tick)
    }

    /// The tick that boundary `index` stamps; never a closed one.
    fn tick_for(&self, index: u32) -> Tick {
        let delay = self.delay.ticks();
        Tick(index).plus(delay.into()).max(self.received.end)
    }
}

fn stretched(period_nanos: u32, per_mille: u16) -> u32 {
    let more = u64::from(period_nanos).saturating_mul(per_mille.into()) / 1_000;
    period_nanos.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
}

/// Most ticks skipped by a boundary that are filled with the held input: the largest delay.
const DELAY_GAP_MAX: u32 = 60;

/// Ticks that `submit` returned and that were not revoked: one range per server, since ticks that a
/// server revoked separate two. Ranges are dropped once their ticks were returned.
#[derive(Debug, Default)]
struct PromisedTicks {
    /// First and last tick of each, in order.
    ranges: Vec<(Tick, Tick)>,
    is_cut: bool,
}

impl PromisedTicks {
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

    const fn memory_len(&self) -> usize {
        self.ranges
            .capacity()
            .saturating_mul(size_of::<(Tick, Tick)>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ls_16_ticks_revoked_by_a_new_host_are_not_final() {
        let mut promised = PromisedTicks::default();
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
        promised.revoke(Tick(22), Tick(20));
        assert_eq!(promised.ranges.len(), 0);
        promised.add(Tick(30));
        promised.revoke(Tick(28), Tick(22));
        assert!(!promised.has(Tick(30)));
    }

    #[test]
    fn l9_repeated_migrations_leave_one_revoked_range() {
        let mut promised = PromisedTicks::default();
        for next in (0..1_000).map(|number| number * 10) {
            promised.revoke(Tick(next), Tick(next));
            promised.add(Tick(next + 5));
        }
        assert!(promised.memory_len() <= 4 * size_of::<(Tick, Tick)>());
    }
}
