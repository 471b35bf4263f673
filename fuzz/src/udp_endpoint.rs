//! Whole endpoints: any datagrams from strangers, and two that talk over a hostile path.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;

use crypto::Identity;
use netsim::provider::SimProvider;
use udp_proto::{
    AppId, ChannelId, CloseCode, Config, Credentials, Endpoint, Event, Listen, Network, SendError,
    ServerIdentity, SessionId, Target,
};
use wire::{Arrival, Instant, Reader, Seed, Truncated};

use crate::crypto_token::{AUDIENCE, NOW, key};

/// The game of every endpoint here.
pub(crate) const APP: AppId = AppId(AUDIENCE.app_id);
/// Where the server is.
pub(crate) const SERVER: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 7_777));
/// Where the client is.
pub(crate) const CLIENT: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 1), 4_000));

/// A server that serves all modes, and what its clients pin; the same in every run.
pub(crate) fn server(config: Config) -> (Endpoint<SimProvider>, ServerIdentity) {
    let mut provider = SimProvider::new(Seed::from_number(1));
    let identity = Identity::generate(&mut provider).expect("seeded");
    let pinned = ServerIdentity::Keys(vec![*identity.public_key()]);
    let mut server = Endpoint::new(config, APP, provider, Instant::ZERO).expect("seeded");
    let network = Network {
        secret: crypto::Secret32::new([3; 32]),
        previous: None,
    };
    let listen = Listen::new(identity, AUDIENCE.server_id)
        .with_open_mode()
        .with_network(network);
    server.listen(Instant::ZERO, listen).expect("seeded");
    assert!(server.add_token_key(key()));
    server.set_unix_time(Instant::ZERO, NOW);
    (server, pinned)
}

/// A client that has begun to dial the server in open mode; the same in every run.
pub(crate) fn client(pinned: ServerIdentity) -> (Endpoint<SimProvider>, SessionId) {
    let provider = SimProvider::new(Seed::from_number(2));
    let mut client =
        Endpoint::new(Config::default(), APP, provider, Instant::ZERO).expect("seeded");
    let target = Target {
        addresses: vec![SERVER],
        server: pinned,
        credentials: Credentials::Open,
    };
    let session = client
        .connect(Instant::ZERO, target)
        .expect("one address, free slots");
    (client, session)
}

/// Hands any datagrams from a few addresses to a server and to a client that dials. Each has one
/// fate that is counted; the server answers each by one at most, and never by more bytes than a
/// share of what came, while nobody has shown a session's key.
pub fn first_bytes(data: &[u8]) {
    let (server, pinned) = server(Config::default());
    let (client, _) = client(pinned);
    let mut strangers = Strangers {
        machines: [server, client],
        fed: [0; 2],
        now: Instant::ZERO,
    };
    let mut reader = Reader::new(data);
    while let Ok(op) = reader.u8() {
        if strangers.step(op, &mut reader).is_err() {
            break;
        }
    }
}

struct Strangers {
    machines: [Endpoint<SimProvider>; 2],
    /// Datagrams that each got.
    fed: [u64; 2],
    now: Instant,
}

impl Strangers {
    fn step(&mut self, op: u8, reader: &mut Reader<'_>) -> Result<(), Truncated> {
        let mut datagram = datagram(op, reader)?;
        if op & 2 != 0 {
            self.now += Duration::from_millis(150);
        }
        let source = SocketAddr::from(([203, 0, 113, op >> 6], 5_000));
        let source = if op & 4 == 0 { source } else { SERVER };
        let which = usize::from(op & 1);
        let [server, client] = &mut self.machines;
        let machine = if which == 0 { server } else { client };
        machine.handle_datagram(self.now, Arrival::from(source), &mut datagram);
        if let Some(fed) = self.fed.get_mut(which) {
            *fed += 1;
        }
        self.check();
        Ok(())
    }

    fn check(&mut self) {
        let mut out = Vec::new();
        for (machine, fed) in self.machines.iter_mut().zip(self.fed) {
            if machine.poll_timeout().is_some_and(|at| at <= self.now) {
                machine.handle_timeout(self.now);
            }
            while machine.poll_transmit(self.now, &mut out).is_some() {}
            out.clear();
            while machine.poll_event().is_some() {}
            assert_eq!(machine.stats().datagrams_received(), fed, "not one fate");
        }
        let [server, _] = &self.machines;
        let (stats, [fed, _]) = (server.stats(), self.fed);
        if stats.sessions_opened == 0 {
            assert!(stats.datagrams_sent <= fed, "two answers to one");
            let allowed = stats.bytes_received * 35 / 100;
            assert!(stats.bytes_sent <= allowed, "amplified: {stats:?}");
        }
        assert!(server.session_count() <= 1_024, "half-open slots");
    }
}

