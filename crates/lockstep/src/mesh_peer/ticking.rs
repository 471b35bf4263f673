//! Work at tick boundaries.

use core::ops::Range;

use wire::{Instant, Seat};

use super::setup::LOGS;
use super::{MeshEvent, MeshPeer, State};
use crate::bundle;
use crate::event::ReportError;
use crate::hash_comparator::Finding;
use crate::hash_history::ReportedHashes;
use crate::input::{Input, Turn};
use crate::message::{HASHES_MAX, SeatHashes, bit};
use crate::sim::Step;
use crate::stepper::StepAction;
use crate::tick::Tick;

impl<I: Input> MeshPeer<I> {
    pub(super) fn tick(&mut self, now: Instant, state_at: Instant) {
        let error = self.clock_error();
        let mut has_passed = false;
        while let Some(index) = self.clock.pass(now, self.limit(), self.lag, error) {
            has_passed = true;
            self.on_boundary(now, index);
        }
        let is_resend = self.clock.is_held && self.resend_at <= now;
        if has_passed {
            self.on_resumed();
        } else if is_resend {
            self.stats.holds = self.stats.holds.saturating_add(1);
            self.on_held();
        }
        if has_passed || is_resend {
            self.resend_at = now + self.period();
            self.reveal(now);
            self.due.play = self.others();
            self.settle_paces();
            self.ask_for_missing(now);
            self.compare_hashes();
            self.watch(now);
        }
        // Removing a silent peer may have ended the match.
        if let State::Running { .. } = self.state
            && self.view.suspects != 0
            && state_at <= now
        {
            self.on_suspected(now);
        }
    }

    fn on_boundary(&mut self, now: Instant, index: u32) {
        let own = usize::from(self.seat.0);
        if let Some(queue) = self.queues.get_mut(own) {
            let count = self.local.stamp(now, index, &self.held, queue);
            self.stats.inputs = self.stats.inputs.saturating_add(count.into());
        }
        self.refresh_known();
        self.predict_input(self.seat);
        for link in self.links.iter_mut().flatten() {
            link.repair.on_tick(&self.limits);
        }
    }

    fn reveal(&mut self, now: Instant) {
        let Some(committing) = &mut self.committing else {
            return;
        };
        let others = self.view.others();
        let mut end = self.local.end;
        for (queue, seat) in self.queues.iter().zip(0..) {
            if seat == self.seat.0 {
                committing.commit(&queue.received.chain, self.local.end);
            } else if others & bit(seat) != 0 {
                end = end.min(queue.committed_end());
            }
        }
        if self.clock.is_held {
            committing.announce_again(self.known);
        } else {
            committing.announce();
        }
        self.local.reveal(now, committing.reveal(end));
    }

    pub(super) const fn revealed_end(&self) -> Tick {
        match &self.committing {
            Some(committing) => committing.revealed,
            None => self.local.end,
        }
    }

    /// The mean lead of all members, ourselves included, in fine units.
    fn clock_error(&self) -> i64 {
        let others = self.others();
        let (mut sum, mut count) = (0_i64, 1_i64);
        for (link, seat) in self.links.iter().zip(0..) {
            if let Some(link) = link
                && others & bit(seat) != 0
            {
                sum = sum.saturating_add(link.offset.ahead());
                count = count.saturating_add(1);
            }
        }
        sum.checked_div(count).unwrap_or(0)
    }

    fn settle_paces(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.offset.settle();
        }
    }

    fn watch(&mut self, now: Instant) {
        let mut silent = 0;
        for (link, seat) in self.links.iter().zip(0..) {
            if let Some(link) = link
                && link.is_silent(now, self.peer_timeout)
            {
                silent |= bit(seat);
            }
        }
        if silent & self.others() != 0 && self.view.suspect(silent) {
            self.on_suspected(now);
        }
    }

    fn on_held(&mut self) {
        if self.stepper.at < self.known.plus(self.config.window.into()) {
            // The game does not execute its steps.
            return;
        }
        let queues = || self.queues.iter().zip((0..).map(Seat));
        // A peer that did not commit keeps all others from revealing.
        let awaited = queues()
            .find(|(queue, seat)| queue.committed_end() <= self.known && *seat != self.seat)
            .or_else(|| queues().find(|(queue, _)| queue.known_end() <= self.known));
        if let Some((_, seat)) = awaited
            && self.stalled != Some(seat)
        {
            self.stalled = Some(seat);
            let tick = self.known;
            self.push_event(MeshEvent::Stalled { seat, tick });
        }
    }

    fn on_resumed(&mut self) {
        if self.stalled.take().is_some() {
            let tick = self.known;
            self.push_event(MeshEvent::Resumed { tick });
        }
    }

    pub(super) const fn period(&self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.limits.period_nanos)
    }
}

