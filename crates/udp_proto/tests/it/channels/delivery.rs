//! Which messages arrive, and in which order.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use udp_proto::channel::{ChannelConfig, ChannelId, ChannelTable, MsgFrame, Priority, SendError};
use udp_proto::inbox::Inbox;
use udp_proto::outbox::{End, FillPolicy, Outbox, Room};
use wire::{Generator, Instant, Reader, Seed};

use super::pipe::{Faults, Pipe};

/// Channel 0 is unreliable; 1 and 2 are reliable and ordered, 2 with lower priority and long
/// messages; 3 is sequenced; 4 is reliable and unordered.
fn table() -> ChannelTable {
    let mut bulk = ChannelConfig::reliable_ordered();
    bulk.priority = Priority::LAST;
    bulk.message_bytes_max = 150_000;
    bulk.queue_bytes_max = 400_000;
    ChannelTable::new(&[
        ChannelConfig::unreliable(),
        ChannelConfig::reliable_ordered(),
        bulk,
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_unordered(),
    ])
    .unwrap()
}

/// Message `number`; its content shows its number and whether it is complete.
fn message(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    let mut state = number.wrapping_mul(2_654_435_761) | 1;
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes.push(state.to_be_bytes()[0]);
    }
    bytes
}

fn length(generator: &mut Generator, channel: u8) -> usize {
    let max = match (channel, generator.below(10)) {
        (2, 0) => 150_000,
        (_, 0..3) => 16_000,
        (_, 3) => 1_200,
        _ => 200,
    };
    usize::try_from(generator.between(4, max)).unwrap()
}

/// Sends on all channels from both sides, and returns what each side sent.
fn run(pipe: &mut Pipe, generator: &mut Generator, rounds: u32) -> [Vec<(u8, Vec<u8>)>; 2] {
    let mut sent = [Vec::new(), Vec::new()];
    for number in 0..rounds {
        for (side, sent) in pipe.sides.iter_mut().zip(&mut sent) {
            let channel = u8::try_from(generator.below(5)).unwrap();
            let message = message(number, length(generator, channel));
            match side.send(pipe.now, channel, &message) {
                Ok(()) => sent.push((channel, message)),
                Err(error) => assert_eq!(error, SendError::Full),
            }
        }
        for _ in 0..generator.below(12) {
            pipe.step();
        }
    }
    pipe.settle(Duration::from_secs(120));
    for _ in 0..2_000 {
        pipe.step();
    }
    sent
}

fn on(channel: u8, messages: &[(ChannelId, Vec<u8>)]) -> Vec<&[u8]> {
    let of_channel = messages.iter().filter(|(id, _)| id.0 == channel);
    of_channel.map(|(_, message)| message.as_slice()).collect()
}

fn sent_on(channel: u8, messages: &[(u8, Vec<u8>)]) -> Vec<&[u8]> {
    let of_channel = messages.iter().filter(|(id, _)| *id == channel);
    of_channel.map(|(_, message)| message.as_slice()).collect()
}

fn check(pipe: &Pipe, sent: &[Vec<(u8, Vec<u8>)>; 2]) {
    for (from, sent) in sent.iter().enumerate() {
        let read = &pipe.sides[1 - from].read;
        for channel in [1, 2] {
            let sent = sent_on(channel, sent);
            assert!(on(channel, read) == sent, "channel {channel} from {from}");
        }
        let (mut unordered, mut expected) = (on(4, read), sent_on(4, sent));
        unordered.sort_unstable();
        expected.sort_unstable();
        assert!(unordered == expected, "unordered from {from}");
        for channel in [0, 3] {
            let sent: BTreeSet<&[u8]> = sent_on(channel, sent).into_iter().collect();
            let read = on(channel, read);
            let once: BTreeSet<&[u8]> = read.iter().copied().collect();
            assert_eq!(once.len(), read.len(), "an unreliable message came twice");
            assert!(once.is_subset(&sent), "a message was made up");
            // Messages begin with their number.
            let is_rising = read.is_sorted_by(|older, newer| older < newer);
            assert!(channel == 0 || is_rising, "sequenced from {from}");
        }
    }
}

