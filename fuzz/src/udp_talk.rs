//! Two endpoints over a hostile path.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use netsim::provider::SimProvider;
use udp_proto::{
    ChannelId, CloseCode, Config, Endpoint, Event, Message, MessageId, MessageOutcome, SendError,
    SessionId,
};
use wire::{Arrival, Instant, Reader, Truncated};

use crate::udp_endpoint::{CLIENT, SERVER, client, server};
use crate::udp_inbox::channels;

/// Two endpoints connect and exchange messages. The input selects for each datagram whether the
/// path delivers, drops, duplicates, delays or damages it, or changes its source address. Each
/// channel keeps the guarantees of its kind. The outcome of each tracked message is reported
/// exactly once, correctly, and before its session ends. No session has events after its end.
pub fn pair(data: &[u8]) {
    let mut talk = Talk::new();
    talk.run(data);
}

/// Two ends, and the datagrams between them.
struct Talk {
    /// Client and server.
    ends: [End; 2],
    /// Datagrams, each with the index of its sender in `ends`; at most 64.
    under_way: Vec<(usize, Vec<u8>)>,
    now: Instant,
    /// Number of each end's next message.
    next_message: [u32; 2],
}

struct End {
    machine: Endpoint<SimProvider>,
    session: Option<SessionId>,
    is_open: bool,
    is_over: bool,
    /// Messages read, by channel.
    read: Vec<(ChannelId, u32)>,
    /// Tracked messages without an outcome, and the numbers in them.
    open: BTreeMap<(ChannelId, MessageId), u32>,
    /// Messages reported as delivered.
    delivered: Vec<(ChannelId, u32)>,
}

/// The channels of [`channels`](crate::udp_inbox::channels).
const RELIABLE: ChannelId = ChannelId(1);
const SEQUENCED: ChannelId = ChannelId(2);
const UNORDERED: ChannelId = ChannelId(3);

impl Talk {
    fn new() -> Self {
        let mut config = Config::default();
        config.channels = channels();
        let (server, pinned) = server(config.clone());
        let (client, session) = client(config, pinned);
        Self {
            ends: [End::new(client, Some(session)), End::new(server, None)],
            under_way: Vec::new(),
            now: Instant::ZERO,
            next_message: [0; 2],
        }
    }

    fn run(&mut self, script: &[u8]) {
        self.drain();
        let mut reader = Reader::new(script);
        while let Ok(op) = reader.u8() {
            if self.step(op, &mut reader).is_err() {
                break;
            }
            self.drain();
        }
        self.check();
    }

    fn step(&mut self, op: u8, reader: &mut Reader<'_>) -> Result<(), Truncated> {
        let which = usize::from(op >> 3 & 1);
        let argument = op >> 4;
        match op & 7 {
            0 | 1 => self.deliver(argument.into()),
            2 => self.repeat(argument.into()),
            3 => {
                if !self.under_way.is_empty() {
                    let at = usize::from(argument) % self.under_way.len();
                    self.under_way.remove(at);
                }
            }
            4 => self.wait(Duration::from_millis(u64::from(argument) * 30 + 1)),
            5 => self.send(which, argument.into()),
            6 => self.damage(argument.into(), reader.u16()?),
            _ if argument == 15 => self.close(which),
            _ => self.rebind(argument.into()),
        }
        Ok(())
    }

    /// Delivers a datagram.
    fn deliver(&mut self, at: usize) {
        if !self.under_way.is_empty() {
            let (sender, datagram) = self.under_way.remove(at % self.under_way.len());
            self.cross(sender, datagram);
        }
    }

    /// Delivers a copy of a datagram.
    fn repeat(&mut self, at: usize) {
        if let Some((sender, datagram)) = self.copy(at) {
            self.cross(sender, datagram);
        }
    }

    /// Returns a copy of a datagram and its sender, or `None` if none is in flight.
    fn copy(&self, at: usize) -> Option<(usize, Vec<u8>)> {
        self.under_way
            .get(at % self.under_way.len().max(1))
            .cloned()
    }

    /// Delivers a datagram of `sender` to the other end.
    fn cross(&mut self, sender: usize, mut datagram: Vec<u8>) {
        let source = if sender == 0 { CLIENT } else { SERVER };
        self.arrive(1 - sender, source, &mut datagram);
    }

    fn arrive(&mut self, which: usize, source: SocketAddr, datagram: &mut [u8]) {
        let now = self.now;
        if let Some(end) = self.ends.get_mut(which) {
            end.machine
                .handle_datagram(now, Arrival::from(source), datagram);
        }
    }

    /// Delivers a copy of a datagram with a flipped bit.
    fn damage(&mut self, at: usize, bit: u16) {
        let Some((sender, mut datagram)) = self.copy(at) else {
            return;
        };
        let byte = usize::from(bit >> 3) % datagram.len().max(1);
        if let Some(byte) = datagram.get_mut(byte) {
            *byte ^= 1 << (bit & 7);
        }
        self.cross(sender, datagram);
    }

    /// Delivers a copy of a datagram from an unused address.
    fn rebind(&mut self, at: usize) {
        if let Some((sender, mut datagram)) = self.copy(at) {
            let source = SocketAddr::from(([203, 0, 113, 9], 9));
            self.arrive(1 - sender, source, &mut datagram);
        }
    }

