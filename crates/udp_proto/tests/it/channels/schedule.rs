//! What is sent in a packet, and what waits.

use core::time::Duration;
use std::collections::BTreeMap;

use udp_proto::channel::{
    ChannelConfig, ChannelId, ChannelTable, Content, FRAMES_MAX, MessageId, MsgFrame, Priority,
    SendError, WHOLE_MAX,
};
use udp_proto::fragment::FRAGMENT_LEN;
use udp_proto::outbox::{End, FillPolicy, Outbox, Room};
use wire::{Instant, Reader};

use super::pipe::ROOM;

const WINDOW: usize = 256 << 10;

fn reliable(priority: u8) -> ChannelConfig {
    let mut row = ChannelConfig::reliable_ordered();
    row.priority = Priority::new(priority).unwrap();
    row
}

fn outbox(rows: &[ChannelConfig]) -> Outbox {
    Outbox::new(ChannelTable::new(rows).unwrap(), WINDOW, 0)
}

/// One packet: its plaintext and its contents.
fn fill(outbox: &mut Outbox, now: Instant, bytes: usize, end: End) -> (Vec<u8>, Vec<Content>) {
    let (mut out, mut contents) = (Vec::new(), Vec::new());
    let room = Room {
        bytes,
        end,
        fill_policy: FillPolicy::Any,
        channels: u32::MAX,
    };
    outbox.fill(now, room, &mut out, &mut |frame| {
        contents.push(frame.content);
    });
    assert!(out.len() <= bytes);
    (out, contents)
}

fn packet(outbox: &mut Outbox) -> Vec<Content> {
    fill(outbox, Instant::ZERO, ROOM, End::Packet).1
}

fn content(channel: u8, message: u64, fragment: u16) -> Content {
    Content::new(ChannelId(channel), MessageId(message), fragment)
}

/// A probe is sent in addition to what it repeats, and both may be late.
#[test]
fn a_fragment_is_retransmitted_once_every_packet_with_it_is_lost() {
    let lone = content(0, 0, 0);
    let start = |probes: usize| {
        let mut outbox = outbox(&[reliable(0)]);
        outbox.send(Instant::ZERO, ChannelId(0), &[1; 50]).unwrap();
        assert_eq!(packet(&mut outbox), [lone]);
        for _ in 0..probes {
            assert!(outbox.probe());
            assert_eq!(packet(&mut outbox), [lone]);
        }
        outbox
    };
    let mut outbox = start(2);
    for left in [2, 1, 0] {
        assert!(!outbox.has_work(), "{left} and one more in flight");
        outbox.on_lost(Instant::ZERO, lone);
    }
    assert_eq!(packet(&mut outbox), [lone]);
    assert!(!outbox.has_work());
    // One of the packets declared lost arrived late.
    outbox.on_acked(lone);
    assert!(outbox.is_empty());
    // Lost while the next probe waits to be written: it counts once.
    let mut outbox = start(0);
    assert!(outbox.probe());
    outbox.on_lost(Instant::ZERO, lone);
    assert_eq!(packet(&mut outbox), [lone]);
    assert!(!outbox.has_work());
    outbox.on_lost(Instant::ZERO, lone);
    assert!(outbox.has_work());
    // Acknowledged late, before it was written again.
    outbox.on_acked(lone);
    assert!(outbox.is_empty() && !outbox.has_work());
}

#[test]
fn only_messages_longer_than_a_datagram_are_split_at_the_fragment_length() {
    let mut outbox = outbox(&[ChannelConfig::unreliable(), reliable(1)]);
    for channel in [0, 1] {
        outbox
            .send(Instant::ZERO, ChannelId(channel), &[1; WHOLE_MAX])
            .unwrap();
        assert_eq!(packet(&mut outbox), [content(channel, 0, 0)]);
        outbox
            .send(Instant::ZERO, ChannelId(channel), &[1; WHOLE_MAX + 1])
            .unwrap();
        let (first, contents) = fill(&mut outbox, Instant::ZERO, ROOM, End::Packet);
        assert_eq!(contents, [content(channel, 1, 0)]);
        assert_eq!(first.len(), 7 + FRAGMENT_LEN);
        let (second, contents) = fill(&mut outbox, Instant::ZERO, ROOM, End::Packet);
        assert_eq!(contents, [content(channel, 1, 1)]);
        assert_eq!(second.len(), 7 + WHOLE_MAX + 1 - FRAGMENT_LEN);
    }
}

