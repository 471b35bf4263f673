use super::super::*;

/// Four seats of 16 bits: an unchanged tick, and one without seat 1, as in
/// `testdata/hosted.hex`.
const QUIET: &[u8] = &[0x14];
const GOES: &[u8] = &[0x2c, 0x60];

fn shape() -> Shape {
    Shape {
        seats: 4,
        width: Width::bits::<16>(),
    }
}

#[test]
fn known_turns_are_decoded_alike() {
    let bundles: Vec<_> = (0..40)
        .map(|index| if index % 3 == 1 { GOES } else { QUIET })
        .collect();
    let mut datagram = Vec::new();
    write_turns_head(&mut datagram, 9, 3, 700, None);
    for bundle in &bundles {
        datagram.extend_from_slice(bundle);
    }
    let plain = decode_down(&datagram, Some(shape())).unwrap();
    let all = |first_low, index| (first_low == 700).then(|| bundles[index as usize]);
    let others = |_, index: u32| bundles.get(index as usize + 1).copied();
    let none: fn(u16, u32) -> Option<&'static [u8]> = |_, _| Some(&[]);
    for read in [
        decode_down_knowing(&datagram, Some(shape()), all),
        decode_down_knowing(&datagram, Some(shape()), others),
        decode_down_knowing(&datagram, Some(shape()), none),
    ] {
        assert_eq!(read, Ok(plain));
    }
    let Down::Turns(turns) = plain else {
        panic!("turns were written");
    };
    assert!(turns.bundles.iter().eq(bundles.iter().copied()));
    // A truncated bundle is refused, whatever is known.
    datagram.pop();
    datagram.push(0x2c);
    let cut = decode_down_knowing(&datagram, Some(shape()), all);
    assert_eq!(cut, Err(DecodeError::Malformed));
}
