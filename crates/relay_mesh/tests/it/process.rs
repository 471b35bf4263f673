//! A node as a process: its sockets, and a driver that executes its commands.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use netsim::Outbox;
use netsim::provider::{Recording, SimProvider};
use relay_mesh::{Command, Event, FlowEnd, Node, Outcome, PeerAddr, ServerProbe, SocketId};
use wire::{Arrival, Instant, Machine, UnixTime};

use crate::other_shards::OtherShards;

pub(crate) type Crypto = Recording<SimProvider>;

pub(crate) struct Process<P: Provider = Crypto> {
    pub(crate) node: Node<P>,
    /// Its forwarders.
    pub(crate) other_shards: OtherShards<P>,
    sockets: BTreeMap<SocketId, SocketAddr>,
    next_socket: u32,
    next_port: u16,
    pub(crate) events: Vec<(Instant, Event)>,
    /// Requested measurements: time, server and probe type.
    pub(crate) probes: Vec<(Instant, SocketAddr, ServerProbe)>,
    /// How servers answer probes; `None` is never. Servers that are not listed answer after 1 ms.
    pub(crate) answers: BTreeMap<SocketAddr, Option<Outcome>>,
    /// Maximum number of sockets.
    pub(crate) sockets_max: usize,
    #[cfg(feature = "tcp")]
    pub(crate) streams: crate::streams::Streams,
}

impl<P: Provider> Process<P> {
    pub(crate) fn new(node: Node<P>, mesh: SocketAddr) -> Self {
        Self {
            node,
            other_shards: OtherShards::default(),
            sockets: BTreeMap::from([(SocketId::MESH, mesh)]),
            next_socket: 1,
            next_port: 40_000,
            events: Vec::new(),
            probes: Vec::new(),
            answers: BTreeMap::new(),
            sockets_max: usize::MAX,
            #[cfg(feature = "tcp")]
            streams: crate::streams::Streams::default(),
        }
    }

    pub(crate) fn closed_flows(&self) -> Vec<FlowEnd> {
        self.events
            .iter()
            .filter_map(|(_, event)| {
                if let Event::FlowClosed { reason, .. } = event {
                    Some(*reason)
                } else {
                    None
                }
            })
            .collect()
    }

    /// The id of an exit's newest upstream socket.
    pub(crate) fn upstream_socket(&self) -> SocketId {
        *self.sockets.keys().last().expect("a socket")
    }

    pub(crate) fn upstream(&self) -> SocketAddr {
        *self.sockets.values().last().expect("a socket")
    }

    pub(crate) fn sockets(&self) -> usize {
        self.sockets.len()
    }

    fn open(&mut self, address: SocketAddr, outbox: &mut Outbox<'_>) -> Outcome {
        if self.sockets.len() >= self.sockets_max {
            return Outcome::Failed;
        }
        let socket = SocketId(self.next_socket);
        self.next_socket += 1;
        self.sockets.insert(socket, address);
        outbox.bind(address);
        Outcome::Opened(socket)
    }

    fn obey(&mut self, now: Instant, command: Command, outbox: &mut Outbox<'_>) -> Option<Outcome> {
        Some(match command {
            Command::Listen { address, .. } => self.open(address, outbox),
            Command::Open { .. } => {
                let mesh = self.sockets[&SocketId::MESH];
                self.next_port += 1;
                self.open(SocketAddr::new(mesh.ip(), self.next_port), outbox)
            }
            Command::Close { socket } => {
                if let Some(address) = self.sockets.remove(&socket) {
                    outbox.unbind(address);
                }
                Outcome::Closed
            }
            Command::Measure { server, probe } => {
                self.probes.push((now, server, probe));
                let usual = Some(Outcome::Measured(Duration::from_millis(1)));
                return self.answers.get(&server).copied().unwrap_or(usual);
            }
        })
    }
}

impl<P: Provider> netsim::Node for Process<P> {
    fn handle_datagram(
        &mut self,
        now: Instant,
        local: SocketAddr,
        arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        let mut sockets = self.sockets.iter();
        // The kernel drops datagrams for a socket from before a restart.
        let Some((&socket, _)) = sockets.find(|(_, address)| address.port() == local.port()) else {
            return;
        };
        let peer_addr = PeerAddr {
            socket,
            address: arrival.peer,
        };
        let arrival = Arrival {
            local: Some(local.ip()),
            ..Arrival::from(peer_addr)
        };
        if socket == SocketId::MESH
            && let Some(forwarder) = self.other_shards.whose(datagram)
        {
            forwarder.handle_datagram(now, arrival, datagram);
        } else {
            self.node.handle_datagram(now, arrival, datagram);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.node.set_unix_time(now, unix);
    }

    fn drain(&mut self, now: Instant, outbox: &mut Outbox<'_>) {
        loop {
            let mut is_idle = !self.other_shards.hand_back(now, &mut self.node);
            let mut buf = Vec::new();
            while let Some(transmit) = self
                .other_shards
                .poll_transmit(now, &mut buf)
                .or_else(|| self.node.poll_transmit(now, &mut buf))
            {
                is_idle = false;
                let PeerAddr { socket, address } = transmit.destination;
                if let Some(&bound) = self.sockets.get(&socket) {
                    let ip = transmit.source.unwrap_or_else(|| bound.ip());
                    let from = SocketAddr::new(ip, bound.port());
                    for datagram in transmit.datagrams(&buf) {
                        outbox.send_from(from, address, None, datagram);
                    }
                }
                buf.clear();
            }
            while let Some((id, command)) = self.node.poll_command() {
                is_idle = false;
                if let Some(outcome) = self.obey(now, command, outbox) {
                    self.node.handle_completed(now, id, outcome);
                }
            }
            #[cfg(feature = "tcp")]
            while let Some(work) = self.node.poll_tcp() {
                is_idle = false;
                self.streams.obey(&mut self.node, now, work);
            }
            while let Some(event) = self.node.poll_event() {
                is_idle = false;
                self.events.push((now, event));
            }
            if is_idle {
                return;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.node.poll_timeout()
    }
}
