//! Numbers of variable length: 7 bits a byte, least significant first, in the fewest bytes.

use wire::{Reader, Writer};

use super::batch::BatchError;

/// Longest encoding, bytes.
const BYTES_MAX: u32 = 10;

pub(super) fn write(mut value: u64, out: &mut Writer<'_>) {
    while value >= 0x80 {
        out.u8(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.u8(low_bits(value));
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<u64, BatchError> {
    let mut value = 0;
    for place in 0..BYTES_MAX {
        let byte = reader.u8()?;
        let bits = u64::from(byte & 0x7f);
        let shift = place.saturating_mul(7);
        // The tenth byte has room for one bit.
        if place == 9 && bits > 1 {
            return Err(BatchError::Number);
        }
        value |= bits << shift;
        if byte < 0x80 {
            // A last byte of zero is a longer way to write a number.
            let is_shortest = byte != 0 || place == 0;
            return if is_shortest {
                Ok(value)
            } else {
                Err(BatchError::Number)
            };
        }
    }
    Err(BatchError::Number)
}

/// Writes a number with a usually small absolute value.
pub(super) fn write_signed(value: i64, out: &mut Writer<'_>) {
    let folded = (value << 1) ^ (value >> 63);
    write(u64::from_ne_bytes(folded.to_ne_bytes()), out);
}

pub(super) fn read_signed(reader: &mut Reader<'_>) -> Result<i64, BatchError> {
    let folded = read(reader)?;
    let half = i64::from_ne_bytes((folded >> 1).to_ne_bytes());
    Ok(if folded & 1 == 0 { half } else { !half })
}

pub(super) fn write_len(len: usize, out: &mut Writer<'_>) {
    write(u64::try_from(len).unwrap_or(u64::MAX), out);
}

/// Reads a count or index of at most `max`.
pub(super) fn read_len(reader: &mut Reader<'_>, max: usize) -> Result<usize, BatchError> {
    let len = usize::try_from(read(reader)?).map_err(|_| BatchError::Count)?;
    if len > max {
        return Err(BatchError::Count);
    }
    Ok(len)
}

const fn low_bits(value: u64) -> u8 {
    let [byte, ..] = value.to_le_bytes();
    byte & 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_read_as_written(value: u64, signed: i64, shift in 0..64_u32) {
            let (value, signed) = (value >> shift, signed >> shift);
            let mut bytes = Vec::new();
            write(value, &mut Writer::new(&mut bytes));
            write_signed(signed, &mut Writer::new(&mut bytes));
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(read(&mut reader), Ok(value));
            prop_assert_eq!(read_signed(&mut reader), Ok(signed));
            prop_assert!(reader.is_empty());
        }
    }

    #[test]
    fn a_longer_way_to_write_a_number_is_refused() {
        for bytes in [&[0x80, 0][..], &[0x81, 0x80, 0], &[0xff; 11]] {
            assert_eq!(read(&mut Reader::new(bytes)), Err(BatchError::Number));
        }
        let over = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(read(&mut Reader::new(&over)), Err(BatchError::Number));
        assert_eq!(read(&mut Reader::new(&[0x80])), Err(BatchError::Truncated));
        assert_eq!(read_len(&mut Reader::new(&[9]), 8), Err(BatchError::Count));
    }
}
