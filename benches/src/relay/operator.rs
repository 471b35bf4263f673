//! A node's application, as the driver requires it, which only manages sockets.

use core::convert::Infallible;
use core::ops::ControlFlow;

use crypto::Ring;
use relay_mesh::{Command, Event, Node};
use servicer::{Application, SocketOrder, SocketOutcome, mesh};
use wire::{CommandId, Instant};

/// Opens and closes sockets as the node requests, and ignores events.
#[derive(Clone, Copy, Debug)]
pub struct Operator;

impl Application<Node<Ring>> for Operator {
    type Request = Infallible;

    fn apply_request(
        &mut self,
        _: Instant,
        _: &mut Node<Ring>,
        request: Infallible,
    ) -> ControlFlow<()> {
        match request {}
    }

    fn on_event(&mut self, _: Instant, _: &mut Node<Ring>, _: Event) {}

    fn socket_order(&self, command: &Command) -> Option<SocketOrder> {
        mesh::order(command, None)
    }

    fn on_socket(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        id: CommandId,
        outcome: SocketOutcome,
    ) {
        node.handle_completed(now, id, mesh::outcome(outcome));
    }

    fn on_command(&mut self, _: Instant, _: &mut Node<Ring>, _: CommandId, _: Command) {}
}