#[test]
fn twp_m1_m2_every_channel_delivers_what_its_kind_promises() {
    let mut messages = 0;
    for seed in 0..40 {
        let mut generator = Seed::from_number(seed).generator(0);
        let faults = Faults {
            loss: u32::try_from(generator.between(0, 500_000)).unwrap(),
            duplication: u32::try_from(generator.between(0, 250_000)).unwrap(),
            delay_ms: (5, generator.between(5, 120)),
        };
        let first_id = match seed % 3 {
            0 => 0,
            1 => (1 << 16) - 30,
            _ => (1 << 32) - 30,
        };
        let world = Seed::from_number(seed).generator(1);
        let mut pipe = Pipe::new(&table(), first_id, faults, world);
        let sent = run(&mut pipe, &mut generator, 150);
        check(&pipe, &sent);
        messages += sent.iter().map(Vec::len).sum::<usize>();
    }
    assert!(
        messages > 10_000,
        "of 12,000 some found no room: {messages}"
    );
}

/// A lost packet delays later messages of its own ordered channel only.
#[test]
fn b7_a_gap_delays_its_own_ordered_channel_only() {
    const COUNT: u8 = 4;
    let reliable = [1, 2, 4];
    for (hole, held) in reliable.map(|hole| (hole, if hole == 4 { 0 } else { COUNT - 1 })) {
        let mut outbox = Outbox::new(table(), 256 << 10, 0);
        let mut inbox = Inbox::new(table(), 256 << 10, 0);
        let mut lost = None;
        let mut read = Vec::new();
        let receive_from = |inbox: &mut Inbox, packet: &[u8], read: &mut Vec<(u8, u8)>| {
            let frame = MsgFrame::decode(&mut Reader::new(packet), &table()).unwrap();
            inbox.on_message(Instant::ZERO, &frame).unwrap();
            let mut message = Vec::new();
            while let Some(channel) = inbox.recv(&mut message) {
                read.push((channel.0, message[0]));
            }
        };
        for number in 0..COUNT {
            for channel in 0..5 {
                let id = ChannelId(channel);
                outbox.send(Instant::ZERO, id, &[number; 600]).unwrap();
                let (mut packet, mut content) = (Vec::new(), None);
                outbox.fill(Instant::ZERO, ROOM_OF_ONE, &mut packet, &mut |it| {
                    content = Some(it.content);
                });
                if (number, channel) == (0, hole) {
                    lost = content;
                } else {
                    receive_from(&mut inbox, &packet, &mut read);
                }
            }
        }
        let of = |read: &[(u8, u8)], channel| -> Vec<u8> {
            let of_channel = read.iter().filter(|(id, _)| *id == channel);
            of_channel.map(|(_, number)| *number).collect()
        };
        let all: Vec<u8> = (0..COUNT).collect();
        for channel in (0..5).filter(|channel| *channel != hole) {
            assert_eq!(of(&read, channel), all, "{channel} beside {hole}");
        }
        let came = usize::from(COUNT - 1 - held);
        assert_eq!(of(&read, hole).len(), came, "behind the hole in {hole}");
        // The packet and a copy arrive: each message is delivered once, and in order if its channel
        // is ordered.
        outbox.on_lost(Instant::ZERO, lost.unwrap());
        let mut packet = Vec::new();
        outbox.fill(Instant::ZERO, ROOM_OF_ONE, &mut packet, &mut |_| ());
        receive_from(&mut inbox, &packet, &mut read);
        receive_from(&mut inbox, &packet, &mut read);
        let expected = if held == 0 { vec![1, 2, 3, 0] } else { all };
        assert_eq!(of(&read, hole), expected);
    }
}

const ROOM_OF_ONE: Room = Room {
    bytes: 700,
    end: End::Packet,
    fill_policy: FillPolicy::Any,
    channels: u32::MAX,
};

#[test]
fn twp_m1_a_second_of_latency_changes_nothing() {
    let faults = Faults {
        loss: 100_000,
        duplication: 100_000,
        delay_ms: (1_000, 1_050),
    };
    let mut generator = Seed::from_number(1).generator(0);
    let world = Seed::from_number(1).generator(1);
    let mut pipe = Pipe::new(&table(), 0, faults, world);
    let sent = run(&mut pipe, &mut generator, 60);
    check(&pipe, &sent);
}

const CLEAN: Faults = Faults {
    loss: 0,
    duplication: 0,
    delay_ms: (20, 20),
};

