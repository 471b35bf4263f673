//! Attacks by an authenticated peer.

use core::time::Duration;

use proptest::prelude::*;
use udp_proto::channel::{
    ChannelConfig, ChannelError, ChannelId, ChannelTable, FRAME_CREDIT_MIN, MsgFrame, MsgHeader,
};
use udp_proto::fragment::{FRAGMENT_LEN, FragmentError, Position, UNRELIABLE_BUDGET};
use udp_proto::inbox::{Inbox, Reception};
use wire::{Generator, Instant, Reader, Seed};

const WINDOW: usize = 256 << 10;

fn inbox() -> Inbox {
    Inbox::new(ChannelTable::default(), WINDOW, 0)
}

fn frame(channel: u8, id: u16, fragment: Option<(u16, u16)>, data: &[u8]) -> MsgFrame<'_> {
    MsgFrame {
        header: MsgHeader {
            channel: ChannelId(channel),
            id: Some(id),
            fragment: fragment.map(|(index, count)| Position { index, count }),
        },
        data,
    }
}

/// A fragment valid on its channel, of a message that may never be complete.
fn any_fragment(generator: &mut Generator) -> (u16, Option<(u16, u16)>, usize) {
    let id = generator.below(40) + generator.below(2) * 900;
    // Mostly consistent with the id.
    let odd = u64::from(generator.chance(300));
    let count = 16 - id % 5 - odd;
    let index = generator.below(count);
    let len = if index + 1 == count { 1 + id } else { 1_120 };
    let small = |number: u64| u16::try_from(number).unwrap();
    (
        small(id),
        Some((small(index), small(count))),
        usize::try_from(len).unwrap(),
    )
}

#[test]
fn twp_m4_unreliable_reassembly_stays_inside_its_budget() {
    let data = [7; FRAGMENT_LEN];
    let mut most = 0;
    for seed in 0..30 {
        let mut generator = Seed::from_number(seed).generator(0);
        let mut inbox = inbox();
        let (mut now, mut received) = (Instant::ZERO, 0);
        for _ in 0..2_000 {
            let (id, fragment, len) = any_fragment(&mut generator);
            received += len;
            match inbox.on_message(now, &frame(0, id, fragment, &data[..len])) {
                Ok(_) => {}
                // The generator contradicts itself, as a peer may; that message is dropped.
                Err(ChannelError::Fragment(FragmentError::Contradiction)) => {
                    inbox = Inbox::new(ChannelTable::default(), WINDOW, 0);
                    received = 0;
                }
                Err(error) => panic!("seed {seed}: {error}"),
            }
            let charged = inbox.reassembly_charged();
            most = most.max(charged);
            assert!(charged <= UNRELIABLE_BUDGET);
            assert!(charged <= received + 8 * (64 + 2));
            // Both budgets, with vectors that grow by half.
            assert!(
                inbox.memory() < 2 * UNRELIABLE_BUDGET * 8 / 5,
                "{}",
                inbox.memory()
            );
            if generator.chance(2_000) {
                now += Duration::from_secs(2);
                inbox.handle_timeout(now);
                assert_eq!(inbox.reassembly_charged(), 0);
            }
        }
    }
    assert!(
        most > UNRELIABLE_BUDGET - 3 * FRAGMENT_LEN,
        "{most} never came close"
    );
}

