//! Player inputs, as bit strings.

use crate::bits::{BitReader, BitWriter};

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

    /// Returns the unused bits of the last byte.
    pub(crate) const fn spare_bits(self) -> u32 {
        (self.0.wrapping_neg() & 7) as u32
    }

    /// Returns the bytes that hold one input.
    #[must_use]
    pub fn byte_len(self) -> usize {
        usize::from(self.0.div_ceil(8))
    }
}

/// Writes `input` into `out`, as exactly `I::WIDTH` bits; unused bits are zero.
pub(crate) fn encode_into<I: Input>(input: &I, out: &mut Vec<u8>) {
    out.clear();
    input.write(&mut BitWriter::new(out));
    out.resize(I::WIDTH.byte_len(), 0);
    let spare = I::WIDTH.spare_bits();
    if let Some(last) = out.last_mut() {
        *last &= u8::MAX << spare;
    }
}

/// Decodes an input; the default if the bits are invalid.
pub(crate) fn decode<I: Input>(bytes: &[u8]) -> I {
    I::read(&mut BitReader::new(bytes)).unwrap_or_default()
}

/// Inputs that are one number.
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
    fn a_width_has_both_ends() {
        assert_eq!(Width::new(0), None);
        assert_eq!(Width::new(2_049), None);
        assert_eq!(Width::new(2_048).map(Width::byte_len), Some(256));
        assert_eq!(Width::new(9).map(Width::byte_len), Some(2));
    }
}
