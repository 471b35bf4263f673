//! Who plays, and how those who stay agree on who left and when; for a mesh, and for those who choose
//! a new host.
//!
//! A *view* is a set of members. A peer that a member gives up is *suspected*, for as long as the
//! view lasts, and nothing it sends is listened to any more; so what is held of its inputs stands
//! still. A member *states* whom it suspects and how far it holds the inputs of everybody who is
//! not to stay. Suspicion spreads by statements. When all members outside a set `S` have stated
//! `S`, and they are enough, each of them may *decide*: they are the next view, and the inputs of
//! one who left count up to the largest tick that any of them stated. Whoever lacks part of them
//! asks another for it. Who hears a statement of the view before answers with the decision.
//!
//! Enough are more than half of the view's members who have not said that they go, or half with
//! the lowest seat among them.
//!
//! Why no two groups play on with different histories, whatever is lost or cut off:
//!
//! - What a member confirmed stands: it has the inputs up to what it stated, which is at most the
//!   largest; and it confirms no more of one it suspects until that is decided.
//! - All who decide the same `S` in a view decide the same ticks: each stated its own when it came
//!   to suspect `S`, and from then on only members pass such inputs on, up to the largest.
//! - Say `S` and `T` are both decided in a view. Both groups are enough, so they share a member;
//!   it stated both, so one holds the other, say `S` within `T`, and all who decided `T` had stated
//!   `S` before. None of them decided `S` (it would have left the view), nor takes that decision
//!   from one who did: all of those are in `T` and suspected. So those who decided `S` are members
//!   of `T` only, too few of the view without `S` to decide anything ever again, and they wait for
//!   inputs of the others in vain, until they end.
//! - Who said that it goes decides nothing, and says so to nobody it suspects; so leaving it out of
//!   the count changes neither that two groups share a member nor who is too few.
//!
//! One who was left out may have simulated ticks that the others closed without its inputs, as
//! many as its delay and the clock's play allow. It ends, and is told up to where its history is
//! theirs if any of them can be heard.
//!
//! What a hostile member can do: suspect others, and so end the match for those with a higher seat;
//! tell different decisions to different peers, or pass on inputs that the one who left never made.
//! The latter two make histories differ, which the compared hashes show, since they are over the
//! inputs too. It cannot do so unseen, nor write for a seat that all who stay hear.

use crate::message::{Decision, Seats, Statement, Ticks, bit};
use crate::tick::Tick;

/// One peer's part in the agreement.
#[derive(Debug)]
pub(crate) struct View {
    me: u16,
    members: Seats,
    /// Members that are given up; grows until a decision.
    suspects: Seats,
    /// Who said that it goes.
    leaving: Seats,
    /// The newest statement of each member of this view.
    stated: [Option<Statement>; 16],
    /// The decision that made this view.
    last: Option<Decision>,
    /// Decisions so far: each takes a member away, so no more than 15.
    epoch: u8,
}

/// What became of a decision that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionOutcome {
    /// It is of another view, or no honest one.
    Ignored,
    /// It made a new view.
    Installed(Decision),
    /// The others play on without us; up to this tick all that we have counts.
    Out(Tick),
}

impl View {
    pub(crate) fn new(me: u16, seats: u16) -> Self {
        Self {
            me,
            members: (0..seats).map(bit).fold(0, |all, one| all | one),
            suspects: 0,
            leaving: 0,
            stated: [None; 16],
            last: None,
            epoch: 0,
        }
    }

    /// How many views there were before.
    pub(crate) const fn epoch(&self) -> u8 {
        self.epoch
    }

    pub(crate) const fn members(&self) -> Seats {
        self.members
    }

    pub(crate) const fn suspects(&self) -> Seats {
        self.suspects
    }

    /// Members that are listened to, other than ourselves.
    pub(crate) fn others(&self) -> Seats {
        self.members & !self.suspects & !bit(self.me)
    }

    pub(crate) const fn leaving(&self) -> Seats {
        self.leaving
    }

    pub(crate) const fn last(&self) -> Option<&Decision> {
        self.last.as_ref()
    }

    /// Gives up `seats`; returns whether any was listened to.
    pub(crate) fn suspect(&mut self, seats: Seats) -> bool {
        let new = seats & self.others();
        self.suspects |= new;
        new != 0
    }

    /// Takes word of `seats` that they go; returns whether any was listened to.
    pub(crate) fn on_leaving(&mut self, seats: Seats) -> bool {
        self.leaving |= seats & self.members & !bit(self.me);
        self.suspect(self.leaving)
    }

