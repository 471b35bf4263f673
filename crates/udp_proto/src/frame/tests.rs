//! Round trips, rejections and random bytes.

use proptest::prelude::*;

use super::*;
use crate::channel::{ChannelConfig, ChannelId, MsgHeader};
use crate::fragment::Position;
use crate::packet::TruncatedNumber;

fn table() -> ChannelTable {
    let rows: Vec<ChannelConfig> = (0..16)
        .map(|channel| {
            if channel % 2 == 0 {
                ChannelConfig::reliable_ordered()
            } else {
                ChannelConfig::unreliable()
            }
        })
        .collect();
    ChannelTable::new(&rows).unwrap()
}

fn decode(bytes: &[u8]) -> Vec<Result<Frame<'_>, FrameError>> {
    Frames::new(bytes, &table()).collect()
}

/// The owned contents of a frame.
#[derive(Clone, Debug)]
enum Made {
    Ping,
    Ack(bool, u32, u16, u16, Vec<u8>),
    Close(u16, Vec<u8>),
    Challenge([u8; 8]),
    Response([u8; 8]),
    Window(u64),
    Confirm(Vec<u8>),
    Time(u32),
    Identity(Vec<u8>),
    Message(u8, u16, Option<(u16, u16)>, Vec<u8>),
}

impl Made {
    fn frame(&self) -> Frame<'_> {
        match self {
            Self::Ping => Frame::Ping,
            &Self::Ack(long, largest, delay, run, ref bits) => Frame::Ack(AckFrame {
                largest: if long {
                    TruncatedNumber::Four(largest)
                } else {
                    TruncatedNumber::Two((largest & 0xFFFF).try_into().unwrap())
                },
                delay,
                run,
                bits,
            }),
            Self::Close(code, reason) => Frame::Close {
                code: *code,
                reason,
            },
            Self::Challenge(token) => Frame::PathChallenge(*token),
            Self::Response(token) => Frame::PathResponse(*token),
            Self::Window(credit) => Frame::Window(*credit),
            Self::Confirm(bytes) => Frame::Confirm {
                params: bytes.first_chunk().unwrap(),
                channel_digest: bytes.last_chunk().unwrap(),
            },
            Self::Time(millis) => Frame::Time(*millis),
            Self::Identity(bytes) => Frame::Identity {
                public_key: bytes.first_chunk().unwrap(),
                signature: bytes.last_chunk().unwrap(),
            },
            &Self::Message(channel, id, fragment, ref data) => Frame::Message(MsgFrame {
                header: MsgHeader {
                    channel: ChannelId(channel),
                    id: (channel % 2 == 0 || fragment.is_some()).then_some(id),
                    fragment: fragment.map(|(index, count)| Position { index, count }),
                },
                data,
            }),
        }
    }
}

fn bytes(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), len)
}

fn made() -> impl Strategy<Value = Made> {
    let bits = bytes(0..=128_usize).prop_map(|mut bits| {
        if let Some(last) = bits.last_mut() {
            *last |= 0x10;
        }
        bits
    });
    let place = (2..=u16::MAX).prop_flat_map(|count| (0..count, Just(count)));
    prop_oneof![
        Just(Made::Ping),
        (
            any::<bool>(),
            any::<u32>(),
            any::<u16>(),
            0..=1_023_u16,
            bits
        )
            .prop_map(|(long, largest, delay, run, bits)| {
                Made::Ack(long, largest, delay, run, bits)
            }),
        (any::<u16>(), bytes(0..=128_usize)).prop_map(|(code, reason)| Made::Close(code, reason)),
        any::<[u8; 8]>().prop_map(Made::Challenge),
        any::<[u8; 8]>().prop_map(Made::Response),
        (0..=WINDOW_MAX).prop_map(Made::Window),
        bytes(56).prop_map(Made::Confirm),
        any::<u32>().prop_map(Made::Time),
        bytes(129).prop_map(Made::Identity),
        (
            0..16_u8,
            any::<u16>(),
            prop::option::of(place),
            bytes(0..300_usize)
        )
            .prop_map(|(channel, id, place, data)| Made::Message(channel, id, place, data)),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        made in prop::collection::vec(made(), 0..12),
        padding in 0_usize..5,
    ) {
        let frames: Vec<_> = made.iter().map(Made::frame).collect();
        let mut out = Vec::new();
        for frame in &frames {
            let start = out.len();
            frame.encode(&mut out);
            prop_assert_eq!(out.len() - start, frame.encoded_len());
            out.resize(out.len() + padding, 0);
        }
        let table = table();
        let decoded: Result<Vec<_>, _> = Frames::new(&out, &table).collect();
        prop_assert_eq!(decoded, Ok(frames));
    }

    #[test]
    fn twp_m3_any_bytes_decode_or_are_refused(
        plaintext in prop::collection::vec(
            prop_oneof![any::<u8>(), 0..0x12_u8, 0x80..0xA0_u8], 0..200
        ),
    ) {
        // A decoded frame encodes to at most its source's length. A message at the end of the
        // packet may have omitted the length that encoding writes.
        let table = table();
        let mut again = Vec::new();
        let mut failed = false;
        for frame in Frames::new(&plaintext, &table) {
            prop_assert!(!failed, "nothing follows an error");
            match frame {
                Ok(frame) => {
                    let start = again.len();
                    frame.encode(&mut again);
                    prop_assert_eq!(again.len() - start, frame.encoded_len());
                    let bytes = &again[start..];
                    let is_as_it_came = plaintext.windows(bytes.len()).any(|window| window == bytes);
                    prop_assert!(is_as_it_came || matches!(frame, Frame::Message(_)));
                }
                Err(_) => failed = true,
            }
        }
        prop_assert!(again.len() <= plaintext.len() + 2);
    }

    #[test]
    fn varints_round_trip(value in 0..=0x3FFF_u16) {
        let mut out = Vec::new();
        encode_length(value.into(), &mut Writer::new(&mut out));
        prop_assert_eq!(out.len(), length_len(value.into()));
        prop_assert_eq!(read_varint(&mut Reader::new(&out)), Ok(value));
    }
}