impl<I: Input> MeshPeer<I> {
    pub(super) fn step(&mut self, now: Instant) -> Step<'_, I> {
        let State::Running { .. } = self.state else {
            return Step::Wait { until: None };
        };
        while self.read < self.known && self.stepper.wants_row() {
            self.confirm();
        }
        let target = Tick(self.clock.index);
        match self.stepper.next(target) {
            Some(StepAction::Save(tick)) => Step::Save(tick),
            Some(StepAction::Load(tick)) => Step::Load(tick),
            Some(StepAction::Settled(tick)) => {
                self.last = Some(tick);
                Step::Settled(tick)
            }
            Some(StepAction::Advance { tick, is_last }) => {
                if is_last {
                    self.last = Some(tick);
                }
                Step::Advance {
                    turn: Turn::new(tick, self.stepper.row()),
                    is_last,
                }
            }
            None => {
                let deadline = self.clock.deadline();
                let is_early = self.stepper.at >= target && deadline > now;
                Step::Wait {
                    until: is_early.then_some(deadline),
                }
            }
        }
    }

    fn confirm(&mut self) {
        let tick = self.read;
        self.rows.1.copy_from(&self.rows.0);
        for (queue, seat) in self.queues.iter_mut().zip((0..).map(Seat)) {
            queue.read(tick, seat, &self.neutral, &mut self.rows.0);
        }
        self.scratch.clear();
        bundle::encode(&self.rows.1, &self.rows.0, &mut self.scratch);
        self.log.absorb(&self.scratch);
        if let Some(log) = self.logs.get_mut(tick.slot(LOGS)) {
            *log = self.log;
        }
        self.stepper.confirm(&self.rows.0);
        self.read = tick.plus(1);
    }

    pub(super) fn predict_input(&mut self, seat: Seat) {
        if self.config.window == 0 {
            return;
        }
        let stepper = &mut self.stepper;
        if let Some(queue) = self.queues.get_mut(usize::from(seat.0)) {
            queue.predict_input(self.read, |tick, bits| {
                stepper.predict_input(seat, tick, bits);
            });
        }
    }

    pub(super) fn refresh_known(&mut self) {
        let ends = self.queues.iter().map(super::InputQueue::known_end);
        self.known = ends.clone().min().unwrap_or(self.known).max(self.known);
        let awaited = ends.zip(0..).filter(|(end, _)| *end <= self.known);
        self.awaited = awaited.fold(0, |awaited, (_, seat)| awaited | bit(seat));
    }

    /// Last boundary that may be passed: beyond it the game lags too far.
    pub(super) const fn limit(&self) -> u32 {
        self.stepper.at.plus(self.lag).0
    }
}

#[derive(Debug, Default)]
pub(super) struct HashCursor {
    unsent: u32,
    wanted: Option<u32>,
}

impl HashCursor {
    pub(super) fn on_wanted(&mut self, hashes: &ReportedHashes, low: u16) {
        self.wanted = hashes.sent_step(low, self.unsent);
    }

    /// Returns the steps to send, all of them held: requested ones first, then unsent ones.
    pub(super) fn take(&mut self, hashes: &ReportedHashes) -> Range<u32> {
        let oldest = hashes.oldest();
        let wanted = self.wanted.take().filter(|step| *step >= oldest);
        let mut first = wanted.unwrap_or_else(|| self.unsent.max(oldest));
        while first < hashes.end && hashes.get(first).is_none() {
            first = first.saturating_add(1);
        }
        let most = hashes.end.min(first.saturating_add(HASHES_MAX));
        let mut end = first;
        while end < most && hashes.get(end).is_some() {
            end = end.saturating_add(1);
        }
        self.unsent = self.unsent.max(end);
        first..end
    }
}

