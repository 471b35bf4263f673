//! State hashes of all players, compared step by step.
//!
//! A step is *settled* in order: at once where the server's own hash is known, else when every
//! player who is waited for has reported it, or when it has been waited for long enough. What comes
//! for a settled step is judged as it comes. Each player's hashes are judged in order, so that the
//! first that differs is the one that is named; where one is missing, and a later one shows that
//! something is wrong, it is not waited for.

mod column;
mod early;
mod verdict;
mod witness;

use wire::{Instant, Seat};

use crate::event::Verdict;

use column::Column;

/// Hash steps that are kept for comparison, settled or not.
const STEPS: u32 = 1_024;

/// Of these, how many are settled and wait for the hashes of players behind.
const SETTLED: u32 = 512;

/// Every player's hashes of the last steps.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// One for each seat.
    columns: Vec<Column>,
    /// The server's own.
    server: Column,
    /// First step not yet settled.
    next: u32,
    /// First step that is still waited for.
    overdue: u32,
    /// All steps before it are settled with what is there: everybody reported it, and not alike.
    early: u32,
    /// Whether there is such a step, ever.
    haste: Haste,
    counts: Counts,
}

/// What a divergence is told by, where hashes were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// The first step that differs, however long it is waited for: nobody looks for it later.
    First,
    /// The first one that can be judged.
    Early,
}

/// What was compared so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Players' hashes.
    pub(crate) compared: u64,
    /// Players' hashes that did not come in time.
    pub(crate) missing: u64,
}

/// A step in which not all hashes were equal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    pub(crate) step: u32,
    pub(crate) seats: Vec<Seat>,
    pub(crate) verdict: Verdict,
}

/// What comparing came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Some differ.
    Differs(Divergence),
    /// A player let `step` be waited for in vain.
    Silent { seat: Seat, step: u32 },
}

/// A step that was settled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) finding: Option<Finding>,
}

impl Ledger {
    pub(crate) fn new(seats: u16, haste: Haste) -> Self {
        Self {
            haste,
            columns: (0..seats).map(|_| Column::new()).collect(),
            server: Column::new(),
            next: 0,
            overdue: 0,
            early: 0,
            counts: Counts::default(),
        }
    }

    /// Begins with `step`: what was before is not compared.
    pub(crate) const fn begin_at(&mut self, step: u32) {
        self.next = step;
        self.overdue = step;
    }

    /// Has `seat` take part from now on.
    pub(crate) fn admit(&mut self, seat: Seat) {
        if let Some(column) = self.column_mut(seat) {
            column.is_active = true;
        }
    }

    /// Has `seat` take part from `step` on. It catches up, so it is not waited for until a hash of
    /// its was compared.
    pub(crate) fn admit_late(&mut self, seat: Seat, step: u32) {
        let step = step.max(self.floor());
        if let Some(column) = self.column_mut(seat) {
            column.begin_at(step);
            column.is_active = true;
            column.is_silent = true;
        }
    }

    /// Whether `seat` takes part: nothing was found wrong with it.
    pub(crate) fn is_sound(&self, seat: Seat) -> bool {
        let column = self.columns.get(usize::from(seat.0));
        column.is_some_and(|column| column.is_active)
    }

    /// The newest step in which the hash of `seat` was found to be right, since it takes part.
    pub(crate) fn last_right(&self, seat: Seat) -> Option<u32> {
        self.columns.get(usize::from(seat.0))?.right
    }

    /// Leaves `seat` out from now on.
    pub(crate) fn dismiss(&mut self, seat: Seat) {
        if let Some(column) = self.column_mut(seat) {
            column.is_active = false;
        }
    }

    /// Keeps a hash of `seat`; false where the step is too far ahead, or the seat does not take
    /// part. The first word counts, and what is judged or given up already is ignored.
    pub(crate) fn insert(&mut self, seat: Seat, step: u32, hash: u32) -> bool {
        let floor = self.floor();
        match self.column_mut(seat) {
            Some(column) if column.is_active && step < floor.saturating_add(STEPS) => {
                if column.insert(floor, step, hash) && self.haste == Haste::Early {
                    self.look_ahead(seat, step, hash);
                }
                true
            }
            Some(_) | None => false,
        }
    }

    /// Keeps the server's own hash, against which all others are judged; false where the step is
    /// too far ahead.
    pub(crate) fn insert_server(&mut self, step: u32, hash: u32) -> bool {
        self.server.is_active = true;
        self.server.is_silent = false;
        let floor = self.floor();
        if step >= floor.saturating_add(STEPS) {
            return false;
        }
        // What was settled without it stays so.
        if step >= self.next {
            self.server.insert(floor, step, hash);
        }
        true
    }