#[test]
fn every_cut_of_every_frame_is_refused() {
    let frames = [
        Made::Ack(false, 7, 1, 3, vec![1; 128]),
        Made::Ack(true, 7, 1, 1_000, vec![]),
        Made::Close(4, b"bye".to_vec()),
        Made::Challenge([1; 8]),
        Made::Response([1; 8]),
        Made::Window(9),
        Made::Confirm(vec![1; 56]),
        Made::Time(9),
        Made::Identity(vec![1; 129]),
        Made::Message(2, 3, Some((1, 2)), vec![1; 200]),
    ];
    for made in frames {
        let mut out = Vec::new();
        made.frame().encode(&mut out);
        for len in 1..out.len() {
            let cut = if matches!(made, Made::Message(..)) {
                FrameError::Message(ChannelError::Frame)
            } else {
                FrameError::Truncated
            };
            assert_eq!(decode(&out[..len]), [Err(cut)], "{made:?} cut to {len}");
        }
    }
}

#[test]
fn reserved_and_unknown_types_are_refused() {
    for kind in 0x0B..0x80_u8 {
        assert_eq!(
            decode(&[kind, 1, 1, 1]),
            [Err(FrameError::UnknownType(kind))]
        );
    }
}

#[test]
fn lengths_over_their_limit_are_refused() {
    assert_eq!(
        decode(&[&[CLOSE, 0, 1, 129][..], &[0; 129]].concat()),
        [Err(FrameError::TooLong)]
    );
    // A run of 1,024; 129 bytes of bits.
    assert_eq!(
        decode(&[2, 0, 9, 0, 0, 0x80, 0x08, 0]),
        [Err(FrameError::TooLong)]
    );
    assert_eq!(
        decode(&[&[2, 0, 9, 0, 0, 0, 129][..], &[1; 129]].concat()),
        [Err(FrameError::TooLong)]
    );
    // A varint of 3 bytes.
    assert_eq!(
        decode(&[2, 0, 9, 0, 0, 0x80, 0x80, 1, 0]),
        [Err(FrameError::TooLong)]
    );
}

#[test]
fn longer_encodings_than_needed_are_refused() {
    assert_eq!(
        decode(&[2, 0, 9, 0, 0, 0x85, 0, 0]),
        [Err(FrameError::NotMinimal)]
    );
    assert_eq!(
        decode(&[2, 0, 9, 0, 0, 0, 2, 1, 0]),
        [Err(FrameError::NotMinimal)]
    );
    assert_eq!(
        decode(&[0xA1, 0x81, 0, 7]),
        [Err(FrameError::Message(ChannelError::Frame))]
    );
}

#[test]
fn channels_outside_the_table_are_refused() {
    assert_eq!(
        decode(&[0x80 | 16, 1]),
        [Err(FrameError::Message(ChannelError::Frame))]
    );
}

#[test]
fn only_frames_that_need_an_answer_elicit_one() {
    let quiet = [
        Made::Ack(false, 0, 0, 0, vec![]),
        Made::Close(0, vec![]),
        Made::Time(0),
    ];
    for made in &quiet {
        assert_eq!(made.frame().elicits(), Elicits::Nothing);
    }
    let loud = [
        Made::Ping,
        Made::Challenge([0; 8]),
        Made::Response([0; 8]),
        Made::Window(0),
        Made::Confirm(vec![0; 56]),
        Made::Identity(vec![0; 129]),
        Made::Message(0, 0, None, vec![]),
    ];
    for made in &loud {
        assert_eq!(made.frame().elicits(), Elicits::Ack);
    }
}

#[test]
fn an_ack_reports_run_gap_and_bits() {
    let ack = AckFrame {
        largest: TruncatedNumber::Two(100),
        delay: AckFrame::delay_field(Duration::from_millis(25)),
        run: 2,
        bits: &[0b101, 0b1000_0000],
    };
    let reported: Vec<u64> = (0..3_000).filter(|&below| ack.reports(below)).collect();
    assert_eq!(reported, [0, 1, 2, 4, 6, 19]);
    assert_eq!(ack.lowest_below(), 19);
    // 1,562 units of 16 microseconds; the remainder is truncated.
    assert_eq!(ack.delay(), Some(Duration::from_micros(24_992)));
    let second = Duration::from_millis(1_049);
    assert_eq!(AckFrame::delay_field(second), AckFrame::DELAY_NONE);
    assert_eq!(
        AckFrame {
            run: AckFrame::RUN_MAX,
            bits: &[0x80; 128],
            ..ack
        }
        .lowest_below(),
        2_048
    );
}