/// How long to wait for a hash after our own, in nanoseconds, in addition to [`TIMEOUT_TICKS`]: at
/// 100 ms round trip and 20 % loss each way, one in a million is still missing.
const TIMEOUT_NANOS: u64 = 2_000_000_000;

/// Ticks in which a hash is sent, arrives, is missed and requested.
const TIMEOUT_TICKS: u64 = 4;

impl<I: Input> MeshPeer<I> {
    pub(super) fn on_own_hash(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        let log = self.logs.get(tick.slot(LOGS)).copied();
        let hash = log.unwrap_or(self.log).report(state_hash);
        let step = tick.0.checked_div(self.hash_interval()).unwrap_or(0);
        self.hashes.push(step, hash)?;
        self.hash_comparator.insert(self.seat, step, hash);
        Ok(())
    }

    /// Takes the hashes that `seat` sent; they are compared at the next boundary.
    pub(super) fn on_hashes(&mut self, seat: Seat, hashes: &SeatHashes<'_>) {
        let Some(first) = Tick(self.hashes.end).widen_near(hashes.first_low) else {
            self.stats.hashes_refused = self.stats.hashes_refused.saturating_add(1);
            return;
        };
        for (hash, step) in hashes.iter().zip(first.0..) {
            if !self.hash_comparator.insert(seat, step, hash) {
                self.stats.hashes_refused = self.stats.hashes_refused.saturating_add(1);
            }
        }
    }

    /// Compares hashes, and stops waiting for steps that we reported too long ago.
    pub(super) fn compare_hashes(&mut self) {
        let interval = u64::from(self.hash_interval());
        let ticks = TIMEOUT_NANOS
            .checked_div(self.limits.period_nanos)
            .unwrap_or(0)
            .saturating_add(TIMEOUT_TICKS)
            .saturating_add(interval.saturating_mul(2));
        let steps = ticks.checked_div(interval).unwrap_or(0);
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        while self.hash_comparator.overdue < self.hashes.end.saturating_sub(steps) {
            self.hash_comparator.expire();
        }
        self.settle_hashes();
        let mut is_any_found = false;
        for seat in (0..self.shape.seats).map(Seat) {
            is_any_found |= self.review_hashes(seat);
        }
        if is_any_found {
            self.settle_hashes();
        }
        self.count_hashes();
    }

    fn settle_hashes(&mut self) {
        while let Some(settled) = self.hash_comparator.settle(self.hashes.end) {
            if let Some(finding) = settled.finding {
                self.tell_finding(finding);
            }
        }
    }

    fn review_hashes(&mut self, seat: Seat) -> bool {
        let mut is_any_found = false;
        while self.hash_comparator.has_unjudged(seat)
            && let Some(finding) = self.hash_comparator.review(seat)
        {
            self.tell_finding(finding);
            is_any_found = true;
        }
        is_any_found
    }

    fn tell_finding(&mut self, finding: Finding) {
        let interval = self.hash_interval();
        let tick = |step: u32| Tick(step.saturating_mul(interval));
        match finding {
            // Each seat is reported once, so these are few.
            Finding::Differs(divergence) => self.events.push_back(MeshEvent::Desync {
                tick: tick(divergence.step),
                seats: divergence.seats,
                verdict: divergence.verdict,
            }),
            Finding::Silent { seat, step } if self.view.members & bit(seat.0) != 0 => {
                let tick = tick(step);
                self.push_event(MeshEvent::Silent { seat, tick });
            }
            Finding::Silent { .. } => {}
        }
    }

    fn hash_interval(&self) -> u32 {
        self.config.hash_interval.get().into()
    }

    const fn count_hashes(&mut self) {
        let counts = self.hash_comparator.counts;
        self.stats.hashes_compared = counts.compared;
        self.stats.hashes_missing = counts.missing;
    }
}

#[cfg(test)]
mod tests;
