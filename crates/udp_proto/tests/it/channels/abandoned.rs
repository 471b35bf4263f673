//! Split messages that the receiver dropped before they were complete: none is reported delivered.

use core::time::Duration;

use udp_proto::channel::{ChannelConfig, ChannelId, ChannelTable, Content, MsgFrame};
use udp_proto::inbox::{Inbox, Reception};
use udp_proto::outbox::{End, FillPolicy, Outbox, Room};
use udp_proto::{Message, MessageOutcome};
use wire::{Instant, Reader};

use super::pipe::ROOM;

const OURS: &[u8] = &[99; 3_300];

/// How often a message is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Once,
    UntilDeadline,
}

struct Pair {
    table: ChannelTable,
    outbox: Outbox,
    inbox: Inbox,
}

impl Pair {
    fn new() -> Self {
        let mut rows = [
            ChannelConfig::unreliable(),
            ChannelConfig::sequenced(),
            ChannelConfig::reliable_ordered(),
        ];
        for row in &mut rows[..2] {
            row.message_bytes_max = 64_960;
            row.queue_bytes_max = 200_000;
        }
        let table = ChannelTable::new(&rows).unwrap();
        Self {
            outbox: Outbox::new(table.clone(), 256 << 10, 0),
            inbox: Inbox::new(table.clone(), 256 << 10, 0),
            table,
        }
    }

    fn send_ours(&mut self, channel: u8, leaves: Leaves) {
        let mut message = Message::new(ChannelId(channel), OURS).with_ttl(Duration::from_secs(5));
        if leaves == Leaves::UntilDeadline {
            message = message.until_deadline();
        }
        self.outbox.send_tracked(Instant::ZERO, &message).unwrap();
    }

    /// All packets that can be sent now.
    fn packets(&mut self, now: Instant) -> Vec<(Vec<Content>, Vec<u8>)> {
        let mut packets = Vec::new();
        while self.outbox.has_work() {
            let room = Room {
                bytes: ROOM,
                end: End::Packet,
                fill_policy: FillPolicy::Any,
                channels: u32::MAX,
            };
            let (mut contents, mut out) = (Vec::new(), Vec::new());
            self.outbox.fill(now, room, &mut out, &mut |frame| {
                contents.push(frame.content);
            });
            packets.push((contents, out));
        }
        packets
    }

    /// Delivers a packet, and its acknowledgement if it gets one.
    fn bring(&mut self, now: Instant, (contents, bytes): &(Vec<Content>, Vec<u8>)) -> bool {
        self.inbox.handle_timeout(now);
        let mut reader = Reader::new(bytes);
        let mut is_taken = true;
        while !reader.is_empty() {
            let frame = MsgFrame::decode(&mut reader, &self.table).unwrap();
            is_taken &= self.inbox.on_message(now, &frame).unwrap() == Reception::Taken;
        }
        for content in contents.iter().filter(|_| is_taken) {
            self.outbox.on_acked(*content);
        }
        is_taken
    }

    fn reported(&mut self) -> Vec<MessageOutcome> {
        let outbox = &mut self.outbox;
        core::iter::from_fn(|| outbox.poll_settled().map(|settled| settled.outcome)).collect()
    }

    fn has_come(&mut self) -> bool {
        let mut out = Vec::new();
        core::iter::from_fn(|| self.inbox.recv(&mut out).map(|_| out == OURS)).any(|is_it| is_it)
    }
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Older messages, sent earlier, arrive after its first part and evict it.
#[test]
fn u9_late_older_messages_evict_one_that_is_not_reported_delivered() {
    // Eight short ones, and one of 58 fragments.
    for (elders, len) in [(8, 2_000), (1, 58 * 1_120)] {
        for (channel, leaves) in [0, 1]
            .into_iter()
            .flat_map(|channel| [(channel, Leaves::UntilDeadline), (channel, Leaves::Once)])
        {
            let mut pair = Pair::new();
            for number in 0..elders {
                let bytes = vec![number; len];
                pair.outbox.send(at(0), ChannelId(channel), &bytes).unwrap();
            }
            pair.send_ours(channel, leaves);
            let packets = pair.packets(at(0));
            let (before, ours) = packets.split_at(packets.len() - 3);
            assert!(pair.bring(at(10), &ours[0]) && pair.bring(at(10), &ours[1]));
            // All parts of the older messages except the last.
            let parts = len.div_ceil(1_120);
            for (_, packet) in before
                .iter()
                .enumerate()
                .filter(|(n, _)| n % parts + 1 < parts)
            {
                assert!(pair.bring(at(50), packet));
            }
            assert_eq!(pair.inbox.counts().reassemblies_dropped, 1);
            for content in &ours[2].0 {
                pair.outbox.on_lost(at(60), *content);
            }
            assert!(!pair.bring(at(70), &ours[2]), "it says so");
            for packet in pair.packets(at(61)) {
                assert!(!pair.bring(at(80), &packet));
                for content in &packet.0 {
                    pair.outbox.on_lost(at(100), *content);
                }
            }
            assert!(!pair.has_come());
            assert_eq!(pair.reported(), []);
            pair.outbox.handle_timeout(at(2_500));
            assert_eq!(pair.packets(at(2_500)).len(), 0, "in vain");
            pair.outbox.handle_timeout(at(8_000));
            assert_eq!(pair.reported(), [MessageOutcome::Lost]);
        }
    }
}

/// The receiver's process pauses for longer than it keeps parts.
#[test]
fn u9_messages_completed_too_late_are_not_reported_delivered() {
    for leaves in [Leaves::Once, Leaves::UntilDeadline] {
        for (millis, is_delivered) in [(1_999, true), (2_000, false)] {
            let mut pair = Pair::new();
            pair.send_ours(0, leaves);
            let packets = pair.packets(at(0));
            assert!(pair.bring(at(0), &packets[0]) && pair.bring(at(0), &packets[1]));
            assert_eq!(pair.bring(at(millis), &packets[2]), is_delivered);
            assert_eq!(pair.has_come(), is_delivered);
            let delivered: &[_] = &[MessageOutcome::Delivered];
            assert_eq!(pair.reported(), if is_delivered { delivered } else { &[] });
        }
    }
}

/// A duplicate of a complete message is acknowledged, because the first acknowledgement may be
/// lost.
#[test]
fn u9_duplicates_of_complete_messages_are_acknowledged_of_abandoned_not() {
    let mut pair = Pair::new();
    pair.send_ours(0, Leaves::UntilDeadline);
    pair.send_ours(0, Leaves::UntilDeadline);
    let packets = pair.packets(at(0));
    for packet in &packets[..4] {
        assert!(pair.bring(at(0), packet));
    }
    assert!(pair.has_come());
    pair.inbox.handle_timeout(at(2_000));
    assert_eq!(pair.inbox.counts().reassemblies_dropped, 1);
    for (number, packet) in packets.iter().enumerate() {
        assert_eq!(pair.bring(at(2_001), packet), number < 3, "{number}");
    }
    // 1,024 numbers later the two cases are indistinguishable.
    for _ in 0..1_024 {
        pair.outbox
            .send(at(2_001), ChannelId(0), &[1; 2_000])
            .unwrap();
        for packet in pair.packets(at(2_001)) {
            assert!(pair.bring(at(2_001), &packet));
        }
    }
    for packet in &packets {
        assert!(!pair.bring(at(2_001), packet));
    }
}
