//! The inputs of all players in one tick.

use core::marker::PhantomData;

use wire::Seat;

use crate::input::{Input, Width, decode};
use crate::tick::Tick;

/// Origin of a seat's input in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The player's own, in time.
    Confirmed,
    /// The player's was not in time; the server substituted it, and its owner is notified.
    Substituted,
    /// The seat is empty; the input is the default.
    Absent,
    /// The server plays the seat, as an AI player. Not sent by this version.
    Server,
}

impl Origin {
    /// Returns its two-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Confirmed => 0,
            Self::Substituted => 1,
            Self::Absent => 2,
            Self::Server => 3,
        }
    }

    /// Returns the value for the low two bits of `code`.
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

/// One tick: the input of every seat. A closed turn is equal on every participant; a predicted one
/// looks like the closed one will if the prediction is right.
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

    /// Returns its tick.
    #[must_use]
    pub const fn tick(&self) -> Tick {
        self.tick
    }

    /// Returns the number of seats.
    #[must_use]
    pub const fn seat_count(&self) -> usize {
        self.row.origins.len()
    }

    /// Returns the input of `seat` and its origin; `None` past the last seat.
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

/// Values and origins of all seats in one tick; the next tick is coded against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Bits of one input.
    pub(crate) width: Width,
    /// Inputs in seat order, `width.byte_len()` bytes each.
    pub(crate) values: Vec<u8>,
    /// Origin of each input; its length is the seat count.
    pub(crate) origins: Vec<Origin>,
}

impl Row {
    /// Creates the row before tick 0: every seat absent, with the neutral input.
    pub(crate) fn initial(seats: u16, width: Width, neutral: &[u8]) -> Self {
        Self {
            width,
            values: neutral.repeat(seats.into()),
            origins: vec![Origin::Absent; seats.into()],
        }
    }

    /// Heap bytes in use.
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
