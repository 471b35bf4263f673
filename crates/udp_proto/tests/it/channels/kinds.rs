//! Behavior specific to sequenced and to reliable unordered channels.

use core::time::Duration;

use proptest::prelude::*;
use std::collections::BTreeSet;
use udp_proto::channel::{
    ChannelConfig, ChannelError, ChannelId, ChannelTable, FRAME_CREDIT_MIN, ID_WINDOW, MsgFrame,
    MsgHeader,
};
use udp_proto::fragment::{FRAGMENT_LEN, FragmentError, Position, UNRELIABLE_BUDGET};
use udp_proto::inbox::{Inbox, Reception};
use wire::{Instant, Reader, Seed};

use super::pipe::{Faults, Pipe};

const WINDOW: usize = 256 << 10;
const SEQUENCED: u8 = 0;
const UNORDERED: u8 = 1;

fn table() -> ChannelTable {
    ChannelTable::new(&[
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_unordered(),
    ])
    .unwrap()
}

fn inbox(first_id: u64) -> Inbox {
    Inbox::new(table(), WINDOW, first_id)
}

fn frame(channel: u8, id: u64, fragment: Option<(u16, u16)>, data: &[u8]) -> MsgFrame<'_> {
    MsgFrame {
        header: MsgHeader {
            channel: ChannelId(channel),
            id: Some(u16::try_from(id % (1 << 16)).unwrap()),
            fragment: fragment.map(|(index, count)| Position { index, count }),
        },
        data,
    }
}

fn take(inbox: &mut Inbox, frame: &MsgFrame<'_>) -> Result<Reception, ChannelError> {
    inbox.on_message(Instant::ZERO, frame)
}

fn read(inbox: &mut Inbox) -> Vec<Vec<u8>> {
    let mut message = Vec::new();
    core::iter::from_fn(|| inbox.recv(&mut message).map(|_| message.clone())).collect()
}

#[test]
fn the_wire_form_of_every_kind_is_frozen() {
    let table = ChannelTable::new(&[
        ChannelConfig::unreliable(),
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_unordered(),
        ChannelConfig::reliable_ordered(),
    ])
    .unwrap();
    let mut digest = Vec::new();
    table.encode(&mut digest);
    let rows = [
        [0, 0, 0, 0x46, 0],
        [1, 0, 0, 0x46, 0],
        [2, 0, 1, 0, 0],
        [3, 0, 1, 0, 0],
    ];
    assert_eq!(digest, [&[4][..], rows.as_flattened()].concat());

    for (channel, expected) in [
        (0_u8, &[0xa0, 2, 7, 8][..]),
        (1, &[0xa1, 0x12, 0x34, 2, 7, 8]),
        (2, &[0xa2, 0x12, 0x34, 2, 7, 8]),
        (3, &[0xa3, 0x12, 0x34, 2, 7, 8]),
    ] {
        let mut whole = frame(channel, 0x1234, None, &[7, 8]);
        if channel == 0 {
            whole.header.id = None;
        }
        let mut out = Vec::new();
        whole.encode(&mut out);
        assert_eq!(out, expected);
        assert_eq!(MsgFrame::decode(&mut Reader::new(&out), &table), Ok(whole));
    }
}

#[test]
fn twp_m2_a_sequenced_message_behind_the_last_is_dropped_and_counted() {
    let mut inbox = inbox(0);
    for (id, is_taken) in [(1, true), (0, false), (1, false), (700, true), (699, false)] {
        take(&mut inbox, &frame(SEQUENCED, id, None, &[1])).unwrap();
        assert_eq!(read(&mut inbox).len(), usize::from(is_taken), "{id}");
    }
    assert_eq!(inbox.counts().overtaken, 3);
}

#[test]
fn twp_m2_an_overtaken_sequenced_message_in_fragments_is_abandoned() {
    let data = [7; FRAGMENT_LEN];
    let mut inbox = inbox(0);
    for (id, index) in [(3, 0), (5, 0), (4, 0), (5, 1)] {
        take(&mut inbox, &frame(SEQUENCED, id, Some((index, 2)), &data)).unwrap();
    }
    assert_eq!(read(&mut inbox).len(), 1, "5 is whole");
    assert_eq!(inbox.counts().reassemblies_dropped, 2, "3 and 4");
    assert_eq!(inbox.reassembly_charged(), 0);
    take(&mut inbox, &frame(SEQUENCED, 4, Some((1, 2)), &data)).unwrap();
    assert!(read(&mut inbox).is_empty());
    assert_eq!(inbox.counts().overtaken, 1);
    // An incomplete newer message does not supersede older ones.
    for (id, index) in [(8, 0), (7, 0), (7, 1), (8, 1)] {
        take(&mut inbox, &frame(SEQUENCED, id, Some((index, 2)), &data)).unwrap();
    }
    assert_eq!(read(&mut inbox).len(), 2);
}

