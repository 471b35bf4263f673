//! quinn-proto with rustls and ring.
//!
//! AES-128-GCM, as Tickwire has it, a P-256 certificate, and no resumption, whose tickets would
//! cost the server more. Else as the defaults are: MTU discovery, CUBIC, pacing, and up to ten
//! datagrams a poll, which is how quinn calls it.

mod config;
mod stream;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event,
    StreamEvent, VarInt,
};

pub use config::{Certified, client_config, server_config};
use stream::Streams;

use super::{Delivery, End, SERVER, Stack};
use crate::lane::Lane;

/// TLS 1.3.
#[derive(Debug)]
pub struct QuinnProto;

/// What quinn asks of one poll where the system segments: `MAX_TRANSMIT_SEGMENTS` of quinn 0.11.
const SEGMENTS: usize = 10;

/// An endpoint and its connections.
pub struct QuinnEnd {
    endpoint: Endpoint,
    connections: BTreeMap<ConnectionHandle, Peer>,
    /// What clients need.
    client: Option<ClientConfig>,
    /// What the endpoint answers without a connection.
    replies: Lane,
    /// The instant that times count from.
    base: Instant,
    received: u64,
}

/// One connection.
struct Peer {
    connection: Connection,
    is_connected: bool,
    streams: Streams,
}

impl Stack for QuinnProto {
    const NAME: &'static str = "quinn-proto";
    type Server = QuinnEnd;
    type Client = QuinnEnd;

    fn server() -> QuinnEnd {
        let certified = Certified::new();
        let mut end = QuinnEnd::new(Some(&certified), base());
        end.client = Some(client_config(&certified));
        end
    }

    fn client(server: &QuinnEnd, _: u32, now: Duration) -> QuinnEnd {
        let mut end = QuinnEnd::new(None, server.base);
        let config = server.client.clone().expect("a server's");
        let (handle, connection) = end
            .endpoint
            .connect(server.base + now, config, SERVER, config::NAME)
            .expect("a target that is allowed");
        end.connections.insert(handle, Peer::new(connection));
        end
    }
}

#[expect(clippy::disallowed_methods, reason = "an instant cannot be made otherwise")]
fn base() -> Instant {
    Instant::now()
}

impl Peer {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            is_connected: false,
            streams: Streams::default(),
        }
    }

    /// Runs timers and reads; returns how many messages came.
    fn settle(&mut self, handle: ConnectionHandle, endpoint: &mut Endpoint, now: Instant) -> u64 {
        let connection = &mut self.connection;
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = endpoint.handle_event(handle, event) {
                connection.handle_event(event);
            }
        }
        let mut received = 0;
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::ConnectionLost { .. } => self.is_connected = false,
                Event::DatagramReceived => {
                    while let Some(message) = connection.datagrams().recv() {
                        core::hint::black_box(&message);
                        received += 1;
                    }
                }
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = connection.streams().accept(dir) {
                        received += self.streams.read(connection, id);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => {
                    received += self.streams.read(connection, id);
                }
                _ => {}
            }
        }
        received
    }
}

impl QuinnEnd {
    /// An endpoint that listens where it has a certificate; times count from `base`.
    pub fn new(certified: Option<&Certified>, base: Instant) -> Self {
        let server = certified.map(|certified| Arc::new(server_config(certified)));
        Self {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), server, true, None),
            connections: BTreeMap::new(),
            client: None,
            replies: Lane::default(),
            base,
            received: 0,
        }
    }

    /// Dials `server`.
    pub fn connect(&mut self, now: Duration, config: ClientConfig, server: SocketAddr) {
        let (handle, connection) = self
            .endpoint
            .connect(self.base + now, config, server, config::NAME)
            .expect("a target that is allowed");
        self.connections.insert(handle, Peer::new(connection));
    }

    /// Answers a first datagram by a RETRY; drops what it wrote.
    pub fn retry(&mut self, now: Duration, from: SocketAddr, datagram: &[u8], buf: &mut Vec<u8>) {
        let bytes = BytesMut::from(datagram);
        let event = self
            .endpoint
            .handle(self.base + now, from, None, None, bytes, buf);
        let Some(DatagramEvent::NewConnection(incoming)) = event else {
            panic!("not a first datagram");
        };
        self.endpoint.retry(incoming, buf).expect("it may");
        buf.clear();
    }
}

impl End for QuinnEnd {
    fn take(&mut self, now: Duration, from: SocketAddr, datagram: &mut [u8]) {
        let at = self.base + now;
        // quinn, too, copies each out of the buffer that the socket filled.
        let bytes = BytesMut::from(&*datagram);
        let Self {
            endpoint,
            connections,
            replies,
            ..
        } = self;
        replies.push(|buf| {
            match endpoint.handle(at, from, None, None, bytes, buf)? {
                DatagramEvent::ConnectionEvent(handle, event) => {
                    if let Some(peer) = connections.get_mut(&handle) {
                        peer.connection.handle_event(event);
                    }
                    None
                }
                DatagramEvent::NewConnection(incoming) => {
                    let (handle, connection) = endpoint
                        .accept(incoming, at, buf, None)
                        .ok()
                        .expect("a handshake that is sound");
                    connections.insert(handle, Peer::new(connection));
                    None
                }
                DatagramEvent::Response(transmit) => {
                    Some((transmit.destination, transmit.segment_size))
                }
            }
        });
    }

    fn settle(&mut self, now: Duration) {
        for (handle, peer) in &mut self.connections {
            self.received += peer.settle(*handle, &mut self.endpoint, self.base + now);
        }
        self.connections
            .retain(|_, peer| !peer.connection.is_drained());
    }

    fn send(&mut self, _: Duration, delivery: Delivery, message: &[u8]) {
        for peer in self.connections.values_mut().filter(|it| it.is_connected) {
            match delivery {
                Delivery::Unreliable => peer
                    .connection
                    .datagrams()
                    .send(Bytes::copy_from_slice(message), true)
                    .expect("it fits"),
                Delivery::Reliable => peer.streams.write(&mut peer.connection, message),
            }
        }
    }

    fn drain(&mut self, now: Duration, lane: &mut Lane) {
        self.replies
            .deliver(|destination, datagram| lane.copy(destination, datagram));
        for peer in self.connections.values_mut() {
            while lane.push(|bytes| {
                let transmit = peer
                    .connection
                    .poll_transmit(self.base + now, SEGMENTS, bytes)?;
                Some((transmit.destination, transmit.segment_size))
            }) {}
        }
    }

    fn close(&mut self, now: Duration) {
        for peer in self.connections.values_mut() {
            let code = VarInt::from_u32(0);
            peer.connection.close(self.base + now, code, Bytes::new());
        }
    }

    fn connections(&self) -> usize {
        let peers = self.connections.values();
        peers.filter(|peer| peer.is_connected).count()
    }

    fn received(&self) -> u64 {
        self.received
    }
}