    fn wait(&mut self, span: Duration) {
        self.now += span;
        for end in &mut self.ends {
            if end.machine.poll_timeout().is_some_and(|at| at <= self.now) {
                end.machine.handle_timeout(self.now);
            }
        }
    }

    /// Sends a numbered message of up to a few fragments on every channel. Every second one is
    /// tracked.
    fn send(&mut self, which: usize, size: usize) {
        let (Some(end), Some(number)) =
            (self.ends.get_mut(which), self.next_message.get_mut(which))
        else {
            return;
        };
        let Some(session) = end.session else { return };
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.resize(4 + size * size * 20, 0x5A);
        for channel in (0..4).map(ChannelId) {
            let result = if *number & 1 == 1 {
                end.machine.send(self.now, session, channel, &bytes)
            } else {
                let message = Message::new(channel, &bytes);
                let sent = end.machine.send_tracked(self.now, session, &message);
                sent.map(|id| assert_eq!(end.open.insert((channel, id), *number), None))
            };
            let is_reliable = channel == RELIABLE || channel == UNORDERED;
            match result {
                Ok(()) | Err(SendError::Closed) => {}
                Err(SendError::Full) => assert!(is_reliable),
                Err(error) => panic!("{error}"),
            }
        }
        *number += 1;
    }

    /// Checks the received messages against each channel's guarantees.
    fn check(&self) {
        let [client, server] = &self.ends;
        for (from, to) in [(client, server), (server, client)] {
            for channel in (0..4).map(ChannelId) {
                let read = to.read.iter().filter(|(by, _)| *by == channel);
                let numbers: Vec<u32> = read.map(|(_, number)| *number).collect();
                let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
                assert_eq!(distinct.len(), numbers.len(), "{channel:?}: one came twice");
                let is_in_order = channel == RELIABLE || channel == SEQUENCED;
                assert!(
                    !is_in_order || numbers.is_sorted(),
                    "{channel:?}: {numbers:?}"
                );
            }
            for (channel, number) in &from.delivered {
                let has_come = to.read.contains(&(*channel, *number));
                assert!(
                    has_come || *channel != UNORDERED,
                    "{number} was not delivered"
                );
            }
        }
    }

    fn close(&mut self, which: usize) {
        if let Some(end) = self.ends.get_mut(which)
            && let Some(session) = end.session
        {
            // It returns an error if the session is already over.
            let result = end.machine.close(self.now, session, CloseCode::App, b"bye");
            assert!(result.is_ok() || end.is_over || !end.is_open);
        }
    }

    /// Polls both ends for datagrams and events.
    fn drain(&mut self) {
        for (which, end) in self.ends.iter_mut().enumerate() {
            let mut datagram = Vec::new();
            while end.machine.poll_transmit(self.now, &mut datagram).is_some() {
                let datagram = core::mem::take(&mut datagram);
                assert!(datagram.len() <= 1_200, "longer than every path carries");
                if self.under_way.len() < 64 {
                    self.under_way.push((which, datagram));
                }
            }
            end.listen(self.now);
        }
    }
}

impl End {
    const fn new(machine: Endpoint<SimProvider>, session: Option<SessionId>) -> Self {
        Self {
            machine,
            session,
            is_open: false,
            is_over: false,
            read: Vec::new(),
            open: BTreeMap::new(),
            delivered: Vec::new(),
        }
    }

    fn listen(&mut self, now: Instant) {
        while let Some(event) = self.machine.poll_event() {
            assert!(!self.is_over, "news of a session that is over: {event:?}");
            match event {
                Event::Connected { session, .. } => {
                    assert!(!self.is_open, "connected twice");
                    self.is_open = true;
                    self.session = Some(session);
                }
                Event::Readable { session } => self.read(now, session),
                Event::Settled {
                    channel,
                    message,
                    outcome,
                    ..
                } => {
                    let number = self.open.remove(&(channel, message)).expect("told once");
                    if outcome == MessageOutcome::Delivered {
                        self.delivered.push((channel, number));
                    }
                }
                Event::Closed { .. } => {
                    assert!(self.is_open, "closed before it was open");
                    assert!(self.open.is_empty(), "not told: {:?}", self.open);
                    self.is_over = true;
                }
                Event::ConnectFailed { .. } => {
                    assert!(!self.is_open, "failed after it was open");
                    self.is_over = true;
                }
                Event::MtuChecked { .. } | _ => {}
            }
        }
    }

    fn read(&mut self, now: Instant, session: SessionId) {
        let mut message = Vec::new();
        while let Some(channel) = self.machine.receive(now, session, &mut message) {
            let number = message.first_chunk().copied().map(u32::from_be_bytes);
            self.read.push((channel, number.expect("4 bytes at least")));
            message.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reaches_messages_both_ways_and_an_end() {
        let script = include_bytes!("../corpus/udp_pair/seed_talk");
        let mut talk = Talk::new();
        talk.run(script);
        let [client, server] = &talk.ends;
        for end in [client, server] {
            let channels: BTreeSet<_> = end.read.iter().map(|(channel, _)| *channel).collect();
            assert_eq!(channels.len(), 4, "{:?}", end.read);
        }
        assert!(!client.delivered.is_empty() || !server.delivered.is_empty());
        assert!(client.is_over || server.is_over);
    }
}
