//! One of the two that an inquiry compares.

use wire::{Instant, Seat};

use crate::divergence::SectionName;
use crate::message::{Answer, Question};
use crate::rungs::Rungs;
use crate::tick::Tick;

/// What is being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    /// Hashes of `count` ticks.
    Ticks { first: Tick, count: u8 },
    /// Sections of a tick.
    Sections { tick: Tick },
}

/// Who is asked, and what came of it.
#[derive(Debug)]
pub(super) struct Side {
    /// `None` for the server itself, which is not asked.
    pub(super) seat: Option<Seat>,
    /// What it reported of the tick that differs.
    pub(super) report: u32,
    pub(super) said: Option<Said>,
    /// When it was asked last.
    asked_at: Option<Instant>,
    is_due: bool,
}

/// An answer, or what the server knows itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Hash of each tick, where it is known; at most 255.
    Ticks(Vec<Option<u32>>),
    /// `None` where the tick is not kept.
    Sections(Option<Parts>),
    /// Nothing was asked but to be heard.
    Heard,
}

/// Sections of a state; at most 64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Over the log of closed ticks.
    pub(super) log: u32,
    pub(super) sections: Vec<(u32, SectionName)>,
}

impl Side {
    pub(super) const fn new(seat: Option<Seat>, report: u32) -> Self {
        Self {
            seat,
            report,
            said: None,
            asked_at: None,
            is_due: false,
        }
    }

    /// Is asked about `topic` from now on.
    pub(super) fn ask(&mut self, topic: Topic, own: &Rungs) {
        self.said = None;
        self.asked_at = None;
        self.is_due = self.seat.is_some();
        if self.seat.is_none() {
            self.said = Some(known(topic, own));
        }
    }

    /// Is told of the end from now on.
    pub(super) fn tell(&mut self) {
        self.said = self.seat.is_none().then_some(Said::Heard);
        self.asked_at = None;
        self.is_due = self.seat.is_some();
    }

    /// Waits for no word of it any more.
    pub(super) fn dismiss(&mut self) {
        self.said = Some(Said::Heard);
        self.is_due = false;
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.said.is_none()
    }

    /// Keeps what answers `topic`; false where it does not, or contradicts what was reported of
    /// `tick`.
    pub(super) fn on_answer(&mut self, topic: Topic, tick: Tick, answer: &Answer<'_>) -> bool {
        let said = match (topic, answer) {
            (Topic::Ticks { first, count }, Answer::Ticks(ticks)) => {
                let hashes: Vec<_> = ticks.iter().collect();
                let differing = usize::try_from(tick.since(first)).ok();
                let hash = differing.and_then(|index| hashes.get(index).copied());
                let is_true = tick < first || hash.is_none_or(|hash| hash == Some(self.report));
                let is_asked = ticks.first_low == first.low() && ticks.count == count;
                (is_asked && is_true).then_some(Said::Ticks(hashes))
            }
            (Topic::Sections { tick }, Answer::Sections { tick_low, known }) => {
                let parts = known.map(|known| Parts {
                    log: known.log,
                    sections: known.iter().collect(),
                });
                (*tick_low == tick.low()).then_some(Said::Sections(parts))
            }
            _ => None,
        };
        self.take(said)
    }

    /// Takes note that it heard of the end.
    pub(super) fn on_heard(&mut self) -> bool {
        self.take(Some(Said::Heard))
    }

    /// Asks again at `now` where the answer has taken longer than `wait_nanos`.
    pub(super) fn ask_again(&mut self, now: Instant, wait_nanos: impl Fn(Seat) -> u64) {
        if let (None, Some(at), Some(seat)) = (&self.said, self.asked_at, self.seat)
            && now.as_nanos().saturating_sub(at.as_nanos()) >= wait_nanos(seat)
        {
            self.is_due = true;
        }
    }

    /// Returns whom to send `question` now.
    pub(super) fn poll(&mut self, now: Instant, question: Question) -> Option<(Seat, Question)> {
        let seat = self.seat.filter(|_| self.is_due)?;
        self.is_due = false;
        self.asked_at = Some(now);
        Some((seat, question))
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        match &self.said {
            Some(Said::Ticks(ticks)) => ticks.capacity().saturating_mul(size_of::<Option<u32>>()),
            Some(Said::Sections(Some(parts))) => parts
                .sections
                .capacity()
                .saturating_mul(size_of::<(u32, SectionName)>()),
            Some(Said::Sections(None) | Said::Heard) | None => 0,
        }
    }

    fn take(&mut self, said: Option<Said>) -> bool {
        let counts = self.said.is_none() && said.is_some();
        if counts {
            self.said = said;
            self.is_due = false;
        }
        counts
    }
}

/// What the server itself answers.
fn known(topic: Topic, own: &Rungs) -> Said {
    match topic {
        Topic::Ticks { first, count } => {
            let ticks = (0..count).map(|index| first.plus(index.into()));
            Said::Ticks(ticks.map(|tick| Some(own.get(tick)?.report)).collect())
        }
        Topic::Sections { tick } => Said::Sections(own.get(tick).map(|rung| {
            let names = own.names().iter().copied().chain(core::iter::repeat(""));
            let sections = rung.sections.iter().zip(names);
            let sections = sections
                .map(|(hash, name)| (*hash, SectionName::shortened(name, SectionName::LEN_MAX)));
            Parts {
                log: rung.log,
                sections: sections.collect(),
            }
        })),
    }
}
