//! A mesh node on a fixed set of sockets.
//!
//! The node asks for sockets while it runs; the driver has those it was started with. So each
//! stands ready under its address, and is given a name when the node asks for it.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;

use crypto::Ring;
use relay_mesh::{Command, Event, Leg, Node, Outcome, SocketId};
use servicer::{PeerAddress, SocketIndex};
use wire::{Arrival, CommandId, Instant, Machine, Transmit, UnixTime};

/// The node, as a machine whose peers are sockets of the driver and addresses.
#[derive(Debug)]
pub(super) struct Relay {
    node: Node<Ring>,
    sockets: Sockets,
}

impl Relay {
    /// Takes a node and what the driver's sockets are bound to, that of the mesh first.
    pub(super) fn new(node: Node<Ring>, addresses: &[SocketAddr]) -> Self {
        Self {
            node,
            sockets: Sockets::new(addresses),
        }
    }

    /// Does what the node asks for; returns whether it was anything.
    fn obey(&mut self, now: Instant) -> bool {
        let mut has_obeyed = false;
        while let Some((id, command)) = self.node.poll_command() {
            has_obeyed = true;
            let outcome = self.sockets.obey(command);
            self.node.handle_completed(now, id, outcome);
        }
        has_obeyed
    }
}

impl Machine for Relay {
    type Peer = Wire;
    type Event = Event;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<Wire>, datagram: &mut [u8]) {
        let Some(socket) = self.sockets.name(arrival.peer.socket) else {
            // Nobody has asked for this socket, or not any more.
            return;
        };
        let leg = Leg {
            socket,
            address: arrival.peer.address,
        };
        let arrival = Arrival {
            peer: leg,
            real_source: arrival.real_source,
            local: arrival.local,
            ecn: arrival.ecn,
        };
        self.node.handle_datagram(now, arrival, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.node.set_unix_time(now, unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<Wire>> {
        loop {
            while let Some(transmit) = self.node.poll_transmit(now, buf) {
                let Leg { socket, address } = transmit.destination;
                if let Some(socket) = self.sockets.index(socket) {
                    return Some(Transmit {
                        destination: Wire { socket, address },
                        source: transmit.source,
                        segment_len: transmit.segment_len,
                        ecn: transmit.ecn,
                    });
                }
                // The socket was closed before the datagram left.
                buf.clear();
            }
            if !self.obey(now) {
                return None;
            }
        }
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.node.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.node.poll_timeout()
    }
}

/// One of the driver's sockets, and an address at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wire {
    socket: SocketIndex,
    address: SocketAddr,
}

impl PeerAddress for Wire {
    fn from_wire(socket: SocketIndex, address: SocketAddr) -> Self {
        Self { socket, address }
    }

    fn socket(&self) -> Option<SocketIndex> {
        Some(self.socket)
    }

    fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Which sockets are in use, and under which names.
#[derive(Debug)]
struct Sockets {
    /// What each is bound to.
    addresses: Vec<SocketAddr>,
    /// The names of those in use.
    names: Vec<Option<SocketId>>,
    indices: BTreeMap<SocketId, SocketIndex>,
    /// Those on ports of the system's choice that are not in use, the longest unused first.
    free: VecDeque<SocketIndex>,
    next_name: u32,
}

impl Sockets {
    fn new(addresses: &[SocketAddr]) -> Self {
        let mut names = vec![None; addresses.len()];
        if let Some(first) = names.first_mut() {
            *first = Some(SocketId::MESH);
        }
        let others = (0..).map(SocketIndex).zip(addresses).skip(1);
        Self {
            addresses: addresses.to_vec(),
            names,
            indices: BTreeMap::from([(SocketId::MESH, SocketIndex(0))]),
            free: others.map(|(index, _)| index).collect(),
            next_name: 1,
        }
    }

    fn name(&self, index: SocketIndex) -> Option<SocketId> {
        self.names.get(place_of(index)).copied().flatten()
    }

    fn index(&self, name: SocketId) -> Option<SocketIndex> {
        self.indices.get(&name).copied()
    }

    fn obey(&mut self, command: Command) -> Outcome {
        match command {
            Command::Listen { address } => self.take(|bound| bound == address),
            Command::Open { .. } => self.take(|_| true),
            Command::Close { socket } => match self.indices.remove(&socket) {
                Some(index) => {
                    if let Some(name) = self.names.get_mut(place_of(index)) {
                        *name = None;
                    }
                    self.free.push_back(index);
                    Outcome::Closed
                }
                None => Outcome::Failed,
            },
        }
    }

    /// Names the first free socket whose address will do.
    fn take(&mut self, will_do: impl Fn(SocketAddr) -> bool) -> Outcome {
        let at = self.free.iter().position(|index| {
            let address = self.addresses.get(place_of(*index));
            address.is_some_and(|address| will_do(*address))
        });
        let Some(index) = at.and_then(|at| self.free.remove(at)) else {
            return Outcome::Failed;
        };
        let name = SocketId(self.next_name);
        self.next_name = self.next_name.saturating_add(1);
        if let Some(place) = self.names.get_mut(place_of(index)) {
            *place = Some(name);
        }
        self.indices.insert(name, index);
        Outcome::Opened(name)
    }
}

/// Where a socket stands in a list; past its end where the number does not fit.
fn place_of(index: SocketIndex) -> usize {
    usize::try_from(index.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn names_are_never_used_twice_and_sockets_are() {
        let mut sockets = Sockets::new(&[address(1), address(2), address(3)]);
        assert_eq!(sockets.name(SocketIndex(0)), Some(SocketId::MESH));
        let listen = Command::Listen {
            address: address(3),
        };
        assert_eq!(sockets.obey(listen), Outcome::Opened(SocketId(1)));
        assert_eq!(sockets.index(SocketId(1)), Some(SocketIndex(2)));
        assert_eq!(sockets.obey(listen), Outcome::Failed, "taken");
        let open = Command::Open { server: address(9) };
        assert_eq!(sockets.obey(open), Outcome::Opened(SocketId(2)));
        assert_eq!(sockets.obey(open), Outcome::Failed, "none is left");
        let close = Command::Close {
            socket: SocketId(2),
        };
        assert_eq!(sockets.obey(close), Outcome::Closed);
        assert_eq!(sockets.name(SocketIndex(1)), None);
        assert_eq!(sockets.obey(close), Outcome::Failed);
        assert_eq!(sockets.obey(open), Outcome::Opened(SocketId(3)));
    }
}
