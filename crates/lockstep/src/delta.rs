//! One changed input, coded against the one before it.
//!
//! | bits | meaning |
//! |---|---|
//! | `0`, then `ceil(log2(width))` bits | one bit differs: its index, counted from the first |
//! | `1`, then `width` bits | width at most 16: the exclusive or of both |
//! | `1`, then a mask of `ceil(width / 8)` bits, then each masked byte | wider: the exclusive or, without zero bytes |
//!
//! The encoding is canonical: the second and third form have at least two set bits, and a masked
//! byte is never zero. Unchanged inputs are covered by the caller's run length.

use crate::bits::{BitReader, BitWriter, Malformed};
use crate::input::Width;

/// Widest input that is written whole: with two bytes, a mask saves less than it costs.
const WHOLE_BITS_MAX: u16 = 16;

/// Appends the change from `before` to `after`, which must differ.
pub fn write(out: &mut BitWriter<'_>, width: Width, before: &[u8], after: &[u8]) {
    let changes = || before.iter().zip(after).map(|(old, new)| old ^ new);
    let mut set = 0_u32;
    let mut index = 0_u32;
    for (change, start) in changes().zip((0_u32..).step_by(8)) {
        if change != 0 {
            set = set.saturating_add(change.count_ones());
            index = start.saturating_add(change.leading_zeros());
        }
    }
    debug_assert!(set > 0, "an unchanged input is a run, not a delta");
    out.bit(set != 1);
    if set == 1 {
        out.bits(index.into(), index_len(width));
        return;
    }
    if width.get() > WHOLE_BITS_MAX {
        for change in changes() {
            out.bit(change != 0);
        }
    }
    for (change, len) in changes().zip(byte_lens(width)) {
        if width.get() <= WHOLE_BITS_MAX || change != 0 {
            let spare = 8_u32.saturating_sub(len);
            out.bits(u64::from(change.checked_shr(spare).unwrap_or(0)), len);
        }
    }
}

/// Reads one change and applies it to `input`.
///
/// # Errors
///
/// [`Malformed`] if the bits end early or are not what [`write()`] writes; `input` may then be
/// partly changed, so [`check`] a peer's bytes first.
pub fn apply(reader: &mut BitReader<'_>, width: Width, input: &mut [u8]) -> Result<(), Malformed> {
    walk(reader, width, |index, change| {
        if let Some(byte) = input.get_mut(index) {
            *byte ^= change;
        }
    })
}

/// Reads one change without applying it.
///
/// # Errors
///
/// As [`apply`].
pub fn check(reader: &mut BitReader<'_>, width: Width) -> Result<(), Malformed> {
    walk(reader, width, |_, _| {})
}

/// Returns the bits that [`write()`] takes for the change from `before` to `after`, which must
/// differ.
pub(crate) fn len(width: Width, before: &[u8], after: &[u8]) -> u32 {
    let changes = || before.iter().zip(after).map(|(old, new)| old ^ new);
    let set: u32 = changes().map(u8::count_ones).fold(0, u32::saturating_add);
    if set == 1 {
        return index_len(width).saturating_add(1);
    }
    if width.get() <= WHOLE_BITS_MAX {
        return u32::from(width.get()).saturating_add(1);
    }
    changes()
        .zip(byte_lens(width))
        .map(|(change, len)| {
            if change == 0 {
                1
            } else {
                len.saturating_add(1)
            }
        })
        .fold(1, u32::saturating_add)
}

/// Returns the most bits that [`write()`] takes.
#[must_use]
pub fn len_max(width: Width) -> u32 {
    let bits = u32::from(width.get());
    let mask = if width.get() > WHOLE_BITS_MAX {
        bits.div_ceil(8)
    } else {
        0
    };
    bits.saturating_add(mask).saturating_add(1)
}

fn walk(
    reader: &mut BitReader<'_>,
    width: Width,
    mut change_byte: impl FnMut(usize, u8),
) -> Result<(), Malformed> {
    if !reader.bit()? {
        let index = reader.bits(index_len(width))?;
        if index >= u64::from(width.get()) {
            return Err(Malformed);
        }
        let change = 0x80_u8
            .checked_shr(u32::try_from(index & 7).map_err(|_| Malformed)?)
            .ok_or(Malformed)?;
        change_byte(usize::try_from(index >> 3).map_err(|_| Malformed)?, change);
        return Ok(());
    }
    let masked = width.get() > WHOLE_BITS_MAX;
    let mut mask = *reader;
    if masked {
        for _ in byte_lens(width) {
            reader.bit()?;
        }
    }
    let mut set = 0_u32;
    for (index, len) in byte_lens(width).enumerate() {
        if masked && !mask.bit()? {
            continue;
        }
        let bits = u8::try_from(reader.bits(len)?).map_err(|_| Malformed)?;
        let change = bits
            .checked_shl(8_u32.saturating_sub(len))
            .ok_or(Malformed)?;
        if masked && change == 0 {
            return Err(Malformed);
        }
        set = set.saturating_add(change.count_ones());
        change_byte(index, change);
    }
    if set < 2 { Err(Malformed) } else { Ok(()) }
}

