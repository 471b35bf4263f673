//! What stands beside a node of the hub on its thread: the part that all of them share.

use std::ops::ControlFlow;

use crypto::Identity;
use hub::{DialError, JoinFile, Node, NodeCommand, NodeConfig, NodeEvent};
use servicer::{Clock, Dial, StreamApplication, StreamHandle, StreamServicer, TlsIdentity};
use wire::{CommandId, ConnectionId, InstanceId, Instant, StreamMachine as _};

use super::dial::{DialFailure, DialLog, Lookup};
use crate::exit::Failure;
use crate::trust;

/// What one kind of process does with its node. Dials are none of its business: [`LinkedNode`] looks
/// names up and connects.
pub trait LinkApplication {
    /// What other threads ask of it.
    type Request;

    /// Takes a request; `Break` ends the thread.
    fn apply_request(
        &mut self,
        now: Instant,
        node: &mut Node,
        request: Self::Request,
    ) -> ControlFlow<()>;

    /// Takes one event of the node.
    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent);

    /// As [`StreamApplication::poll_timeout`].
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// As [`StreamApplication::handle_timeout`].
    fn handle_timeout(&mut self, _now: Instant, _node: &mut Node) {}

    /// As [`StreamApplication::begin_shutdown`], where the end of the thread does not depend on
    /// the time that is left.
    fn begin_shutdown(&mut self, _now: Instant, _node: &mut Node) {}

    /// As [`StreamApplication::is_drained`].
    fn is_drained(&self) -> bool {
        true
    }
}

/// Which node it is.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// What it proves.
    pub identity: &'a Identity,
    /// Where its hub is.
    pub join_file: &'a JoinFile,
    /// Which run of it this is.
    pub instance: InstanceId,
}

/// Starts a node and what stands beside it, on a thread `name`. It dials the hub until it is there,
/// and again whenever the link has ended.
///
/// # Errors
///
/// One sentence: where the join file names no hub with an address, or the system has no thread.
pub fn attach<A>(
    name: &str,
    member: Member<'_>,
    config: NodeConfig,
    application: A,
) -> Result<StreamHandle<A::Request>, Failure>
where
    A: LinkApplication<Request: Send> + Send + 'static,
{
    let seed = trust::random_seed(&mut crypto::Ring::new())?;
    let Member {
        identity,
        join_file,
        instance,
    } = member;
    let node = Node::new(config, join_file, instance, seed, Clock::new().now())
        .ok_or_else(|| Failure::usage("the join file names no hub with an address"))?;
    let tls = TlsIdentity::new(identity).map_err(Failure::usage)?;
    let linked = LinkedNode {
        application,
        lookup: Lookup::default(),
        dial_log: DialLog::new(identity.node_id()),
    };
    StreamServicer::named(name)
        .with_identity(&tls)
        .spawn(Vec::new(), node, linked)
        .map_err(Failure::refused)
}

/// An application, and the dials of its node.
struct LinkedNode<A> {
    application: A,
    lookup: Lookup,
    dial_log: DialLog,
}

impl<A: LinkApplication> StreamApplication<Node> for LinkedNode<A> {
    type Request = A::Request;

    fn apply_request(
        &mut self,
        now: Instant,
        node: &mut Node,
        request: A::Request,
    ) -> ControlFlow<()> {
        self.application.apply_request(now, node, request)
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        if matches!(event, NodeEvent::Joined { .. }) {
            self.dial_log.on_joined();
        }
        self.application.on_event(now, node, event);
    }

    fn on_command(
        &mut self,
        now: Instant,
        node: &mut Node,
        id: CommandId,
        command: NodeCommand,
    ) -> Option<Dial> {
        let dial = match command {
            NodeCommand::Dial { hub, address } => {
                if self.lookup.has_failed(&address) {
                    self.dial_log.on_failed(now, DialFailure::NoAddress);
                }
                self.lookup.dial(id, hub, address)
            }
            _ => None,
        };
        if dial.is_none() {
            node.handle_completed(now, id, Err(DialError));
        }
        dial
    }

    fn on_dialled(
        &mut self,
        now: Instant,
        node: &mut Node,
        id: CommandId,
        result: Result<ConnectionId, servicer::DialError>,
    ) {
        self.lookup.on_dialled(id, &result);
        if let Err(error) = &result {
            self.dial_log.on_failed(now, DialFailure::Dial(*error));
        }
        let outcome = result.map(drop).map_err(|_| DialError);
        node.handle_completed(now, id, outcome);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.application.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, node: &mut Node) {
        self.application.handle_timeout(now, node);
    }

    fn begin_shutdown(&mut self, now: Instant, node: &mut Node, _deadline: Instant) {
        self.application.begin_shutdown(now, node);
    }

    fn is_drained(&self, _node: &Node) -> bool {
        self.application.is_drained()
    }
}
