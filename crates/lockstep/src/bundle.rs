//! One closed tick, coded against the tick before it.
//!
//! Bits, most significant first; the bundle ends at a byte boundary, padded with zeros, so that a
//! datagram is a slice of the chain and each bundle is encoded once.
//!
//! | field | bits |
//! |---|---|
//! | extension | 1, zero; one is reserved for orders, delay changes, and ticks split by seat |
//! | run | Elias gamma: seats that did not change; ends the bundle if it reaches the last seat |
//! | origin changed | 1 |
//! | – if set: exclusive or of both origin codes | 2, not zero |
//! | – if set: value changed | 1 |
//! | change of the value, if it changed | [`delta`] |
//! | ... run, change, run, change to the last seat | |
//!
//! Differences are exclusive ors: a bundle can be checked and measured without the one before it.

use crate::bits::{BitReader, BitWriter, Malformed};
use crate::delta;
use crate::input::{Origin, Row, Width};

/// Parameters for decoding a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Seats of the match, at least 1.
    pub seats: u16,
    /// Bits of one input.
    pub width: Width,
}

impl Shape {
    /// Returns the length of the longest bundle, in bytes: every seat changes all its bits.
    #[must_use]
    pub fn bundle_len_max(self) -> usize {
        // Run of zero, origin flag, origin, value flag, value.
        let record = delta::len_max(self.width).saturating_add(1 + 1 + 2 + 1);
        let bits = u32::from(self.seats).saturating_mul(record);
        usize::try_from(bits.saturating_add(1).div_ceil(8)).unwrap_or(usize::MAX)
    }
}

/// Checks the bundle at the front of `bytes` and returns its length in bytes.
///
/// Reads at most `shape.seats` records. Each takes bits, so work is linear in the length too.
///
/// # Errors
///
/// [`Malformed`] if it ends early, uses reserved bits, or is not canonical.
pub fn check(bytes: &[u8], shape: Shape) -> Result<usize, Malformed> {
    let mut reader = BitReader::new(bytes);
    walk(&mut reader, shape, |_, _, reader, value_changed| {
        if value_changed {
            delta::check(reader, shape.width)?;
        }
        Ok(())
    })?;
    reader.align()?;
    Ok(reader.byte_position())
}

pub(crate) fn encode(before: &Row, after: &Row, out: &mut Vec<u8>) {
    let mut writer = BitWriter::new(out);
    writer.bit(false);
    let mut run = 0_u32;
    let len = after.width.byte_len().max(1);
    let origins = before.origins.iter().zip(&after.origins);
    let values = before
        .values
        .chunks_exact(len)
        .zip(after.values.chunks_exact(len));
    for ((old_origin, new_origin), (old, new)) in origins.zip(values) {
        // Values are a few bytes long, so compare them in place.
        let is_same = old
            .iter()
            .zip(new)
            .fold(0, |all, (old, new)| all | (old ^ new))
            == 0;
        if is_same && old_origin == new_origin {
            run = run.saturating_add(1);
            continue;
        }
        writer.gamma(run);
        run = 0;
        writer.bit(old_origin != new_origin);
        if old_origin != new_origin {
            writer.bits(u64::from(old_origin.code() ^ new_origin.code()), 2);
            writer.bit(!is_same);
        }
        if !is_same {
            delta::write(&mut writer, after.width, old, new);
        }
    }
    if run > 0 {
        writer.gamma(run);
    }
}

/// Applies a bundle to the row of the tick before; one that fails [`check`] may change part of it.
pub(crate) fn apply(bytes: &[u8], row: &mut Row) -> Result<(), Malformed> {
    let width = row.width;
    let shape = Shape {
        seats: u16::try_from(row.origins.len()).map_err(|_| Malformed)?,
        width,
    };
    let len = width.byte_len();
    walk(
        &mut BitReader::new(bytes),
        shape,
        |seat, origin_change, reader, value_changed| {
            let seat = usize::from(seat);
            let origin = row.origins.get_mut(seat).ok_or(Malformed)?;
            *origin = Origin::from_code(origin.code() ^ origin_change);
            if value_changed {
                let start = seat.saturating_mul(len);
                let value = row
                    .values
                    .get_mut(start..start.saturating_add(len))
                    .ok_or(Malformed)?;
                delta::apply(reader, width, value)?;
            }
            Ok(())
        },
    )
}

