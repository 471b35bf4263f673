//! Endpoints without a simulated world: the test delivers datagrams and advances the clock.

use core::net::SocketAddr;
use core::num::NonZeroU32;
use core::time::Duration;

use crypto::Provider;
use netsim::provider::SimProvider;
use udp_proto::{
    ChannelId, CloseReason, Config, ConnectFailure, Credentials, Endpoint, Event, Listen,
    ServerIdentity, SessionId, Target,
};
use wire::{Arrival, Instant, Seed, UnixTime};

use crate::harness::{APP, INSTANCE, Keys, SERVER, address};

/// Start time of `Line`; not zero, so that tests can subtract from it.
pub(crate) const START: Instant = Instant::from_millis(1_000);
pub(crate) const UNIX: UnixTime = UnixTime::from_secs(1_735_689_600);

/// A datagram in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// An endpoint, its address, and its events and messages.
pub(crate) struct Party<P: Provider = SimProvider> {
    pub(crate) machine: Endpoint<P>,
    pub(crate) at: SocketAddr,
    pub(crate) events: Vec<Event>,
    pub(crate) messages: Vec<(ChannelId, Vec<u8>)>,
}

impl<P: Provider> Party<P> {
    pub(crate) fn new(at: &str, config: Config, provider: P) -> Self {
        let mut endpoint = Self::without_clock(at, config, provider);
        endpoint.machine.set_unix_time(START, UNIX);
        endpoint
    }

    /// An endpoint without a wall clock time.
    pub(crate) fn without_clock(at: &str, config: Config, provider: P) -> Self {
        Self {
            machine: Endpoint::new(config, APP, provider, START).expect("seeded"),
            at: address(at),
            events: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// A server in token mode, at [`SERVER`].
    pub(crate) fn server(
        config: Config,
        keys: &Keys,
        provider: P,
        shape: impl Fn(Listen) -> Listen,
    ) -> Self {
        let mut endpoint = Self::new(SERVER, config, provider);
        let listen = shape(Listen::new(keys.identity(), INSTANCE));
        endpoint.machine.listen(START, listen).expect("seeded");
        endpoint.machine.add_token_key(keys.token_key.clone());
        endpoint
    }

    pub(crate) fn dial(
        &mut self,
        now: Instant,
        keys: &Keys,
        credentials: Credentials,
    ) -> SessionId {
        let target = Target {
            addresses: vec![address(SERVER)],
            server: ServerIdentity::Keys(vec![keys.public()]),
            credentials,
        };
        self.machine.connect(now, target).expect("allowed")
    }

    /// Passes a copy of `bytes` to the machine, as received from `from`.
    pub(crate) fn take(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let mut copy = bytes.to_vec();
        self.machine
            .handle_datagram(now, Arrival::from(from), &mut copy);
    }

    /// Returns all datagrams to send; events and messages are stored.
    pub(crate) fn drain(&mut self, now: Instant) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut buffer = Vec::new();
        while let Some(transmit) = self.machine.poll_transmit(now, &mut buffer) {
            for datagram in transmit.datagrams(&buffer) {
                sent.push(Sent {
                    to: transmit.destination,
                    bytes: datagram.to_vec(),
                });
            }
            buffer.clear();
            assert!(sent.len() < 10_000, "draining must end");
        }
        while let Some(event) = self.machine.poll_event() {
            if let Event::Readable { session } = event {
                let mut message = Vec::new();
                while let Some(channel) = self.machine.receive(now, session, &mut message) {
                    self.messages.push((channel, core::mem::take(&mut message)));
                }
            } else {
                self.events.push(event);
            }
        }
        sent
    }

    pub(crate) fn wake(&mut self, now: Instant) {
        // Called even if no timer is due: `poll_timeout` does not cover events since the last
        // drain.
        self.machine.handle_timeout(now);
    }

    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        let session = |event: &Event| match event {
            Event::Connected { session, .. } => Some(*session),
            _ => None,
        };
        self.events.iter().filter_map(session).collect()
    }

    pub(crate) fn closes(&self) -> Vec<CloseReason> {
        let reason = |event: &Event| match event {
            Event::Closed { reason, .. } => Some(*reason),
            _ => None,
        };
        self.events.iter().filter_map(reason).collect()
    }
}

/// A client and a server on a line without faults.
pub(crate) struct Line<P: Provider = SimProvider> {
    pub(crate) now: Instant,
    pub(crate) keys: Keys,
    pub(crate) server: Party<P>,
    pub(crate) client: Party<P>,
    /// Sent datagrams in order; `true` for the client's.
    pub(crate) record: Vec<(bool, Vec<u8>)>,
}