#[test]
fn only_an_unpadded_last_frame_of_a_packet_omits_its_length() {
    let table = ChannelTable::default();
    for (len, end, omitted) in [
        (100, End::Packet, true),
        (100, End::Frames, false),
        (3, End::Packet, true),
        (2, End::Packet, false),
        (0, End::Packet, false),
    ] {
        let mut outbox = Outbox::new(table.clone(), WINDOW, 0);
        let message = vec![9; len];
        for _ in 0..2 {
            outbox.send(Instant::ZERO, ChannelId(0), &message).unwrap();
        }
        let (out, contents) = fill(&mut outbox, Instant::ZERO, ROOM, end);
        assert_eq!(contents.len(), 2);
        assert_eq!(
            out.len(),
            2 * (2 + len) - usize::from(omitted),
            "{len} {end:?}"
        );
        let mut reader = Reader::new(&out);
        for _ in 0..2 {
            let frame = MsgFrame::decode(&mut reader, &table).unwrap();
            assert_eq!(frame.data, message);
        }
        assert!(reader.is_empty());
    }
}

/// The replaced system adds 5 bytes to each.
#[test]
fn u11_small_messages_share_a_packet_with_1_to_5_bytes_around_each() {
    for row in [
        ChannelConfig::unreliable(),
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_unordered(),
        ChannelConfig::reliable_ordered(),
        ChannelConfig::bulk(),
    ] {
        let (mut least, mut most) = (usize::MAX, 0);
        for len in 0..=WHOLE_MAX {
            for end in [End::Packet, End::Frames] {
                let mut outbox = outbox(core::slice::from_ref(&row));
                let count = (ROOM / (len + 5)).clamp(1, FRAMES_MAX);
                for number in 0..count {
                    let number = u8::try_from(number).unwrap();
                    let message = vec![number; len];
                    outbox.send(Instant::ZERO, ChannelId(0), &message).unwrap();
                }
                let (out, contents) = fill(&mut outbox, Instant::ZERO, ROOM, end);
                assert_eq!(contents.len(), count, "{len} bytes: all in one packet");
                let around = out.len() - count * len;
                assert!(around <= 5 * count, "{len} bytes: {around} around {count}");
                least = least.min(around / count);
                most = most.max(around.div_ceil(count));
            }
        }
        assert!(least >= 1 && most <= 5, "{least} to {most}");
    }
}

#[test]
fn a_frame_that_fits_only_without_its_length_fills_the_packet() {
    let mut outbox = outbox(&[ChannelConfig::unreliable()]);
    outbox.send(Instant::ZERO, ChannelId(0), &[1; 50]).unwrap();
    outbox.send(Instant::ZERO, ChannelId(0), &[2; 50]).unwrap();
    let (none, _) = fill(&mut outbox, Instant::ZERO, 50, End::Packet);
    assert!(none.is_empty());
    let (none, _) = fill(&mut outbox, Instant::ZERO, 51, End::Frames);
    assert!(none.is_empty());
    let (out, contents) = fill(&mut outbox, Instant::ZERO, 51, End::Packet);
    assert_eq!((out.len(), contents.len()), (51, 1));
    let (out, contents) = fill(&mut outbox, Instant::ZERO, 52, End::Packet);
    assert_eq!((out.len(), contents.len()), (51, 1));
}

