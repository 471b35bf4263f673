//! Encrypted sessions between a server and its spectators, in memory.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use crypto::{Identity, PublicKey, Ring};
use lockstep::{MatchServer, PeerId};
use udp_proto::{Config, Credentials, Endpoint, Event, Listen, ServerIdentity, SessionId, Target};
use wire::lookup::Lookup;
use wire::{Arrival, Instant, Seed};

use super::SPECTATORS;
use crate::measure::cpu_time_of;
use crate::pair::{APP, INSTANCE, UNRELIABLE};

/// The endpoints of the server and of all spectators.
pub(super) struct Seal {
    endpoint: Endpoint<Ring>,
    /// Sessions by spectator.
    sessions: Vec<SessionId>,
    /// Spectators by session.
    numbers: Lookup<SessionId, u32>,
    guests: Vec<Guest>,
    /// Concatenated datagrams in flight, with the end and the spectator of each.
    bytes: Vec<u8>,
    ends: Vec<(usize, SocketAddr)>,
    message: Vec<u8>,
}

struct Guest {
    endpoint: Endpoint<Ring>,
    session: SessionId,
}

/// The server's sent datagrams and their CPU time.
pub(super) struct Sent {
    pub(super) spent: Duration,
    pub(super) datagrams: u32,
    pub(super) bytes: usize,
}

/// The server's address.
const SERVER: SocketAddr =
    SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7_777);

impl Seal {
    /// Opens a session for each spectator, one after the other, which takes [`admission`] from
    /// `now` on.
    pub(super) fn new(now: Instant, spectators: u32) -> Self {
        let identity = Identity::generate(&mut Ring::new()).expect("entropy");
        let key = *identity.public_key();
        let mut config = Config::for_server();
        config.sessions_max = u16::MAX;
        // All connect within a short time.
        config.accept_rate = u32::MAX;
        config.accept_rate_unvalidated = u32::MAX;
        let mut endpoint = Endpoint::new(config, APP, Ring::new(), now).expect("entropy");
        let open = Listen::new(identity, INSTANCE).with_open_mode();
        endpoint.listen(now, open).expect("entropy");
        let mut seal = Self {
            endpoint,
            sessions: Vec::new(),
            numbers: Lookup::new(&mut Seed::from_number(5).generator(0)),
            guests: Vec::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
            message: Vec::new(),
        };
        (0..spectators).for_each(|number| seal.admit(now + admission(number), number, key));
        seal
    }

    /// Connects one spectator.
    fn admit(&mut self, now: Instant, number: u32, key: PublicKey) {
        let config = Config::default();
        let mut endpoint = Endpoint::new(config, APP, Ring::new(), now).expect("entropy");
        let target = Target {
            addresses: vec![SERVER],
            server: ServerIdentity::Keys(vec![key]),
            credentials: Credentials::Open,
        };
        let session = endpoint.connect(now, target).expect("a target");
        self.guests.push(Guest { endpoint, session });
        let place = self.guests.len() - 1;
        for _ in 0..8 {
            self.gather(now, place);
            self.take(now, |_, _, _| ());
            self.drain(now);
            self.deliver(now);
        }
        assert_eq!(self.guests.len(), self.sessions.len(), "it is let in");
        self.numbers
            .insert(*self.sessions.last().expect("one more"), number);
    }