pub(crate) const CLIENT: &str = "203.0.113.9:4000";

impl Line {
    pub(crate) fn new(number: u64) -> Self {
        Self::with(number, without_rate_limits(), |listen| listen)
    }

    pub(crate) fn with(number: u64, config: Config, shape: impl Fn(Listen) -> Listen) -> Self {
        let seed = Seed::from_number(number);
        let provider = |purpose| SimProvider::new(seed.generator(purpose).seed());
        Self::between(seed, config, shape, (provider(1), provider(2)))
    }
}

impl<P: Provider> Line<P> {
    pub(crate) fn between(
        seed: Seed,
        config: Config,
        shape: impl Fn(Listen) -> Listen,
        (server, client): (P, P),
    ) -> Self {
        let keys = Keys::new(seed);
        Self {
            now: START,
            server: Party::server(config.clone(), &keys, server, shape),
            client: Party::new(CLIENT, config, client),
            keys,
            record: Vec::new(),
        }
    }

    pub(crate) fn token(&mut self, player: u64) -> Credentials {
        let unix = UNIX + self.now.saturating_since(START);
        self.keys.token(unix, player, address(SERVER))
    }

    /// Delivers datagrams until neither end sends any; returns their number.
    pub(crate) fn settle(&mut self) -> usize {
        let before = self.record.len();
        loop {
            let sent = self.client.drain(self.now);
            let answers = self.server.drain(self.now);
            if sent.is_empty() && answers.is_empty() {
                return self.record.len() - before;
            }
            for Sent { bytes, .. } in sent {
                self.server.take(self.now, self.client.at, &bytes);
                self.record.push((true, bytes));
            }
            for Sent { to, bytes } in answers {
                if to == self.client.at {
                    self.client.take(self.now, self.server.at, &bytes);
                    self.record.push((false, bytes));
                }
            }
        }
    }

    /// Advances time, one timer after the other.
    pub(crate) fn run(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        loop {
            self.settle();
            let timeouts = [
                self.client.machine.poll_timeout(),
                self.server.machine.poll_timeout(),
            ];
            match timeouts.into_iter().flatten().min() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
            self.client.wake(self.now);
            self.server.wake(self.now);
        }
        self.now = end;
        self.settle();
    }

    /// Connects with a token; returns the client's and the server's session.
    pub(crate) fn join(&mut self, player: u64) -> (SessionId, SessionId) {
        let credentials = self.token(player);
        let session = self.client.dial(self.now, &self.keys, credentials);
        self.settle();
        let theirs = *self.server.sessions().last().expect("connected");
        (session, theirs)
    }
}

/// Copies the credentials.
pub(crate) fn again(credentials: &Credentials) -> Credentials {
    match credentials {
        Credentials::Token { token, psk } => Credentials::Token {
            token: token.clone(),
            psk: psk.clone(),
        },
        Credentials::Open => Credentials::Open,
        Credentials::Peer => Credentials::Peer,
    }
}

/// The default configuration without rates, for tests with much traffic at one moment.
pub(crate) fn without_rate_limits() -> Config {
    let mut config = Config::default();
    config.realtime_rate = NonZeroU32::MAX;
    config.realtime_burst = u32::MAX;
    config.inbound.packets = u32::MAX;
    config.inbound.packets_burst = u32::MAX;
    config.inbound.bytes = u32::MAX;
    config.inbound.frames = u32::MAX;
    config
}

/// The default configuration with `change`.
pub(crate) fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = without_rate_limits();
    change(&mut config);
    config
}

/// Address `number`, each in a /24 of its own.
pub(crate) fn network(number: u16) -> SocketAddr {
    let [a, b] = number.to_be_bytes();
    SocketAddr::from(([100, a, b, 1], 5_000))
}

/// Connect failures of its dials.
pub(crate) fn failures(endpoint: &Party) -> Vec<ConnectFailure> {
    let failure = |event: &Event| match event {
        Event::ConnectFailed { failure, .. } => Some(*failure),
        _ => None,
    };
    endpoint.events.iter().filter_map(failure).collect()
}

/// A target for the client of `line`.
pub(crate) fn target(line: &Line, credentials: Credentials) -> Target {
    Target {
        addresses: vec![address(SERVER)],
        server: ServerIdentity::Keys(vec![line.keys.public()]),
        credentials,
    }
}
