//! Who is wrong where hashes differ.

use wire::Seat;

use super::{Column, Divergence, Finding, Ledger};
use crate::event::Verdict;

/// What the hashes of a step are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    /// `None` where no hash has more than half of the players behind it.
    pub(super) hash: Option<u32>,
    pub(super) verdict: Verdict,
}

impl Ledger {
    /// The server's hash of `step`; else the one that more than half of those say whom `counts`
    /// lets in.
    pub(super) fn reference(&self, step: u32, counts: fn(&Column, u32) -> bool) -> Reference {
        if let hash @ Some(_) = self.server.get(step) {
            let verdict = Verdict::Server;
            return Reference { hash, verdict };
        }
        let heard = self.columns.iter().filter(|column| counts(column, step));
        let hash = majority(heard.filter_map(|column| column.get(step)));
        let verdict = if hash.is_some() {
            Verdict::Minority
        } else {
            Verdict::Undecided
        };
        Reference { hash, verdict }
    }

    /// Compares what came for a step that was settled before with what the others said then. It
    /// has a vote too: with as many on its side as on theirs, all are named.
    pub(super) fn judge_late(&mut self, step: u32, seat: Seat, hash: u32) -> Option<Finding> {
        let reference = self.reference(step, Column::was_heard);
        if reference.hash == Some(hash) {
            if self.is_shared(step)
                && let Some(column) = self.columns.get_mut(usize::from(seat.0))
            {
                column.right = column.right.max(Some(step));
            }
            return None;
        }
        if reference.hash.is_some() {
            return self.name(step, vec![seat], reference.verdict);
        }
        let seats = (0..=u16::MAX).map(Seat).zip(&self.columns);
        let heard = seats.filter(|(_, column)| column.is_active && column.was_heard(step));
        let named = heard.map(|(seat, _)| seat).collect();
        self.name(step, named, reference.verdict)
    }

    /// Whether there is more than one to say anything of `step`.
    fn is_shared(&self, step: u32) -> bool {
        let heard = self.columns.iter().filter(|column| column.was_heard(step));
        self.server.get(step).is_some() || heard.take(2).count() > 1
    }

    /// Leaves `seats` out from now on, and says why.
    pub(super) fn name(
        &mut self,
        step: u32,
        seats: Vec<Seat>,
        verdict: Verdict,
    ) -> Option<Finding> {
        if seats.is_empty() {
            return None;
        }
        for seat in &seats {
            if let Some(column) = self.columns.get_mut(usize::from(seat.0)) {
                column.end_after(step);
            }
        }
        Some(Finding::Differs(Divergence {
            step,
            seats,
            verdict,
        }))
    }

    /// Gives the places of `step` to another one.
    pub(super) fn forget(&mut self, step: Option<u32>) {
        let Some(step) = step else {
            return;
        };
        for column in self.columns.iter_mut().chain([&mut self.server]) {
            column.forget(step);
        }
    }
}

/// The value that more than half of `hashes` have; Boyer and Moore, "MJRTY", 1981.
fn majority(hashes: impl Iterator<Item = u32> + Clone) -> Option<u32> {
    let mut others = hashes.clone();
    let first = others.next()?;
    if others.all(|hash| hash == first) {
        // As nearly always.
        return Some(first);
    }
    let mut candidate = None;
    let mut lead = 0_u32;
    for hash in hashes.clone() {
        if lead == 0 {
            candidate = Some(hash);
        }
        if candidate == Some(hash) {
            lead = lead.saturating_add(1);
        } else {
            lead = lead.saturating_sub(1);
        }
    }
    let candidate = candidate?;
    let (mut count, mut votes) = (0_u32, 0_u32);
    for hash in hashes {
        count = count.saturating_add(1);
        votes = votes.saturating_add(u32::from(hash == candidate));
    }
    (votes.saturating_mul(2) > count).then_some(candidate)
}
