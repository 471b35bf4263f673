//! Bisects desyncs: one inquiry per player found wrong.
//!
//! An inquiry compares a player with a witness: the server, or a player whose hash was in the
//! majority. It asks both for the hashes of the ticks since the last matching hash step, then for
//! the sections of the first differing tick, and notifies both.

use std::collections::VecDeque;

use wire::{Instant, Seat};

use crate::event::{Cause, Section, SectionName};
use crate::hash_history::HashHistory;
use crate::message::{Answer, Question};
use crate::tick::Tick;

pub(crate) const WITNESSES_MAX: usize = 3;

/// All inquiries of a match, and the server's own history.
#[derive(Debug)]
pub(crate) struct DesyncBisect {
    /// The server's own hashes; empty if it does not simulate.
    pub(crate) own: HashHistory,
    inquiries: Vec<Inquiry>,
    /// Most ticks of one question, so that the answer fits a datagram.
    ticks_max: u8,
    found: VecDeque<Found>,
}

/// A player that differs, and its possible witnesses.
#[derive(Debug)]
pub(crate) struct DesyncReport {
    pub(crate) seat: Seat,
    pub(crate) report: u32,
    pub(crate) tick: Tick,
    /// Best first, at most [`WITNESSES_MAX`].
    pub(crate) witnesses: Vec<Witness>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    /// `None` for the server.
    pub(crate) seat: Option<Seat>,
    pub(crate) report: u32,
    /// First tick that may differ.
    pub(crate) first: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) seat: Seat,
    pub(crate) against: Option<Seat>,
    pub(crate) tick: Tick,
    pub(crate) cause: Cause,
    pub(crate) section: Option<Section>,
    /// Whether the player loads another state now.
    pub(crate) then_reload: bool,
}

impl DesyncBisect {
    /// Keeps the server's own hashes of the last `hashes_kept` ticks; one question asks for at most
    /// `ticks_max`.
    pub(crate) const fn new(hashes_kept: u16, ticks_max: u8) -> Self {
        Self {
            ticks_max,
            own: HashHistory::new(hashes_kept),
            inquiries: Vec::new(),
            found: VecDeque::new(),
        }
    }

    pub(crate) fn begin(&mut self, suspicion: DesyncReport, deadline: Instant) {
        self.inquiries
            .retain(|inquiry| inquiry.seat != suspicion.seat);
        let mut inquiry = Inquiry::new(suspicion, self.ticks_max);
        let found = inquiry.begin(&self.own, deadline);
        self.found.extend(found);
        self.inquiries.push(inquiry);
    }

    pub(crate) fn reload_after(&mut self, seat: Seat) -> bool {
        let mut inquiries = self.inquiries.iter_mut();
        inquiries.any(|inquiry| inquiry.seat == seat && inquiry.reload_after())
    }

    /// Handles an answer of `seat`; false if none was expected. Following stages end at `deadline`.
    pub(crate) fn on_answer(&mut self, seat: Seat, answer: &Answer<'_>, deadline: Instant) -> bool {
        let mut counts = false;
        for inquiry in &mut self.inquiries {
            if inquiry.on_answer(seat, answer) {
                counts = true;
                self.found.extend(inquiry.advance(&self.own, deadline));
            }
        }
        self.inquiries.retain(|inquiry| !inquiry.is_over());
        counts
    }

    pub(crate) fn on_tick(
        &mut self,
        now: Instant,
        deadline: Instant,
        wait_nanos: impl Fn(Seat) -> u64,
    ) {
        for inquiry in &mut self.inquiries {
            if inquiry.deadline <= now {
                self.found.extend(inquiry.give_up(&self.own, deadline));
            }
            inquiry.ask_again(now, &wait_nanos);
        }
        self.inquiries.retain(|inquiry| !inquiry.is_over());
    }

    pub(crate) fn on_left(&mut self, seat: Seat, deadline: Instant) {
        for inquiry in &mut self.inquiries {
            self.found
                .extend(inquiry.on_left(seat, &self.own, deadline));
        }
        self.inquiries.retain(|inquiry| !inquiry.is_over());
    }

