//! What a client sends about its state: hashes until the server has them, and answers when a desync
//! is bisected.

use core::ops::Range;
use std::collections::VecDeque;

use wire::Seat;

use super::session::Session;
use super::{ClientPeer, EVENTS_MAX, State};
use crate::checksum::StateHasher;
use crate::event::{ClientEvent, ReportError};
use crate::input::Input;
use crate::message::{
    HASHES_MAX, HashSlice, Question, write_acknowledged, write_sections, write_ticks,
};
use crate::tick::{Tick, slot};

/// State hashes kept for retransmission.
const HASHES_KEPT: u32 = 1_024;

/// A missing step this close after the last retransmitted one counts as part of a burst: all steps
/// from there on are sent again, as many as fit. Otherwise it is sent alone, since each needless
/// copy costs 4 bytes.
const BURST_STEPS: u32 = 4;

/// Unacknowledged state hashes.
#[derive(Debug)]
pub(super) struct Hashes {
    /// Hash of step `s` in slot `s % HASHES_KEPT`; `None` if the application reported none.
    kept: Vec<Option<u32>>,
    /// One past the newest reported step.
    end: u32,
    /// First step never sent.
    unsent: u32,
    /// First step that the server asked for again.
    wanted: Option<u32>,
    /// Steps last sent again.
    again: Range<u32>,
}

impl Hashes {
    pub(super) fn new() -> Self {
        let places = usize::try_from(HASHES_KEPT).unwrap_or(usize::MAX);
        Self {
            kept: vec![None; places],
            end: 0,
            unsent: 0,
            wanted: None,
            again: 0..0,
        }
    }

    pub(super) fn push(&mut self, step: u32, hash: u32) -> Result<(), ReportError> {
        if step < self.end {
            return Err(ReportError::OutOfOrder);
        }
        let end = step.saturating_add(1);
        // Skipped steps have no hash; their slots may hold those of 1,024 steps ago.
        for skipped in self.end.max(end.saturating_sub(HASHES_KEPT))..step {
            self.set(skipped, None);
        }
        self.set(step, Some(hash));
        self.end = end;
        // The burst is longer than the ring: the oldest are lost.
        self.unsent = self.unsent.max(self.oldest());
        Ok(())
    }

    /// Accepts reports from `step` on, even if there were earlier ones for them.
    pub(super) fn resume_from(&mut self, step: u32) {
        self.kept.fill(None);
        (self.end, self.unsent) = (step, step);
        self.wanted = None;
    }

    pub(super) fn on_wanted(&mut self, low: u16) {
        let oldest = self.oldest();
        self.wanted = Tick(self.unsent)
            .widen_back(low)
            .map(|step| step.0)
            .filter(|step| *step >= oldest && *step < self.unsent);
    }

    /// Returns what to send now: requested steps first, then unsent ones. A run never includes a
    /// skipped step.
    pub(super) fn take(&mut self, newest: u32) -> HashSlice {
        let oldest = self.oldest();
        let wanted = self.wanted.take().filter(|step| *step >= oldest);
        let again = wanted.and_then(|step| self.first_in(step..self.unsent));
        let Some(first) = again.or_else(|| self.first_in(self.unsent..self.end)) else {
            self.unsent = self.end;
            return HashSlice::default();
        };
        let end = if again.is_some() {
            self.end_again(first)
        } else {
            self.end
        };
        let mut run = HashSlice {
            back: newest.saturating_sub(first),
            ..HashSlice::default()
        };
        for (value, step) in run.values.iter_mut().zip(first..end) {
            let Some(hash) = self.get(step) else {
                break;
            };
            *value = hash;
            run.count = run.count.saturating_add(1);
        }
        debug_assert!(run.count <= HASHES_MAX, "as many as there are places");
        self.unsent = self.unsent.max(first.saturating_add(run.count));
        run
    }

    /// One past the last step to send again, from `first` on.
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
        self.kept.len().saturating_mul(size_of::<Option<u32>>())
    }

    fn get(&self, step: u32) -> Option<u32> {
        self.kept.get(slot(step, HASHES_KEPT)).copied().flatten()
    }

    fn set(&mut self, step: u32, hash: Option<u32>) {
        if let Some(kept) = self.kept.get_mut(slot(step, HASHES_KEPT)) {
            *kept = hash;
        }
    }

    /// First of `steps` that has a hash.
    fn first_in(&self, mut steps: Range<u32>) -> Option<u32> {
        steps.find(|step| self.get(*step).is_some())
    }

    const fn oldest(&self) -> u32 {
        self.end.saturating_sub(HASHES_KEPT)
    }
}

