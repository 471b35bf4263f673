//! What stands beside a node on its thread: events out, questions in, sockets for its commands.

use std::fmt;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::SyncSender;

use crypto::Ring;
use relay_mesh::{Command, Event, FrameStats, Node, NodeStats};
use servicer::{Application, SocketOrder, SocketOutcome, mesh};
use udp_proto::EndpointStats;
use wire::{CommandId, Instant};

/// Passes a node's events on and answers questions about it.
pub(super) struct Operator {
    upstream: Option<IpAddr>,
    tell: Box<dyn FnMut(Event) + Send>,
}

/// What other threads ask.
#[derive(Debug)]
pub(super) enum Ask {
    /// The counters.
    Stats(SyncSender<(FrameStats, NodeStats, EndpointStats)>),
}

impl Operator {
    pub(super) fn new(upstream: Option<IpAddr>, tell: Box<dyn FnMut(Event) + Send>) -> Self {
        Self { upstream, tell }
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("upstream", &self.upstream)
            .finish_non_exhaustive()
    }
}

impl Application<Node<Ring>> for Operator {
    type Request = Ask;

    fn apply_request(
        &mut self,
        _: Instant,
        node: &mut Node<Ring>,
        Ask::Stats(answer): Ask,
    ) -> ControlFlow<()> {
        // Whoever asked may have given up.
        let counters = (*node.frame_stats(), *node.stats(), *node.endpoint_stats());
        answer.try_send(counters).ok();
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Node<Ring>, event: Event) {
        (self.tell)(event);
    }

    fn socket_order(&self, command: &Command) -> Option<SocketOrder> {
        Some(mesh::order(command, self.upstream))
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

    fn on_command(&mut self, _: Instant, _: &mut Node<Ring>, _: CommandId, _: Command) {
        // All commands of a node are about sockets.
    }
}
