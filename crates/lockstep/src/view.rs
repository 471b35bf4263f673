//! Membership: how the remaining members of a mesh or a hosted match agree on who left, and when.
//!
//! A *view* is a set of members. A member that another one gives up is *suspected*, for as long as
//! the view lasts, and nothing it sends is accepted any more; so what is held of its inputs no
//! longer grows. A member *states* which members it suspects, and how far it holds the inputs of
//! every seat that is not to stay. Suspicion spreads by statements. When all members of a set `S`
//! have stated that they suspect all others, and they are enough, each of them may *decide*: `S` is
//! the next view, and the inputs of a removed peer count up to the largest tick that any of them
//! stated. A member that lacks part of them requests it from another. A statement of the previous
//! view is answered with the decision.
//!
//! Enough are more than half of the view's members that have not announced their leave, or half
//! including the lowest of their seats.
//!
//! Why no two groups continue with different histories, whatever is lost or cut off:
//!
//! - What a member confirmed is final: it has the inputs up to what it stated, which is at most the
//!   largest; and it confirms nothing more of a suspected peer until that is decided.
//! - All members that decide the same `S` in a view decide the same ticks: each stated its own when
//!   it began to suspect the others, and from then on such inputs are only forwarded by members, up
//!   to the largest.
//! - Let `S` and `T` both be decided in a view. Both groups are enough, so they share a member; it
//!   stated both, so one contains the other, say `S` within `T`, in terms of suspects. All members
//!   that decided `T` had stated `S` before. None of them decided `S` (it would have left the
//!   view), nor takes that decision from a peer that did: all of those are suspected under `T`. So
//!   the members that decided `S` have members of their next view that never join it. They are too
//!   few to decide anything again, and wait for the others' inputs until they end.
//! - A peer that announced its leave decides nothing, and does not announce it to peers it
//!   suspects. So not counting it changes neither that two groups share a member nor which group is
//!   too small.
//!
//! A removed peer may have simulated ticks that the others closed without its inputs. It ends, and
//! learns up to which tick it shares their history, if it can receive any of them.
//!
//! A hostile member can suspect others, and so end the match for those with a higher seat. If it
//! sends different decisions to different peers, or forwards inputs that the removed peer never
//! made, the comparison of state hashes, which cover inputs, reveals that. It cannot write for a
//! seat that all remaining members receive.

use crate::message::{Decision, Seats, Statement, Ticks, bit};
use crate::tick::Tick;

#[derive(Debug)]
pub(crate) struct View {
    me: u16,
    pub(crate) members: Seats,
    /// Members that are given up; grows until a decision.
    pub(crate) suspects: Seats,
    pub(crate) leaving: Seats,
    stated: [Option<Statement>; 16],
    pub(crate) last: Option<Decision>,
    /// Decisions so far: each removes a member, so at most 15.
    pub(crate) epoch: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionOutcome {
    /// It is of another view, or invalid.
    Ignored,
    Installed(Decision),
    /// The others continue without us; up to this tick, all that we hold counts.
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

    pub(crate) fn others(&self) -> Seats {
        self.members & !self.suspects & !bit(self.me)
    }

    pub(crate) fn suspect(&mut self, seats: Seats) -> bool {
        let new = seats & self.others();
        self.suspects |= new;
        new != 0
    }

    pub(crate) fn on_leaving(&mut self, seats: Seats) -> bool {
        self.leaving |= seats & self.members & !bit(self.me);
        self.suspect(self.leaving)
    }

    /// Returns whether our suspects changed. If two members suspect each other and both are in
    /// `alive`, recently received, the one with the lower seat stays: all members that receive both
    /// choose alike.
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

    /// Returns the statement to send while any member is suspected; `held` is the first tick that
    /// we lack of each seat.
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

    pub(crate) const fn is_too_few(&self) -> bool {
        !self.is_enough(self.staying())
    }

    /// Returns whether `seats` are more than half of the members that have not announced their
    /// leave, or half including the lowest.
    pub(crate) const fn is_enough(&self, seats: Seats) -> bool {
        let counted = self.members & !self.leaving;
        let seats = seats & counted;
        let (all, twice) = (counted.count_ones(), seats.count_ones().saturating_mul(2));
        twice > all || (twice == all && seats & lowest(counted) != 0)
    }

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
            // We may have missed views in between, or a longer statement.
            if members & !self.members != 0 && !self.conflicts(decision) {
                return DecisionOutcome::Ignored;
            }
            // Of others removed before us we may hold more.
            let out = (self.members | members) & !next;
            let cuts = cuts
                .iter()
                .zip(0..)
                .filter(|(_, seat)| out & bit(*seat) != 0);
            return DecisionOutcome::Out(cuts.map(|(cut, _)| *cut).min().unwrap_or_default());
        }
        // A valid one is based on our own statement too.
        let is_stated = self.members & !next & !self.suspects == 0;
        let mut kept = cuts.iter().zip(held).zip(0..);
        let is_kept = kept.all(|((cut, held), seat)| next & bit(seat) != 0 || cut >= held);
        if members != self.members || !is_stated || !is_kept {
            return DecisionOutcome::Ignored;
        }
        self.install(decision);
        DecisionOutcome::Installed(*decision)
    }

    /// Whether a decision without us is based on the same view as ours: its maker stated what ours
    /// is based on, then lost a member, and decides with fewer others while we wait.
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

    const fn staying(&self) -> Seats {
        self.members & !self.suspects
    }
}

const fn lowest(seats: Seats) -> Seats {
    seats & seats.wrapping_neg()
}

#[cfg(test)]
mod tests;
