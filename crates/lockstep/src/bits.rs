//! Bit fields: most significant bit first, every read length-checked.

/// Reads bit fields from the front of a slice.
///
/// A failed read consumes nothing. Nothing is allocated.
#[derive(Clone, Copy, Debug)]
pub struct BitReader<'a> {
    /// Bytes that are not in `window`.
    rest: &'a [u8],
    /// The next bits, highest first; bits past `held` are part of `rest`, or zero.
    window: u64,
    /// Bits of `window` that are not part of `rest`.
    held: u32,
    len: usize,
}

/// The bits end before the field does, or the field has no valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

wire::error_text! { Malformed {
    Self => "the bits end early or hold no valid value",
}}

impl<'a> BitReader<'a> {
    /// Starts at the first bit of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            window: 0,
            held: 0,
            len: bytes.len(),
        }
    }

    /// Reads `count` bits, 0 to 64, as a number.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if fewer are left, or `count` is over 64.
    #[inline]
    pub fn bits(&mut self, count: u32) -> Result<u64, Malformed> {
        if count > self.held {
            self.refill();
            if count > self.held {
                return self.long_bits(count);
            }
        }
        if count == 0 {
            return Ok(0);
        }
        let field = self.window >> (u64::BITS.wrapping_sub(count) & 63);
        self.skip(count);
        Ok(field)
    }

    #[cold]
    fn long_bits(&mut self, count: u32) -> Result<u64, Malformed> {
        let is_there = usize::try_from(count).is_ok_and(|count| count <= self.len());
        let low = count.saturating_sub(u32::BITS);
        if !is_there || count > u64::BITS || low == 0 {
            return Err(Malformed);
        }
        let high = self.bits(u32::BITS)?;
        Ok(high << low | self.bits(low)?)
    }

    #[inline]
    fn refill(&mut self) {
        if self.held > u64::BITS - 8 {
            return;
        }
        if let Some(bytes) = self.rest.first_chunk() {
            self.window |= u64::from_be_bytes(*bytes) >> (self.held & 63);
            let count = u64::BITS.saturating_sub(self.held) / 8;
            self.rest = self.rest.get(bytes_of(count)..).unwrap_or_default();
            self.held = self.held.saturating_add(count.saturating_mul(8));
            return;
        }
        if self.held <= u32::BITS
            && let Some((bytes, rest)) = self.rest.split_first_chunk()
        {
            self.window |=
                u64::from(u32::from_be_bytes(*bytes)) << (u32::BITS.saturating_sub(self.held) & 63);
            self.held = self.held.saturating_add(u32::BITS);
            self.rest = rest;
        }
        while self.held <= u64::BITS - 8
            && let [byte, rest @ ..] = self.rest
        {
            let free = u64::BITS.saturating_sub(8).saturating_sub(self.held);
            self.window |= u64::from(*byte) << (free & 63);
            self.held = self.held.saturating_add(8);
            self.rest = rest;
        }
    }

    #[inline]
    const fn skip(&mut self, count: u32) {
        // Shift in two steps, since 64 is not a valid shift.
        self.window = self.window << (count.wrapping_sub(1) & 63) << 1;
        self.held = self.held.saturating_sub(count);
    }

    /// Reads one bit.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if none is left.
    #[inline]
    pub fn bit(&mut self) -> Result<bool, Malformed> {
        self.bits(1).map(|bit| bit == 1)
    }

    /// Reads a number written by [`BitWriter::gamma`].
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the bits end early, or the number is over `max`.
    #[inline]
    pub fn gamma(&mut self, max: u32) -> Result<u32, Malformed> {
        // The first set bit is followed by as many bits as there are zeros before it.
        let mut count = self.window.leading_zeros().wrapping_mul(2).wrapping_add(1);
        if count > self.held {
            self.refill();
            count = self.window.leading_zeros().wrapping_mul(2).wrapping_add(1);
            if count > self.held {
                return self.long_gamma(max);
            }
        }
        // There are at most 31 zeros.
        let number = (self.window >> (u64::BITS.wrapping_sub(count) & 63)).wrapping_sub(1);
        if number > u64::from(max) {
            return Err(Malformed);
        }
        self.skip(count);
        Ok(u32::try_from(number).unwrap_or(max))
    }

    #[cold]
    fn long_gamma(&mut self, max: u32) -> Result<u32, Malformed> {
        let mut ahead = *self;
        let mut zeros = 0_u32;
        while !ahead.bit()? {
            zeros = zeros.saturating_add(1);
            if zeros > u32::BITS {
                return Err(Malformed);
            }
        }
        let tail = ahead.bits(zeros)?;
        let head = 1_u64.checked_shl(zeros).ok_or(Malformed)?;
        let value = (head | tail).checked_sub(1).ok_or(Malformed)?;
        let value = u32::try_from(value).map_err(|_| Malformed)?;
        if value > max {
            return Err(Malformed);
        }
        *self = ahead;
        Ok(value)
    }

    /// Skips to the next byte boundary.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if a skipped bit is set: encodings are canonical.
    pub fn align(&mut self) -> Result<(), Malformed> {
        let mut ahead = *self;
        // The window is filled by whole bytes.
        let padding = ahead.bits(self.held & 7)?;
        if padding == 0 {
            *self = ahead;
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    /// Returns the number of whole bytes consumed; call it after [`align`](Self::align).
    pub fn byte_position(&self) -> usize {
        let left = self.rest.len().saturating_add(bytes_of(self.held / 8));
        self.len.saturating_sub(left)
    }

    /// Returns the number of bits left.
    pub fn len(&self) -> usize {
        let held = usize::try_from(self.held).unwrap_or(0);
        self.rest.len().saturating_mul(8).saturating_add(held)
    }

    /// Returns whether all bits are consumed.
    pub const fn is_empty(&self) -> bool {
        self.held == 0 && self.rest.is_empty()
    }
}

/// Readers are equal if the same bits are left.
impl PartialEq for BitReader<'_> {
    fn eq(&self, other: &Self) -> bool {
        let bits = |mut reader: Self| core::iter::from_fn(move || reader.bit().ok());
        bits(*self).eq(bits(*other))
    }
}

