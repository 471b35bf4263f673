//! A node and its TCP sockets as one machine.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crypto::Ring;
use relay_mesh::{Command, Event, Leg, Node, Outcome};
use wire::{Arrival, CommandId, Instant, Machine, Transmit, UnixTime};

use super::tcp::{TcpReport, TcpSockets};

/// A node, and its TCP sockets if it carries TCP games.
///
/// The sockets run whenever the node has nothing to send.
#[derive(Debug)]
pub(super) struct NodeMachine {
    node: Node<Ring>,
    sockets: Option<Box<TcpSockets>>,
}

impl NodeMachine {
    pub(super) fn new(node: Node<Ring>, sockets: Option<TcpSockets>) -> Self {
        Self {
            node,
            sockets: sockets.map(Box::new),
        }
    }

    /// Returns the TCP counters; `None` if the node carries no TCP games.
    pub(super) fn tcp(&self) -> Option<TcpReport> {
        self.sockets.as_ref().map(|sockets| sockets.report())
    }
}

impl Deref for NodeMachine {
    type Target = Node<Ring>;

    fn deref(&self) -> &Node<Ring> {
        &self.node
    }
}

impl DerefMut for NodeMachine {
    fn deref_mut(&mut self) -> &mut Node<Ring> {
        &mut self.node
    }
}

impl Machine for NodeMachine {
    type Peer = Leg;
    type Event = Event;
    type Command = Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<Leg>, datagram: &mut [u8]) {
        self.node.handle_datagram(now, arrival, datagram);
    }

    fn may_wait(&self, datagram: &[u8]) -> bool {
        Machine::may_wait(&self.node, datagram)
    }

    fn is_stray(&self, datagram: &[u8]) -> bool {
        Machine::is_stray(&self.node, datagram)
    }

    fn tell_peers(&self, tell: &mut dyn FnMut(Leg)) {
        Machine::tell_peers(&self.node, tell);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
        if let Some(sockets) = &mut self.sockets {
            sockets.handle_timeout(now, &mut self.node);
        }
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        self.node.handle_completed(now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        Machine::set_unix_time(&mut self.node, now, unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<Leg>> {
        loop {
            let transmit = self.node.poll_transmit(now, buf);
            let sockets = self.sockets.as_mut().filter(|_| transmit.is_none());
            if !sockets.is_some_and(|sockets| sockets.pump(now, &mut self.node)) {
                return transmit;
            }
        }
    }

    fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        self.node.poll_command()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.node.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let sockets = self.sockets.as_ref();
        let sockets = sockets.and_then(|sockets| sockets.poll_timeout());
        match (self.node.poll_timeout(), sockets) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}

type Action = dyn FnOnce(Instant, &mut NodeMachine) + Send;

pub(super) struct NodeRequest(Box<Action>);

impl NodeRequest {
    pub(super) fn new(action: impl FnOnce(Instant, &mut NodeMachine) + Send + 'static) -> Self {
        Self(Box::new(action))
    }

    pub(super) fn run(self, now: Instant, node: &mut NodeMachine) {
        (self.0)(now, node);
    }
}

impl fmt::Debug for NodeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeRequest(..)")
    }
}
