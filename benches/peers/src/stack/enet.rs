//! `rusty_enet`: no encryption, no authentication; what the same work costs in the clear.

use core::cell::{Cell, RefCell};
use core::convert::Infallible;
use core::net::SocketAddr;
use core::time::Duration;
use std::rc::Rc;

use rusty_enet::{
    Event, Host, HostSettings, MTU_MAX, Packet, PacketReceived, PeerID, Socket,
};

use super::{Delivery, End, SERVER, Stack};
use crate::lane::Lane;

/// Plain text.
#[derive(Debug)]
pub struct Enet;

/// Peers at most.
pub const PEERS_MAX: usize = 4_095;
/// Channels: one for each kind of delivery.
pub const CHANNELS: usize = 2;

/// The channel that carries such messages.
pub const fn channel(delivery: Delivery) -> u8 {
    match delivery {
        Delivery::Unreliable => 0,
        Delivery::Reliable => 1,
    }
}

/// A message as enet takes it.
pub fn packet(delivery: Delivery, message: &[u8]) -> Packet {
    match delivery {
        Delivery::Unreliable => Packet::unreliable(message),
        Delivery::Reliable => Packet::reliable(message),
    }
}

/// What stands for a socket.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Buffers>>);

#[derive(Default)]
struct Buffers {
    /// The datagram that was taken last, and its sender, until the host reads it.
    inbound: Option<SocketAddr>,
    datagram: Vec<u8>,
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
        let mut buffers = self.0.borrow_mut();
        let Some(from) = buffers.inbound.take() else {
            return Ok(None);
        };
        let len = buffers.datagram.len();
        buffer[..len].copy_from_slice(&buffers.datagram);
        Ok(Some((from, PacketReceived::Complete(len))))
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

    fn server() -> EnetEnd {
        EnetEnd::new(PEERS_MAX, Duration::ZERO)
    }

    fn client(_: &EnetEnd, _: u32, now: Duration) -> EnetEnd {
        let mut end = EnetEnd::new(1, now);
        end.host.connect(SERVER, CHANNELS, 0).expect("a place");
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
            // Counted from a second on: at 0 enet takes a time for one that was never set.
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

    /// Has the host take what waits, run its timers and tell.
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
    fn take(&mut self, now: Duration, from: SocketAddr, datagram: &mut [u8]) {
        self.now.set(now);
        {
            let mut buffers = self.wire.0.borrow_mut();
            buffers.inbound = Some(from);
            buffers.datagram.clear();
            buffers.datagram.extend_from_slice(datagram);
        }
        self.service();
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
        let outbound = &mut self.wire.0.borrow_mut().outbound;
        outbound.deliver(|destination, datagram| lane.copy(destination, datagram));
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
}
