//! The search for where players began to differ: one inquiry for each player who was named.
//!
//! An inquiry compares a player with a witness: the server itself, or a player who reported what
//! most did. It asks both for the hashes of the ticks between the last hash step in which they
//! agreed and the one in which they do not, and then for the sections of the first tick that
//! differs. Then it tells both. Each is asked again until it answers, or until patience ends.

mod inquiry;
mod side;

use std::collections::VecDeque;

use wire::{Instant, Seat};

use crate::divergence::{Cause, Section};
use crate::message::{Answer, Question};
use crate::rungs::Rungs;
use crate::tick::Tick;

use inquiry::Inquiry;

/// Witnesses that an inquiry goes to, one after the other, where they do not answer.
pub(crate) const WITNESSES_MAX: usize = 3;

/// All inquiries of a match, and what the server itself knows.
#[derive(Debug)]
pub(crate) struct Ladder {
    /// The server's own hashes; empty where it does not simulate.
    pub(crate) own: Rungs,
    /// At most one for each seat.
    inquiries: Vec<Inquiry>,
    /// Most ticks of one question, so that its answer fits a datagram.
    ticks_max: u8,
    /// What was found and not yet told.
    found: VecDeque<Found>,
}

/// A player who differs, and with whom it may be compared.
#[derive(Debug)]
pub(crate) struct Suspicion {
    pub(crate) seat: Seat,
    /// What it reported of `tick`.
    pub(crate) report: u32,
    /// Tick of the hash step that differs.
    pub(crate) tick: Tick,
    /// Best first, at most [`WITNESSES_MAX`].
    pub(crate) witnesses: Vec<Witness>,
}

/// With whom a player is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    /// `None` for the server itself.
    pub(crate) seat: Option<Seat>,
    /// What it reported of the tick that differs.
    pub(crate) report: u32,
    /// First tick that may differ.
    pub(crate) first: Tick,
}

/// Where a player began to differ.
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

impl Ladder {
    /// Keeps the server's own hashes of the last `hashes_kept` ticks; asks for at most `ticks_max`
    /// at once.
    pub(crate) const fn new(hashes_kept: u16, ticks_max: u8) -> Self {
        Self {
            ticks_max,
            own: Rungs::new(hashes_kept),
            inquiries: Vec::new(),
            found: VecDeque::new(),
        }
    }

    /// Begins to search; in place of an older search for the same player.
    pub(crate) fn begin(&mut self, suspicion: Suspicion, deadline: Instant) {
        self.inquiries
            .retain(|inquiry| inquiry.seat() != suspicion.seat);
        let mut inquiry = Inquiry::new(suspicion, self.ticks_max);
        let found = inquiry.begin(&self.own, deadline);
        self.found.extend(found);
        self.inquiries.push(inquiry);
    }

    /// Has `seat` load another state when it is known where its own went wrong; false where nobody
    /// searches for that.
    pub(crate) fn reload_after(&mut self, seat: Seat) -> bool {
        let mut inquiries = self.inquiries.iter_mut();
        inquiries.any(|inquiry| inquiry.seat() == seat && inquiry.reload_after())
    }

    /// Takes an answer of `seat`; false where nobody waits for it. Stages that it ends are followed
    /// by ones that end at `deadline`.
    pub(crate) fn on_answer(&mut self, seat: Seat, answer: &Answer<'_>, deadline: Instant) -> bool {
        let mut counts = false;
        for inquiry in &mut self.inquiries {
            if inquiry.on_answer(seat, answer) {
                counts = true;
                self.found.extend(inquiry.go_on(&self.own, deadline));
            }
        }
        self.inquiries.retain(|inquiry| !inquiry.is_over());
        counts
    }

    /// Ends what has been waited for long enough at `now`, and asks again where the answer takes
    /// longer than `wait_nanos` says.
    pub(crate) fn on_tick(
        &mut self,
        now: Instant,
        deadline: Instant,
        wait_nanos: impl Fn(Seat) -> u64,
    ) {
        for inquiry in &mut self.inquiries {
            if inquiry.deadline() <= now {
                self.found.extend(inquiry.give_up(&self.own, deadline));
            }
            inquiry.ask_again(now, &wait_nanos);
        }
        self.inquiries.retain(|inquiry| !inquiry.is_over());
    }

    /// Goes on without `seat`, whose player left.
    pub(crate) fn on_left(&mut self, seat: Seat, deadline: Instant) {
        for inquiry in &mut self.inquiries {
            self.found
                .extend(inquiry.on_left(seat, &self.own, deadline));
        }
        self.inquiries.retain(|inquiry| !inquiry.is_over());
    }

    /// Returns the next question to send, and to whom.
    pub(crate) fn poll_question(&mut self, now: Instant) -> Option<(Seat, Question)> {
        self.inquiries
            .iter_mut()
            .find_map(|inquiry| inquiry.poll_question(now))
    }

    /// Returns the next divergence that was found.
    pub(crate) fn poll_found(&mut self) -> Option<Found> {
        self.found.pop_front()
    }

    /// Bytes that it holds.
    pub(crate) fn memory_len(&self) -> usize {
        let inquiries = self.inquiries.iter().map(Inquiry::memory_len).sum();
        let places = self.inquiries.capacity();
        let found = self.found.capacity().saturating_mul(size_of::<Found>());
        [
            self.own.memory_len(),
            places.saturating_mul(size_of::<Inquiry>()),
            inquiries,
            found,
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests;