#[test]
fn twp_m4_the_ninth_message_and_the_one_over_budget_evict_the_oldest() {
    let data = [7; FRAGMENT_LEN];
    let mut inbox = inbox();
    for id in 0..9 {
        inbox
            .on_message(Instant::ZERO, &frame(0, id, Some((0, 2)), &data))
            .unwrap();
    }
    assert_eq!(inbox.counts().reassemblies_dropped, 1);
    assert_eq!(inbox.reassembly_charged(), 8 * (FRAGMENT_LEN + 64));
    // The late half of a dropped message starts no new one.
    let late = inbox.on_message(Instant::ZERO, &frame(0, 0, Some((1, 2)), &data));
    assert_eq!(late, Ok(Reception::GivenUp));
    assert_eq!(inbox.counts().repeated, 1);
    assert!(inbox.is_empty());
    // 50 more fragments of four messages are over 64 KiB.
    for id in 20..24 {
        for index in 0..15 {
            inbox
                .on_message(Instant::ZERO, &frame(0, id, Some((index, 16)), &data))
                .unwrap();
        }
    }
    assert!(inbox.reassembly_charged() <= UNRELIABLE_BUDGET);
    assert_eq!(inbox.counts().reassemblies_dropped, 1 + 8 + 1);
    inbox
        .on_message(Instant::ZERO, &frame(0, 23, Some((15, 16)), &data))
        .unwrap();
    let mut message = Vec::new();
    assert_eq!(inbox.recv(&mut message), Some(ChannelId(0)));
    assert_eq!(message.len(), 16 * FRAGMENT_LEN);
}

#[test]
fn twp_m4_a_fragment_evicts_the_oldest_other_message() {
    let data = [7; FRAGMENT_LEN];
    let mut inbox = inbox();
    let fragments = (0..1)
        .map(|index| (1, index))
        .chain((2..5).flat_map(|id| (0..15).map(move |index| (id, index))))
        .chain((1..16).map(|index| (1, index)));
    for (id, index) in fragments {
        let frame = frame(0, id, Some((index, 16)), &data);
        inbox.on_message(Instant::ZERO, &frame).unwrap();
    }
    assert_eq!(inbox.counts().reassemblies_dropped, 1);
    let mut message = Vec::new();
    assert_eq!(inbox.recv(&mut message), Some(ChannelId(0)));
    assert_eq!(message.len(), 16 * FRAGMENT_LEN);
}

#[test]
fn twp_m4_a_split_message_expires_after_two_seconds() {
    let data = [7; FRAGMENT_LEN];
    let mut inbox = inbox();
    inbox
        .on_message(Instant::ZERO, &frame(0, 1, Some((0, 2)), &data))
        .unwrap();
    let expires_at = Instant::from_millis(2_000);
    assert_eq!(inbox.poll_timeout(), Some(expires_at));
    inbox.handle_timeout(Instant::from_nanos(expires_at.as_nanos() - 1));
    assert_eq!(inbox.counts().reassemblies_dropped, 0);
    inbox.handle_timeout(expires_at);
    assert_eq!(inbox.counts().reassemblies_dropped, 1);
    assert_eq!(
        (inbox.poll_timeout(), inbox.reassembly_charged()),
        (None, 0)
    );
}

#[test]
fn twp_m7_reliable_data_over_the_grant_ends_the_session() {
    let data = [7; FRAGMENT_LEN];
    let mut inbox = inbox();
    let mut sent = 0;
    let error = loop {
        match inbox.on_message(Instant::ZERO, &frame(1, sent, None, &data)) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, ChannelError::Flow);
    assert_eq!(error.close_code(), 5);
    assert_eq!(usize::from(sent), WINDOW / FRAGMENT_LEN);
}

#[test]
fn twp_m7_memory_for_reliable_data_is_bounded_in_any_form() {
    // Empty messages in and out of order, tails of incomplete messages, and full fragments.
    let data = [7; FRAGMENT_LEN];
    let forms = [
        ("in turn, empty", None, 0, 0),
        ("in turn, one block and a byte", None, 57, 0),
        ("early, empty", None, 0, 1),
        ("early tails", Some((58, 59)), 1, 0),
        ("early full fragments", Some((0, 59)), 1_120, 0),
    ];
    for (name, fragment, len, first) in forms {
        let mut inbox = inbox();
        let mut spent = 0;
        for id in first.. {
            let frame = frame(1, id, fragment, &data[..len]);
            match inbox.on_message(Instant::ZERO, &frame) {
                Ok(_) => spent += len.max(FRAME_CREDIT_MIN),
                Err(error) => {
                    assert_eq!(error, ChannelError::Flow, "{name}");
                    break;
                }
            }
        }
        assert!(spent <= WINDOW);
        assert!(inbox.memory() < WINDOW * 2, "{name}: {}", inbox.memory());
    }
}

