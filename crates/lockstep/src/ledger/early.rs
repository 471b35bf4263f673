//! What a later step shows before an earlier one is complete.
//!
//! A hash that was lost comes again after more than a round trip. To wait for it would be to know of a
//! divergence that much later, so a step that everybody reported, and not alike, ends all waiting before it.

use wire::Seat;

use super::{Column, Ledger};

impl Ledger {
    /// Looks whether the hash of `step` that `seat` reported shows that something is wrong while an
    /// earlier one is waited for.
    pub(super) fn look_ahead(&mut self, seat: Seat, step: u32, hash: u32) {
        if step > self.next {
            if self.is_complete(step) && !self.is_unanimous(step) {
                self.early = self.early.max(step);
            }
        } else if step < self.next {
            let judged = self.columns.get(usize::from(seat.0));
            if judged.is_none_or(|column| column.judged >= step) {
                return;
            }
            let reference = self.reference(step, Column::was_heard).hash;
            if reference.is_some_and(|reference| reference != hash)
                && let Some(column) = self.column_mut(seat)
            {
                column.early = column.early.max(step);
            }
        }
    }

    /// Ends the waiting for hashes of `step`, which is settled early and without the server. Where not more
    /// than half of all that were waited for are the same, nobody is judged by them, now or later: the
    /// later step names who is wrong.
    pub(super) fn settle_for_less(&mut self, step: u32) {
        let reference = self.reference(step, Column::is_heard).hash;
        let (mut awaited, mut votes) = (0_usize, 0_usize);
        for column in &mut self.columns {
            let is_vote = column.is_heard(step) && column.get(step) == reference;
            votes = votes.saturating_add(is_vote.into());
            awaited = awaited.saturating_add(column.is_awaited().into());
            if column.is_awaited() && column.judged == step && column.get(step).is_none() {
                column.give_up(step);
                self.counts.missing = self.counts.missing.saturating_add(1);
            }
        }
        if reference.is_some() && votes.saturating_mul(2) > awaited {
            return;
        }
        for column in &mut self.columns {
            if column.is_heard(step) {
                column.give_up(step);
                column.forget(step);
            }
        }
    }

    /// Whether all hashes of `step` are the same, of players who are to be judged by it or are waited for.
    fn is_unanimous(&self, step: u32) -> bool {
        let heard = self
            .columns
            .iter()
            .filter(|column| column.is_awaited() || column.is_heard(step));
        let mut hashes = heard.filter_map(|column| column.get(step));
        let first = hashes.next();
        hashes.all(|hash| Some(hash) == first)
    }
}
