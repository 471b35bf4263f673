//! One player's search.

use wire::{Instant, Seat};

use super::side::{Parts, Said, Side, Topic};
use super::{Found, Suspicion, Witness};
use crate::divergence::{Cause, Section};
use crate::message::{Answer, Question};
use crate::rungs::Rungs;
use crate::tick::Tick;

/// A player who differs, and what has been found out so far.
#[derive(Debug)]
pub(super) struct Inquiry {
    seat: Seat,
    /// Who holds it.
    player: Side,
    /// Whom it is compared with.
    witness: Side,
    /// Those who come next, the best last.
    others: Vec<Witness>,
    /// Tick of the hash step that differs.
    tick: Tick,
    /// First tick that may differ.
    first: Tick,
    /// First tick that is known to differ.
    found: Tick,
    stage: Stage,
    /// Whether the player loads another state when this one ends.
    then_reload: bool,
    /// Most ticks of one question.
    ticks_max: u8,
    /// When the stage ends at the latest.
    deadline: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Asking(Topic),
    /// Both are told what was found.
    Telling(Found),
    Over,
}

impl Inquiry {
    pub(super) fn new(suspicion: Suspicion, ticks_max: u8) -> Self {
        let mut others = suspicion.witnesses;
        others.reverse();
        Self {
            seat: suspicion.seat,
            player: Side::new(Some(suspicion.seat), suspicion.report),
            witness: Side::new(None, 0),
            others,
            tick: suspicion.tick,
            first: suspicion.tick,
            found: suspicion.tick,
            stage: Stage::Over,
            then_reload: false,
            ticks_max,
            deadline: Instant::ZERO,
        }
    }

    /// Begins with the next witness; where there is none, ends.
    pub(super) fn begin(&mut self, own: &Rungs, deadline: Instant) -> Option<Found> {
        self.found = self.tick;
        let Some(witness) = self.others.pop() else {
            return Some(self.conclude(Cause::Unknown, None, deadline));
        };
        self.witness = Side::new(witness.seat, witness.report);
        self.first = witness.first;
        if self.first < self.tick {
            self.ask_before(self.tick.plus(1), own, deadline);
        } else {
            self.ask(Topic::Sections { tick: self.tick }, own, deadline);
        }
        self.go_on(own, deadline)
    }

    /// Takes an answer; false where it is not waited for.
    pub(super) fn on_answer(&mut self, seat: Seat, answer: &Answer<'_>) -> bool {
        let (stage, tick) = (self.stage, self.tick);
        let mut counts = false;
        for side in [&mut self.player, &mut self.witness] {
            if side.seat != Some(seat) {
                continue;
            }
            counts |= match (stage, answer) {
                (Stage::Asking(topic), _) => side.on_answer(topic, tick, answer),
                (Stage::Telling(found), Answer::Heard { tick_low, seat }) => {
                    *tick_low == found.tick.low() && *seat == found.seat && side.on_heard()
                }
                (Stage::Telling(_) | Stage::Over, _) => false,
            };
        }
        counts
    }

    /// Goes to the next stages, as far as both have answered.
    ///
    /// Ends: each turn of the loop goes to earlier ticks, to a later stage, or to another witness.
    pub(super) fn go_on(&mut self, own: &Rungs, deadline: Instant) -> Option<Found> {
        while !(self.player.is_waiting() || self.witness.is_waiting()) {
            match (
                self.stage,
                self.player.said.take(),
                self.witness.said.take(),
            ) {
                (
                    Stage::Asking(Topic::Ticks { first, .. }),
                    Some(Said::Ticks(one)),
                    Some(Said::Ticks(other)),
                ) => self.compare_ticks(first, (&one, &other), own, deadline),
                (Stage::Asking(_), Some(Said::Sections(one)), Some(Said::Sections(other))) => {
                    let (cause, section) = match (one, other) {
                        (Some(one), Some(other)) => compare_sections(&one, &other),
                        (Some(_), None) if !self.others.is_empty() => {
                            return self.begin(own, deadline);
                        }
                        _ => (Cause::Unknown, None),
                    };
                    return Some(self.conclude(cause, section, deadline));
                }
                _ => {
                    self.stage = Stage::Over;
                    return None;
                }
            }
        }
        None
    }

    /// Ends a stage in which somebody did not answer: takes another witness where it was the
    /// witness alone.
    pub(super) fn give_up(&mut self, own: &Rungs, deadline: Instant) -> Option<Found> {
        match self.stage {
            Stage::Asking(_) if !self.player.is_waiting() && !self.others.is_empty() => {
                self.begin(own, deadline)
            }
            Stage::Asking(_) => Some(self.conclude(Cause::Unknown, None, deadline)),
            Stage::Telling(_) | Stage::Over => {
                self.stage = Stage::Over;
                None
            }
        }
    }

