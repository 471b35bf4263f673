//! The streams between the nodes and the hub.

use hub::DialError;
use wire::{CloseCause, CommandId, ConnectionId, Instant, Outbound, PeerIdentity, StreamMachine};

use super::{Action, HUB, World, node_id};

/// Bytes in flight in one direction of a stream.
const WINDOW: usize = 256 * 1_024;

pub(super) struct Stream {
    pub(super) node: usize,
    /// When the last record of each direction arrives: to the hub, to the node.
    arrives: [Instant; 2],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Hub,
    Node,
}

impl World {
    /// Resets one stream and drops its data in flight.
    pub(crate) fn reset_some_stream(&mut self) {
        let count = self.streams.len() as u64;
        let at = usize::try_from(self.generator.below(count)).unwrap();
        if let Some(id) = self.streams.keys().nth(at).copied() {
            self.break_stream(id);
        }
    }

    pub(super) fn arrive(&mut self, id: ConnectionId, end: End, record: &[u8]) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (now, index) = (self.now, stream.node);
        match end {
            End::Hub => {
                if let Some(hub) = &mut self.hub {
                    hub.machine.handle_frame(now, id, record);
                    self.drain_hub();
                }
            }
            End::Node => {
                if let Some(node) = &mut self.nodes[index] {
                    node.handle_frame(now, id, record);
                    self.drain_node(index);
                }
            }
        }
        let sender = match end {
            End::Hub => End::Node,
            End::Node => End::Hub,
        };
        let delay = self.delay();
        self.after(delay, Action::Credit(id, sender, record.len()));
    }

    pub(super) fn credit(&mut self, id: ConnectionId, end: End, bytes: usize) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (now, index) = (self.now, stream.node);
        if end == End::Hub {
            if let Some(hub) = &mut self.hub {
                hub.machine.handle_credit(now, id, bytes);
                self.drain_hub();
            }
        } else if let Some(node) = &mut self.nodes[index] {
            node.handle_credit(now, id, bytes);
            self.drain_node(index);
        }
    }

    pub(super) fn open(&mut self, id: ConnectionId) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (now, index) = (self.now, stream.node);
        let (Some(hub), Some(node)) = (&mut self.hub, &mut self.nodes[index]) else {
            self.break_stream(id);
            return;
        };
        hub.machine
            .handle_opened(now, id, &PeerIdentity::Node(node_id(index)));
        hub.machine.handle_credit(now, id, WINDOW);
        node.handle_opened(now, id, &PeerIdentity::Node(HUB));
        node.handle_credit(now, id, WINDOW);
        self.drain_hub();
        self.drain_node(index);
    }

    /// Closes a stream at both ends and drops its data in flight.
    pub(crate) fn break_stream(&mut self, id: ConnectionId) {
        self.tell_closed(id, End::Hub);
        self.tell_closed(id, End::Node);
        self.streams.remove(&id);
    }

    pub(super) fn tell_closed(&mut self, id: ConnectionId, end: End) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (now, index) = (self.now, stream.node);
        if end == End::Hub {
            if let Some(hub) = &mut self.hub {
                hub.machine.handle_closed(now, id, CloseCause::Failed);
                self.drain_hub();
            }
        } else if let Some(node) = &mut self.nodes[index] {
            node.handle_closed(now, id, CloseCause::Failed);
            self.drain_node(index);
        }
    }

    pub(super) fn dial(&mut self, index: usize, command: CommandId) {
        let delay = self.delay();
        let reached = self.hub.is_some();
        let outcome = if reached { Ok(()) } else { Err(DialError) };
        if reached {
            self.last_connection += 1;
            let id = ConnectionId(self.last_connection);
            let stream = Stream {
                node: index,
                arrives: [self.now; 2],
            };
            self.streams.insert(id, stream);
            self.after(delay, Action::Open(id));
        }
        self.after(delay, Action::Dialled(index, command, outcome));
    }

    pub(super) fn transmit(&mut self, outbound: Outbound, to: End, record: Vec<u8>) {
        let id = outbound.connection;
        let delay = self.delay();
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        // A stream keeps order.
        let last = &mut stream.arrives[usize::from(to == End::Node)];
        let at = (self.now + delay).max(*last);
        *last = at;
        if !record.is_empty() {
            self.at(at, Action::Record(id, to, record));
        }
        if outbound.close {
            self.at(at, Action::Closed(id, to));
        }
    }
}