#[test]
fn twp_m2_nothing_is_lost_on_a_clean_path() {
    let mut generator = Seed::from_number(2).generator(0);
    let world = Seed::from_number(2).generator(1);
    let mut pipe = Pipe::new(&table(), 0, CLEAN, world);
    let sent = run(&mut pipe, &mut generator, 300);
    check(&pipe, &sent);
    for (from, sent) in sent.iter().enumerate() {
        let unreliable = sent.iter().filter(|(id, _)| *id == 0).count();
        let counts = pipe.sides[from].outbox.counts();
        let held_back = usize::try_from(counts.expired + counts.displaced).unwrap();
        assert_eq!(
            on(0, &pipe.sides[1 - from].read).len() + held_back,
            unreliable
        );
        assert!(held_back <= unreliable / 10, "{counts:?}");
    }
}

#[test]
fn an_idle_outbox_releases_its_memory_and_continues() {
    let faults = Faults {
        loss: 200_000,
        duplication: 0,
        delay_ms: (5, 20),
    };
    let mut generator = Seed::from_number(3).generator(0);
    let world = Seed::from_number(3).generator(1);
    let mut pipe = Pipe::new(&ChannelTable::default(), 0, faults, world);
    for round in 0..2 {
        let mut sent = Vec::new();
        for number in 0..200 {
            let channel = u8::try_from(number % 2).unwrap();
            let message = message(number, length(&mut generator, channel));
            while pipe.sides[0].send(pipe.now, channel, &message).is_err() {
                pipe.step();
            }
            sent.push((ChannelId(channel), message));
            // In the middle of traffic it drops nothing.
            let [sender, receiver] = &mut pipe.sides;
            sender.outbox.shrink();
            receiver.inbox.shrink();
        }
        pipe.settle(Duration::from_secs(60));
        for _ in 0..2_500 {
            pipe.step();
        }
        let [sender, receiver] = &mut pipe.sides;
        assert!(on(1, &receiver.read) == on(1, &sent), "round {round}");
        receiver.read.clear();
        let before = [sender.outbox.memory(), receiver.inbox.memory()];
        sender.outbox.shrink();
        receiver.inbox.shrink();
        let after = [sender.outbox.memory(), receiver.inbox.memory()];
        assert!(before.iter().all(|memory| *memory > 10_000), "{before:?}");
        assert!(after.iter().sum::<usize>() < 1_440, "{after:?}");
    }
}

#[test]
fn twp_m5_every_lost_fragment_is_retransmitted_with_its_header() {
    for (channel, longest) in [(2, 150_000), (4, 64 << 10)] {
        let mut generator = Seed::from_number(5).generator(0);
        let faults = Faults {
            loss: 300_000,
            duplication: 0,
            delay_ms: (10, 15),
        };
        let world = Seed::from_number(5).generator(1);
        let mut pipe = Pipe::new(&table(), 0, faults, world);
        let mut sent = Vec::new();
        for number in 0..20 {
            let len = usize::try_from(generator.between(longest / 2, longest)).unwrap();
            let message = message(number, len);
            while pipe.sides[0].send(pipe.now, channel, &message).is_err() {
                pipe.step();
            }
            sent.push(message);
        }
        pipe.settle(Duration::from_secs(60));
        pipe.step();
        let mut read = on(channel, &pipe.sides[1].read);
        // Messages begin with their number.
        assert!(channel == 4 || read.is_sorted());
        read.sort_unstable();
        assert!(read == sent);
    }
}

#[test]
fn twp_m6_ids_run_past_the_ends_of_their_short_forms() {
    for first_id in [(1_u64 << 16) - 500, (1 << 32) - 500, (1 << 48) - 500] {
        let faults = Faults {
            loss: 50_000,
            duplication: 50_000,
            delay_ms: (10, 13),
        };
        let world = Seed::from_number(first_id).generator(1);
        let mut pipe = Pipe::new(&table(), first_id, faults, world);
        for number in 0..3_000 {
            let text = message(number, 12);
            while pipe.sides[0].send(pipe.now, 1, &text).is_err() {
                pipe.step();
            }
            if number % 3 == 0 {
                // Split, so that it has a number on the wire.
                let pair = message(number, 1_200);
                pipe.sides[0].send(pipe.now, 0, &pair).unwrap();
                pipe.sides[0].send(pipe.now, 3, &text).unwrap();
                while pipe.sides[0].send(pipe.now, 4, &text).is_err() {
                    pipe.step();
                }
                pipe.step();
            }
        }
        pipe.settle(Duration::from_secs(60));
        pipe.step();
        let expected: Vec<Vec<u8>> = (0..3_000).map(|number| message(number, 12)).collect();
        assert!(on(1, &pipe.sides[1].read) == expected);
        let pairs = on(0, &pipe.sides[1].read).len();
        assert!(pairs > 800, "{pairs} of 1,000 split messages");
        let rising = on(3, &pipe.sides[1].read);
        assert!(rising.len() > 400 && rising.is_sorted_by(|older, newer| older < newer));
        let unordered: BTreeSet<&[u8]> = on(4, &pipe.sides[1].read).into_iter().collect();
        assert_eq!(unordered.len(), 1_000);
    }
}

