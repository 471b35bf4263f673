use super::super::*;
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
    let (early, rest) = decode_early(5, &bytes, shape).unwrap();
    assert_eq!((unpacked(&early), rest), (all(64), &[][..]));
    let too_many = written(shape, &all(65));
    assert_eq!(
        decode_early(5, &too_many, shape),
        Err(DecodeError::Malformed)
    );
    let too_far = BTreeMap::from([((0, 64), vec![7])]);
    let too_far = written(shape, &too_far);
    assert_eq!(
        decode_early(5, &too_far, shape),
        Err(DecodeError::Malformed)
    );
}

proptest! {
    #[test]
    fn what_is_written_is_decoded(
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
        let (early, rest) = decode_early(9, &bytes, shape).unwrap();
        prop_assert_eq!(unpacked(&early), inputs);
        prop_assert_eq!(rest, b"rest");
    }

    #[test]
    fn any_bytes_are_their_own_encoding_or_refused(bytes: [u8; 24], seats in 1_u16..6, bits in 1_u16..20) {
        let shape = shape(seats, bits);
        if let Ok((early, rest)) = decode_early(0, &bytes, shape) {
            let len = bytes.len().saturating_sub(rest.len());
            prop_assert_eq!(&written(shape, &unpacked(&early))[..], &bytes[..len]);
        }
    }
}