#[test]
fn lost_frames_go_first_and_then_by_priority() {
    let mut outbox = outbox(&[reliable(7), reliable(1), ChannelConfig::unreliable()]);
    outbox.send(Instant::ZERO, ChannelId(0), &[0; 10]).unwrap();
    outbox.send(Instant::ZERO, ChannelId(1), &[1; 10]).unwrap();
    outbox.send(Instant::ZERO, ChannelId(2), &[2; 10]).unwrap();
    let first = packet(&mut outbox);
    assert_eq!(
        first,
        [content(2, 0, 0), content(1, 0, 0), content(0, 0, 0)]
    );
    assert!(!outbox.has_work());

    for content in first {
        outbox.on_lost(Instant::ZERO, content);
    }
    assert_eq!(outbox.counts().lost, 1);
    outbox.send(Instant::ZERO, ChannelId(2), &[2; 10]).unwrap();
    assert_eq!(
        packet(&mut outbox),
        [content(1, 0, 0), content(0, 0, 0), content(2, 1, 0)]
    );
}

#[test]
fn channels_of_one_priority_share_byte_for_byte() {
    let mut rows = [reliable(3), reliable(3), reliable(3)];
    for row in &mut rows {
        row.queue_bytes_max = 1 << 20;
    }
    let mut outbox = Outbox::new(ChannelTable::new(&rows).unwrap(), 4 << 20, 0);
    // Channel 0 has long messages, 1 full frames, 2 short ones.
    for _ in 0..10 {
        outbox
            .send(Instant::ZERO, ChannelId(0), &vec![0; 60_000])
            .unwrap();
    }
    for _ in 0..300 {
        outbox
            .send(Instant::ZERO, ChannelId(1), &[1; 1_000])
            .unwrap();
    }
    for _ in 0..1_000 {
        outbox.send(Instant::ZERO, ChannelId(2), &[2; 100]).unwrap();
    }
    let mut bytes: BTreeMap<u8, usize> = BTreeMap::new();
    for _ in 0..200 {
        for content in packet(&mut outbox) {
            let len = match content.channel().0 {
                0 => FRAGMENT_LEN,
                1 => 1_000,
                _ => 100,
            };
            *bytes.entry(content.channel().0).or_default() += len;
        }
    }
    let (least, most) = (bytes.values().min().unwrap(), bytes.values().max().unwrap());
    assert_eq!(bytes.len(), 3);
    assert!(most - least < most / 6, "{bytes:?}");
}

/// A channel takes no packets from another of the same priority with as much queued, whatever their
/// kinds are.
#[test]
fn channels_of_one_priority_share_across_kinds() {
    let kinds = [
        ChannelConfig::unreliable(),
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_ordered(),
        ChannelConfig::reliable_unordered(),
    ];
    for (first, second) in [(0, 0), (0, 1), (1, 0), (0, 2), (2, 0), (3, 0), (1, 2)] {
        let mut rows = [kinds[first], kinds[second]];
        for row in &mut rows {
            row.priority = Priority::FIRST;
            row.queue_bytes_max = 1 << 20;
        }
        let mut outbox = Outbox::new(ChannelTable::new(&rows).unwrap(), 4 << 20, 0);
        for channel in [0, 1] {
            for _ in 0..400 {
                outbox
                    .send(Instant::ZERO, ChannelId(channel), &[channel; 100])
                    .unwrap();
            }
        }
        let mut frames = [0_usize; 2];
        for _ in 0..40 {
            for content in packet(&mut outbox) {
                frames[usize::from(content.channel().0)] += 1;
            }
        }
        assert!(frames.iter().sum::<usize>() > 400, "{frames:?}");
        let apart = frames[0].abs_diff(frames[1]);
        assert!(apart <= 24, "{first} beside {second}: {frames:?}");
    }
}

#[test]
fn a_packet_holds_no_more_frames_than_ids_stay_distinct() {
    let mut outbox = outbox(&[reliable(0)]);
    for _ in 0..100 {
        outbox.send(Instant::ZERO, ChannelId(0), &[]).unwrap();
    }
    assert_eq!(packet(&mut outbox).len(), FRAMES_MAX);
}