#[test]
fn twp_m5_a_sequenced_message_both_split_and_unsplit_ends_the_session() {
    let data = [7; FRAGMENT_LEN];
    let mut inbox = inbox(0);
    take(&mut inbox, &frame(SEQUENCED, 3, Some((0, 2)), &data)).unwrap();
    let error = take(&mut inbox, &frame(SEQUENCED, 3, None, &data)).unwrap_err();
    assert_eq!(error, ChannelError::Fragment(FragmentError::Contradiction));
}

#[test]
fn twp_m4_sequenced_reassembly_shares_the_budget_of_unreliable_ones() {
    let data = [7; FRAGMENT_LEN];
    let mut inbox = inbox(0);
    for id in 0..2_000 {
        for index in 0..15 {
            take(&mut inbox, &frame(SEQUENCED, id, Some((index, 16)), &data)).unwrap();
            assert!(inbox.reassembly_charged() <= UNRELIABLE_BUDGET);
        }
    }
    assert!(inbox.memory() < 2 * UNRELIABLE_BUDGET * 8 / 5);
}

#[test]
fn twp_m1_an_unordered_message_does_not_wait_for_earlier_ones() {
    let data = [7; FRAGMENT_LEN];
    let mut inbox = inbox(0);
    take(&mut inbox, &frame(UNORDERED, 2, None, b"two")).unwrap();
    assert_eq!(read(&mut inbox), [b"two"]);
    take(&mut inbox, &frame(UNORDERED, 1, Some((1, 2)), b"tail")).unwrap();
    assert!(inbox.is_empty());
    take(&mut inbox, &frame(UNORDERED, 1, Some((0, 2)), &data)).unwrap();
    assert_eq!(read(&mut inbox)[0].len(), FRAGMENT_LEN + 4);
    // All again, in both equivalent forms, and the missing one.
    take(&mut inbox, &frame(UNORDERED, 2, None, b"two")).unwrap();
    take(&mut inbox, &frame(UNORDERED, 1, Some((1, 2)), b"tail")).unwrap();
    assert!(inbox.is_empty());
    take(&mut inbox, &frame(UNORDERED, 0, None, b"zero")).unwrap();
    take(&mut inbox, &frame(UNORDERED, 0, None, b"zero")).unwrap();
    assert_eq!(read(&mut inbox), [b"zero"]);
    assert_eq!(inbox.counts().repeated, 3);
}

#[test]
fn twp_m1_an_unordered_number_off_the_window_repeats_or_closes() {
    for first_id in [0, (1 << 16) - 500, (1 << 32) - 500] {
        let mut inbox = inbox(first_id);
        // All but the first: the window cannot advance.
        for id in 1..ID_WINDOW {
            take(&mut inbox, &frame(UNORDERED, first_id + id, None, &[])).unwrap();
        }
        assert_eq!(read(&mut inbox).len(), 1_023);
        let ahead = frame(UNORDERED, first_id + ID_WINDOW, None, &[]);
        let mut other = Inbox::new(table(), WINDOW, first_id);
        assert_eq!(take(&mut other, &ahead), Err(ChannelError::Flow));
        take(&mut inbox, &frame(UNORDERED, first_id, None, &[])).unwrap();
        take(&mut inbox, &ahead).unwrap();
        assert_eq!(read(&mut inbox).len(), 2);
        for id in first_id..=first_id + ID_WINDOW {
            take(&mut inbox, &frame(UNORDERED, id, None, &[])).unwrap();
        }
        assert!(inbox.is_empty(), "old numbers are repeats");
    }
}

#[test]
fn twp_m7_memory_for_unordered_data_is_bounded_in_any_form() {
    let data = [7; FRAGMENT_LEN];
    let forms = [
        ("empty", None, 0, 0),
        ("early, empty", None, 0, 1),
        ("tails of messages that never come", Some((58, 59)), 1, 0),
        ("full fragments", Some((0, 59)), 1_120, 0),
    ];
    for (name, fragment, len, first) in forms {
        let (mut inbox, mut spent) = (inbox(0), 0);
        for id in first.. {
            match take(&mut inbox, &frame(UNORDERED, id, fragment, &data[..len])) {
                Ok(_) => spent += len.max(FRAME_CREDIT_MIN),
                Err(error) => {
                    assert_eq!(error, ChannelError::Flow, "{name}");
                    break;
                }
            }
        }
        assert!(spent <= WINDOW && spent > WINDOW / 4, "{name}: {spent}");
        assert!(inbox.memory() < WINDOW * 2, "{name}: {}", inbox.memory());
    }
}

