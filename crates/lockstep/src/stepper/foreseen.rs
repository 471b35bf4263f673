//! What seats will probably do in ticks that are not confirmed.

use wire::Seat;

use crate::bundle::Shape;
use crate::tick::Tick;
use crate::turn::{Origin, Row};

/// Ticks from the first that is not confirmed for which inputs are kept: the longest input delay,
/// 60, and the longest window, 32, fit.
pub(super) const FORESEEN_MAX: u32 = 128;

/// Inputs by seat and tick; memory never grows.
#[derive(Debug)]
pub(super) struct Foreseen {
    /// Bytes of one input.
    stride: usize,
    /// Tick plus 1 of place `tick % FORESEEN_MAX` of each seat, one seat after the other; 0 where
    /// nothing is known. Empty where nothing is ever predicted.
    ticks: Vec<u32>,
    /// `stride` bytes for each place.
    values: Vec<u8>,
}

impl Foreseen {
    /// Makes one that keeps nothing where there is no `window`.
    pub(super) fn new(shape: Shape, window: u8) -> Self {
        let places = if window == 0 { 0 } else { places() };
        let places = places.saturating_mul(shape.seats.into());
        let stride = shape.width.byte_len();
        Self {
            stride,
            ticks: vec![0; places],
            values: vec![0; places.saturating_mul(stride)],
        }
    }

    /// Keeps what `seat` does in `tick`, unless it is known or out of the range that begins with
    /// `end`; returns whether it was kept.
    pub(super) fn insert(&mut self, end: Tick, seat: Seat, tick: Tick, bits: &[u8]) -> bool {
        if tick < end || tick.since(end) >= FORESEEN_MAX || bits.len() != self.stride {
            return false;
        }
        let place = place(seat, tick);
        let start = place.saturating_mul(self.stride);
        let (Some(tag), Some(value)) = (
            self.ticks.get_mut(place),
            self.values
                .get_mut(start..start.saturating_add(self.stride)),
        ) else {
            return false;
        };
        if *tag == tick.0.saturating_add(1) {
            return false;
        }
        *tag = tick.0.saturating_add(1);
        value.copy_from_slice(bits);
        true
    }

    /// Forgets what is known of `next` and all later ticks.
    pub(super) fn forget_from(&mut self, next: Tick) {
        for tag in self.ticks.iter_mut().filter(|tag| **tag > next.0) {
            *tag = 0;
        }
    }

    /// Puts what is known of `tick` into `row`.
    pub(super) fn apply(&self, tick: Tick, row: &mut Row) {
        let wanted = tick.0.saturating_add(1);
        let first = place(Seat(0), tick);
        let tags = self.ticks.iter().skip(first).step_by(places());
        for (seat, tag) in (0..=u16::MAX).map(Seat).zip(tags) {
            if *tag == wanted {
                let start = place(seat, tick).saturating_mul(self.stride);
                let value = self.values.get(start..start.saturating_add(self.stride));
                row.set(seat, value.unwrap_or_default(), Origin::Confirmed);
            }
        }
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        self.ticks
            .len()
            .saturating_mul(size_of::<u32>())
            .saturating_add(self.values.len())
    }
}

fn places() -> usize {
    usize::try_from(FORESEEN_MAX).unwrap_or(usize::MAX)
}

fn place(seat: Seat, tick: Tick) -> usize {
    let place = usize::try_from(tick.0 % FORESEEN_MAX).unwrap_or(0);
    usize::from(seat.0)
        .saturating_mul(places())
        .saturating_add(place)
}