    pub(crate) fn poll_question(&mut self, now: Instant) -> Option<(Seat, Question)> {
        self.inquiries
            .iter_mut()
            .find_map(|inquiry| inquiry.poll_question(now))
    }

    pub(crate) fn poll_found(&mut self) -> Option<Found> {
        self.found.pop_front()
    }

    pub(crate) fn memory_len(&self) -> usize {
        let inquiries = self.inquiries.iter().map(Inquiry::memory_len).sum();
        let slots = self.inquiries.capacity();
        let found = self.found.capacity().saturating_mul(size_of::<Found>());
        [
            self.own.memory_len(),
            slots.saturating_mul(size_of::<Inquiry>()),
            inquiries,
            found,
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    Ticks { first: Tick, count: u8 },
    Sections { tick: Tick },
}

#[derive(Debug)]
struct Side {
    /// `None` for the server, which is not asked.
    seat: Option<Seat>,
    report: u32,
    given: Option<SideAnswer>,
    asked_at: Option<Instant>,
    is_due: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SideAnswer {
    /// Hash of each tick, if known; at most 255.
    Ticks(Vec<Option<u32>>),
    /// `None` if the tick is not kept.
    Sections(Option<Parts>),
    Acknowledged,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    log: u32,
    sections: Vec<(u32, SectionName)>,
}

impl Side {
    const fn new(seat: Option<Seat>, report: u32) -> Self {
        Self {
            seat,
            report,
            given: None,
            asked_at: None,
            is_due: false,
        }
    }

    fn ask(&mut self, topic: Topic, own: &HashHistory) {
        self.given = None;
        self.asked_at = None;
        self.is_due = self.seat.is_some();
        if self.seat.is_none() {
            self.given = Some(known(topic, own));
        }
    }

    fn notify(&mut self) {
        self.given = self.seat.is_none().then_some(SideAnswer::Acknowledged);
        self.asked_at = None;
        self.is_due = self.seat.is_some();
    }

    fn stop_waiting(&mut self) {
        self.given = Some(SideAnswer::Acknowledged);
        self.is_due = false;
    }

    const fn is_waiting(&self) -> bool {
        self.given.is_none()
    }

    /// False if it is no answer to `topic`, or contradicts the reported hash.
    fn on_answer(&mut self, topic: Topic, tick: Tick, answer: &Answer<'_>) -> bool {
        let given = match (topic, answer) {
            (Topic::Ticks { first, count }, Answer::Ticks(ticks)) => {
                let hashes: Vec<_> = ticks.iter().collect();
                let differing = usize::try_from(tick.since(first)).ok();
                let hash = differing.and_then(|index| hashes.get(index).copied());
                let is_true = tick < first || hash.is_none_or(|hash| hash == Some(self.report));
                let is_asked = ticks.first_low == first.low() && ticks.count == count;
                (is_asked && is_true).then_some(SideAnswer::Ticks(hashes))
            }
            (Topic::Sections { tick }, Answer::Sections { tick_low, known }) => {
                let parts = known.map(|known| Parts {
                    log: known.log,
                    sections: known.iter().collect(),
                });
                (*tick_low == tick.low()).then_some(SideAnswer::Sections(parts))
            }
            _ => None,
        };
        self.take(given)
    }

    fn on_acknowledged(&mut self) -> bool {
        self.take(Some(SideAnswer::Acknowledged))
    }

    fn ask_again(&mut self, now: Instant, wait_nanos: impl Fn(Seat) -> u64) {
        if let (None, Some(at), Some(seat)) = (&self.given, self.asked_at, self.seat)
            && now.as_nanos().saturating_sub(at.as_nanos()) >= wait_nanos(seat)
        {
            self.is_due = true;
        }
    }

    fn poll(&mut self, now: Instant, question: Question) -> Option<(Seat, Question)> {
        let seat = self.seat.filter(|_| self.is_due)?;
        self.is_due = false;
        self.asked_at = Some(now);
        Some((seat, question))
    }

    const fn memory_len(&self) -> usize {
        match &self.given {
            Some(SideAnswer::Ticks(ticks)) => {
                ticks.capacity().saturating_mul(size_of::<Option<u32>>())
            }
            Some(SideAnswer::Sections(Some(parts))) => parts
                .sections
                .capacity()
                .saturating_mul(size_of::<(u32, SectionName)>()),
            Some(SideAnswer::Sections(None) | SideAnswer::Acknowledged) | None => 0,
        }
    }

    fn take(&mut self, given: Option<SideAnswer>) -> bool {
        let counts = self.given.is_none() && given.is_some();
        if counts {
            self.given = given;
            self.is_due = false;
        }
        counts
    }
}

fn known(topic: Topic, own: &HashHistory) -> SideAnswer {
    match topic {
        Topic::Ticks { first, count } => {
            let ticks = (0..count).map(|index| first.plus(index.into()));
            SideAnswer::Ticks(ticks.map(|tick| Some(own.get(tick)?.report)).collect())
        }
        Topic::Sections { tick } => SideAnswer::Sections(own.get(tick).map(|entry| {
            let names = own.names.iter().copied().chain(core::iter::repeat(""));
            let sections = entry.sections.iter().zip(names);
            let sections = sections
                .map(|(hash, name)| (*hash, SectionName::shortened(name, SectionName::LEN_MAX)));
            Parts {
                log: entry.log,
                sections: sections.collect(),
            }
        })),
    }
}

#[derive(Debug)]
struct Inquiry {
    seat: Seat,
    player: Side,
    witness: Side,
    /// Further witnesses, best last.
    others: Vec<Witness>,
    tick: Tick,
    /// First tick that may differ.
    first: Tick,
    /// First tick known to differ.
    found: Tick,
    stage: InquiryState,
    then_reload: bool,
    ticks_max: u8,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug)]
enum InquiryState {
    Asking(Topic),
    /// Both are notified of the result.
    Notifying(Found),
    Over,
}

impl Inquiry {
    fn new(suspicion: DesyncReport, ticks_max: u8) -> Self {
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
            stage: InquiryState::Over,
            then_reload: false,
            ticks_max,
            deadline: Instant::ZERO,
        }
    }

    fn begin(&mut self, own: &HashHistory, deadline: Instant) -> Option<Found> {
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
        self.advance(own, deadline)
    }

    fn on_answer(&mut self, seat: Seat, answer: &Answer<'_>) -> bool {
        let (stage, tick) = (self.stage, self.tick);
        let mut counts = false;
        for side in [&mut self.player, &mut self.witness] {
            if side.seat != Some(seat) {
                continue;
            }
            counts |= match (stage, answer) {
                (InquiryState::Asking(topic), _) => side.on_answer(topic, tick, answer),
                (InquiryState::Notifying(found), Answer::Acknowledged { tick_low, seat }) => {
                    *tick_low == found.tick.low() && *seat == found.seat && side.on_acknowledged()
                }
                (InquiryState::Notifying(_) | InquiryState::Over, _) => false,
            };
        }
        counts
    }

    /// Moves to the next stages, as far as both have answered. Each iteration moves to earlier
    /// ticks, a later stage, or another witness.
    fn advance(&mut self, own: &HashHistory, deadline: Instant) -> Option<Found> {
        while !(self.player.is_waiting() || self.witness.is_waiting()) {
            match (
                self.stage,
                self.player.given.take(),
                self.witness.given.take(),
            ) {
                (
                    InquiryState::Asking(Topic::Ticks { first, .. }),
                    Some(SideAnswer::Ticks(one)),
                    Some(SideAnswer::Ticks(other)),
                ) => self.compare_ticks(first, (&one, &other), own, deadline),
                (
                    InquiryState::Asking(_),
                    Some(SideAnswer::Sections(one)),
                    Some(SideAnswer::Sections(other)),
                ) => {
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
                    self.stage = InquiryState::Over;
                    return None;
                }
            }
        }
        None
    }

    /// Ends a stage without an answer: tries another witness if only the witness was silent.
    fn give_up(&mut self, own: &HashHistory, deadline: Instant) -> Option<Found> {
        match self.stage {
            InquiryState::Asking(_) if !self.player.is_waiting() && !self.others.is_empty() => {
                self.begin(own, deadline)
            }
            InquiryState::Asking(_) => Some(self.conclude(Cause::Unknown, None, deadline)),
            InquiryState::Notifying(_) | InquiryState::Over => {
                self.stage = InquiryState::Over;
                None
            }
        }
    }

    /// Continues without `seat`: an inquiry about it ends, one with it as witness tries another.
    fn on_left(&mut self, seat: Seat, own: &HashHistory, deadline: Instant) -> Option<Found> {
        self.others.retain(|witness| witness.seat != Some(seat));
        let is_player = self.seat == seat;
        if !is_player && self.witness.seat != Some(seat) {
            return None;
        }
        let mut found = None;
        if matches!(self.stage, InquiryState::Asking(_)) {
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
        side.stop_waiting();
        // Over if no other side has to be notified.
        let other = self.advance(own, deadline);
        found.or(other)
    }

    fn ask_again(&mut self, now: Instant, wait_nanos: impl Fn(Seat) -> u64) {
        for side in [&mut self.player, &mut self.witness] {
            side.ask_again(now, &wait_nanos);
        }
    }

    fn poll_question(&mut self, now: Instant) -> Option<(Seat, Question)> {
        let question = match self.stage {
            InquiryState::Asking(Topic::Ticks { first, count }) => Question::Ticks {
                first_low: first.low(),
                count,
            },
            InquiryState::Asking(Topic::Sections { tick }) => Question::Sections {
                tick_low: tick.low(),
            },
            InquiryState::Notifying(found) => Question::Diverged {
                tick_low: found.tick.low(),
                seat: found.seat,
                cause: found.cause,
                section: found.section.map(|section| section.index),
            },
            InquiryState::Over => return None,
        };
        let first = self.player.poll(now, question);
        first.or_else(|| self.witness.poll(now, question))
    }

    const fn reload_after(&mut self) -> bool {
        self.then_reload = matches!(self.stage, InquiryState::Asking(_));
        self.then_reload
    }

    const fn is_over(&self) -> bool {
        matches!(self.stage, InquiryState::Over)
    }

    const fn memory_len(&self) -> usize {
        let witnesses = self.others.capacity();
        self.player
            .memory_len()
            .saturating_add(self.witness.memory_len())
            .saturating_add(witnesses.saturating_mul(size_of::<Witness>()))
    }

    fn ask_before(&mut self, end: Tick, own: &HashHistory, deadline: Instant) {
        let first = end.minus(self.ticks_max.into()).max(self.first);
        let count = u8::try_from(end.since(first)).unwrap_or(self.ticks_max);
        self.ask(Topic::Ticks { first, count }, own, deadline);
    }

    fn ask(&mut self, topic: Topic, own: &HashHistory, deadline: Instant) {
        self.stage = InquiryState::Asking(topic);
        self.deadline = deadline;
        self.player.ask(topic, own);
        self.witness.ask(topic, own);
    }

    fn compare_ticks(
        &mut self,
        first: Tick,
        (one, other): (&[Option<u32>], &[Option<u32>]),
        own: &HashHistory,
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
        // Without a matching tick before it, earlier ones may differ too.
        if is_bounded || first <= self.first {
            self.ask(Topic::Sections { tick: self.found }, own, deadline);
        } else {
            self.ask_before(first, own, deadline);
        }
    }

    fn conclude(&mut self, cause: Cause, section: Option<Section>, deadline: Instant) -> Found {
        let found = Found {
            seat: self.seat,
            against: self.witness.seat,
            tick: self.found,
            cause,
            section,
            then_reload: self.then_reload,
        };
        self.stage = InquiryState::Notifying(found);
        self.deadline = deadline;
        self.player.notify();
        self.witness.notify();
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
    // Use the witness's section name or, if it has none, the player's.
    let name = theirs.get(equal).or_else(|| mine.get(equal));
    let section = name.and_then(|(_, name)| {
        let index = u8::try_from(equal).ok()?;
        Some(Section { index, name: *name })
    });
    (Cause::State, section)
}

#[cfg(test)]
mod tests;