/// Pending questions; the server repeats those that were dropped.
const QUESTIONS_MAX: usize = 8;

/// Divergences remembered, so that repetitions, which arrive within seconds, are reported once.
const REPORTED_MAX: usize = 16;

/// Questions that wait for an answer.
#[derive(Debug)]
pub(super) struct Answers {
    waiting: VecDeque<Question>,
    /// The divergences last reported to the application.
    reported: VecDeque<(Tick, Seat)>,
}

impl Answers {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(QUESTIONS_MAX),
            reported: VecDeque::with_capacity(REPORTED_MAX),
        }
    }

    /// Queues a question, or a repetition of one; false if the queue is full.
    fn push(&mut self, question: Question) -> bool {
        if self.waiting.contains(&question) {
            return true;
        }
        let has_room = self.waiting.len() < QUESTIONS_MAX;
        if has_room {
            self.waiting.push_back(question);
        }
        has_room
    }

    /// Whether this divergence is new; marks it as reported.
    fn is_new(&mut self, tick: Tick, seat: Seat) -> bool {
        let is_new = !self.reported.contains(&(tick, seat));
        if is_new {
            if self.reported.len() >= REPORTED_MAX {
                self.reported.pop_front();
            }
            self.reported.push_back((tick, seat));
        }
        is_new
    }

    /// Heap bytes in use.
    pub(super) fn memory_len(&self) -> usize {
        let waiting = self
            .waiting
            .capacity()
            .saturating_mul(size_of::<Question>());
        let reported = self.reported.capacity();
        waiting.saturating_add(reported.saturating_mul(size_of::<(Tick, Seat)>()))
    }
}

impl<I: Input> ClientPeer<I> {
    /// Takes the state hash after the step of `tick`: the turn returned last or, with rollback, the
    /// tick that became final last. Hashes between hash steps are kept for bisection. If the
    /// state has sections, call [`report_state`](Self::report_state) instead.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick, or was already reported.
    pub fn report(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        match &mut self.state {
            State::Seated { session, .. } => session.report(tick, state_hash, None),
            State::Waiting | State::Leaving { .. } | State::Closed => Err(ReportError::OutOfOrder),
        }
    }

    /// Takes the state after the step of `tick` (as for [`report`](Self::report)), hashed by
    /// `state`: the root is compared, and the sections help to locate a desync.
    ///
    /// Report every tick, also between hash steps: a bisection finds only reported ticks.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick, or was already reported.
    pub fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        match &mut self.state {
            State::Seated { session, .. } => session.report(tick, state.finish(), Some(state)),
            State::Waiting | State::Leaving { .. } | State::Closed => Err(ReportError::OutOfOrder),
        }
    }

    pub(super) fn on_question(&mut self, question: Question) {
        let State::Seated { session, .. } = &mut self.state else {
            return;
        };
        if !session.answers.push(question) {
            self.stats.bisect_dropped = self.stats.bisect_dropped.saturating_add(1);
            return;
        }
        if let Question::Diverged {
            tick_low,
            seat,
            cause,
            section,
        } = question
            && let Some(tick) = session.next_turn().widen_back(tick_low)
            && session.answers.is_new(tick, seat)
            && self.events.len() < EVENTS_MAX
        {
            let names = session.hash_history.names();
            let section = section.and_then(|index| names.get(usize::from(index)).copied());
            self.events.push_back(ClientEvent::Diverged {
                tick,
                seat,
                cause,
                section,
            });
        }
    }

    /// Appends the answer to the oldest question; false if there is none.
    pub(super) fn write_answer(&mut self, buf: &mut Vec<u8>) -> bool {
        let State::Seated { session, .. } = &mut self.state else {
            return false;
        };
        let Some(question) = session.answers.waiting.pop_front() else {
            return false;
        };
        answer(session, question, self.config.report_len_max(), buf);
        self.stats.bisect_answers = self.stats.bisect_answers.saturating_add(1);
        true
    }
}

fn answer(session: &Session, question: Question, len_max: usize, buf: &mut Vec<u8>) {
    let hash_history = &session.hash_history;
    let widen = |low| session.next_turn().widen_back(low);
    match question {
        Question::Ticks { first_low, count } => {
            write_ticks(buf, hash_history, (widen(first_low), first_low), count);
        }
        Question::Sections { tick_low } => {
            let entry = widen(tick_low).and_then(|tick| hash_history.get(tick));
            write_sections(buf, (tick_low, len_max), entry, hash_history.names());
        }
        Question::Diverged { tick_low, seat, .. } => write_acknowledged(buf, tick_low, seat),
    }
}

#[cfg(test)]
mod tests;
