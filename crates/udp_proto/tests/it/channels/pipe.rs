//! Two outboxes and inboxes, connected by a pipe that loses, duplicates and reorders packets.
//!
//! Packets are neither sealed nor paced. Each carries the numbers of the 100 that its sender
//! received last. A packet is lost when one sent 3 later was received, or when it is overdue.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use udp_proto::channel::{ChannelId, ChannelTable, Content, MsgFrame, SendError};
use udp_proto::inbox::{Inbox, Reception};
use udp_proto::outbox::{End, FillPolicy, Outbox, Room};
use wire::{Generator, Instant, Reader};

/// Faults of the pipe, in both directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    /// Lost packets per million.
    pub(super) loss: u32,
    /// Duplicated packets per million.
    pub(super) duplication: u32,
    /// Minimum and maximum delay in milliseconds; packets may be reordered.
    pub(super) delay_ms: (u64, u64),
}

#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) sides: [Side; 2],
    pub(super) now: Instant,
    faults: Faults,
    generator: Generator,
    /// Packets in flight by arrival, with the receiving side.
    under_way: BTreeMap<(Instant, u64), (usize, Packet)>,
    packets: u64,
}

#[derive(Debug)]
pub(super) struct Side {
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    pub(super) table: ChannelTable,
    /// Messages in read order.
    pub(super) read: Vec<(ChannelId, Vec<u8>)>,
    /// Whether the application reads.
    pub(super) reads: bool,
    /// Packets sent and not yet acknowledged or lost.
    in_flight: BTreeMap<u64, Sent>,
    next_number: u64,
    arrived: BTreeSet<u64>,
    /// The most recent arrivals, newest first.
    arrivals: VecDeque<u64>,
    /// Time after which a packet counts as lost.
    patience: Duration,
    owes_ack: bool,
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    contents: Vec<Content>,
    window: Option<u64>,
}

#[derive(Clone, Debug)]
struct Packet {
    number: u64,
    /// In arrival order, newest first.
    acked: Vec<u64>,
    window: Option<u64>,
    frames: Vec<u8>,
}

/// Plaintext bytes of a packet.
pub(super) const ROOM: usize = 1_171;

impl Pipe {
    pub(super) fn new(
        table: &ChannelTable,
        first_id: u64,
        faults: Faults,
        generator: Generator,
    ) -> Self {
        let side = || {
            let window = table.receive_window(256 << 10);
            Side {
                outbox: Outbox::new(table.clone(), window, first_id),
                inbox: Inbox::new(table.clone(), window, first_id),
                table: table.clone(),
                read: Vec::new(),
                reads: true,
                in_flight: BTreeMap::new(),
                next_number: 0,
                arrived: BTreeSet::new(),
                arrivals: VecDeque::new(),
                patience: Duration::from_millis(2 * faults.delay_ms.1 + 50),
                owes_ack: false,
            }
        };
        Self {
            sides: [side(), side()],
            now: Instant::ZERO,
            faults,
            generator,
            under_way: BTreeMap::new(),
            packets: 0,
        }
    }

    /// Advances by one millisecond.
    pub(super) fn step(&mut self) {
        self.now += Duration::from_millis(1);
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            let (to, packet) = entry.remove();
            self.sides[to].on_packet(self.now, &packet);
        }
        for from in 0..2 {
            self.sides[from].on_time(self.now);
            for _ in 0..4 {
                let Some(packet) = self.sides[from].packet(self.now) else {
                    break;
                };
                self.launch(1 - from, &packet);
            }
        }
    }

    /// Advances time until no reliable message is pending; panics after `limit`.
    pub(super) fn settle(&mut self, limit: Duration) {
        let deadline = self.now + limit;
        while self.sides.iter().any(|side| !side.outbox.is_empty()) {
            assert!(self.now < deadline, "not settled after {limit:?}");
            self.step();
        }
    }

    fn launch(&mut self, to: usize, packet: &Packet) {
        let copies = 1 + u64::from(self.generator.chance(self.faults.duplication));
        for _ in 0..copies {
            let (low, high) = self.faults.delay_ms;
            let delay = Duration::from_millis(self.generator.between(low, high));
            if self.generator.chance(self.faults.loss) {
                continue;
            }
            self.packets += 1;
            let key = (self.now + delay, self.packets);
            self.under_way.insert(key, (to, packet.clone()));
        }
    }
}

