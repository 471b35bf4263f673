//! With whom a player can be compared.

use wire::Seat;

use super::Ledger;
use super::column::Column;

impl Ledger {
    /// What `seat`, or the server itself, reported of `step`, where that is kept.
    pub(crate) fn said(&self, seat: Option<Seat>, step: u32) -> Option<u32> {
        if step < self.floor() {
            return None;
        }
        self.column(seat)?.get(step)
    }

    /// The last step before `step` of which both reported the same.
    pub(crate) fn last_equal(
        &self,
        one: Option<Seat>,
        other: Option<Seat>,
        step: u32,
    ) -> Option<u32> {
        let mut steps = (self.floor()..step).rev();
        steps.find(|&step| {
            let said = self.said(one, step);
            said.is_some() && said == self.said(other, step)
        })
    }

    /// Players who had a say on `step` and were not named.
    pub(crate) fn agreeing(&self, step: u32) -> impl Iterator<Item = Seat> {
        let seats = (0..=u16::MAX).map(Seat).zip(&self.columns);
        seats
            .filter(move |(_, column)| column.is_active && column.was_heard(step))
            .map(|(seat, _)| seat)
    }

    fn column(&self, seat: Option<Seat>) -> Option<&Column> {
        match seat {
            Some(seat) => self.columns.get(usize::from(seat.0)),
            None => Some(&self.server),
        }
    }
}
