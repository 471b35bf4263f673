//! What a client sends: reports of inputs and state hashes, and answers when a desync is bisected.

use core::ops::Range;
use std::collections::VecDeque;

use wire::{Instant, Seat};

use super::session::Session;
use crate::checksum::StateHasher;
use crate::event::ReportError;
use crate::hash_history::ReportedHashes;
use crate::message::{
    HASHES_MAX, HashSlice, Question, ReportHead, fitting_inputs, write_acknowledged, write_report,
    write_sections, write_ticks,
};
use crate::tick::Tick;

/// A missing step this close after the last retransmitted one counts as part of a burst: all steps
/// from there on are sent again, as many as fit. Otherwise it is sent alone, since each needless
/// copy costs 4 bytes.
const BURST_STEPS: u32 = 4;

#[derive(Debug)]
pub(super) struct UnsentHashes {
    reported: ReportedHashes,
    unsent: u32,
    wanted: Option<u32>,
    again: Range<u32>,
}

impl UnsentHashes {
    pub(super) fn new() -> Self {
        Self {
            reported: ReportedHashes::new(),
            unsent: 0,
            wanted: None,
            again: 0..0,
        }
    }

    fn push(&mut self, step: u32, hash: u32) -> Result<(), ReportError> {
        self.reported.push(step, hash)?;
        // A longer burst than the ring loses the oldest.
        self.unsent = self.unsent.max(self.reported.oldest());
        Ok(())
    }

    /// Accepts reports from `step` on, even if there were earlier ones for them.
    pub(super) fn resume_from(&mut self, step: u32) {
        self.reported.begin_at(step);
        self.unsent = step;
        self.wanted = None;
    }

    pub(super) fn on_wanted(&mut self, low: u16) {
        self.wanted = self.reported.sent_step(low, self.unsent);
    }

    /// Requested steps first, then unsent ones, without a skipped one between.
    fn take(&mut self, newest: u32) -> HashSlice {
        let (oldest, end) = (self.reported.oldest(), self.reported.end);
        let wanted = self.wanted.take().filter(|step| *step >= oldest);
        let again = wanted.and_then(|step| self.first_in(step..self.unsent));
        let Some(first) = again.or_else(|| self.first_in(self.unsent..end)) else {
            self.unsent = end;
            return HashSlice::default();
        };
        let end = if again.is_some() {
            self.end_again(first)
        } else {
            end
        };
        let mut run = HashSlice {
            back: newest.saturating_sub(first),
            ..HashSlice::default()
        };
        for (value, step) in run.values.iter_mut().zip(first..end) {
            let Some(hash) = self.reported.get(step) else {
                break;
            };
            *value = hash;
            run.count = run.count.saturating_add(1);
        }
        debug_assert!(run.count <= HASHES_MAX, "as many as there are slots");
        self.unsent = self.unsent.max(first.saturating_add(run.count));
        run
    }

    fn end_again(&mut self, first: u32) -> u32 {
        let burst_end = self.again.end.saturating_add(BURST_STEPS);
        let count = if (self.again.start..burst_end).contains(&first) {
            HASHES_MAX
        } else {
            1
        };
        let end = self.unsent.min(first.saturating_add(count));
        self.again = first..end;
        end
    }

    pub(super) const fn memory_len(&self) -> usize {
        self.reported.memory_len()
    }

    fn first_in(&self, mut steps: Range<u32>) -> Option<u32> {
        steps.find(|step| self.reported.get(*step).is_some())
    }
}

/// Pending questions; the server repeats those that were dropped.
const QUESTIONS_MAX: usize = 8;

/// Divergences remembered, so that repetitions, which arrive within seconds, are reported once.
const REPORTED_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Answers {
    waiting: VecDeque<Question>,
    reported: VecDeque<(Tick, Seat)>,
}