impl Side {
    pub(super) fn send(
        &mut self,
        now: Instant,
        channel: u8,
        message: &[u8],
    ) -> Result<(), SendError> {
        let id = self.outbox.send(now, ChannelId(channel), message);
        id.map(|_| ())
    }

    /// Packets with content that are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn packet(&mut self, now: Instant) -> Option<Packet> {
        // Stays below the 1,024 that a replay window and an ACK frame cover.
        let may_send = self.in_flight.len() < 1_000;
        let window = self.inbox.window_to_send();
        let mut frames = Vec::new();
        let mut contents = Vec::new();
        if may_send && self.outbox.has_work() {
            let room = Room {
                bytes: ROOM,
                end: End::Packet,
                fill_policy: FillPolicy::Any,
                channels: u32::MAX,
            };
            let count = self.outbox.fill(now, room, &mut frames, &mut |frame| {
                contents.push(frame.content);
            });
            // If nothing is left to send or to acknowledge, the channels resume from their numbers.
            self.outbox.compact();
            assert_eq!(count, contents.len());
            assert!(frames.len() <= ROOM);
            assert!(count > 0, "there was work, yet nothing was written");
        }
        if frames.is_empty() && window.is_none() && !self.owes_ack {
            return None;
        }
        self.owes_ack = false;
        let number = self.next_number;
        self.next_number += 1;
        if let Some(grant) = window {
            self.inbox.on_window_sent(grant);
        }
        if !contents.is_empty() || window.is_some() {
            let sent = Sent {
                at: now,
                contents,
                window,
            };
            self.in_flight.insert(number, sent);
        }
        Some(Packet {
            number,
            acked: self.arrivals.iter().copied().collect(),
            window,
            frames,
        })
    }

    fn on_packet(&mut self, now: Instant, packet: &Packet) {
        let newest = self.arrived.last().copied().unwrap_or(0);
        let is_old = packet.number + 1_024 <= newest;
        if is_old || !self.arrived.insert(packet.number) {
            return;
        }
        self.owes_ack |= !packet.frames.is_empty() || packet.window.is_some();
        for number in &packet.acked {
            if let Some(sent) = self.in_flight.remove(number) {
                for content in sent.contents {
                    self.outbox.on_acked(content);
                }
                if let Some(grant) = sent.window {
                    self.inbox.on_window_acked(grant);
                }
            }
        }
        if let Some(largest) = packet.acked.iter().max() {
            let overtaken = self.in_flight.range(..largest.saturating_sub(2));
            let lost: Vec<u64> = overtaken.map(|(number, _)| *number).collect();
            self.lose(now, &lost);
        }
        if let Some(grant) = packet.window {
            self.outbox.on_window(grant);
        }
        let mut reader = Reader::new(&packet.frames);
        let mut is_taken = true;
        while !reader.is_empty() {
            let frame = MsgFrame::decode(&mut reader, &self.table).unwrap();
            is_taken &= self.inbox.on_message(now, &frame).unwrap() == Reception::Taken;
        }
        if is_taken {
            self.arrivals.push_front(packet.number);
            self.arrivals.truncate(100);
        }
    }

    fn on_time(&mut self, now: Instant) {
        self.inbox.handle_timeout(now);
        self.outbox.handle_timeout(now);
        assert!(self.inbox.poll_timeout().is_none_or(|at| at > now));
        assert!(self.outbox.poll_timeout().is_none_or(|at| at > now));
        let overdue = |sent: &Sent| now.saturating_since(sent.at) > self.patience;
        let lost: Vec<u64> = self
            .in_flight
            .iter()
            .filter(|(_, sent)| overdue(sent))
            .map(|(number, _)| *number)
            .collect();
        self.lose(now, &lost);
        let mut message = Vec::new();
        while self.reads
            && let Some(channel) = self.inbox.recv(&mut message)
        {
            self.read.push((channel, message.clone()));
        }
    }

    fn lose(&mut self, now: Instant, numbers: &[u64]) {
        for number in numbers {
            let Some(sent) = self.in_flight.remove(number) else {
                continue;
            };
            for content in sent.contents {
                self.outbox.on_lost(now, content);
            }
            if let Some(grant) = sent.window {
                self.inbox.on_window_lost(grant);
            }
        }
    }
}
