//! Player inputs, as bit strings.

use core::marker::PhantomData;

use wire::Seat;

use crate::bits::{BitReader, BitWriter};
use crate::tick::Tick;

/// One player's input for one tick: a string of exactly [`WIDTH`](Self::WIDTH) bits.
///
/// Put buttons next to each other and slow fields in bytes of their own: a tick that toggles one
/// button costs `log2(WIDTH)` bits, and one that moves a stick costs the bytes that changed.
///
/// ```
/// use lockstep::bits::{BitReader, BitWriter};
/// use lockstep::{Input, Width};
///
/// #[derive(Clone, Debug, Default, PartialEq)]
/// struct Pad { buttons: u16, aim: u8 }
///
/// impl Input for Pad {
///     const WIDTH: Width = Width::bits::<20>();
///     fn write(&self, out: &mut BitWriter<'_>) {
///         out.bits(self.aim.into(), 8);
///         out.bits(self.buttons.into(), 12);
///     }
///     fn read(bits: &mut BitReader<'_>) -> Option<Self> {
///         let aim = u8::try_from(bits.bits(8).ok()?).ok()?;
///         let buttons = u16::try_from(bits.bits(12).ok()?).ok()?;
///         Some(Self { buttons, aim })
///     }
/// }
/// ```
pub trait Input: Default {
    /// Number of bits; equal on all sides of a match.
    const WIDTH: Width;

    /// Appends the bits. Missing bits up to `WIDTH` are zero, excess ones are cut.
    fn write(&self, out: &mut BitWriter<'_>);

    /// Reads what `write` wrote.
    ///
    /// `None` stands for invalid bits, which only a modified client sends; every participant then
    /// uses the default, so all still agree.
    fn read(bits: &mut BitReader<'_>) -> Option<Self>;
}

/// Number of bits of an input: 1 to 2,048.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Width(u16);

impl Width {
    /// 256 bytes; send anything larger as a message on a reliable channel.
    pub const MAX: Self = Self(2_048);

    /// Accepts `bits` if it is in range.
    #[must_use]
    pub const fn new(bits: u16) -> Option<Self> {
        if bits >= 1 && bits <= Self::MAX.0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Creates a width known at compile time.
    ///
    /// Out of range, it does not compile:
    ///
    /// ```compile_fail
    /// let none = lockstep::Width::bits::<0>();
    /// ```
    #[must_use]
    pub const fn bits<const BITS: u16>() -> Self {
        const {
            assert!(
                BITS >= 1 && BITS <= Self::MAX.0,
                "an input has 1 to 2,048 bits"
            );
        }
        Self(BITS)
    }

    /// Returns the number of bits.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    pub(crate) const fn spare_bits(self) -> u32 {
        (self.0.wrapping_neg() & 7) as u32
    }

    /// Returns the bytes that hold one input.
    #[must_use]
    pub fn byte_len(self) -> usize {
        usize::from(self.0.div_ceil(8))
    }
}

pub(crate) fn encode_into<I: Input>(input: &I, out: &mut Vec<u8>) {
    out.clear();
    input.write(&mut BitWriter::new(out));
    out.resize(I::WIDTH.byte_len(), 0);
    let spare = I::WIDTH.spare_bits();
    if let Some(last) = out.last_mut() {
        *last &= u8::MAX << spare;
    }
}

pub(crate) fn decode<I: Input>(bytes: &[u8]) -> I {
    I::read(&mut BitReader::new(bytes)).unwrap_or_default()
}

macro_rules! number_input {
    ($($number:ty => $bits:literal),*) => {$(
        impl Input for $number {
            const WIDTH: Width = Width::bits::<$bits>();

            #[inline]
            fn write(&self, out: &mut BitWriter<'_>) {
                out.bits((*self).into(), $bits);
            }

            #[inline]
            fn read(bits: &mut BitReader<'_>) -> Option<Self> {
                Self::try_from(bits.bits($bits).ok()?).ok()
            }
        }
    )*};
}

number_input!(u8 => 8, u16 => 16, u32 => 32, u64 => 64);

impl Input for bool {
    const WIDTH: Width = Width::bits::<1>();

    fn write(&self, out: &mut BitWriter<'_>) {
        out.bit(*self);
    }

    fn read(bits: &mut BitReader<'_>) -> Option<Self> {
        bits.bit().ok()
    }
}

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

    #[cfg(feature = "replay")]
    pub(crate) const fn row(&self) -> &'a Row {
        self.row
    }

    /// Returns its tick.
    pub const fn tick(&self) -> Tick {
        self.tick
    }

    /// Returns the number of seats.
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
    pub(crate) width: Width,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `written` bits where the width is 11.
    #[derive(Default)]
    struct Sloppy(u32);

    impl Input for Sloppy {
        const WIDTH: Width = Width::bits::<11>();
        fn write(&self, out: &mut BitWriter<'_>) {
            out.bits(u64::MAX, self.0);
        }
        fn read(_: &mut BitReader<'_>) -> Option<Self> {
            None
        }
    }

    #[test]
    fn an_input_has_exactly_its_width() {
        let mut out = Vec::new();
        encode_into(&Sloppy(64), &mut out);
        assert_eq!(out, [0xff, 0b1110_0000], "what is over is cut");
        encode_into(&Sloppy(3), &mut out);
        assert_eq!(out, [0b1110_0000, 0], "what is missing is zero");
        assert_eq!(
            decode::<Sloppy>(&out).0,
            0,
            "what means nothing is the default"
        );
    }

    #[test]
    fn numbers_are_read_as_written() {
        let mut out = Vec::new();
        encode_into(&0xbeef_u16, &mut out);
        assert_eq!(out, [0xbe, 0xef]);
        assert_eq!(decode::<u16>(&out), 0xbeef);
        encode_into(&true, &mut out);
        assert_eq!(out, [0x80]);
        assert!(decode::<bool>(&out));
    }

    #[test]
    fn widths_are_accepted_from_minimum_to_maximum() {
        assert_eq!(Width::new(0), None);
        assert_eq!(Width::new(2_049), None);
        assert_eq!(Width::new(2_048).map(Width::byte_len), Some(256));
        assert_eq!(Width::new(9).map(Width::byte_len), Some(2));
    }
}