    /// Takes a statement; returns whether whom we suspect has changed. `alive` are those whom we
    /// hear and have heard of late.
    ///
    /// Where two suspect each other and both are alive to us, the one with the lower seat stays:
    /// all who hear both choose alike, in whatever order they hear it.
    pub(crate) fn on_statement(&mut self, from: u16, statement: &Statement, alive: Seats) -> bool {
        if statement.members != self.members || self.others() & bit(from) == 0 {
            return false;
        }
        if let Some(stated) = self.stated.get_mut(usize::from(from)) {
            *stated = Some(*statement);
        }
        let mut has_changed = self.on_leaving(statement.leaving);
        for seat in 0..16 {
            if statement.suspects & !self.suspects & bit(seat) == 0 {
                continue;
            }
            let is_rather_from = alive & bit(seat) != 0 && seat < from;
            let given_up = if seat == self.me || is_rather_from {
                from
            } else {
                seat
            };
            has_changed |= self.suspect(bit(given_up));
        }
        has_changed
    }

    /// Returns what to tell the other members while anybody is suspected; `held` is the first tick
    /// that we lack of each seat.
    pub(crate) fn statement(&self, held: &Ticks) -> Option<Statement> {
        if self.suspects == 0 {
            return None;
        }
        let mut stated = *held;
        for (tick, seat) in stated.iter_mut().zip(0..) {
            if self.staying() & bit(seat) != 0 {
                *tick = Tick(0);
            }
        }
        Some(Statement {
            members: self.members,
            suspects: self.suspects,
            leaving: self.leaving,
            held: stated,
        })
    }

    /// Returns whether those we listen to and ourselves are too few to play on.
    pub(crate) const fn is_too_few(&self) -> bool {
        !self.is_enough(self.staying())
    }

    /// Returns whether `seats` are more than half of the members who have not said that they go, or
    /// half with the lowest seat among them.
    pub(crate) const fn is_enough(&self, seats: Seats) -> bool {
        let counted = self.members & !self.leaving;
        let seats = seats & counted;
        let (all, twice) = (counted.count_ones(), seats.count_ones().saturating_mul(2));
        twice > all || (twice == all && seats & lowest(counted) != 0)
    }

    /// Makes the next view, if all who stay have stated the same.
    pub(crate) fn decide(&mut self, held: &Ticks) -> Option<Decision> {
        if self.suspects == 0 || self.is_too_few() {
            return None;
        }
        let mut cuts = self.statement(held)?.held;
        for (stated, seat) in self.stated.iter().zip(0..) {
            if self.others() & bit(seat) == 0 {
                continue;
            }
            let stated = stated.filter(|stated| stated.suspects == self.suspects)?;
            for (cut, held) in cuts.iter_mut().zip(stated.held) {
                *cut = (*cut).max(held);
            }
        }
        let decision = Decision {
            members: self.members,
            next: self.staying(),
            leaving: self.leaving,
            cuts,
        };
        self.install(&decision);
        Some(decision)
    }

    /// Takes a decision of another member.
    pub(crate) fn on_decision(
        &mut self,
        from: u16,
        decision: &Decision,
        held: &Ticks,
    ) -> DecisionOutcome {
        let Decision {
            members,
            next,
            ref cuts,
            ..
        } = *decision;
        if self.others() & next & bit(from) == 0 {
            return DecisionOutcome::Ignored;
        }
        if next & bit(self.me) == 0 {
            // We may have missed the views between, or made ours of a word that its speaker went
            // beyond.
            if members & !self.members != 0 && !self.conflicts(decision) {
                return DecisionOutcome::Ignored;
            }
            // Others may have been left out before us, in such a view: of them we may have more.
            let out = (self.members | members) & !next;
            let cuts = cuts
                .iter()
                .zip(0..)
                .filter(|(_, seat)| out & bit(*seat) != 0);
            return DecisionOutcome::Out(cuts.map(|(cut, _)| *cut).min().unwrap_or_default());
        }
        // An honest one is made of our own statement too.
        let is_stated = self.members & !next & !self.suspects == 0;
        let mut kept = cuts.iter().zip(held).zip(0..);
        let is_kept = kept.all(|((cut, held), seat)| next & bit(seat) != 0 || cut >= held);
        if members != self.members || !is_stated || !is_kept {
            return DecisionOutcome::Ignored;
        }
        self.install(decision);
        DecisionOutcome::Installed(*decision)
    }

    /// Returns whether a decision without us is made of the view that ours was made of too.
    ///
    /// Whoever stated what ours is made of, and then heard one of its members no more, decides with
    /// the others: with fewer, who are enough, while we wait for them.
    pub(crate) fn conflicts(&self, decision: &Decision) -> bool {
        decision.next & bit(self.me) == 0
            && self.last.is_some_and(|last| {
                decision.members == last.members && decision.next & !last.next == 0
            })
    }

    fn install(&mut self, decision: &Decision) {
        self.members = decision.next;
        self.suspects &= decision.next;
        self.leaving |= decision.leaving & !bit(self.me);
        self.stated = [None; 16];
        self.last = Some(*decision);
        self.epoch = self.epoch.saturating_add(1);
    }

    /// Members who are not suspected.
    const fn staying(&self) -> Seats {
        self.members & !self.suspects
    }
}

/// The lowest of `seats`.
const fn lowest(seats: Seats) -> Seats {
    seats & seats.wrapping_neg()
}

#[cfg(test)]
mod tests;
