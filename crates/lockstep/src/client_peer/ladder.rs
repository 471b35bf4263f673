//! A client's reports, and what it says of them when they were found to differ.

use std::collections::VecDeque;

use wire::Seat;

use super::session::Session;
use super::{ClientPeer, EVENTS_MAX, State};
use crate::checksum::StateHasher;
use crate::event::{ClientEvent, ReportError};
use crate::input::Input;
use crate::message::{Question, write_heard, write_sections, write_ticks};
use crate::tick::Tick;

/// Questions that may wait for their answers; the server asks again what was dropped.
const QUESTIONS_MAX: usize = 8;

/// Divergences that are remembered, so that none is told twice; repetitions come within seconds.
const TOLD_MAX: usize = 16;

/// Questions that wait for their answers.
#[derive(Debug)]
pub(super) struct Answers {
    waiting: VecDeque<Question>,
    /// Divergences that the application was told of last.
    told: VecDeque<(Tick, Seat)>,
}

impl Answers {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(QUESTIONS_MAX),
            told: VecDeque::with_capacity(TOLD_MAX),
        }
    }

    /// Takes a question, or a second copy of one; false where too many wait.
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

    /// Whether the application was not told of this yet; from now on it was.
    fn is_news(&mut self, tick: Tick, seat: Seat) -> bool {
        let is_news = !self.told.contains(&(tick, seat));
        if is_news {
            if self.told.len() >= TOLD_MAX {
                self.told.pop_front();
            }
            self.told.push_back((tick, seat));
        }
        is_news
    }

    /// Bytes that it holds.
    pub(super) fn memory_len(&self) -> usize {
        let waiting = self
            .waiting
            .capacity()
            .saturating_mul(size_of::<Question>());
        let told = self.told.capacity();
        waiting.saturating_add(told.saturating_mul(size_of::<(Tick, Seat)>()))
    }
}

impl<I: Input> ClientPeer<I> {
    /// Takes the state hash after the step of `tick`: the turn returned last, or with rollback the
    /// tick that became final last. Those between hash steps are kept, for a server that asks where
    /// a desync began. A game whose state has sections calls [`report_state`](Self::report_state) instead.
    ///
    /// # Errors
    ///
    /// [`ReportError`] where it is of another tick, or was reported.
    pub fn report(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        match &mut self.state {
            State::Seated { session, .. } => session.report(tick, state_hash, None),
            State::Waiting | State::Leaving { .. } | State::Closed => Err(ReportError::OutOfOrder),
        }
    }

    /// Takes the state after the step of `tick` (as for [`report`](Self::report)), as `state` hashed it: its
    /// root for the comparison, its sections to find where a desync began.
    ///
    /// Report every tick, also those between hash steps: what is not reported cannot be found.
    ///
    /// # Errors
    ///
    /// [`ReportError`] where it is of another tick, or was reported.
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
            self.stats.ladder_dropped = self.stats.ladder_dropped.saturating_add(1);
            return;
        }
        if let Question::Diverged {
            tick_low,
            seat,
            cause,
            section,
        } = question
            && let Some(tick) = session.next_turn().widen_back(tick_low)
            && session.answers.is_news(tick, seat)
            && self.events.len() < EVENTS_MAX
        {
            let names = session.rungs.names();
            let section = section.and_then(|index| names.get(usize::from(index)).copied());
            self.events.push_back(ClientEvent::Diverged {
                tick,
                seat,
                cause,
                section,
            });
        }
    }

    /// Appends the answer to the oldest question; false where there is none.
    pub(super) fn write_answer(&mut self, buf: &mut Vec<u8>) -> bool {
        let State::Seated { session, .. } = &mut self.state else {
            return false;
        };
        let Some(question) = session.answers.waiting.pop_front() else {
            return false;
        };
        answer(session, question, self.config.report_len_max(), buf);
        self.stats.ladder_answers = self.stats.ladder_answers.saturating_add(1);
        true
    }
}

fn answer(session: &Session, question: Question, len_max: usize, buf: &mut Vec<u8>) {
    let rungs = &session.rungs;
    let widen = |low| session.next_turn().widen_back(low);
    match question {
        Question::Ticks { first_low, count } => {
            write_ticks(buf, rungs, (widen(first_low), first_low), count);
        }
        Question::Sections { tick_low } => {
            let rung = widen(tick_low).and_then(|tick| rungs.get(tick));
            write_sections(buf, (tick_low, len_max), rung, rungs.names());
        }
        Question::Diverged { tick_low, seat, .. } => write_heard(buf, tick_low, seat),
    }
}