#[test]
fn a_reliable_sender_is_never_1024_ahead_of_its_oldest_message() {
    let mut outbox = outbox(&[reliable(0)]);
    let mut sent = Vec::new();
    for _ in 0..1_100 {
        outbox.send(Instant::ZERO, ChannelId(0), &[]).unwrap();
    }
    while outbox.has_work() {
        sent.extend(packet(&mut outbox));
    }
    assert_eq!(sent.len(), 1_024);
    sent[1..]
        .iter()
        .for_each(|content| outbox.on_acked(*content));
    assert!(!outbox.has_work(), "the oldest is still missing");
    outbox.on_acked(sent[0]);
    assert_eq!(packet(&mut outbox)[0], content(0, 1_024, 0));
}

#[test]
fn a_full_reliable_queue_refuses_and_a_full_unreliable_one_drops() {
    let mut rows = [ChannelConfig::unreliable(), reliable(1)];
    for row in &mut rows {
        row.queue_bytes_max = 10 * (100 + 40);
    }
    let mut outbox = outbox(&rows);
    for number in 0..10 {
        for channel in [0, 1] {
            let id = outbox.send(Instant::ZERO, ChannelId(channel), &[number; 100]);
            assert_eq!(id, Ok(MessageId(number.into())));
        }
    }
    let full = outbox.send(Instant::ZERO, ChannelId(1), &[10; 100]);
    assert_eq!(full, Err(SendError::Full));
    assert_eq!(outbox.counts().displaced, 0);
    let id = outbox.send(Instant::ZERO, ChannelId(0), &[10; 100]);
    assert_eq!(id, Ok(MessageId(10)));
    assert_eq!(outbox.counts().displaced, 1);
    assert_eq!(packet(&mut outbox)[0], content(0, 1, 0));
    // Acknowledgement frees room; writing does not.
    while outbox.has_work() {
        packet(&mut outbox);
    }
    assert_eq!(
        outbox.send(Instant::ZERO, ChannelId(1), &[]),
        Err(SendError::Full)
    );
    outbox.on_acked(content(1, 0, 0));
    assert!(outbox.send(Instant::ZERO, ChannelId(1), &[]).is_ok());
    assert!(outbox.memory() < 8_000, "{}", outbox.memory());
}

#[test]
fn messages_too_long_for_channel_or_window_are_refused() {
    let mut outbox = Outbox::new(ChannelTable::default(), 40_000, 0);
    let now = Instant::ZERO;
    let unknown = outbox.send(now, ChannelId(2), &[]);
    assert_eq!(unknown, Err(SendError::UnknownChannel(ChannelId(2))));
    let long = outbox.send(now, ChannelId(0), &vec![0; 17_921]);
    assert_eq!(
        long.unwrap_err().to_string(),
        "message of 17921 bytes is over the limit of 17920"
    );
    // The channel allows 64 KiB, the peer's window three quarters of 40,000 bytes.
    assert!(outbox.send(now, ChannelId(1), &vec![0; 30_001]).is_err());
    assert!(outbox.send(now, ChannelId(1), &vec![0; 29_900]).is_ok());
}

#[test]
fn an_unreliable_message_past_its_time_is_dropped_and_counted() {
    let mut outbox = outbox(&[ChannelConfig::unreliable()]);
    outbox.send(Instant::ZERO, ChannelId(0), &[1]).unwrap();
    let later = Instant::from_millis(60);
    outbox.send(later, ChannelId(0), &[2]).unwrap();
    let expires = Instant::from_millis(100);
    assert_eq!(outbox.poll_timeout(), Some(expires));
    let (out, contents) = fill(&mut outbox, expires, ROOM, End::Packet);
    assert_eq!((out, contents), (vec![0xa0, 1, 2], vec![content(0, 1, 0)]));
    assert_eq!(outbox.counts().expired, 1);
    assert_eq!(outbox.poll_timeout(), None);
    outbox.send(later, ChannelId(0), &[3]).unwrap();
    outbox.handle_timeout(later + Duration::from_millis(100));
    assert!(!outbox.has_work());
    assert_eq!(outbox.counts().expired, 2);
}

