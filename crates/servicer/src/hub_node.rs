//! A hub's node on its own thread: it dials the hub, reconnects, and calls an application.

mod dial;

use std::ops::ControlFlow;

use crypto::{Identity, NoEntropy, Provider as _, Ring};
use hub::{JoinFile, Node, NodeCommand, NodeConfig, NodeEvent};
use wire::{CommandId, ConnectionId, InstanceId, Instant, StreamMachine as _};

use crate::clock::Clock;
use crate::handle::SpawnError;
use crate::tcp::{
    Dial, DialError, KeyRefused, StreamApplication, StreamHandle, StreamServicer, TlsIdentity,
};
use dial::{DialFailure, DialLog, Lookup};

/// What a process does with its node. [`HubNode`] resolves names and dials.
pub trait HubApplication {
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

/// A node of a hub, to be started with an application.
#[derive(Clone, Copy, Debug)]
pub struct HubNode<'a> {
    /// Identity key of the node; the join file lists it.
    pub identity: &'a Identity,
    /// The join file.
    pub join_file: &'a JoinFile,
    /// Id of this run. The hub disconnects an earlier run of the same node.
    pub instance: InstanceId,
}

impl HubNode<'_> {
    /// Starts the node and its application on a thread `name`. It dials the hub until it is
    /// reached, and again after every disconnect.
    ///
    /// # Errors
    ///
    /// [`HubNodeError`], if the join file names no hub with an address or no thread can be started.
    pub fn spawn<A>(
        self,
        name: &str,
        config: NodeConfig,
        application: A,
    ) -> Result<StreamHandle<A::Request>, HubNodeError>
    where
        A: HubApplication<Request: Send> + Send + 'static,
    {
        let seed = Ring::new().random_seed().map_err(HubNodeError::Random)?;
        let now = Clock::new().now();
        let node = Node::new(config, self.join_file, self.instance, seed, now)
            .ok_or(HubNodeError::NoHub)?;
        let tls = TlsIdentity::new(self.identity).map_err(HubNodeError::Key)?;
        let driven = Driven {
            application,
            lookup: Lookup::default(),
            dial_log: DialLog::new(self.identity.node_id()),
        };
        StreamServicer::named(name)
            .with_identity(&tls)
            .spawn(Vec::new(), node, driven)
            .map_err(HubNodeError::Spawn)
    }
}

/// Why a node of a hub cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubNodeError {
    /// The join file names no hub with an address.
    NoHub,
    /// The TLS library rejected the identity.
    Key(KeyRefused),
    /// The system's source of randomness failed.
    Random(NoEntropy),
    /// The system has no descriptor or thread left.
    Spawn(SpawnError),
}

wire::error_text! { HubNodeError {
    Self::NoHub => "the join file names no hub with an address",
    Self::Key(error) => "{error}",
    Self::Random(_) => "the system's source of randomness failed",
    Self::Spawn(error) => "{error}",
}}

struct Driven<A> {
    application: A,
    lookup: Lookup,
    dial_log: DialLog,
}

impl<A: HubApplication> StreamApplication<Node> for Driven<A> {
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
            node.handle_completed(now, id, Err(hub::DialError));
        }
        dial
    }

    fn on_dialled(
        &mut self,
        now: Instant,
        node: &mut Node,
        id: CommandId,
        result: Result<ConnectionId, DialError>,
    ) {
        self.lookup.on_dialled(id, &result);
        if let Err(error) = &result {
            self.dial_log.on_failed(now, DialFailure::Dial(*error));
        }
        let outcome = result.map(drop).map_err(|_| hub::DialError);
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
