//! The application around a hub node, shared by all kinds of processes.

use std::ops::ControlFlow;

use crypto::Identity;
use hub::{DialError, JoinFile, Node, NodeCommand, NodeConfig, NodeEvent};
use servicer::{Clock, Dial, StreamApplication, StreamHandle, StreamServicer, TlsIdentity};
use wire::{CommandId, ConnectionId, InstanceId, Instant, StreamMachine as _};

use super::dial::{DialFailure, DialLog, Lookup};
use crate::exit::Failure;
use crate::trust;

/// What one kind of process does with its node. The link resolves names and dials.
pub trait LinkApplication {
    /// A request of another thread.
    type Request;

    /// Handles a request; `Break` ends the thread.
    fn apply_request(
        &mut self,
        now: Instant,
        node: &mut Node,
        request: Self::Request,
    ) -> ControlFlow<()>;

    /// Handles an event of the node.
    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent);

    /// As [`StreamApplication::poll_timeout`].
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// As [`StreamApplication::handle_timeout`].
    fn handle_timeout(&mut self, _now: Instant, _node: &mut Node) {}

    /// As [`StreamApplication::begin_shutdown`], without the deadline.
    fn begin_shutdown(&mut self, _now: Instant, _node: &mut Node) {}

    /// As [`StreamApplication::is_drained`].
    fn is_drained(&self) -> bool {
        true
    }
}

/// Identity of a hub node.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its identity key.
    pub identity: &'a Identity,
    /// The join file.
    pub join_file: &'a JoinFile,
    /// Id of this run.
    pub instance: InstanceId,
}

/// Starts a node and its application on a thread `name`. It dials the hub until it is reached, and
/// again after every disconnect.
///
/// # Errors
///
/// One sentence, if the join file names no hub with an address or no thread can be started.
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