/// A peer within its credit; its messages are read once complete.
struct Rogue {
    inbox: Inbox,
    next: u16,
    most: usize,
}

impl Rogue {
    /// Sends fragment `index` of two, of `len` bytes, of messages `ids`.
    fn send(&mut self, ids: core::ops::Range<u16>, index: u16, len: usize) {
        let data = [7; FRAGMENT_LEN];
        for id in ids {
            let frame = frame(1, self.next + id, Some((index, 2)), &data[..len]);
            self.inbox.on_message(Instant::ZERO, &frame).unwrap();
            self.most = self.most.max(self.inbox.memory());
        }
    }

    /// Sends one half of `count` messages, then the other half of all but `left`; the complete ones
    /// are read.
    fn fill(&mut self, count: u16, left: u16, lens: [(u16, usize); 2]) {
        let [(first, first_len), (second, second_len)] = lens;
        self.send(0..count, first, first_len);
        self.send(left..count, second, second_len);
        let mut out = Vec::new();
        let read = core::iter::from_fn(|| self.inbox.recv(&mut out)).count();
        assert_eq!(read, usize::from(count - left));
        if let Some(grant) = self.inbox.window_to_send() {
            self.inbox.on_window_sent(grant);
        }
        self.next += count;
    }
}

/// Even with one message of each form left incomplete, no other memory is retained.
#[test]
fn twp_m7_memory_is_bounded_for_alternating_forms() {
    let rows = [
        ChannelConfig::unreliable(),
        ChannelConfig::reliable_unordered(),
    ];
    // A quarter of the window may be read and not yet granted again.
    let credit = WINDOW / 10 * 7;
    let count = |cost: usize| u16::try_from(credit / cost).unwrap();
    for left in [0, 1] {
        let mut rogue = Rogue {
            inbox: Inbox::new(ChannelTable::new(&rows).unwrap(), WINDOW, 0),
            next: 0,
            most: 0,
        };
        for _ in 0..3 {
            let (heads, tails) = (
                count(FRAGMENT_LEN + FRAME_CREDIT_MIN),
                count(2 * FRAGMENT_LEN),
            );
            rogue.fill(heads, left, [(0, FRAGMENT_LEN), (1, 1)]);
            rogue.fill(tails, left, [(1, FRAGMENT_LEN - 1), (0, FRAGMENT_LEN)]);
        }
        assert!(rogue.most > WINDOW, "{}", rogue.most);
        assert!(rogue.most < WINDOW * 2, "{}", rogue.most);
    }
}

#[test]
fn a_message_number_a_thousand_and_more_ahead_ends_the_session() {
    let mut inbox = inbox();
    assert!(
        inbox
            .on_message(Instant::ZERO, &frame(1, 1_023, None, &[1]))
            .is_ok()
    );
    let error = inbox.on_message(Instant::ZERO, &frame(1, 1_024, None, &[1]));
    assert_eq!(error, Err(ChannelError::Flow));
}

#[test]
fn twp_m5_fragments_that_contradict_each_other_end_the_session() {
    let data = [7; FRAGMENT_LEN];
    for channel in [0, 1] {
        let first = frame(channel, 5, Some((1, 3)), &data);
        for second in [
            frame(channel, 5, Some((0, 2)), &data),
            frame(channel, 5, Some((1, 4)), &data),
        ] {
            let mut inbox = inbox();
            assert_eq!(
                inbox.on_message(Instant::ZERO, &first),
                Ok(Reception::Taken)
            );
            assert_eq!(
                inbox.on_message(Instant::ZERO, &first),
                Ok(Reception::Taken)
            );
            assert_eq!(inbox.counts().repeated, 1);
            let error = inbox.on_message(Instant::ZERO, &second).unwrap_err();
            assert_eq!(error, ChannelError::Fragment(FragmentError::Contradiction));
            assert_eq!(error.close_code(), 4);
        }
    }
    // The whole message and a fragment of it.
    let mut inbox = inbox();
    let fragment = frame(1, 5, Some((0, 2)), &data);
    assert!(
        inbox
            .on_message(Instant::ZERO, &frame(1, 5, None, &data))
            .is_ok()
    );
    assert!(inbox.on_message(Instant::ZERO, &fragment).is_err());
}

