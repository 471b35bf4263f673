//! A client's state reports, and its answers when a desync is bisected.

use std::collections::VecDeque;

use wire::Seat;

use super::session::Session;
use super::{ClientPeer, EVENTS_MAX, State};
use crate::checksum::StateHasher;
use crate::event::{ClientEvent, ReportError};
use crate::input::Input;
use crate::message::{Question, write_acknowledged, write_sections, write_ticks};
use crate::tick::Tick;

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