/// Calls `on_change(seat, origin_change, reader, value_changed)` for each seat that changed.
fn walk<'a>(
    reader: &mut BitReader<'a>,
    shape: Shape,
    mut on_change: impl FnMut(u16, u8, &mut BitReader<'a>, bool) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    if reader.bit()? {
        return Err(Malformed);
    }
    let mut seat = 0_u16;
    while seat < shape.seats {
        let left = shape.seats.saturating_sub(seat);
        let run = u16::try_from(reader.gamma(left.into())?).map_err(|_| Malformed)?;
        seat = seat.saturating_add(run);
        if seat >= shape.seats {
            break;
        }
        let origin_changed = reader.bit()?;
        let (mut origin_change, mut value_changed) = (0, true);
        if origin_changed {
            origin_change = u8::try_from(reader.bits(2)?).map_err(|_| Malformed)?;
            value_changed = reader.bit()?;
            if origin_change == 0 {
                return Err(Malformed);
            }
        }
        on_change(seat, origin_change, reader, value_changed)?;
        seat = seat.saturating_add(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::Seat;

    const ORIGINS: [Origin; 4] = [
        Origin::Confirmed,
        Origin::Substituted,
        Origin::Absent,
        Origin::Server,
    ];

    fn shape(seats: u16, bits: u16) -> Shape {
        let width = Width::new(bits).unwrap();
        Shape { seats, width }
    }

    fn row(shape: Shape, value: u8, origin: Origin) -> Row {
        let mut row = Row::initial(shape.seats, shape.width, &vec![0; shape.width.byte_len()]);
        row.values.fill(value);
        row.origins.fill(origin);
        row
    }

    #[test]
    fn a_quiet_tick_is_one_byte_for_eight_seats() {
        let shape = shape(8, 16);
        let quiet = row(shape, 5, Origin::Confirmed);
        let mut out = Vec::new();
        encode(&quiet, &quiet, &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(check(&out, shape), Ok(1));
    }

    #[test]
    fn the_longest_bundle_is_bundle_len_max() {
        for (seats, bits) in [(1, 16), (2, 32), (8, 16), (64, 32), (3, 2_048)] {
            let shape = shape(seats, bits);
            let mut out = Vec::new();
            encode(
                &row(shape, 0, Origin::Absent),
                &row(shape, 0xff, Origin::Substituted),
                &mut out,
            );
            assert_eq!(out.len(), shape.bundle_len_max(), "{shape:?}");
            assert_eq!(check(&out, shape), Ok(out.len()));
        }
    }

    #[test]
    fn reserved_encodings_are_refused() {
        let shape = shape(2, 8);
        assert_eq!(check(&[0b1110_0000], shape), Err(Malformed), "extension");
        // Extension 0, run of 0, origin changed, by nothing.
        assert_eq!(check(&[0b0110_0000], shape), Err(Malformed), "no change");
        // Extension 0, run of 3 in a match of 2 seats.
        assert_eq!(check(&[0b0001_0000], shape), Err(Malformed), "long run");
    }

    proptest! {
        #[test]
        fn any_chain_is_decoded_as_encoded(
            bits in 1_u16..40,
            ticks in prop::collection::vec(prop::collection::vec((any::<u64>(), 0_usize..4, any::<bool>()), 5), 1..20),
        ) {
            let shape = shape(5, bits);
            let start = row(shape, 0, Origin::Absent);
            let (mut before, mut replayed) = (start.clone(), start);
            for tick in ticks {
                let mut after = before.clone();
                for (seat, (value, origin, keep)) in tick.into_iter().enumerate() {
                    if keep { continue; }
                    let mut bytes = Vec::new();
                    BitWriter::new(&mut bytes).bits(value, u32::from(bits));
                    after.set(Seat(u16::try_from(seat).unwrap()), &bytes, ORIGINS[origin]);
                }
                let mut out = Vec::new();
                encode(&before, &after, &mut out);
                prop_assert!(out.len() <= shape.bundle_len_max());
                prop_assert_eq!(check(&out, shape), Ok(out.len()));
                apply(&out, &mut replayed).unwrap();
                prop_assert_eq!(&replayed, &after);
                before = after;
            }
        }

        #[test]
        fn any_bytes_are_their_own_encoding_or_refused(bytes: [u8; 24], seats in 1_u16..6, bits in 1_u16..20) {
            let shape = shape(seats, bits);
            if let Ok(len) = check(&bytes, shape) {
                let before = row(shape, 0, Origin::Absent);
                let mut after = before.clone();
                apply(&bytes[..len], &mut after).unwrap();
                let mut out = Vec::new();
                encode(&before, &after, &mut out);
                prop_assert_eq!(&out, &bytes[..len]);
            }
        }
    }
}
