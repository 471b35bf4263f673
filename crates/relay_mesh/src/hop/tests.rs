use super::*;
use crypto::{Initial, Role};
use netsim::provider::SimProvider;
use proptest::prelude::*;
use wire::Seed;

fn frame(header: &[u8; 16], len: usize) -> Vec<u8> {
    let mut frame = header.to_vec();
    frame.resize(len, 0);
    frame
}

#[test]
fn the_layout_is_frozen() {
    let header = HopHeader {
        kind: HopKind::Sealed,
        epoch: 3,
        from: ShardId::new(5).unwrap(),
        hops_left: 2,
        label: LabelName {
            slot: 0x0102_0304,
            generation: 9,
        },
        phase: Phase {
            key: 63,
            piece: Piece::Second,
        },
        number: 0x00A1_A2A3_A4A5_A6A7,
    };
    assert_eq!(
        header.encode(),
        [
            0x81, 0x5B, 9, 0xFE, 1, 2, 3, 4, 0, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7
        ]
    );
}

#[test]
fn mesh_a1_truncated_oversize_and_unknown_frames_are_refused() {
    let mut header = [0; 16];
    header[0] = 0x81;
    assert_eq!(HopHeader::decode(&header[..15]), Err(HopError::Truncated));
    assert_eq!(
        HopHeader::decode(&frame(&header, 47)),
        Err(HopError::Truncated)
    );
    assert!(HopHeader::decode(&frame(&header, 48)).is_ok());
    assert!(HopHeader::decode(&frame(&header, FRAME_MAX)).is_ok());
    assert_eq!(
        HopHeader::decode(&frame(&header, FRAME_MAX + 1)),
        Err(HopError::Oversize(FRAME_MAX + 1))
    );
    for kind in 0x82..=0xBF {
        header[0] = kind;
        assert_eq!(
            HopHeader::decode(&frame(&header, 64)),
            Err(HopError::UnknownKind(kind))
        );
    }
}

proptest! {
    #[test]
    fn what_is_read_is_written_again(header: [u8; 16], len in 0_usize..1_400) {
        let frame = frame(&header, len.max(16));
        if let Ok(decoded) = HopHeader::decode(&frame) {
            prop_assert_eq!(decoded.encode(), header);
        }
    }

    #[test]
    fn reserved_bits_and_large_numbers_are_refused(
        is_sealed: bool,
        flags: u8,
        phase: u8,
        high: u8,
    ) {
        let mut header = [0; 16];
        header[0] = 0x80 | u8::from(is_sealed);
        header[1] = flags;
        header[3] = phase;
        header[8] = high;
        let flags_max = if is_sealed { 0x7F } else { 0x0F };
        let is_good = flags <= flags_max && phase & 3 != 3 && high == 0;
        prop_assert_eq!(HopHeader::decode(&frame(&header, 64)).is_ok(), is_good);
    }
}

const KEY: HopKey = HopKey([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

fn tagged(len: usize) -> Vec<u8> {
    let header = HopHeader {
        kind: HopKind::TagOnly,
        epoch: 0,
        from: ShardId::FIRST,
        hops_left: 3,
        label: LabelName {
            slot: 7,
            generation: 1,
        },
        phase: Phase {
            key: 0,
            piece: Piece::Whole,
        },
        number: 9,
    };
    let mut out = Vec::new();
    KEY.close(&header, &vec![5; len], &mut out);
    out
}

#[test]
fn the_hash_is_that_of_the_authors() {
    // Appendix A of "SipHash: a fast short-input PRF": 15 bytes, 0 to 14.
    let input: Vec<u8> = (0..15).collect();
    let hash = SipHasher24::new_with_key(&KEY.0).hash(&input);
    assert_eq!(hash, 0xa129_ca61_49be_45e5);
}

#[test]
fn mesh_f8_a_tag_only_frame_adds_40_bytes_and_a_sealed_one_48() {
    // 16 of header, 8 or 16 of hop tag, 16 of the flow's tag.
    assert_eq!(tagged(16).len(), 40);
    assert!(HopHeader::decode(&tagged(16)).is_ok());
    assert!(HopHeader::decode(&tagged(15)).is_err());
}

#[test]
fn mesh_a1_a_tag_holds_for_its_header_length_and_key_only() {
    let good = tagged(30);
    assert_eq!(
        KEY.open(&mut good.clone()).map(|body| body.to_vec()),
        Some(vec![5; 30])
    );
    for place in 0..24 {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[place] ^= 1 << bit;
            assert_eq!(KEY.open(&mut bad), None, "{place} {bit}");
        }
    }
    assert_eq!(KEY.open(&mut good[..53].to_vec()), None);
    assert_eq!(KEY.open(&mut [&good[..], &[0]].concat()), None);
    assert_eq!(HopKey([1; 16]).open(&mut good.clone()), None);
    // Not covered by the tag.
    let mut other = good;
    other[24] ^= 1;
    assert!(KEY.open(&mut other).is_some());
}

#[test]
fn mesh_a1_no_two_uses_of_a_label_have_one_key() {
    let provider = SimProvider::new(Seed::from_number(1));
    let agreed = Initial::new(&provider, None).agree(&provider, &Secret32::new([3; 32]));
    let exporter = agreed.traffic(&provider, &[0; 32]).split(Role::Dialler).2;
    let mut maker = HopKeyMaker::new(&provider, &exporter);
    let name = |slot| LabelName {
        slot,
        generation: 0,
    };
    let keys: std::collections::BTreeSet<[u8; 16]> = (0..1_000)
        .map(|use_of| maker.make(&provider, name(use_of % 2)).0)
        .collect();
    assert_eq!(keys.len(), 1_000);
}
