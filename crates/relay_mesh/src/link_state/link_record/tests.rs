use crypto::Identity;
use netsim::provider::SimProvider;
use proptest::prelude::*;
use wire::Seed;

use super::*;
use crate::measure::LinkReport;

const NETWORK: Network = Network([9; 16]);

fn record(reports: usize) -> LinkRecord {
    LinkRecord {
        origin: NodeId([1; 32]),
        version: 0x0203,
        list: [4, 5],
        is_leaving: true,
        urgency: Urgency::RootNews,
        follows: 0x0607_0809,
        reports: (0..reports)
            .map(|index| LinkReport {
                delay: Cost::from_units(u16::try_from(index).unwrap()),
                loss: LossCode(7),
            })
            .collect(),
    }
}

#[test]
fn the_bytes_are_frozen() {
    let mut expected = vec![1; 32];
    expected.extend([
        0, 0, 0, 0, 0, 0, 2, 3, 4, 5, 7, 2, 6, 7, 8, 9, 0, 0, 7, 0, 1, 7,
    ]);
    assert_eq!(record(2).body(), expected);
}

#[test]
fn pg6_another_key_list_network_or_byte_is_refused() {
    let mut provider = SimProvider::new(Seed::from_number(1));
    let identity = Identity::generate(&mut provider).unwrap();
    let key = provider.signing_key(&identity).unwrap();
    let record = record(64);
    let list = [6; 32];
    let bytes = record.sign(&mut provider, &key, NETWORK, &list).unwrap();
    assert_eq!(bytes.len(), LinkRecord::LEN_MAX);
    assert_eq!(LinkRecord::decode(&bytes), Ok(record));
    let public = identity.public_key();
    let verify = |network, list: &[u8; 32], bytes: &[u8]| {
        LinkRecord::verify(&provider, public, network, list, bytes)
    };
    assert!(verify(NETWORK, &list, &bytes));
    assert!(!verify(Network([8; 16]), &list, &bytes));
    assert!(!verify(NETWORK, &[7; 32], &bytes));
    for index in (0..bytes.len()).step_by(13) {
        let mut changed = bytes.clone();
        changed[index] ^= 1;
        assert!(!verify(NETWORK, &list, &changed), "byte {index}");
    }
    assert!(!verify(NETWORK, &list, &[]));
}

/// A negative cost would make the route search loop for ever at every entry: P5 (and PG6, which
/// lists values that integers cannot have).
#[test]
fn pg6_pgd_p5_a_cost_of_any_bits_is_none_below_nothing_or_is_refused() {
    let mut bytes = record(1).body();
    bytes.extend([0; 64]);
    let at = bytes.len() - 64 - 3;
    for units in 0..=u16::MAX {
        bytes[at..at + 2].copy_from_slice(&units.to_be_bytes());
        let reported = LinkRecord::decode(&bytes).map(|record| record.reports[0].delay);
        let expected = if units <= Cost::UNROUTABLE.units() {
            Ok(Cost::from_units(units))
        } else {
            Err(DecodeError::BadValue)
        };
        assert_eq!(reported, expected, "{units}");
        assert!(reported.is_ok_and(|cost| cost.lane() >= 0) || units > 0x7fff);
    }
    let over = 1 + u8::try_from(NEIGHBOURS_MAX).unwrap();
    bytes[32 + 8 + 2 + 1] = over;
    let refused = DecodeError::OverLimit {
        found: over.into(),
        max: NEIGHBOURS_MAX,
    };
    assert_eq!(LinkRecord::decode(&bytes), Err(refused), "oversized");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..320), count in 0_u8..70) {
        let mut bytes = bytes;
        for (index, value) in [(42, count & 7), (43, count)] {
            if let Some(byte) = bytes.get_mut(index) {
                *byte = value;
            }
        }
        bytes.truncate(112 + usize::from(count) * 3);
        if let Ok(record) = LinkRecord::decode(&bytes) {
            prop_assert_eq!(record.body(), &bytes[..bytes.len() - 64]);
        }
    }
}

fn bytes(delta: &LinkDelta) -> Vec<u8> {
    let mut bytes = Vec::new();
    delta.write(&mut Writer::new(&mut bytes));
    bytes
}

#[test]
fn the_bytes_are_frozen_and_each_rule_is_kept() {
    let report = LinkReport {
        delay: Cost::from_units(0x0102),
        loss: LossCode(3),
    };
    let delta = LinkDelta {
        origin: ShortId([7; 8]),
        base: 0x0a0b_0c0d,
        after: 0x0e0f,
        changes: vec![(4, report), (9, report)],
    };
    let expected = [
        &[7; 8][..],
        &[10, 11, 12, 13, 14, 15, 2, 4, 1, 2, 3, 9, 1, 2, 3],
    ];
    let good = expected.concat();
    assert_eq!(bytes(&delta), good);
    let read = |bytes: &[u8]| LinkDelta::read(&mut Reader::new(bytes));
    assert_eq!(read(&good), Ok(delta));
    for (place, value, error) in [
        (13, 0, None),
        (14, 65, Some(DecodeError::OverLimit { found: 65, max: 64 })),
        (14, 3, Some(DecodeError::Truncated)),
        (16, 0x7f, None),
        (18, 255, Some(DecodeError::BadValue)),
        (19, 4, Some(DecodeError::Unordered)),
    ] {
        let mut changed = good.clone();
        changed[place] = value;
        assert_eq!(read(&changed).err(), error, "{place}");
    }
    let mut silent = good.clone();
    silent[12] = 0;
    silent[13] = 0;
    assert_eq!(read(&silent), Err(DecodeError::BadValue), "after nothing");
    let mut down = good;
    down[16] = 0x7f;
    down[17] = 0xff;
    assert_eq!(read(&down), Err(DecodeError::BadValue), "no link goes down");
}

proptest! {
    #[test]
    fn whatever_is_read_is_written_the_same(
        mut input in prop::collection::vec(any::<u8>(), 0..60),
        count in 0_u8..4,
    ) {
        if let Some(byte) = input.get_mut(14) {
            *byte = count;
        }
        let mut reader = Reader::new(&input);
        if let Ok(delta) = LinkDelta::read(&mut reader) {
            let rest = reader.len();
            let written = bytes(&delta);
            prop_assert!(written.len() <= LinkDelta::LEN_MAX);
            prop_assert_eq!(&written[..], &input[..input.len() - rest]);
        }
    }
}