    /// Goes on without `seat`: an inquiry about it ends, one that asks it takes another witness.
    pub(super) fn on_left(&mut self, seat: Seat, own: &Rungs, deadline: Instant) -> Option<Found> {
        self.others.retain(|witness| witness.seat != Some(seat));
        let is_player = self.seat == seat;
        if !is_player && self.witness.seat != Some(seat) {
            return None;
        }
        let mut found = None;
        if matches!(self.stage, Stage::Asking(_)) {
            if !is_player && !self.others.is_empty() {
                return self.begin(own, deadline);
            }
            found = Some(self.conclude(Cause::Unknown, None, deadline));
        }
        let side = if is_player {
            &mut self.player
        } else {
            &mut self.witness
        };
        side.dismiss();
        // It is over where nobody else is to be told.
        let other = self.go_on(own, deadline);
        found.or(other)
    }

    /// Asks those again who have not answered in the time that an answer takes.
    pub(super) fn ask_again(&mut self, now: Instant, wait_nanos: impl Fn(Seat) -> u64) {
        for side in [&mut self.player, &mut self.witness] {
            side.ask_again(now, &wait_nanos);
        }
    }

    pub(super) fn poll_question(&mut self, now: Instant) -> Option<(Seat, Question)> {
        let question = match self.stage {
            Stage::Asking(Topic::Ticks { first, count }) => Question::Ticks {
                first_low: first.low(),
                count,
            },
            Stage::Asking(Topic::Sections { tick }) => Question::Sections {
                tick_low: tick.low(),
            },
            Stage::Telling(found) => Question::Diverged {
                tick_low: found.tick.low(),
                seat: found.seat,
                cause: found.cause,
                section: found.section.map(|section| section.index),
            },
            Stage::Over => return None,
        };
        let first = self.player.poll(now, question);
        first.or_else(|| self.witness.poll(now, question))
    }

    /// Has the player load another state in the end; false where the end has come.
    pub(super) const fn reload_after(&mut self) -> bool {
        self.then_reload = matches!(self.stage, Stage::Asking(_));
        self.then_reload
    }

    pub(super) const fn seat(&self) -> Seat {
        self.seat
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        let witnesses = self.others.capacity();
        self.player
            .memory_len()
            .saturating_add(self.witness.memory_len())
            .saturating_add(witnesses.saturating_mul(size_of::<Witness>()))
    }

    /// Asks for the last ticks before `end` that may differ.
    fn ask_before(&mut self, end: Tick, own: &Rungs, deadline: Instant) {
        let first = end.minus(self.ticks_max.into()).max(self.first);
        let count = u8::try_from(end.since(first)).unwrap_or(self.ticks_max);
        self.ask(Topic::Ticks { first, count }, own, deadline);
    }

    fn ask(&mut self, topic: Topic, own: &Rungs, deadline: Instant) {
        self.stage = Stage::Asking(topic);
        self.deadline = deadline;
        self.player.ask(topic, own);
        self.witness.ask(topic, own);
    }

    fn compare_ticks(
        &mut self,
        first: Tick,
        (one, other): (&[Option<u32>], &[Option<u32>]),
        own: &Rungs,
        deadline: Instant,
    ) {
        let mut is_bounded = false;
        for (index, pair) in (0..).zip(one.iter().zip(other)) {
            let (Some(one), Some(other)) = pair else {
                continue;
            };
            if one != other {
                self.found = first.plus(index);
                break;
            }
            is_bounded = true;
        }
        // With no equal tick before it, earlier ones may differ too.
        if is_bounded || first <= self.first {
            self.ask(Topic::Sections { tick: self.found }, own, deadline);
        } else {
            self.ask_before(first, own, deadline);
        }
    }

    /// Has both told, and returns what is to be told.
    fn conclude(&mut self, cause: Cause, section: Option<Section>, deadline: Instant) -> Found {
        let found = Found {
            seat: self.seat,
            against: self.witness.seat,
            tick: self.found,
            cause,
            section,
            then_reload: self.then_reload,
        };
        self.stage = Stage::Telling(found);
        self.deadline = deadline;
        self.player.tell();
        self.witness.tell();
        found
    }
}

fn compare_sections(one: &Parts, other: &Parts) -> (Cause, Option<Section>) {
    if one.log != other.log {
        return (Cause::Inputs, None);
    }
    let (mine, theirs) = (&one.sections, &other.sections);
    if mine.is_empty() || theirs.is_empty() {
        return (Cause::State, None);
    }
    let pairs = mine.iter().zip(theirs);
    let equal = pairs.take_while(|(one, other)| one.0 == other.0).count();
    // The witness's name, and where it has no such section, the player's.
    let name = theirs.get(equal).or_else(|| mine.get(equal));
    let section = name.and_then(|(_, name)| {
        let index = u8::try_from(equal).ok()?;
        Some(Section { index, name: *name })
    });
    (Cause::State, section)
}
