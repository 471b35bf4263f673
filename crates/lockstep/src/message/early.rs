//! Inputs of open ticks, forwarded by the server.

use wire::Seat;

use super::DecodeError;
use crate::bits::{BitReader, BitWriter, Malformed};
use crate::bundle::Shape;
use crate::delta;
use crate::input_log::AHEAD_MAX;

/// Inputs of some seats for ticks that are not closed; precedes turns, for clients that predict.
///
/// | field | bits |
/// |---|---|
/// | kind `0x85` | 8 |
/// | low half of the first tick that is not closed | 16 |
/// | run | Elias gamma: seats of which nothing is said; ends it where it reaches the last seat |
/// | – ahead | gamma: ticks from that first one, or from the one after the seat's last input here; 63 at most from the first |
/// | – changed | 1: the input is not the neutral one, or the seat's last input here |
/// | – change, where it is not | [`delta`] |
/// | – more | 1: another input of this seat, from `ahead` on |
/// | ... run, inputs, run, inputs to the last seat | |
///
/// Padded with zero bits to a whole byte. A message of kind `0x82` or `0x83` follows.
#[derive(Clone, Copy, Debug)]
pub struct EarlyInputs<'a> {
    /// Low half of the first tick that was not closed.
    pub first_low: u16,
    /// At the first run.
    reader: BitReader<'a>,
    shape: Shape,
}

impl PartialEq for EarlyInputs<'_> {
    fn eq(&self, other: &Self) -> bool {
        let bits = |early: &Self| {
            let mut reader = early.reader;
            core::iter::from_fn(move || reader.bit().ok())
        };
        (self.first_low, self.shape) == (other.first_low, other.shape) && bits(self).eq(bits(other))
    }
}

impl Eq for EarlyInputs<'_> {}

impl EarlyInputs<'_> {
    /// Unpacks the inputs: calls `on_input` with seat, ticks from the first, and bits of each.
    /// `input`, as long as `neutral`, is a work buffer.
    ///
    /// Work is linear in the length of the datagram, and at most 64 inputs per seat.
    pub fn unpack(
        &self,
        input: &mut [u8],
        neutral: &[u8],
        mut on_input: impl FnMut(Seat, u32, &[u8]),
    ) {
        let mut reader = self.reader;
        let mut last = None;
        let walked = walk(
            &mut reader,
            self.shape,
            |seat, ahead, is_changed, reader| {
                if last != Some(seat) {
                    last = Some(seat);
                    for (byte, neutral) in input.iter_mut().zip(neutral) {
                        *byte = *neutral;
                    }
                }
                if is_changed {
                    delta::apply(reader, self.shape.width, input)?;
                }
                on_input(seat, ahead, input);
                Ok(())
            },
        );
        debug_assert!(walked.is_ok(), "`decode` walked the same bits");
    }
}

/// Decodes the message after its kind; returns it and the bytes of the following message.
pub(super) fn decode(
    first_low: u16,
    bytes: &[u8],
    shape: Shape,
) -> Result<(EarlyInputs<'_>, &[u8]), DecodeError> {
    let mut reader = BitReader::new(bytes);
    let early = EarlyInputs {
        first_low,
        reader,
        shape,
    };
    walk(&mut reader, shape, |_, _, is_changed, reader| {
        if is_changed {
            delta::check(reader, shape.width)?;
        }
        Ok(())
    })?;
    reader.align()?;
    let rest = bytes
        .get(reader.byte_position()..)
        .ok_or(DecodeError::Truncated)?;
    Ok((early, rest))
}

/// Calls `on_input(seat, ahead, is_changed, reader)` for each input.
fn walk<'a>(
    reader: &mut BitReader<'a>,
    shape: Shape,
    mut on_input: impl FnMut(Seat, u32, bool, &mut BitReader<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut seat = 0_u16;
    loop {
        let left = shape.seats.saturating_sub(seat);
        let run = u16::try_from(reader.gamma(left.into())?).map_err(|_| Malformed)?;
        seat = seat.saturating_add(run);
        if seat >= shape.seats {
            return Ok(());
        }
        let mut ahead = 0_u32;
        loop {
            // Read no more than the rest of the 64 ticks.
            let most = AHEAD_MAX
                .checked_sub(ahead)
                .and_then(|left| left.checked_sub(1))
                .ok_or(Malformed)?;
            ahead = ahead.saturating_add(reader.gamma(most)?);
            let is_changed = reader.bit()?;
            on_input(Seat(seat), ahead, is_changed, reader)?;
            ahead = ahead.saturating_add(1);
            if !reader.bit()? {
                break;
            }
        }
        seat = seat.saturating_add(1);
        if seat == shape.seats {
            return Ok(());
        }
    }
}

/// Encodes [`EarlyInputs`], seat by seat in order.
#[derive(Debug)]
pub(crate) struct EarlyWriter<'a> {
    bits: BitWriter<'a>,
    shape: Shape,
    /// First seat not yet written.
    seat: u16,
    /// The seat being written, and the number of ticks to the one after its last input.
    open: Option<(Seat, u32)>,
}

impl<'a> EarlyWriter<'a> {
    /// Starts after kind and first tick.
    pub(crate) const fn new(bits: BitWriter<'a>, shape: Shape) -> Self {
        Self {
            bits,
            shape,
            seat: 0,
            open: None,
        }
    }