    /// Seals and sends the match's datagrams for spectators, and delivers them. The first datagram,
    /// for `first`, is in `buf`.
    pub(super) fn send(
        &mut self,
        now: Instant,
        server: &mut MatchServer<u16>,
        (first, buf): (PeerId, &mut Vec<u8>),
    ) -> Sent {
        let mut datagrams = 0;
        let spent = cpu_time_of(|| {
            let mut to = first;
            loop {
                datagrams += 1;
                let place = usize::try_from(to.0 - SPECTATORS).unwrap_or(usize::MAX);
                let session = self.sessions.get(place).expect("one for each");
                let sent = self.endpoint.send(now, *session, UNRELIABLE, buf);
                sent.expect("room for one in a tick");
                buf.clear();
                match server.poll_transmit(now, buf) {
                    Some(transmit) => to = transmit.destination,
                    None => break,
                }
            }
            if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                self.endpoint.handle_timeout(now);
            }
            self.drain(now);
        });
        let bytes = self.bytes.len();
        self.deliver(now);
        Sent {
            spent,
            datagrams,
            bytes,
        }
    }

    /// Sends `word` from each of `speakers` and passes it to the match. Returns the server's CPU
    /// time.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        server: &mut MatchServer<u16>,
        (speakers, word): (impl Iterator<Item = u32>, [u8; 4]),
    ) -> Duration {
        for speaker in speakers {
            let place = usize::try_from(speaker).unwrap_or(usize::MAX);
            let Guest { endpoint, session } = self.guests.get_mut(place).expect("one for each");
            let sent = endpoint.send(now, *session, UNRELIABLE, &word);
            sent.expect("its session is open");
        }
        // The other spectators may have acknowledgements to send.
        (0..self.guests.len()).for_each(|place| self.gather(now, place));
        cpu_time_of(|| {
            self.take(now, |number, now, message| {
                let arrival = Arrival::from(PeerId(SPECTATORS + number));
                server.handle_datagram(now, arrival, message);
            });
        })
    }

    /// Moves a spectator's outgoing datagrams to those in flight.
    fn gather(&mut self, now: Instant, place: usize) {
        let address = address(place);
        let Self {
            guests,
            bytes,
            ends,
            ..
        } = self;
        let endpoint = &mut guests.get_mut(place).expect("one for each").endpoint;
        if endpoint.poll_timeout().is_some_and(|at| at <= now) {
            endpoint.handle_timeout(now);
        }
        while endpoint.poll_transmit(now, bytes).is_some() {
            ends.push((bytes.len(), address));
        }
    }

    /// Delivers all datagrams in flight to the server, and passes its messages to `hear`.
    fn take(&mut self, now: Instant, mut hear: impl FnMut(u32, Instant, &mut Vec<u8>)) {
        let mut start = 0;
        for (end, from) in self.ends.drain(..) {
            let datagram = self.bytes.get_mut(start..end).unwrap_or_default();
            self.endpoint
                .handle_datagram(now, Arrival::from(from), datagram);
            start = end;
        }
        self.bytes.clear();
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Connected { session, .. } => self.sessions.push(session),
                Event::Readable { session } => {
                    let number = self.numbers.get(&session).copied();
                    let message = &mut self.message;
                    while self.endpoint.receive(now, session, message).is_some() {
                        if let Some(number) = number {
                            hear(number, now, message);
                        }
                    }
                }
                Event::MtuChecked { .. } | Event::Settled { .. } | _ => {}
            }
        }
    }

    /// Moves the server's outgoing datagrams to those in flight.
    fn drain(&mut self, now: Instant) {
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.bytes) {
            self.ends.push((self.bytes.len(), transmit.destination));
        }
    }

    /// Delivers datagrams in flight to the spectators.
    fn deliver(&mut self, now: Instant) {
        let mut start = 0;
        for (end, to) in self.ends.drain(..) {
            let datagram = self.bytes.get_mut(start..end).unwrap_or_default();
            start = end;
            let Some(guest) = place(to).and_then(|place| self.guests.get_mut(place)) else {
                continue;
            };
            let endpoint = &mut guest.endpoint;
            endpoint.handle_datagram(now, Arrival::from(SERVER), datagram);
            while let Some(event) = endpoint.poll_event() {
                if let Event::Readable { session } = event {
                    while endpoint.receive(now, session, &mut self.message).is_some() {}
                }
            }
        }
        self.bytes.clear();
    }
}

/// Returns the time to admit this many: a server handles at most a burst of 100 handshakes.
pub(super) fn admission(spectators: u32) -> Duration {
    Duration::from_micros(20) * spectators
}

/// Returns a spectator's address: each in its own network.
fn address(place: usize) -> SocketAddr {
    let place = u32::try_from(place).unwrap_or(u32::MAX);
    SocketAddr::from((Ipv4Addr::from_bits((0x01_0000 + place) << 8 | 9), 4_000))
}

/// Returns the index of the spectator at an address.
fn place(address: SocketAddr) -> Option<usize> {
    let SocketAddr::V4(address) = address else {
        return None;
    };
    let number = (address.ip().to_bits() >> 8).checked_sub(0x01_0000)?;
    usize::try_from(number).ok()
}
