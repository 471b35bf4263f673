//! What stands beside a node on its thread: events out, questions in, sockets for its commands.

use std::fmt;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use relay_mesh::{Command, Event, Outcome, SocketId};
use servicer::{Application, SocketIndex, SocketOrder, SocketOutcome, mesh};
use wire::{CommandId, Instant};

use super::ask::Ask;
use super::probing::Counter;
use super::store::Desk;
use super::tcp::Carrier;

/// Passes a node's events on, hands its documents to the store, and answers questions about it.
pub(super) struct Operator {
    upstream: Option<IpAddr>,
    store: Option<Arc<Desk>>,
    /// Where game servers are measured; `None` at a node that is no exit.
    probes: Option<Counter>,
    tell: Box<dyn FnMut(Event) + Send>,
}

impl Operator {
    pub(super) fn new(
        upstream: Option<IpAddr>,
        store: Option<Arc<Desk>>,
        probes: Option<Counter>,
        tell: Box<dyn FnMut(Event) + Send>,
    ) -> Self {
        Self {
            upstream,
            store,
            probes,
            tell,
        }
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("upstream", &self.upstream)
            .finish_non_exhaustive()
    }
}

impl Application<Carrier> for Operator {
    type Request = Ask;

    fn apply_request(&mut self, now: Instant, node: &mut Carrier, ask: Ask) -> ControlFlow<()> {
        ask.of(now, node);
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, node: &mut Carrier, event: Event) {
        if let (Event::ConfigAccepted(_), Some(store)) = (&event, &self.store)
            && let (Some(document), Some(bytes)) = (node.document(), node.stored_config())
        {
            let number = node.config_stats().map_or(0, |stats| stats.accepted);
            store.put((number, document.version), bytes);
        }
        (self.tell)(event);
    }

    fn socket_order(&self, command: &Command) -> Option<SocketOrder> {
        mesh::order(command, self.upstream)
    }

    fn on_socket(
        &mut self,
        now: Instant,
        node: &mut Carrier,
        id: CommandId,
        outcome: SocketOutcome,
    ) {
        node.handle_completed(now, id, mesh::outcome(outcome));
    }

    fn on_receive_drops(
        &mut self,
        now: Instant,
        node: &mut Carrier,
        SocketIndex(socket): SocketIndex,
        count: u64,
    ) {
        node.note_receive_drops(now, Some(SocketId(socket)), count);
    }

    fn on_command(&mut self, now: Instant, node: &mut Carrier, id: CommandId, command: Command) {
        let Command::Measure { server, probe } = command else {
            // The driver did it.
            return;
        };
        let probes = self.probes.as_ref();
        if !probes.is_some_and(|probes| probes.take(id, server, probe)) {
            node.handle_completed(now, id, Outcome::Failed);
        }
    }
}