    /// Most bytes that one more input takes, including the end of the message.
    pub(crate) fn input_len_max(shape: Shape) -> usize {
        // The bit that ends the previous seat, a run, ahead, two flags, and the last run.
        const FRAME: u32 = 1 + 31 + 13 + 2 + 33;
        let bits = delta::len_max(shape.width).saturating_add(FRAME);
        usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX)
    }

    /// Adds an input of `seat`, `ahead` ticks from the first; `before` is the seat's previous one
    /// here, or the neutral one. Call it in order of seats and ticks.
    pub(crate) fn input(&mut self, seat: Seat, ahead: u32, before: &[u8], input: &[u8]) {
        let from = match self.open {
            Some((open, next)) if open == seat => {
                self.bits.bit(true);
                next
            }
            Some(_) | None => {
                self.close_seat();
                self.bits.gamma(seat.0.saturating_sub(self.seat).into());
                self.seat = seat.0.saturating_add(1);
                0
            }
        };
        self.bits.gamma(ahead.saturating_sub(from));
        self.bits.bit(before != input);
        if before != input {
            delta::write(&mut self.bits, self.shape.width, before, input);
        }
        self.open = Some((seat, ahead.saturating_add(1)));
    }

    /// Returns the current length of the vector.
    pub(crate) const fn out_len(&self) -> usize {
        self.bits.out_len()
    }

    /// Ends the message.
    pub(crate) fn finish(mut self) {
        self.close_seat();
        let left = self.shape.seats.saturating_sub(self.seat);
        if left > 0 {
            self.bits.gamma(left.into());
        }
    }

    fn close_seat(&mut self) {
        if self.open.take().is_some() {
            self.bits.bit(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Width;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn shape(seats: u16, bits: u16) -> Shape {
        let width = Width::new(bits).unwrap();
        Shape { seats, width }
    }

    type Inputs = BTreeMap<(u16, u32), Vec<u8>>;

    fn written(shape: Shape, inputs: &Inputs) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = EarlyWriter::new(BitWriter::new(&mut out), shape);
        let neutral = vec![0; shape.width.byte_len()];
        let mut before = (None, neutral.clone());
        for ((seat, ahead), input) in inputs {
            if before.0 != Some(seat) {
                before = (Some(seat), neutral.clone());
            }
            writer.input(Seat(*seat), *ahead, &before.1, input);
            before.1.clone_from(input);
        }
        writer.finish();
        out
    }

    fn unpacked(early: &EarlyInputs<'_>) -> Inputs {
        let neutral = vec![0; early.shape.width.byte_len()];
        let mut inputs = BTreeMap::new();
        let mut scratch = neutral.clone();
        early.unpack(&mut scratch, &neutral, |seat, ahead, input| {
            let old = inputs.insert((seat.0, ahead), input.to_vec());
            assert_eq!(old, None, "one word for each seat and tick");
        });
        inputs
    }

    #[test]
    fn one_changed_pad_of_eight_takes_3_bytes() {
        // Run 3: 5 bits; next tick: 1; changed: 1; one of 16 bits: 5; no more: 1; run 4: 5.
        let inputs = BTreeMap::from([((3, 0), vec![0, 4])]);
        assert_eq!(written(shape(8, 16), &inputs).len(), 3);
    }

    #[test]
    fn l8_no_more_than_64_inputs_of_a_seat_are_read() {
        let shape = shape(1, 8);
        let all = |count: u32| (0..count).map(|ahead| ((0, ahead), vec![7])).collect();
        let bytes = written(shape, &all(64));
        let (early, rest) = decode(5, &bytes, shape).unwrap();
        assert_eq!((unpacked(&early), rest), (all(64), &[][..]));
        let too_many = written(shape, &all(65));
        assert_eq!(decode(5, &too_many, shape), Err(DecodeError::Malformed));
        let too_far = BTreeMap::from([((0, 64), vec![7])]);
        let too_far = written(shape, &too_far);
        assert_eq!(decode(5, &too_far, shape), Err(DecodeError::Malformed));
    }

    proptest! {
        #[test]
        fn what_is_written_comes_back(
            bits in 1_u16..40,
            wanted in prop::collection::btree_map((0_u16..5, 0_u32..64), any::<u64>(), 0..40),
        ) {
            let shape = shape(5, bits);
            let input = |value: u64| {
                let mut bytes = Vec::new();
                BitWriter::new(&mut bytes).bits(value, bits.into());
                bytes
            };
            let inputs: Inputs = wanted.into_iter().map(|(key, value)| (key, input(value))).collect();
            let mut bytes = written(shape, &inputs);
            let most = EarlyWriter::input_len_max(shape).saturating_mul(inputs.len().max(1));
            prop_assert!(bytes.len() <= most);
            bytes.extend_from_slice(b"rest");
            let (early, rest) = decode(9, &bytes, shape).unwrap();
            prop_assert_eq!(unpacked(&early), inputs);
            prop_assert_eq!(rest, b"rest");
        }

        #[test]
        fn any_bytes_are_their_own_encoding_or_refused(bytes: [u8; 24], seats in 1_u16..6, bits in 1_u16..20) {
            let shape = shape(seats, bits);
            if let Ok((early, rest)) = decode(0, &bytes, shape) {
                let len = bytes.len().saturating_sub(rest.len());
                prop_assert_eq!(&written(shape, &unpacked(&early))[..], &bytes[..len]);
            }
        }
    }
}
