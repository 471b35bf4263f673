//! Packet numbers, headers and first bytes.

use proptest::prelude::*;
use wire::Seed;

use super::*;

fn number(value: u64) -> PacketNumber {
    PacketNumber::new(value).unwrap()
}

/// The nearest number, found by trying all three candidates; the higher of two equally near.
fn nearest(expected: u64, low: u64, window: u64) -> u64 {
    let middle = expected - expected % window + low;
    [
        middle.checked_sub(window),
        Some(middle),
        Some(middle + window),
    ]
    .into_iter()
    .flatten()
    .filter(|&candidate| candidate <= PacketNumber::MAX.get())
    .min_by_key(|&candidate| (candidate.abs_diff(expected), u64::MAX - candidate))
    .unwrap()
}

fn edges() -> impl Strategy<Value = u64> {
    let near = |middle: u64| {
        (0..200_000_u64).prop_map(move |offset| {
            (middle + offset)
                .saturating_sub(100_000)
                .min(PacketNumber::MAX.get())
        })
    };
    prop_oneof![
        near(0),
        near(1 << 16),
        near(1 << 32),
        near(1 << 62),
        0..1_u64 << 62
    ]
}

proptest! {
    #[test]
    fn twp_r3_widening_finds_the_nearest(expected in edges(), low: u32) {
        let [_, _, c, d] = low.to_be_bytes();
        let short = u16::from_be_bytes([c, d]);
        prop_assert_eq!(
            number(expected).widen(TruncatedNumber::Two(short)).get(),
            nearest(expected, short.into(), 1 << 16)
        );
        prop_assert_eq!(
            number(expected).widen(TruncatedNumber::Four(low)).get(),
            nearest(expected, low.into(), 1 << 32)
        );
    }

    #[test]
    fn twp_r3_numbers_within_half_a_window_come_back(
        expected in edges(),
        short in -32_767_i64..32_768,
        long in -2_147_483_647_i64..2_147_483_648,
    ) {
        for (offset, form) in [(short, Form::Two), (long, Form::Four)] {
            let truth = expected.checked_add_signed(offset).and_then(PacketNumber::new);
            if let Some(truth) = truth {
                prop_assert_eq!(number(expected).widen(truth.truncate(form)), truth);
            }
        }
    }

    #[test]
    fn headers_round_trip(
        cid in prop::collection::vec(any::<u8>(), 0..=8),
        value in 0..1_u64 << 62,
        odd: bool,
        long: bool,
        body in 20_usize..40,
    ) {
        let header = Header {
            key_phase: if odd { KeyPhase::Odd } else { KeyPhase::Even },
            destination: Cid::from_slice(&cid).unwrap(),
            number: number(value).truncate(if long { Form::Four } else { Form::Two }),
        };
        let mut datagram = Vec::new();
        header.encode(&mut datagram);
        prop_assert_eq!(datagram.len(), header.encoded_len());
        prop_assert!(header.encoded_len() <= Header::LEN_MAX);
        prop_assert_eq!(Kind::of(datagram[0]), Kind::Protected);
        datagram.resize(header.encoded_len() + body, 0xA5);
        prop_assert_eq!(Header::decode(&datagram, cid.len()), Ok(header));
        datagram.truncate(header.encoded_len() + 19);
        prop_assert_eq!(Header::decode(&datagram, cid.len()), Err(HeaderError::Truncated));
    }

    #[test]
    fn twp_m3_any_bytes_decode_or_are_refused(
        datagram in prop::collection::vec(any::<u8>(), 0..64),
        cid_len in 0_usize..20,
    ) {
        if let Ok(header) = Header::decode(&datagram, cid_len) {
            let mut again = Vec::new();
            header.encode(&mut again);
            prop_assert_eq!(&again[..], &datagram[..header.encoded_len()]);
        }
    }
}