#[test]
fn a_message_over_its_channels_limit_ends_the_session() {
    let mut row = ChannelConfig::unreliable();
    row.message_bytes_max = 100;
    let table = ChannelTable::new(&[row]).unwrap();
    let mut inbox = Inbox::new(table, WINDOW, 0);
    let data = [0; 101];
    assert!(
        inbox
            .on_message(Instant::ZERO, &frame(0, 0, None, &data[..100]))
            .is_ok()
    );
    let error = inbox.on_message(Instant::ZERO, &frame(0, 0, None, &data));
    assert_eq!(error, Err(ChannelError::Frame));
    let error = inbox.on_message(Instant::ZERO, &frame(0, 0, Some((0, 2)), &data));
    assert_eq!(error, Err(ChannelError::Fragment(FragmentError::Count(2))));
}

#[test]
fn newer_unreliable_messages_replace_unread_ones() {
    let mut inbox = inbox();
    for number in 0..5_000_u32 {
        let message = number.to_be_bytes().repeat(25);
        inbox
            .on_message(Instant::ZERO, &frame(0, 0, None, &message))
            .unwrap();
        assert!(inbox.memory() < (64 << 10) * 2, "{}", inbox.memory());
    }
    let mut read: Vec<Vec<u8>> = Vec::new();
    let mut message = Vec::new();
    while inbox.recv(&mut message).is_some() {
        read.push(message.clone());
    }
    let kept = u32::try_from(read.len()).unwrap();
    assert!(kept > 400, "{kept}");
    assert_eq!(inbox.counts().unread_dropped, u64::from(5_000 - kept));
    assert_eq!(read[0], (5_000 - kept).to_be_bytes().repeat(25));
}

proptest! {
    #[test]
    fn twp_m3_any_frames_are_accepted_or_refused(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1_400), 1..20),
        first in prop::collection::vec(prop::sample::select(
            &[0x80_u8, 0x81, 0xa0, 0xa1, 0xc0, 0xc1, 0xe0, 0xe1][..]), 20),
    ) {
        let table = ChannelTable::default();
        let mut inbox = inbox();
        let mut received = 0;
        for (mut packet, first) in packets.into_iter().zip(first) {
            received += packet.len();
            if let Some(byte) = packet.first_mut() {
                *byte = first;
            }
            let mut reader = Reader::new(&packet);
            while let Ok(frame) = MsgFrame::decode(&mut reader, &table) {
                if inbox.on_message(Instant::ZERO, &frame).is_err() {
                    return Ok(());
                }
            }
        }
        // A one-byte frame makes a record and a block; 13 KiB are the slots of 1,024 numbers.
        prop_assert!(inbox.memory() < received * 100 + (32 << 10));
        let mut message = Vec::new();
        while inbox.recv(&mut message).is_some() {
            prop_assert!(message.len() <= received);
        }
    }

    #[test]
    fn twp_m1_agrees_with_a_model_of_an_ordered_channel(
        start in prop_oneof![Just(0_u64), Just((1 << 16) - 5), Just((1 << 32) - 5)],
        ids in prop::collection::vec(0_u64..24, 1..120),
    ) {
        let mut inbox = Inbox::new(ChannelTable::default(), WINDOW, start);
        let mut model = std::collections::BTreeSet::new();
        let mut next = 0;
        let mut message = Vec::new();
        for id in ids {
            let low = u16::try_from((start + id) % (1 << 16)).unwrap();
            let text = id.to_be_bytes();
            inbox.on_message(Instant::ZERO, &frame(1, low, None, &text)).unwrap();
            model.insert(id);
            while model.contains(&next) {
                prop_assert_eq!(inbox.recv(&mut message), Some(ChannelId(1)));
                prop_assert_eq!(&message, &next.to_be_bytes());
                next += 1;
            }
            prop_assert_eq!(inbox.recv(&mut message), None);
        }
    }
}