#[test]
fn an_old_report_about_a_fragment_changes_nothing() {
    let mut outbox = outbox(&[reliable(0)]);
    outbox
        .send(Instant::ZERO, ChannelId(0), &[0; 3_000])
        .unwrap();
    let first = packet(&mut outbox);
    outbox.on_lost(Instant::ZERO, first[0]);
    outbox.on_lost(Instant::ZERO, first[0]);
    let again = packet(&mut outbox);
    assert_eq!(again, first);
    assert_eq!(packet(&mut outbox), [content(0, 0, 1)]);
    // The first copy arrives after all, then the second.
    outbox.on_lost(Instant::ZERO, first[0]);
    outbox.on_acked(first[0]);
    outbox.on_acked(again[0]);
    outbox.on_lost(Instant::ZERO, again[0]);
    assert_eq!(packet(&mut outbox), [content(0, 0, 2)]);
    // Reports about content that was never sent.
    for bad in [content(0, 0, 3), content(0, 1, 0), content(9, 0, 0)] {
        outbox.on_acked(bad);
        outbox.on_lost(Instant::ZERO, bad);
    }
    assert!(!outbox.has_work() && !outbox.is_empty());
    outbox.on_acked(content(0, 0, 1));
    outbox.on_acked(content(0, 0, 2));
    assert!(outbox.is_empty());
}

#[test]
fn a_probe_repeats_the_oldest_fragment_of_the_first_priority() {
    let mut outbox = outbox(&[reliable(5), reliable(1), ChannelConfig::unreliable()]);
    assert!(!outbox.probe());
    outbox.send(Instant::ZERO, ChannelId(0), &[0; 10]).unwrap();
    outbox
        .send(Instant::ZERO, ChannelId(1), &[1; 2_000])
        .unwrap();
    while outbox.has_work() {
        packet(&mut outbox);
    }
    outbox.on_acked(content(1, 0, 0));
    assert!(outbox.probe());
    assert!(outbox.probe(), "the same one");
    assert_eq!(packet(&mut outbox), [content(1, 0, 1)]);
    outbox.on_acked(content(1, 0, 1));
    assert!(outbox.probe());
    assert_eq!(packet(&mut outbox), [content(0, 0, 0)]);
    outbox.on_acked(content(0, 0, 0));
    assert!(!outbox.probe());
}

#[test]
fn messages_of_equal_priority_do_not_pass_one_waiting_for_credit() {
    let mut rows = [reliable(2), reliable(2), reliable(1)];
    for row in &mut rows {
        row.queue_bytes_max = 1 << 20;
    }
    let window = 100_000;
    let mut outbox = Outbox::new(ChannelTable::new(&rows).unwrap(), window, 0);
    let now = Instant::ZERO;
    outbox.send(now, ChannelId(0), &vec![0; 60_000]).unwrap();
    outbox.send(now, ChannelId(0), &vec![0; 60_000]).unwrap();
    let mut sent = Vec::new();
    while outbox.has_work() {
        sent.extend(packet(&mut outbox));
    }
    assert!(sent.iter().all(|content| content.message().0 == 0));
    // The short messages would fit into the remaining room, but then the long one might never be
    // sent.
    outbox.send(now, ChannelId(1), &[1; 100]).unwrap();
    assert!(!outbox.has_work());
    // A message of higher priority may use the room.
    outbox.send(now, ChannelId(2), &[2; 100]).unwrap();
    assert_eq!(packet(&mut outbox), [content(2, 0, 0)]);
    outbox.on_window(window as u64 + 60_000);
    let next = packet(&mut outbox);
    assert_eq!(next[0], content(0, 1, 0));
}

#[test]
fn an_unreliable_message_older_than_its_ttl_is_never_sent() {
    let mut row = ChannelConfig::unreliable();
    row.ttl = Duration::from_millis(30);
    let mut outbox = outbox(&[row]);
    outbox.send(Instant::ZERO, ChannelId(0), b"then").unwrap();
    assert_eq!(outbox.poll_timeout(), Some(Instant::from_millis(30)));
    outbox
        .send(Instant::from_millis(20), ChannelId(0), b"now")
        .unwrap();
    let (bytes, contents) = fill(&mut outbox, Instant::from_millis(31), ROOM, End::Packet);
    assert_eq!(contents.len(), 1);
    assert!(bytes.ends_with(b"now"));
    assert_eq!(outbox.counts().expired, 1);
}
