//! quinn-proto with rustls and ring.
//!
//! AES-128-GCM as in Tickwire, a P-256 certificate, and no resumption, because tickets would cost
//! the server more. Otherwise the defaults: MTU discovery, CUBIC, pacing, and up to ten datagrams
//! per poll, as quinn does.

mod config;
mod stream;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event, ServerConfig,
    StreamEvent, VarInt,
};

pub use config::{Certified, client_config, server_config};
use stream::Streams;

use super::{Delivery, End, Stack};
use crate::lane::Lane;

/// QUIC with TLS 1.3.
#[derive(Debug)]
pub struct QuinnProto;

/// Datagrams per poll with GSO: `MAX_TRANSMIT_SEGMENTS` of quinn 0.11.
const SEGMENTS: usize = 10;

/// An endpoint and its connections.
pub struct QuinnEnd {
    endpoint: Endpoint,
    connections: BTreeMap<ConnectionHandle, Peer>,
    /// Data that clients need to connect.
    connect_data: Vec<u8>,
    /// The endpoint's replies without a connection.
    replies: Lane,
    /// Origin of the times.
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

    fn server(_: usize) -> QuinnEnd {
        let certified = Certified::new();
        let mut end = QuinnEnd::new(Some(server_config(&certified)), Duration::ZERO);
        end.connect_data = certified.certificate().to_vec();
        end
    }

    /// Returns the certificate.
    fn connect_data(server: &QuinnEnd) -> Vec<u8> {
        server.connect_data.clone()
    }

    fn dial(connect_data: &[u8], server: SocketAddr, _: u32, now: Duration) -> QuinnEnd {
        let mut end = QuinnEnd::new(None, now);
        let (handle, connection) = end
            .endpoint
            .connect(
                end.base + now,
                client_config(connect_data),
                server,
                config::NAME,
            )
            .expect("a target that is allowed");
        end.connections.insert(handle, Peer::new(connection));
        end
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an instant cannot be made otherwise"
)]
fn instant() -> Instant {
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

    /// Runs timers and reads. Returns how many messages arrived.
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
    /// Creates an endpoint, which listens if there is a server configuration.
    fn new(server: Option<ServerConfig>, now: Duration) -> Self {
        let config = Arc::new(EndpointConfig::default());
        Self {
            endpoint: Endpoint::new(config, server.map(Arc::new), true, None),
            connections: BTreeMap::new(),
            connect_data: Vec::new(),
            replies: Lane::default(),
            base: instant().checked_sub(now).expect("short"),
            received: 0,
        }
    }

    /// Answers a first datagram with a RETRY and discards it.
    pub fn retry(&mut self, now: Duration, from: SocketAddr, datagram: &[u8], buf: &mut Vec<u8>) {
        let bytes = BytesMut::from(datagram);
        let event = self
            .endpoint
            .handle(self.base + now, from, None, None, bytes, buf);
        let Some(DatagramEvent::NewConnection(incoming)) = event else {
            panic!("not a first datagram");
        };
        let sent = self.endpoint.retry(incoming, buf).expect("it may");
        core::hint::black_box(sent.size);
        buf.clear();
    }
}

impl End for QuinnEnd {
    fn take(&mut self, now: Duration, from: SocketAddr, datagram: &mut [u8]) {
        let at = self.base + now;
        // quinn also copies each datagram out of the receive buffer.
        let bytes = BytesMut::from(&*datagram);
        let Self {
            endpoint,
            connections,
            replies,
            ..
        } = self;
        replies.push(
            |buf| match endpoint.handle(at, from, None, None, bytes, buf)? {
                DatagramEvent::ConnectionEvent(handle, event) => {
                    if let Some(peer) = connections.get_mut(&handle) {
                        peer.connection.handle_event(event);
                    }
                    None
                }
                DatagramEvent::NewConnection(incoming) => {
                    let (handle, connection) = endpoint
                        .accept(incoming, at, buf, None)
                        .unwrap_or_else(|error| panic!("no handshake: {}", error.cause));
                    connections.insert(handle, Peer::new(connection));
                    None
                }
                DatagramEvent::Response(transmit) => {
                    Some((transmit.destination, transmit.segment_size))
                }
            },
        );
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
                Delivery::Reliable | Delivery::Bulk => {
                    peer.streams.write(&mut peer.connection, message)
                }
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

    fn shrink(&mut self) {
        self.replies = Lane::default();
    }
}
