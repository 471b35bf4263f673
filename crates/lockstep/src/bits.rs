//! Bit fields: most significant bit first, every read length-checked.

#![warn(clippy::arithmetic_side_effects)]

/// Takes bit fields off the front of a slice.
///
/// A failed read takes nothing. Nothing is allocated.
#[derive(Clone, Copy, Debug)]
pub struct BitReader<'a> {
    /// All bytes.
    bytes: &'a [u8],
    /// Bits taken so far; at most `8 * bytes.len()`.
    position: usize,
}

/// The bits end before the field does, or the field has no valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the bits end early or hold no valid value")
    }
}

impl core::error::Error for Malformed {}

impl<'a> BitReader<'a> {
    /// Starts at the first bit of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Takes `count` bits, 0 to 64, as a number.
    ///
    /// # Errors
    ///
    /// [`Malformed`] where fewer are left, or `count` is over 64.
    #[inline]
    pub fn bits(&mut self, count: u32) -> Result<u64, Malformed> {
        let used = u32::try_from(self.position & 7).map_err(|_| Malformed)?;
        // The usual field ends within the eight bytes that it begins in, or the four.
        let rest = self.bytes.get(self.position >> 3..).unwrap_or_default();
        let word = match rest.first_chunk() {
            Some(bytes) => (u64::from_be_bytes(*bytes), u64::BITS),
            None => rest.first_chunk().map_or((0, 0), |bytes| {
                (u64::from(u32::from_be_bytes(*bytes)) << 32, u32::BITS)
            }),
        };
        let end = used.saturating_add(count);
        if count > 0 && end <= word.1 {
            let field = word.0.checked_shl(used).unwrap_or(0);
            self.position = self
                .position
                .saturating_add(usize::try_from(count).map_err(|_| Malformed)?);
            return Ok(field >> u64::BITS.saturating_sub(count).min(63));
        }
        self.bits_slowly(count)
    }

    /// As [`bits`](Self::bits), byte by byte, where the bytes are about to end.
    fn bits_slowly(&mut self, count: u32) -> Result<u64, Malformed> {
        if count > u64::BITS {
            return Err(Malformed);
        }
        let end = self
            .position
            .checked_add(usize::try_from(count).map_err(|_| Malformed)?)
            .ok_or(Malformed)?;
        if end > self.bytes.len().saturating_mul(8) {
            return Err(Malformed);
        }
        let mut value = 0_u64;
        let mut left = count;
        while left > 0 {
            let byte = self.bytes.get(self.position >> 3).ok_or(Malformed)?;
            let used = u32::try_from(self.position & 7).map_err(|_| Malformed)?;
            let take = left.min(8_u32.saturating_sub(used));
            let shift = 8_u32.saturating_sub(used).saturating_sub(take);
            let mask = (1_u64.checked_shl(take).unwrap_or(0)).wrapping_sub(1);
            let part = (u64::from(*byte) >> shift) & mask;
            value = value.checked_shl(take).unwrap_or(0) | part;
            self.position = self
                .position
                .saturating_add(usize::try_from(take).map_err(|_| Malformed)?);
            left = left.saturating_sub(take);
        }
        Ok(value)
    }

    /// Takes one bit.
    ///
    /// # Errors
    ///
    /// [`Malformed`] where none is left.
    #[inline]
    pub fn bit(&mut self) -> Result<bool, Malformed> {
        self.bits(1).map(|bit| bit == 1)
    }

    /// Takes a number that [`BitWriter::gamma`] wrote.
    ///
    /// # Errors
    ///
    /// [`Malformed`] where the bits end early, or the number is over `max`.
    pub fn gamma(&mut self, max: u32) -> Result<u32, Malformed> {
        let start = self.position;
        let number = self.gamma_inner(max);
        if number.is_err() {
            self.position = start;
        }
        number
    }

    /// Skips to the next byte boundary.
    ///
    /// # Errors
    ///
    /// [`Malformed`] where a skipped bit is set: one content has one encoding.
    pub fn align(&mut self) -> Result<(), Malformed> {
        let used = u32::try_from(self.position & 7).map_err(|_| Malformed)?;
        let mut ahead = *self;
        let padding = ahead.bits(8_u32.saturating_sub(used) & 7)?;
        if padding == 0 {
            *self = ahead;
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    /// Returns how many whole bytes are behind; call it after [`align`](Self::align).
    #[must_use]
    pub const fn byte_position(&self) -> usize {
        self.position.div_ceil(8)
    }

    /// Returns how many bits are left.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
            .len()
            .saturating_mul(8)
            .saturating_sub(self.position)
    }

    /// Returns whether all bits are taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn gamma_inner(&mut self, max: u32) -> Result<u32, Malformed> {
        let mut zeros = 0_u32;
        while !self.bit()? {
            zeros = zeros.saturating_add(1);
            if zeros > 32 {
                return Err(Malformed);
            }
        }
        let tail = self.bits(zeros)?;
        let head = 1_u64.checked_shl(zeros).ok_or(Malformed)?;
        let value = (head | tail).checked_sub(1).ok_or(Malformed)?;
        let value = u32::try_from(value).map_err(|_| Malformed)?;
        if value > max {
            return Err(Malformed);
        }
        Ok(value)
    }
}

/// Appends bit fields to a vector, starting at a byte of its own.
#[derive(Debug)]
pub struct BitWriter<'a> {
    /// Where bits go.
    out: &'a mut Vec<u8>,
    /// Bits of the last byte still free, 0 to 7.
    free: u32,
}

