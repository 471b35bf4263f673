//! `rusty_enet`, without encryption or authentication: the cost of the same work in plaintext.

use core::cell::{Cell, RefCell};
use core::convert::Infallible;
use core::net::SocketAddr;
use core::time::Duration;
use std::rc::Rc;

use rusty_enet::{Event, Host, HostSettings, MTU_MAX, Packet, PacketReceived, PeerID, Socket};

use super::{Delivery, End, Stack};
use crate::lane::Lane;

/// Plaintext connections.
#[derive(Debug)]
pub struct Enet;

/// Number of channels: one per kind of delivery.
pub const CHANNELS: usize = 2;

/// Returns the channel for a delivery.
pub const fn channel(delivery: Delivery) -> u8 {
    match delivery {
        Delivery::Unreliable => 0,
        Delivery::Reliable | Delivery::Bulk => 1,
    }
}

/// Returns a message as an enet packet.
pub fn packet(delivery: Delivery, message: &[u8]) -> Packet {
    match delivery {
        Delivery::Unreliable => Packet::unreliable(message),
        Delivery::Reliable | Delivery::Bulk => Packet::reliable(message),
    }
}

/// A replacement for a socket.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Buffers>>);

#[derive(Default)]
struct Buffers {
    /// Received datagrams with their senders. The host has read those before `read`.
    inbound: Vec<(SocketAddr, Vec<u8>)>,
    taken: usize,
    read: usize,
    outbound: Lane,
}

impl Socket for Wire {
    type Address = SocketAddr;
    type Error = Infallible;

    fn send(&mut self, address: SocketAddr, buffer: &[u8]) -> Result<usize, Infallible> {
        self.0.borrow_mut().outbound.copy(address, buffer);
        Ok(buffer.len())
    }

    fn receive(
        &mut self,
        buffer: &mut [u8; MTU_MAX],
    ) -> Result<Option<(SocketAddr, PacketReceived)>, Infallible> {
        let buffers = &mut *self.0.borrow_mut();
        if buffers.read == buffers.taken {
            (buffers.read, buffers.taken) = (0, 0);
            return Ok(None);
        }
        let (from, datagram) = &buffers.inbound[buffers.read];
        buffers.read += 1;
        buffer[..datagram.len()].copy_from_slice(datagram);
        Ok(Some((*from, PacketReceived::Complete(datagram.len()))))
    }
}

/// A host and its peers.
pub struct EnetEnd {
    host: Host<Wire>,
    wire: Wire,
    now: Rc<Cell<Duration>>,
    peers: Vec<PeerID>,
    received: u64,
}

impl Stack for Enet {
    const NAME: &'static str = "enet";
    type Server = EnetEnd;
    type Client = EnetEnd;

    fn server(clients: usize) -> EnetEnd {
        EnetEnd::new(clients, Duration::ZERO)
    }

    fn connect_data(_: &EnetEnd) -> Vec<u8> {
        Vec::new()
    }

    fn dial(_: &[u8], server: SocketAddr, _: u32, now: Duration) -> EnetEnd {
        let mut end = EnetEnd::new(1, now);
        end.host.connect(server, CHANNELS, 0).expect("a place");
        end
    }
}

impl EnetEnd {
    fn new(peer_limit: usize, now: Duration) -> Self {
        let now = Rc::new(Cell::new(now));
        let (wire, clock) = (Wire::default(), Rc::clone(&now));
        let settings = HostSettings {
            peer_limit,
            channel_limit: CHANNELS,
            // Starts at one second, because enet treats time 0 as unset.
            time: Box::new(move || clock.get() + Duration::from_secs(1)),
            ..HostSettings::default()
        };
        let Ok(host) = Host::new(wire.clone(), settings) else {
            panic!("a host that is allowed");
        };
        Self {
            host,
            wire,
            now,
            peers: Vec::new(),
            received: 0,
        }
    }

    /// The host receives, runs its timers and reports events.
    fn service(&mut self) {
        while let Some(event) = self.host.service().expect("it cannot fail") {
            match event {
                Event::Connect { peer, .. } => self.peers.push(peer.id()),
                Event::Disconnect { peer, .. } => {
                    let id = peer.id();
                    self.peers.retain(|open| *open != id);
                }
                Event::Receive { packet, .. } => {
                    core::hint::black_box(packet.data());
                    self.received += 1;
                }
            }
        }
    }
}

impl End for EnetEnd {
    fn take(&mut self, _: Duration, from: SocketAddr, datagram: &mut [u8]) {
        let buffers = &mut *self.wire.0.borrow_mut();
        if buffers.taken == buffers.inbound.len() {
            buffers.inbound.push((from, Vec::new()));
        }
        let (sender, bytes) = &mut buffers.inbound[buffers.taken];
        *sender = from;
        bytes.clear();
        bytes.extend_from_slice(datagram);
        buffers.taken += 1;
    }

    fn settle(&mut self, now: Duration) {
        self.now.set(now);
        self.service();
    }

    fn send(&mut self, _: Duration, delivery: Delivery, message: &[u8]) {
        for id in &self.peers {
            let packet = packet(delivery, message);
            self.host
                .peer_mut(*id)
                .send(channel(delivery), &packet)
                .expect("connected");
        }
    }

    fn drain(&mut self, now: Duration, lane: &mut Lane) {
        self.now.set(now);
        self.host.flush();
        // Swaps buffers instead of copying.
        core::mem::swap(lane, &mut self.wire.0.borrow_mut().outbound);
    }

    fn close(&mut self, now: Duration) {
        self.now.set(now);
        for id in &self.peers {
            self.host.peer_mut(*id).disconnect(0);
        }
    }

    fn connections(&self) -> usize {
        self.peers.len()
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn shrink(&mut self) {
        *self.wire.0.borrow_mut() = Buffers::default();
    }
}