impl Answers {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(QUESTIONS_MAX),
            reported: VecDeque::with_capacity(REPORTED_MAX),
        }
    }

    pub(super) fn push(&mut self, question: Question) -> bool {
        if self.waiting.contains(&question) {
            return true;
        }
        let has_room = self.waiting.len() < QUESTIONS_MAX;
        if has_room {
            self.waiting.push_back(question);
        }
        has_room
    }

    pub(super) fn is_new(&mut self, tick: Tick, seat: Seat) -> bool {
        let is_new = !self.reported.contains(&(tick, seat));
        if is_new {
            if self.reported.len() >= REPORTED_MAX {
                self.reported.pop_front();
            }
            self.reported.push_back((tick, seat));
        }
        is_new
    }

    pub(super) fn memory_len(&self) -> usize {
        let waiting = self
            .waiting
            .capacity()
            .saturating_mul(size_of::<Question>());
        let reported = self.reported.capacity();
        waiting.saturating_add(reported.saturating_mul(size_of::<(Tick, Seat)>()))
    }
}

impl Session {
    pub(super) fn report(
        &mut self,
        tick: Tick,
        root: u64,
        state: Option<&StateHasher>,
    ) -> Result<(), ReportError> {
        let next = self
            .stepping
            .as_ref()
            .map_or(self.reader.next, |stepping| stepping.stepper.settled);
        if tick.plus(1) != next || tick < self.reported_end {
            return Err(ReportError::OutOfOrder);
        }
        if !self.is_spectator() {
            let log = self.log();
            let hash = log.report(root);
            let interval = self.hash_interval();
            if tick.0.is_multiple_of(interval) {
                let step = tick.0.checked_div(interval).unwrap_or(0);
                self.hashes.push(step, hash)?;
            }
            let sections = state.into_iter().flat_map(StateHasher::sections);
            self.hash_history.push(tick, (hash, log.short()), sections);
        }
        self.reported_end = tick.plus(1);
        Ok(())
    }

    pub(super) fn write_report(&mut self, now: Instant, len_max: usize, out: &mut Vec<u8>) {
        self.unreported = 0;
        let end = self.received.end;
        let mut head = ReportHead {
            next_low: end.low(),
            is_gap: self.is_gap(),
            ..ReportHead::default()
        };
        let width = self.welcome.shape.width;
        if self.is_spectator() {
            write_report(out, &head, width, &self.neutral, core::iter::empty());
            return;
        }
        let newest = end.0.checked_sub(1);
        let newest = newest.and_then(|tick| tick.checked_div(self.hash_interval()));
        let reference = self.history.reference();
        head.loaded = self.loaded;
        head.lag = self.lag(now);
        head.hashes = newest.map_or_else(HashSlice::default, |newest| self.hashes.take(newest));
        head.ahead = self.history.first.since(end);
        head.is_fresh = reference.is_none();
        let before = reference.unwrap_or(&self.neutral);
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
        let (end, playout) = (self.received.end, self.playout.get());
        match (&self.stepping, &self.clock) {
            (Some(stepping), _) => end.since(stepping.stepper.at),
            (None, Some(clock)) if !playout.is_zero() => {
                let due = clock.count_by(now, playout).min(end);
                due.since(self.reader.next)
            }
            (None, _) => end.since(self.reader.next),
        }
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

    pub(super) fn write_answer(&mut self, len_max: usize, buf: &mut Vec<u8>) -> bool {
        let Some(question) = self.answers.waiting.pop_front() else {
            return false;
        };
        let (hash_history, next) = (&self.hash_history, self.reader.next);
        match question {
            Question::Ticks { first_low, count } => {
                let first = (next.widen_back(first_low), first_low);
                write_ticks(buf, hash_history, first, count);
            }
            Question::Sections { tick_low } => {
                let tick = next.widen_back(tick_low);
                let entry = tick.and_then(|tick| hash_history.get(tick));
                write_sections(buf, (tick_low, len_max), entry, &hash_history.names);
            }
            Question::Diverged { tick_low, seat, .. } => write_acknowledged(buf, tick_low, seat),
        }
        true
    }
}

/// Reports up to this length, in bytes, are not shortened: transport overhead is 59 bytes.
const REPORT_LEN_SMALL: usize = 24;

#[cfg(test)]
mod tests;
