//! A hub's node on its own thread: it dials the hub, reconnects, and calls an application.

mod dial;

use core::convert::Infallible;
use std::ops::ControlFlow;

use crypto::{Identity, NoEntropy, Provider as _, Ring};
use hub::{JoinFile, Node, NodeCommand, NodeConfig, NodeEvent, Role};
use wire::{CommandId, ConnectionId, InstanceId, Instant, StreamMachine as _};

use crate::clock::Clock;
use crate::handle::SpawnError;
use crate::stats::StatsInlet;
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
        self.spawn_driven(name, config, application, None)
    }

    /// As [`spawn`](Self::spawn), and sends what the recorders of `inlet` have measured to the hub.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub fn spawn_with_statistics<A>(
        self,
        name: &str,
        config: NodeConfig,
        application: A,
        inlet: StatsInlet,
    ) -> Result<StreamHandle<A::Request>, HubNodeError>
    where
        A: HubApplication<Request: Send> + Send + 'static,
    {
        self.spawn_driven(name, config, application, Some(inlet))
    }

    /// Starts a node for statistics alone on a thread `name`: its link is to the hub with the role
    /// `stats` in the join file, apart from the link for mail and calls. While that hub is away,
    /// samples wait within the limits of [`NodeConfig::statistics`].
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub fn spawn_statistics(
        self,
        name: &str,
        mut config: NodeConfig,
        inlet: StatsInlet,
    ) -> Result<StreamHandle<Infallible>, HubNodeError> {
        config.hub_role = Role::Stats;
        config.services.clear();
        (config.watch_nodes, config.watch_players) = (false, false);
        self.spawn_driven(name, config, StatisticsOnly, Some(inlet))
    }

    fn spawn_driven<A>(
        self,
        name: &str,
        config: NodeConfig,
        application: A,
        inlet: Option<StatsInlet>,
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
            inlet,
            next_drain: now,
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
    inlet: Option<StatsInlet>,
    next_drain: Instant,
}

/// The application of a node for statistics alone.
struct StatisticsOnly;

impl HubApplication for StatisticsOnly {
    type Request = Infallible;

    fn apply_request(&mut self, _: Instant, _: &mut Node, request: Infallible) -> ControlFlow<()> {
        match request {}
    }

    fn on_event(&mut self, _: Instant, _: &mut Node, event: NodeEvent) {
        if let NodeEvent::Refused(reason) = event {
            tracing::warn!(%reason, "the hub of statistics refuses this node");
        }
    }
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
        self.dial_log.on_event(&event);
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
                self.dial_log.on_dial(id, hub);
                if self.lookup.has_failed(&address) {
                    self.dial_log.on_failed(now, id, DialFailure::NoAddress);
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
        match &result {
            Ok(_) => self.dial_log.on_reached(id),
            Err(error) => self.dial_log.on_failed(now, id, DialFailure::Dial(*error)),
        }
        let outcome = result.map(drop).map_err(|_| hub::DialError);
        node.handle_completed(now, id, outcome);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let drain = self.inlet.is_some().then_some(self.next_drain);
        let timeouts = [self.application.poll_timeout(), drain];
        timeouts.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, node: &mut Node) {
        if let Some(inlet) = &self.inlet
            && self.next_drain <= now
        {
            self.next_drain = now + StatsInlet::INTERVAL;
            inlet.drain(node);
        }
        if self.application.poll_timeout().is_some_and(|at| at <= now) {
            self.application.handle_timeout(now, node);
        }
    }

    fn begin_shutdown(&mut self, now: Instant, node: &mut Node, _deadline: Instant) {
        self.application.begin_shutdown(now, node);
    }

    fn is_drained(&self, _node: &Node) -> bool {
        self.application.is_drained()
    }
}