impl<'a> BitWriter<'a> {
    /// Starts behind what `out` holds.
    #[must_use]
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, free: 0 }
    }

    /// Appends the low `count` bits of `value`, at most 64, highest first.
    pub fn bits(&mut self, value: u64, count: u32) {
        if self.free == 0 && count == u32::BITS {
            let [.., a, b, c, d] = value.to_be_bytes();
            self.out.extend_from_slice(&[a, b, c, d]);
            return;
        }
        let mut left = count.min(u64::BITS);
        while left > 0 {
            if self.free == 0 {
                self.out.push(0);
                self.free = 8;
            }
            let take = left.min(self.free);
            let rest = left.saturating_sub(take);
            let mask = (1_u64.checked_shl(take).unwrap_or(0)).wrapping_sub(1);
            let part = (value.checked_shr(rest).unwrap_or(0)) & mask;
            self.free = self.free.saturating_sub(take);
            if let Some(last) = self.out.last_mut() {
                let placed = part.checked_shl(self.free).unwrap_or(0);
                *last |= u8::try_from(placed).unwrap_or(0);
            }
            left = rest;
        }
    }

    /// Appends one bit.
    #[expect(clippy::fn_params_excessive_bools, reason = "it writes a bool")]
    pub fn bit(&mut self, bit: bool) {
        self.bits(u64::from(bit), 1);
    }

    /// Appends `value` in the Elias gamma code of `value + 1`: 0 takes 1 bit, 1 and 2 take 3,
    /// 3 to 6 take 5.
    ///
    /// P. Elias, "Universal codeword sets and representations of the integers", 1975.
    pub fn gamma(&mut self, value: u32) {
        let shifted = u64::from(value).saturating_add(1);
        let zeros = shifted.ilog2();
        self.bits(0, zeros);
        self.bits(shifted, zeros.saturating_add(1));
    }

    /// Returns how many bytes the vector holds by now.
    pub(crate) const fn out_len(&self) -> usize {
        self.out.len()
    }

    /// Fills the last byte with zero bits.
    pub const fn align(&mut self) {
        self.free = 0;
    }
}

/// Returns how many bits [`BitWriter::gamma`] takes for `value`.
#[must_use]
pub fn gamma_len(value: u32) -> u32 {
    let zeros = u64::from(value).saturating_add(1).ilog2();
    zeros.saturating_mul(2).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_field_is_the_same_wherever_it_lies() {
        let bytes: Vec<u8> = (0..20)
            .map(|byte: u8| byte.wrapping_mul(37) ^ 0x5a)
            .collect();
        let bit = |at: usize| u64::from(bytes[at / 8] >> (7 - at % 8) & 1);
        for len in 0..=bytes.len() {
            for start in 0..=len * 8 {
                for count in 0..=u64::BITS {
                    let mut reader = BitReader::new(&bytes[..len]);
                    reader.position = start;
                    let end = start + usize::try_from(count).unwrap();
                    let expected = if end <= len * 8 {
                        Ok((start..end).fold(0, |field, at| field << 1 | bit(at)))
                    } else {
                        Err(Malformed)
                    };
                    let position = if expected.is_ok() { end } else { start };
                    assert_eq!(reader.bits(count), expected, "{len} {start} {count}");
                    assert_eq!(reader.position, position);
                }
            }
        }
    }

    #[test]
    fn a_failed_read_takes_nothing() {
        let mut reader = BitReader::new(&[0b1010_0000]);
        assert_eq!(reader.bits(3), Ok(0b101));
        assert_eq!(reader.bits(6), Err(Malformed));
        assert_eq!(reader.bits(65), Err(Malformed));
        assert_eq!(reader.gamma(9), Err(Malformed), "five zeros and no end");
        assert_eq!(reader.len(), 5);
        assert_eq!(reader.align(), Ok(()));
        assert!(reader.is_empty());
    }

    #[test]
    fn padding_must_be_zero() {
        let mut reader = BitReader::new(&[0b1000_0001]);
        assert_eq!(reader.bit(), Ok(true));
        assert_eq!(reader.align(), Err(Malformed));
        assert_eq!(reader.len(), 7, "a refused skip takes nothing");
    }

    #[test]
    fn gamma_lengths_are_as_stated() {
        for (value, len) in [
            (0, 1),
            (1, 3),
            (2, 3),
            (3, 5),
            (6, 5),
            (7, 7),
            (u32::MAX, 65),
        ] {
            let mut out = Vec::new();
            BitWriter::new(&mut out).gamma(value);
            assert_eq!(gamma_len(value), len, "{value}");
            assert_eq!(out.len(), usize::try_from(len.div_ceil(8)).unwrap());
            assert_eq!(BitReader::new(&out).gamma(u32::MAX), Ok(value));
            if value > 0 {
                assert_eq!(BitReader::new(&out).gamma(value - 1), Err(Malformed));
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(fields: Vec<(u64, u8, bool)>) {
            let mut out = vec![0xff];
            let mut writer = BitWriter::new(&mut out);
            for &(value, count, gamma) in &fields {
                if gamma {
                    writer.gamma(u32::try_from(value >> 32).unwrap());
                } else {
                    writer.bits(value, u32::from(count % 65));
                }
            }
            writer.align();
            let mut reader = BitReader::new(&out[1..]);
            for &(value, count, gamma) in &fields {
                if gamma {
                    prop_assert_eq!(reader.gamma(u32::MAX), Ok(u32::try_from(value >> 32).unwrap()));
                } else {
                    let count = u32::from(count % 65);
                    let mask = 1_u64.checked_shl(count).unwrap_or(0).wrapping_sub(1);
                    prop_assert_eq!(reader.bits(count), Ok(value & mask));
                }
            }
            prop_assert_eq!(reader.align(), Ok(()));
            prop_assert!(reader.is_empty());
        }
    }
}