#[test]
fn twp_m6_ids_agree_after_a_hundred_thousand_messages() {
    let world = Seed::from_number(8).generator(1);
    let mut pipe = Pipe::new(&table(), 0, CLEAN, world);
    let mut number = 0_u32;
    while number < 100_000 {
        if pipe.sides[0]
            .send(pipe.now, 1, &number.to_be_bytes())
            .is_ok()
        {
            number += 1;
        } else {
            pipe.step();
        }
    }
    pipe.settle(Duration::from_secs(60));
    pipe.step();
    let read = on(1, &pipe.sides[1].read);
    assert_eq!(read.len(), 100_000);
    assert!(
        (0..)
            .zip(read)
            .all(|(number, message): (u32, _)| message == number.to_be_bytes())
    );
}

#[test]
fn twp_m7_a_stalled_reader_blocks_its_sender_until_it_reads() {
    let world = Seed::from_number(7).generator(1);
    let mut pipe = Pipe::new(&table(), 0, CLEAN, world);
    let window = table().receive_window(256 << 10);
    pipe.sides[1].reads = false;
    let mut sent = Vec::new();
    let mut number = 0;
    for _ in 0..3_000 {
        let channel = u8::try_from(1 + number % 2).unwrap();
        let len = if channel == 1 { 40 } else { 10_000 };
        let message = message(number, len);
        if pipe.sides[0].send(pipe.now, channel, &message).is_ok() {
            sent.push((channel, message));
            number += 1;
        }
        pipe.step();
    }
    assert_eq!(pipe.sides[0].in_flight(), 0, "the sender has not stopped");
    assert!(!pipe.sides[0].outbox.has_work());
    assert!(!pipe.sides[0].outbox.is_empty());
    // Bound of a block store, a ring and their records, each with growth by half.
    let held = pipe.sides[1].inbox.memory();
    assert!(held < window * 5 / 2, "{held} for a window of {window}");

    pipe.sides[1].reads = true;
    let resumed_by = pipe.now + Duration::from_millis(2 * 2 * 20 + 2);
    let before = pipe.sides[0].outbox.memory();
    while pipe.sides[0].in_flight() == 0 {
        assert!(pipe.now < resumed_by, "still stopped after 2 round trips");
        pipe.step();
    }
    assert!(before > 0);
    pipe.settle(Duration::from_secs(10));
    pipe.step();
    let mut expected: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
    for (channel, message) in sent {
        expected.entry(channel).or_default().push(message);
    }
    for (channel, messages) in expected {
        assert!(on(channel, &pipe.sides[1].read) == messages);
    }
}

#[test]
fn twp_m7_messages_as_long_as_the_window_allows_never_wait_for_each_other() {
    // Three channels, each with a longest message of three quarters of the window.
    let mut row = ChannelConfig::reliable_ordered();
    row.message_bytes_max = 190_000;
    row.queue_bytes_max = 1 << 20;
    let table = ChannelTable::new(&[row; 3]).unwrap();
    for seed in 0..10 {
        let faults = Faults {
            loss: 150_000,
            duplication: 50_000,
            delay_ms: (5, 30),
        };
        let mut generator = Seed::from_number(seed).generator(0);
        let world = Seed::from_number(seed).generator(1);
        let mut pipe = Pipe::new(&table, 0, faults, world);
        let mut expected = [const { Vec::new() }; 3];
        for number in 0..15 {
            for (channel, expected) in (0..).zip(&mut expected) {
                let len = if generator.chance(500_000) {
                    190_000
                } else {
                    5_000
                };
                let message = message(number, len);
                if pipe.sides[0].send(pipe.now, channel, &message).is_ok() {
                    expected.push(message);
                }
            }
            pipe.step();
        }
        pipe.settle(Duration::from_secs(120));
        pipe.step();
        for (channel, expected) in (0..).zip(&expected) {
            assert!(on(channel, &pipe.sides[1].read) == *expected, "seed {seed}");
        }
    }
}