    /// Returns the first step that is still waited for.
    pub(crate) const fn overdue(&self) -> u32 {
        self.overdue
    }

    /// Waits no longer for the step [`overdue`](Self::overdue).
    pub(crate) const fn expire(&mut self) {
        self.overdue = self.overdue.saturating_add(1);
    }

    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Settles the next step, if it is closed and waits for nobody.
    pub(crate) fn settle(&mut self, closed_steps: u32) -> Option<Settled> {
        let step = self.next;
        if step >= closed_steps {
            return None;
        }
        // The ring has no place for more steps that wait.
        let is_late = step < self.overdue || closed_steps.saturating_sub(step) > SETTLED;
        if !(is_late || step < self.early || self.is_complete(step)) {
            return None;
        }
        if is_late && self.server.get(step).is_none() {
            self.server.is_silent = true;
        }
        if !is_late && step < self.early && self.server.get(step).is_none() {
            self.settle_for_less(step);
        }
        let reference = self.reference(step, Column::is_heard);
        let mut differing = Vec::new();
        for (column, seat) in self.columns.iter_mut().zip((0..=u16::MAX).map(Seat)) {
            if !column.is_heard(step) {
                continue;
            }
            column.judge(step, &mut self.counts);
            if column.get(step) == reference.hash {
                column.right = Some(step);
            } else {
                differing.push(seat);
            }
        }
        self.next = step.saturating_add(1);
        self.forget(step.checked_sub(SETTLED));
        Some(Settled {
            finding: self.name(step, differing, reference.verdict),
        })
    }

    /// Whether a settled step of `seat` was not judged yet.
    pub(crate) fn has_unjudged(&self, seat: Seat) -> bool {
        let column = self.columns.get(usize::from(seat.0));
        column.is_some_and(|column| column.is_active && column.judged < self.next)
    }

    /// Judges what `seat` reported of settled steps; call it until it finds nothing.
    pub(crate) fn review(&mut self, seat: Seat) -> Option<Finding> {
        loop {
            let (next, overdue, floor) = (self.next, self.overdue, self.floor());
            let column = self
                .columns
                .get_mut(usize::from(seat.0))
                .filter(|column| column.is_active)?;
            let step = column.judged;
            if step >= next {
                return None;
            }
            if let Some(hash) = column.get(step).filter(|_| step >= floor) {
                column.judge(step, &mut self.counts);
                if let Some(finding) = self.judge_late(step, seat, hash) {
                    return Some(finding);
                }
            } else if step < column.early {
                column.give_up(step);
                self.counts.missing = self.counts.missing.saturating_add(1);
            } else if step < overdue.max(floor) {
                column.give_up(step);
                self.counts.missing = self.counts.missing.saturating_add(1);
                if !core::mem::replace(&mut column.is_silent, true) {
                    return Some(Finding::Silent { seat, step });
                }
            } else {
                return None;
            }
        }
    }

    /// Returns the first step that never came from `seat` though a later one did, and notes that
    /// it is being asked for; at most once in `wait_nanos`.
    pub(crate) fn ask(&mut self, now: Instant, seat: Seat, wait_nanos: u64) -> Option<u32> {
        let column = self.column_mut(seat)?;
        if !column.is_active || column.missing >= column.end {
            return None;
        }
        if let Some((step, at)) = column.asked
            && step == column.missing
            && now.as_nanos().saturating_sub(at.as_nanos()) < wait_nanos
        {
            return None;
        }
        column.asked = Some((column.missing, now));
        Some(column.missing)
    }

    /// Bytes that it holds.
    pub(crate) fn memory_len(&self) -> usize {
        let columns = self.columns.iter().chain([&self.server]);
        columns.map(Column::memory_len).sum()
    }

    fn column_mut(&mut self, seat: Seat) -> Option<&mut Column> {
        self.columns.get_mut(usize::from(seat.0))
    }

    /// Oldest step of which hashes are kept.
    const fn floor(&self) -> u32 {
        self.next.saturating_sub(SETTLED)
    }

    /// Whether everybody has reported `step` who is waited for: the server where it takes part,
    /// else all players.
    fn is_complete(&self, step: u32) -> bool {
        if self.server.is_active && !self.server.is_silent {
            // It reports in order: where a later step is there, this one was left out.
            if self.server.get(step).is_some() || self.server.end <= step {
                return self.server.get(step).is_some();
            }
        }
        let mut awaited = self.columns.iter().filter(|column| column.is_awaited());
        awaited.all(|column| column.get(step).is_some())
    }
}

#[cfg(test)]
mod tests;