/// The next datagram: a length in 2 bytes, and as much of that as there is; filled with zeros to
/// the length of a HELLO where `op` asks for it.
fn datagram(op: u8, reader: &mut Reader<'_>) -> Result<Vec<u8>, Truncated> {
    let len = usize::from(reader.u16()? % 2_048);
    let mut datagram = reader.bytes(len.min(reader.len()))?.to_vec();
    if op & 8 != 0 && datagram.len() < 1_200 {
        datagram.resize(1_200, 0);
    }
    Ok(datagram)
}

/// Lets two endpoints connect and talk over a path that does with each datagram what the bytes
/// say: deliver, drop, repeat, hold back, damage, or bring it from elsewhere. What comes on the
/// reliable channel is what was sent, in order; no session's events go on after its end.
pub fn pair(data: &[u8]) {
    let mut talk = Talk::new();
    talk.run(data);
}

/// Two ends, and what flies between them.
struct Talk {
    /// Client and server.
    ends: [End; 2],
    /// Datagrams, each with the place of its sender in `ends`; at most 64.
    under_way: Vec<(usize, Vec<u8>)>,
    now: Instant,
    /// What each end sends reliably next: its messages are numbered.
    next_message: [u32; 2],
}

struct End {
    machine: Endpoint<SimProvider>,
    session: Option<SessionId>,
    is_open: bool,
    is_over: bool,
    /// The number that the next reliable message must bear.
    expected: u32,
}

const RELIABLE: ChannelId = ChannelId(1);

impl Talk {
    fn new() -> Self {
        let (server, pinned) = server(Config::default());
        let (client, session) = client(pinned);
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

    /// Returns a copy of a datagram and its sender; `None` where none is under way.
    fn copy(&self, at: usize) -> Option<(usize, Vec<u8>)> {
        self.under_way
            .get(at % self.under_way.len().max(1))
            .cloned()
    }

    /// Brings a datagram of `sender` to the other end.
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

    /// Delivers a copy of a datagram from an address that nobody has.
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

    /// Sends a numbered message, whose length goes up to a few fragments.
    fn send(&mut self, which: usize, size: usize) {
        let (Some(end), Some(number)) =
            (self.ends.get_mut(which), self.next_message.get_mut(which))
        else {
            return;
        };
        let Some(session) = end.session else { return };
        let mut message = number.to_be_bytes().to_vec();
        message.resize(4 + size * size * 20, 0x5A);
        if end
            .machine
            .send(self.now, session, RELIABLE, &message)
            .is_ok()
        {
            *number += 1;
        }
        // What is unreliable may be lost: no word is kept of it.
        let result = end.machine.send(self.now, session, ChannelId(0), &message);
        assert!(matches!(result, Ok(()) | Err(SendError::Closed)));
    }

    fn close(&mut self, which: usize) {
        if let Some(end) = self.ends.get_mut(which)
            && let Some(session) = end.session
        {
            // It hands an error back where the session is over already.
            let result = end.machine.close(self.now, session, CloseCode::App, b"bye");
            assert!(result.is_ok() || end.is_over || !end.is_open);
        }
    }

    /// Takes what both ends have to send and to say.
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
            expected: 0,
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
                Event::Closed { .. } => {
                    assert!(self.is_open, "closed before it was open");
                    self.is_over = true;
                }
                Event::ConnectFailed { .. } => {
                    assert!(!self.is_open, "failed after it was open");
                    self.is_over = true;
                }
                Event::MtuChecked { .. } | Event::Settled { .. } | _ => {}
            }
        }
    }

    fn read(&mut self, now: Instant, session: SessionId) {
        let mut message = Vec::new();
        while let Some(channel) = self.machine.receive(now, session, &mut message) {
            if channel == RELIABLE {
                let number = message.first_chunk().copied().map(u32::from_be_bytes);
                assert_eq!(number, Some(self.expected), "out of order");
                self.expected += 1;
            }
            message.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reaches_talk_both_ways_and_an_end() {
        let script = include_bytes!("../corpus/udp_pair/seed_talk");
        let mut talk = Talk::new();
        talk.run(script);
        let [client, server] = &talk.ends;
        assert!(client.expected > 0 && server.expected > 0);
        assert!(client.is_over || server.is_over);
    }

    #[test]
    fn the_corpus_reaches_a_half_open_slot() {
        let script = include_bytes!("../corpus/udp_first_bytes/seed_to_server");
        let (machine, pinned) = server(Config::default());
        let mut strangers = Strangers {
            machines: [machine, client(pinned).0],
            fed: [0; 2],
            now: Instant::ZERO,
        };
        let mut reader = Reader::new(script);
        while let Ok(op) = reader.u8() {
            strangers.step(op, &mut reader).unwrap();
        }
        let [server, _] = &strangers.machines;
        let stats = server.stats();
        let seen = (stats.accepted, stats.accept_repeated, stats.retried);
        assert_eq!(seen, (1, 1, 3), "{stats:?}");
    }
}