#[test]
fn twp_m7_a_stalled_unordered_reader_blocks_its_sender() {
    let faults = Faults {
        loss: 0,
        duplication: 0,
        delay_ms: (20, 20),
    };
    let mut pipe = Pipe::new(&table(), 0, faults, Seed::from_number(7).generator(1));
    pipe.sides[1].reads = false;
    let mut sent = 0;
    for _ in 0..2_000 {
        sent += usize::from(pipe.sides[0].send(pipe.now, UNORDERED, &[3; 900]).is_ok());
        pipe.step();
    }
    assert_eq!(pipe.sides[0].in_flight(), 0, "the sender has not stopped");
    assert!(!pipe.sides[0].outbox.has_work() && !pipe.sides[0].outbox.is_empty());
    assert!(pipe.sides[1].inbox.memory() < WINDOW * 5 / 2);
    pipe.sides[1].reads = true;
    let resumed_by = pipe.now + Duration::from_millis(82);
    while pipe.sides[0].in_flight() == 0 {
        assert!(pipe.now < resumed_by, "still stopped after 2 round trips");
        pipe.step();
    }
    pipe.settle(Duration::from_secs(10));
    pipe.step();
    assert_eq!(pipe.sides[1].read.len(), sent);
}

/// The queue drops thousands of messages before they get a number, so the next number sent is not
/// far ahead.
#[test]
fn twp_m6_messages_dropped_in_a_sequenced_queue_use_no_number() {
    let faults = Faults {
        loss: 0,
        duplication: 0,
        delay_ms: (5, 5),
    };
    let mut row = ChannelConfig::sequenced();
    row.queue_bytes_max = 2_000;
    let table = ChannelTable::new(&[row]).unwrap();
    for len in [4, 1_500] {
        let mut pipe = Pipe::new(&table, 0, faults, Seed::from_number(1).generator(1));
        for round in 0..3_u32 {
            for number in 0..40_000_u32 {
                let mut message = vec![0; len];
                message[..4].copy_from_slice(&(round * 40_000 + number).to_be_bytes());
                pipe.sides[0].send(pipe.now, 0, &message).unwrap();
            }
            for _ in 0..50 {
                pipe.step();
            }
            let (_, last) = pipe.sides[1].read.last().expect("something came");
            assert_eq!(last[..4], (round * 40_000 + 39_999).to_be_bytes(), "{len}");
        }
    }
}

proptest! {
    #[test]
    fn twp_m1_agrees_with_a_model_of_an_unordered_channel(
        start in prop_oneof![Just(0_u64), Just((1 << 16) - 5), Just((1 << 32) - 5)],
        ids in prop::collection::vec(0_u64..24, 1..120),
    ) {
        let mut inbox = inbox(start);
        let mut seen = BTreeSet::new();
        let mut message = Vec::new();
        for id in ids {
            let text = id.to_be_bytes();
            take(&mut inbox, &frame(UNORDERED, start + id, None, &text)).unwrap();
            let expected = seen.insert(id).then_some(ChannelId(UNORDERED));
            prop_assert_eq!(inbox.recv(&mut message), expected);
            prop_assert!(expected.is_none() || message == text);
        }
    }

    #[test]
    fn twp_m3_any_frames_of_any_kind_are_accepted_or_refused(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1_400), 1..20),
        first in prop::collection::vec(prop::sample::select(
            &[0x80_u8, 0x81, 0xa0, 0xa1, 0xc0, 0xc1, 0xe0, 0xe1][..]), 20),
    ) {
        let table = table();
        let mut inbox = inbox(0);
        let mut received = 0;
        for (mut packet, first) in packets.into_iter().zip(first) {
            received += packet.len();
            if let Some(byte) = packet.first_mut() {
                *byte = first;
            }
            let mut reader = Reader::new(&packet);
            while let Ok(frame) = MsgFrame::decode(&mut reader, &table) {
                if take(&mut inbox, &frame).is_err() {
                    return Ok(());
                }
            }
        }
        // A one-byte frame makes a record and a block; the rest are the slots of 1,024 numbers.
        prop_assert!(inbox.memory() < received * 100 + (32 << 10));
    }
}