impl Eq for BitReader<'_> {}

#[inline]
fn bytes_of(count: u32) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// Appends bit fields to a vector, starting at a byte boundary.
#[derive(Debug)]
pub struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Unused bits of the last byte, 0 to 7.
    free: u32,
}

impl<'a> BitWriter<'a> {
    /// Starts after the current contents of `out`.
    #[must_use]
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, free: 0 }
    }

    /// Appends the low `count` bits of `value`, at most 64, highest first.
    #[inline]
    pub fn bits(&mut self, value: u64, count: u32) {
        let used = 8_u32.wrapping_sub(self.free) & 7;
        let end = used.saturating_add(count);
        if count == 0 || end > u64::BITS {
            return self.bits_slowly(value, count);
        }
        // Below 64: there is at least one bit, and it ends within the word.
        let word = value << (u64::BITS.wrapping_sub(count) & 63) >> used;
        let mut bytes = word.to_be_bytes();
        if used > 0
            && let Some(last) = self.out.pop()
        {
            bytes[0] |= last;
            self.append(bytes, end);
        } else {
            self.append(bytes, end);
        }
        self.free = 8_u32.wrapping_sub(end) & 7;
    }

    #[inline]
    fn append(&mut self, bytes: [u8; 8], bits: u32) {
        let len = self.out.len().saturating_add(bytes_of(bits.div_ceil(8)));
        self.out.extend_from_slice(&bytes);
        self.out.truncate(len);
    }

    /// As [`bits`](Self::bits), byte by byte, if they cross a word.
    fn bits_slowly(&mut self, value: u64, count: u32) {
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
        // The code is the number, preceded by as many zeros as bits follow its first.
        let len = gamma_len(value);
        let shifted = u64::from(value).saturating_add(1);
        if len > u64::BITS {
            self.bits(0, 32);
            self.bits(shifted, 33);
        } else {
            self.bits(shifted, len);
        }
    }

    pub(crate) const fn out_len(&self) -> usize {
        self.out.len()
    }

    /// Fills the last byte with zero bits.
    pub const fn align(&mut self) {
        self.free = 0;
    }
}

/// Returns the number of bits that [`BitWriter::gamma`] takes for `value`.
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
    fn a_field_is_read_alike_at_any_bit_offset() {
        let bytes: Vec<u8> = (0..20)
            .map(|byte: u8| byte.wrapping_mul(37) ^ 0x5a)
            .collect();
        let bit = |at: usize| u64::from(bytes[at / 8] >> (7 - at % 8) & 1);
        for len in 0..=bytes.len() {
            for start in 0..=len * 8 {
                for count in 0..=u64::BITS {
                    let mut reader = BitReader::new(&bytes[..len]);
                    for _ in 0..start {
                        reader.bit().unwrap();
                    }
                    let end = start + usize::try_from(count).unwrap();
                    let expected = if end <= len * 8 {
                        Ok((start..end).fold(0, |field, at| field << 1 | bit(at)))
                    } else {
                        Err(Malformed)
                    };
                    let position = if expected.is_ok() { end } else { start };
                    assert_eq!(reader.bits(count), expected, "{len} {start} {count}");
                    assert_eq!(reader.len(), len * 8 - position);
                }
            }
        }
    }

    #[test]
    fn a_failed_read_consumes_nothing() {
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