fn index_len(width: Width) -> u32 {
    width
        .get()
        .checked_sub(1)
        .and_then(u16::checked_ilog2)
        .map_or(0, |log| log.saturating_add(1))
}

/// Bits of each byte that belong to the input: 8, or fewer in the last one.
fn byte_lens(width: Width) -> impl Iterator<Item = u32> {
    let bits = width.get();
    (0..bits)
        .step_by(8)
        .map(move |start| u32::from(bits.saturating_sub(start).min(8)))
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(width: Width, before: &[u8], after: &[u8]) -> (Vec<u8>, usize) {
        let mut out = Vec::new();
        let mut writer = BitWriter::new(&mut out);
        write(&mut writer, width, before, after);
        let mut reader = BitReader::new(&out);
        check(&mut reader, width).unwrap();
        let len = out.len() * 8 - reader.len();
        (out, len)
    }

    #[test]
    fn lengths_are_as_stated() {
        let pad = Width::bits::<16>();
        assert_eq!(encode(pad, &[0, 0], &[0, 1]).1, 1 + 4, "one button");
        assert_eq!(encode(pad, &[0, 0], &[1, 1]).1, 1 + 16, "two buttons");
        let stick = Width::bits::<32>();
        assert_eq!(encode(stick, &[0; 4], &[0, 0, 1, 0]).1, 1 + 5);
        assert_eq!(encode(stick, &[0; 4], &[0, 0, 3, 9]).1, 1 + 4 + 16);
        assert_eq!(encode(Width::bits::<1>(), &[0], &[0x80]).1, 1, "no index");
    }

    #[test]
    fn the_longest_is_len_max() {
        for width in [1, 2, 7, 8, 9, 16, 17, 31, 33, 2_048].map(|bits| Width::new(bits).unwrap()) {
            let mut ones = vec![0xff; width.byte_len()];
            let spare = width.byte_len() * 8 - usize::from(width.get());
            *ones.last_mut().unwrap() <<= spare;
            let len = encode(width, &vec![0; width.byte_len()], &ones).1;
            if width.get() > 1 {
                assert_eq!(len, usize::try_from(len_max(width)).unwrap(), "{width:?}");
            }
        }
    }

    #[test]
    fn refuses_encodings_that_write_does_not_produce() {
        let width = Width::bits::<17>();
        let cases: [(&[(u64, u32)], &str); 4] = [
            (&[(0, 1), (17, 5)], "index past the end"),
            (&[(1, 1), (0, 3)], "nothing set"),
            (&[(1, 1), (0b100, 3), (1, 8)], "one bit has a shorter form"),
            (
                &[(1, 1), (0b110, 3), (3, 8), (0, 8)],
                "a masked byte is zero",
            ),
        ];
        for (fields, why) in cases {
            let mut out = Vec::new();
            let mut writer = BitWriter::new(&mut out);
            for &(value, len) in fields {
                writer.bits(value, len);
            }
            assert_eq!(
                check(&mut BitReader::new(&out), width),
                Err(Malformed),
                "{why}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_width_is_decoded_as_encoded(bits in 1_u16..200, seed: [u8; 25], other: [u8; 25], keep: [bool; 25]) {
            let width = Width::new(bits).unwrap();
            let len = width.byte_len();
            let spare = len * 8 - usize::from(bits);
            let mut before = seed[..len].to_vec();
            let mut after = other[..len].to_vec();
            for index in 0..len {
                if keep[index] { after[index] = before[index]; }
            }
            before[len - 1] = before[len - 1] >> spare << spare;
            after[len - 1] = after[len - 1] >> spare << spare;
            prop_assume!(before != after);
            let (encoded, _) = encode(width, &before, &after);
            let mut reader = BitReader::new(&encoded);
            apply(&mut reader, width, &mut before).unwrap();
            prop_assert_eq!(before, after);
            prop_assert_eq!(reader.align(), Ok(()));
        }

        #[test]
        fn any_bits_decode_to_their_own_encoding_or_not_at_all(bits in 1_u16..70, bytes: [u8; 12]) {
            let width = Width::new(bits).unwrap();
            let before = vec![0; width.byte_len()];
            let mut after = before.clone();
            let mut reader = BitReader::new(&bytes);
            if apply(&mut reader, width, &mut after).is_ok() {
                let taken = bytes.len() * 8 - reader.len();
                let (encoded, len) = encode(width, &before, &after);
                prop_assert_eq!(len, taken);
                let (mut one, mut two) = (BitReader::new(&bytes), BitReader::new(&encoded));
                for _ in 0..len {
                    prop_assert_eq!(one.bit(), two.bit());
                }
            }
        }
    }
}
