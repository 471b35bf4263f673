//! Channels allocate nothing in the steady state.

use udp_proto::Message;
use udp_proto::channel::{ChannelConfig, ChannelId, ChannelTable, Content, MsgFrame, Priority};
use udp_proto::inbox::Inbox;
use udp_proto::outbox::{End, FillPolicy, Outbox, Room};
use wire::{Instant, Reader};

/// Whether message outcomes are tracked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tracking {
    On,
    Off,
}

/// Two connected ends; every buffer is reused.
struct Link {
    outbox: Outbox,
    inbox: Inbox,
    table: ChannelTable,
    plaintext: Vec<u8>,
    contents: Vec<Content>,
    message: Vec<u8>,
    tracking: Tracking,
    reported: u64,
    packets: u64,
    read: u64,
}

impl Link {
    fn new(tracking: Tracking) -> Self {
        let mut rows = [
            ChannelConfig::unreliable(),
            ChannelConfig::sequenced(),
            ChannelConfig::reliable_unordered(),
            ChannelConfig::reliable_ordered(),
        ];
        for row in &mut rows {
            row.priority = Priority::FIRST;
        }
        let table = ChannelTable::new(&rows).unwrap();
        Self {
            outbox: Outbox::new(table.clone(), 256 << 10, 0),
            inbox: Inbox::new(table.clone(), 256 << 10, 0),
            table,
            plaintext: Vec::with_capacity(1_200),
            contents: Vec::with_capacity(64),
            message: Vec::with_capacity(65_536),
            tracking,
            reported: 0,
            packets: 0,
            read: 0,
        }
    }

    /// Sends a message of 100 bytes on `channel` and all pending packets; every `lost`th is lost.
    fn exchange(&mut self, now: Instant, channel: u8, lost: u64) {
        let mut message = [7; 100];
        message[..8].copy_from_slice(&self.packets.to_be_bytes());
        if self.tracking == Tracking::On {
            let message = Message::new(ChannelId(channel), &message);
            self.outbox.send_tracked(now, &message).unwrap();
        } else {
            self.outbox.send(now, ChannelId(channel), &message).unwrap();
        }
        self.packet(now, lost);
        if self.packets.is_multiple_of(5) {
            self.packet(now, lost);
        }
        while self.inbox.recv(&mut self.message).is_some() {
            assert_eq!(self.message.len(), 100);
            self.read += 1;
        }
        self.outbox.handle_timeout(now);
        while self.outbox.poll_settled().is_some() {
            self.reported += 1;
        }
        if let Some(grant) = self.inbox.window_to_send() {
            self.inbox.on_window_sent(grant);
            self.outbox.on_window(grant);
            self.inbox.on_window_acked(grant);
        }
    }

    fn packet(&mut self, now: Instant, lost: u64) {
        let Self {
            outbox, contents, ..
        } = self;
        let room = Room {
            bytes: 1_171,
            end: End::Packet,
            fill_policy: FillPolicy::Any,
            channels: u32::MAX,
        };
        self.plaintext.clear();
        contents.clear();
        outbox.fill(now, room, &mut self.plaintext, &mut |frame| {
            contents.push(frame.content);
        });
        self.packets += 1;
        if self.packets.is_multiple_of(lost) {
            for content in contents.drain(..) {
                outbox.on_lost(now, content);
            }
            return;
        }
        for content in contents.drain(..) {
            outbox.on_acked(content);
        }
        let mut reader = Reader::new(&self.plaintext);
        while !reader.is_empty() {
            let frame = MsgFrame::decode(&mut reader, &self.table).unwrap();
            self.inbox.on_message(now, &frame).unwrap();
        }
    }
}

/// Sends one message per millisecond on each kind of channel, with and without loss.
fn run(tracking: Tracking) {
    for (channel, lost) in (0..4).flat_map(|channel| [(channel, u64::MAX), (channel, 3)]) {
        let mut link = Link::new(tracking);
        let mut now = Instant::ZERO;
        let mut before = 0;
        for number in 0..101_000_u32 {
            if number == 1_000 {
                before = crate::alloc::allocated();
            }
            now += core::time::Duration::from_millis(1);
            link.exchange(now, channel, lost);
        }
        let allocations = crate::alloc::allocated() - before;
        assert_eq!(allocations, 0, "channel {channel}, one of {lost} lost");
        assert!(link.read > 50_000, "{}", link.read);
        assert_eq!(
            link.reported > 100_000,
            tracking == Tracking::On,
            "{}",
            link.reported
        );
    }
}

#[test]
fn twp_f3_messages_of_100_bytes_allocate_nothing_after_a_thousand() {
    run(Tracking::Off);
}

#[test]
fn twp_f3_tracked_messages_allocate_nothing_either() {
    run(Tracking::On);
}
