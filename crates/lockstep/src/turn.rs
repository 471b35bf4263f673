//! What all players do in one tick.

use core::marker::PhantomData;

use wire::Seat;

use crate::input::{Input, Width, decode};
use crate::tick::Tick;

/// Where the input of one seat in one tick comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The player's own, in time.
    Confirmed,
    /// None came in time; the server filled it in by its rule, and told the owner.
    Substituted,
    /// Nobody holds the seat; the input is the default.
    Absent,
    /// The server plays the seat, as an artificial opponent does. Not sent by this version.
    Server,
}

impl Origin {
    /// Returns the two bits that stand for it.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Confirmed => 0,
            Self::Substituted => 1,
            Self::Absent => 2,
            Self::Server => 3,
        }
    }

    /// Returns what the low two bits of `code` stand for.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code & 3 {
            0 => Self::Confirmed,
            1 => Self::Substituted,
            2 => Self::Absent,
            _ => Self::Server,
        }
    }
}

/// One tick: the input of every seat. Closed, it is the same on every participant; predicted, it
/// looks as the closed one will if the guess is right.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a, I> {
    tick: Tick,
    row: &'a Row,
    input: PhantomData<fn() -> I>,
}

impl<'a, I: Input> Turn<'a, I> {
    pub(crate) const fn new(tick: Tick, row: &'a Row) -> Self {
        Self {
            tick,
            row,
            input: PhantomData,
        }
    }

    /// Returns values and origins of all seats.
    #[cfg(feature = "replay")]
    pub(crate) const fn row(&self) -> &'a Row {
        self.row
    }

    /// Returns which tick it is.
    #[must_use]
    pub const fn tick(&self) -> Tick {
        self.tick
    }

    /// Returns how many seats the match has.
    #[must_use]
    pub const fn seat_count(&self) -> usize {
        self.row.origins.len()
    }

    /// Returns the input of `seat` and where it comes from; `None` past the last seat.
    #[must_use]
    pub fn input(&self, seat: Seat) -> Option<(I, Origin)> {
        let origin = self.row.origins.get(usize::from(seat.0))?;
        Some((decode(self.row.value(seat)), *origin))
    }

    /// Returns the input of every seat, in seat order.
    pub fn inputs(&self) -> impl Iterator<Item = (Seat, I, Origin)> + use<'a, I> {
        let row = self.row;
        let values = row.values.chunks_exact(row.width.byte_len().max(1));
        (0..=u16::MAX)
            .map(Seat)
            .zip(row.origins.iter().zip(values))
            .map(|(seat, (origin, value))| (seat, decode(value), *origin))
    }

    /// Returns the bits of `seat`, `I::WIDTH` of them; empty past the last seat.
    #[must_use]
    pub fn bits(&self, seat: Seat) -> &'a [u8] {
        self.row.value(seat)
    }
}

/// Values and origins of all seats in one tick; also what the next tick is coded against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Bits of one input.
    pub(crate) width: Width,
    /// Inputs in seat order, `width.byte_len()` bytes each.
    pub(crate) values: Vec<u8>,
    /// Where each comes from; its length is the seat count.
    pub(crate) origins: Vec<Origin>,
}

impl Row {
    /// Makes the row before tick 0: every seat absent, with the neutral input.
    pub(crate) fn initial(seats: u16, width: Width, neutral: &[u8]) -> Self {
        Self {
            width,
            values: neutral.repeat(seats.into()),
            origins: vec![Origin::Absent; seats.into()],
        }
    }

    /// Bytes that it holds.
    pub(crate) const fn memory_len(&self) -> usize {
        self.values.len().saturating_add(self.origins.len())
    }

    pub(crate) fn value(&self, seat: Seat) -> &[u8] {
        let len = self.width.byte_len();
        let start = usize::from(seat.0).saturating_mul(len);
        self.values
            .get(start..start.saturating_add(len))
            .unwrap_or_default()
    }

    /// Whether the input of `seat` is the player's own.
    pub(crate) fn is_confirmed(&self, seat: Seat) -> bool {
        self.origins.get(usize::from(seat.0)) == Some(&Origin::Confirmed)
    }

    pub(crate) fn set(&mut self, seat: Seat, value: &[u8], origin: Origin) {
        let len = self.width.byte_len();
        let start = usize::from(seat.0).saturating_mul(len);
        if let Some(old) = self.values.get_mut(start..start.saturating_add(len)) {
            for (old, new) in old.iter_mut().zip(value) {
                *old = *new;
            }
        }
        if let Some(old) = self.origins.get_mut(usize::from(seat.0)) {
            *old = origin;
        }
    }

    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.values.clone_from(&other.values);
        self.origins.clone_from(&other.origins);
    }
}
