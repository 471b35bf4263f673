//! Tickwire: `udp_proto` with ring, [`configured`] for these cases.

use core::net::SocketAddr;
use core::time::Duration;

use benches::handshake::token;
use benches::pair::{APP, INSTANCE, RELIABLE, START, UNRELIABLE};
use crypto::token::TokenKey;
use crypto::{Identity, PublicKey, Ring};
use udp_proto::{
    ChannelConfig, ChannelId, ChannelTable, CloseCode, Config, Credentials, Endpoint, Event,
    Listen, ServerIdentity, SessionId, Target,
};
use wire::{Arrival, ClientId, Instant};

use super::{Delivery, End, Stack};
use crate::lane::Lane;

/// Connect tokens, AES-128-GCM, datagrams of 1,200 bytes.
#[derive(Debug)]
pub struct Tickwire;

/// An endpoint and its application state.
#[derive(Debug)]
pub struct TickwireEnd {
    endpoint: Endpoint<Ring>,
    sessions: Vec<SessionId>,
    message: Vec<u8>,
    received: u64,
}

/// A server, and the data that a matchmaker has about it.
pub struct TickwireServer {
    end: TickwireEnd,
    connect_data: Vec<u8>,
}

impl Stack for Tickwire {
    const NAME: &'static str = "tickwire";
    type Server = TickwireServer;
    type Client = TickwireEnd;

    fn server(_: usize) -> TickwireServer {
        let mut end = TickwireEnd::new(Config::for_server(), Duration::ZERO);
        let identity = Identity::generate(&mut Ring::new()).expect("entropy");
        let token_key = TokenKey::generate(&mut Ring::new(), 1).expect("entropy");
        let mut connect_data = identity.public_key().0.to_vec();
        connect_data.extend_from_slice(&*token_key.to_bytes());
        end.endpoint
            .listen(Instant::ZERO, Listen::new(identity, INSTANCE))
            .expect("entropy");
        assert!(end.endpoint.add_token_key(token_key));
        TickwireServer { end, connect_data }
    }

    /// Returns the public key and, if clients connect with tokens, the key that seals these.
    fn connect_data(server: &TickwireServer) -> Vec<u8> {
        server.connect_data.clone()
    }

    fn dial(connect_data: &[u8], server: SocketAddr, number: u32, now: Duration) -> TickwireEnd {
        let mut end = TickwireEnd::new(Config::default(), now);
        let at = Instant::ZERO + now;
        let (key, token_key) = connect_data.split_at(PublicKey::LEN);
        let pinned = PublicKey(key.try_into().expect("as long as a key"));
        let credentials = match token_key.try_into() {
            Ok(bytes) => {
                let token_key = TokenKey::from_bytes(bytes);
                token(&token_key, at, ClientId(number.into()), server)
            }
            Err(_) => Credentials::Open,
        };
        let target = Target {
            addresses: vec![server],
            server: ServerIdentity::Keys(vec![pinned]),
            credentials,
        };
        end.endpoint
            .connect(at, target)
            .expect("a target that is allowed");
        end
    }
}

/// The channel for large messages.
const BULK: ChannelId = ChannelId(2);

/// Returns `config` with the settings of both ends in all cases. A session requires equal channels.
pub(crate) fn configured(mut config: Config) -> Config {
    config.channels = ChannelTable::new(&[
        ChannelConfig::unreliable(),
        ChannelConfig::reliable_ordered(),
        ChannelConfig::bulk(),
    ])
    .expect("a table");
    // No inbound limits, as in the other stacks: no player sends 64 KiB per millisecond.
    config.inbound.packets = u32::MAX;
    config.inbound.packets_burst = u32::MAX;
    config.inbound.bytes = u32::MAX;
    config
}

impl TickwireEnd {
    fn new(config: Config, now: Duration) -> Self {
        let at = Instant::ZERO + now;
        let config = configured(config);
        let mut endpoint = Endpoint::new(config, APP, Ring::new(), at).expect("entropy");
        endpoint.set_unix_time(at, START + now);
        Self {
            endpoint,
            sessions: Vec::new(),
            message: Vec::new(),
            received: 0,
        }
    }
}

impl End for TickwireEnd {
    fn take(&mut self, now: Duration, from: SocketAddr, datagram: &mut [u8]) {
        self.endpoint
            .handle_datagram(Instant::ZERO + now, Arrival::from(from), datagram);
    }

    fn settle(&mut self, now: Duration) {
        let now = Instant::ZERO + now;
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Connected { session, .. } => self.sessions.push(session),
                Event::Closed { session, .. } => self.sessions.retain(|open| *open != session),
                Event::ConnectFailed { failure, .. } => panic!("no connection: {failure:?}"),
                Event::Readable { session } => {
                    let message = &mut self.message;
                    while self.endpoint.receive(now, session, message).is_some() {
                        self.received += 1;
                    }
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, now: Duration, delivery: Delivery, message: &[u8]) {
        let channel = match delivery {
            Delivery::Unreliable => UNRELIABLE,
            Delivery::Reliable => RELIABLE,
            Delivery::Bulk => BULK,
        };
        for session in &self.sessions {
            self.endpoint
                .send(Instant::ZERO + now, *session, channel, message)
                .expect("the queue has room: all that was sent has come");
        }
    }

    fn drain(&mut self, now: Duration, lane: &mut Lane) {
        let now = Instant::ZERO + now;
        while lane.push(|bytes| {
            let transmit = self.endpoint.poll_transmit(now, bytes)?;
            let segment = transmit.segment_len.map(|len| usize::from(len.get()));
            Some((transmit.destination, segment))
        }) {}
    }

    fn close(&mut self, now: Duration) {
        for session in &self.sessions {
            self.endpoint
                .close(Instant::ZERO + now, *session, CloseCode::NoError, &[])
                .expect("open");
        }
    }

    fn connections(&self) -> usize {
        self.sessions.len()
    }

    fn received(&self) -> u64 {
        self.received
    }
}

impl End for TickwireServer {
    fn take(&mut self, now: Duration, from: SocketAddr, datagram: &mut [u8]) {
        self.end.take(now, from, datagram);
    }
    fn settle(&mut self, now: Duration) {
        self.end.settle(now);
    }
    fn send(&mut self, now: Duration, delivery: Delivery, message: &[u8]) {
        self.end.send(now, delivery, message);
    }
    fn drain(&mut self, now: Duration, lane: &mut Lane) {
        self.end.drain(now, lane);
    }
    fn close(&mut self, now: Duration) {
        self.end.close(now);
    }
    fn connections(&self) -> usize {
        self.end.connections()
    }
    fn received(&self) -> u64 {
        self.end.received()
    }
}