#[test]
fn twp_r3_all_two_byte_offsets_are_exact_at_every_edge() {
    let edges = [0, 1, 40_000, 1 << 16, (1 << 32) - 1, 1 << 32, (1 << 62) - 1];
    for expected in edges {
        for offset in -32_767_i64..=32_767 {
            let truth = expected_plus(expected, offset);
            if let Some(truth) = truth {
                assert_eq!(
                    number(expected).widen(truth.truncate(Form::Two)),
                    truth,
                    "{expected} {offset}"
                );
            }
        }
    }
}

fn expected_plus(expected: u64, offset: i64) -> Option<PacketNumber> {
    expected
        .checked_add_signed(offset)
        .and_then(PacketNumber::new)
}

#[test]
fn numbers_end_below_two_to_the_62nd() {
    assert_eq!(PacketNumber::new(1 << 62), None);
    assert_eq!(PacketNumber::MAX.next(), None);
    assert_eq!(PacketNumber::ZERO.next(), Some(number(1)));
    assert_eq!(PacketNumber::ZERO.checked_sub(1), None);
}

#[test]
fn the_number_length_grows_with_unacknowledged_packets() {
    let base = number(1 << 40);
    let at = |distance: u64| number(base.get() + distance).form_after(base);
    assert_eq!(at(0), Some(Form::Two));
    assert_eq!(at((1 << 14) - 1), Some(Form::Two));
    assert_eq!(at(1 << 14), Some(Form::Four));
    assert_eq!(at((1 << 30) - 1), Some(Form::Four));
    assert_eq!(at(1 << 30), None);
}

#[test]
fn first_bytes_are_classified_as_in_the_table() {
    for first in 0..=u8::MAX {
        let expected = match first {
            0x40..=0x7F => Kind::Protected,
            0x80..=0xBF => Kind::Envelope,
            0xC1 => Kind::Hello,
            0xC2 => Kind::Retry,
            0xC3 => Kind::Accept,
            0xC4 => Kind::Refuse,
            0xC5 => Kind::Version,
            _ => Kind::NotOurs,
        };
        assert_eq!(Kind::of(first), expected);
        let datagram = [first; 40];
        let is_packet = matches!(first, 0x40 | 0x50 | 0x60 | 0x70);
        assert_eq!(
            Header::decode(&datagram, 4).is_ok(),
            is_packet,
            "{first:#x}"
        );
    }
}

#[test]
fn ids_hold_up_to_eight_bytes() {
    assert_eq!(Cid::from_slice(&[1; 9]), None);
    let id = Cid::from_slice(&[1, 2, 3]).unwrap();
    assert_eq!(id.as_slice(), [1, 2, 3]);
    assert_eq!(id.padded(), &[1, 2, 3, 0, 0, 0, 0, 0]);
    assert_eq!(format!("{id:?}"), "Cid(010203)");
    assert!(Cid::EMPTY.is_empty());
    assert_eq!(Header::decode(&[0x40; 60], 9), Err(HeaderError::Truncated));
}

#[test]
fn twp_a4_every_1024_numbers_hold_a_skip_and_skips_are_64_apart() {
    for seed in 0..20 {
        let mut generator = Seed::from_number(seed).generator(0);
        let first = PacketNumber::new((1 << 32) - 50_000).unwrap();
        let mut policy = SkipPolicy::new(first, &mut generator);
        let mut last = first.get();
        let mut distances = Vec::new();
        let mut number = first;
        for _ in 0..100_000 {
            if policy.skips(number, &mut generator) {
                distances.push(number.get() - last);
                last = number.get();
            }
            number = number.next().unwrap();
        }
        assert!(
            distances
                .iter()
                .all(|distance| (64..1_024).contains(distance))
        );
        assert!(number.get() - last < 1_024);
        // Spread over the range.
        let near = distances.iter().filter(|distance| **distance < 544).count();
        assert!((distances.len() / 3..distances.len() * 2 / 3).contains(&near));
    }
}
