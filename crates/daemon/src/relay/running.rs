//! A node on its own threads.

mod descriptors;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crypto::{Identity, Ring};
use relay_mesh::link_state::Roles;
use relay_mesh::shard::ShardId;
use relay_mesh::{Command, Config, Draining, Event, Game, NewError, Node, Outcome, SocketId};
use servicer::{
    Application, BindError, Clock, Counters, Handle, ListenError, Report, SocketConfig,
    SocketIndex, SocketOrder, SocketOutcome, SpawnError, Stack, UdpServicer, UdpSocket, mesh,
};
use wire::{CommandId, Instant};

use super::admin::{Admin, AdminSetup, AdminStart};
use super::client::{NodeClient, NodeCounters, Stats};
use super::emulation::Emulation;
use super::forwarder_threads::{ForwarderContext, ForwarderThreads};
use super::machine::{NodeMachine, NodeRequest};
use super::probing::{self, ProbeQueue, Prober};
use super::store::{DocumentStore, DocumentWriter};
use super::tcp::{PollThread, TcpSetup, TcpSockets, check_port};
use crate::exit::Failure;

/// Configuration of a node.
#[derive(Debug)]
pub struct Setup {
    /// Name of the thread.
    pub name: String,
    /// The node's identity.
    pub identity: Identity,
    /// Configuration of the mesh node.
    pub node: Config,
    /// Address to bind the mesh socket to.
    pub listen: SocketAddr,
    /// Source address of packets to game servers; `None` lets the system choose.
    pub upstream: Option<IpAddr>,
    /// Rules of an emulated network; none for the real one.
    pub emulation: Emulation,
    /// Settings of TCP sockets, if the node carries TCP games.
    pub tcp: TcpSetup,
    /// File for signed documents; `None` stores none.
    pub store: Option<PathBuf>,
    /// The admin interface; `None` for none.
    pub admin: Option<AdminSetup>,
}

/// A running node. Dropping it stops it.
#[derive(Debug)]
pub struct Relay {
    // Dropped first: it sends requests to the node.
    admin: Option<Admin>,
    handle: Handle<NodeRequest>,
    // Dropped after the node: its close frames still pass them.
    forwarder_threads: ForwarderThreads,
    // Dropped after the node: it polls the node's sockets.
    poll_thread: Option<PollThread>,
    // Dropped after the node: it serves the node's requests.
    prober: Option<Prober>,
    // Dropped after the node, so that its last document is written.
    writer: Option<DocumentWriter>,
    address: SocketAddr,
}

impl Relay {
    /// Starts a node. `on_event` runs on the node's threads and must not block.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start(
        mut setup: Setup,
        on_event: impl Fn(RelayEvent) + Clone + Send + 'static,
    ) -> Result<Self, StartError> {
        let ports_max = try_ports(&setup)?;
        let (address, sockets) = bind(&mut setup)?;
        let mut sockets = sockets.into_iter();
        let own: Vec<UdpSocket> = sockets.by_ref().take(1).collect();
        descriptors::limit_to_descriptors(&mut setup);
        let flows = usize::try_from(setup.node.flows_max).unwrap_or(usize::MAX);
        let is_signed = setup.node.signed.is_some();
        let has_tcp = setup.node.tcp.is_some();
        let is_exit = setup.node.profile.roles.contains(Roles::EXIT);
        let node = Node::new(setup.node, setup.identity, Ring::new(), Clock::new().now())?;
        let forwarders = (1..)
            .zip(sockets)
            .filter_map(|(shard, socket)| Some((node.forwarder(shard, Ring::new())?, socket)));
        let forwarders = forwarders.collect();
        let tcp_sockets = has_tcp.then(|| TcpSockets::new(setup.tcp, setup.upstream));
        let tcp_sockets = tcp_sockets.transpose().map_err(SpawnError::from)?;
        let (tcp_sockets, poller) = tcp_sockets.unzip();
        let probes = is_exit.then(|| probing::open(setup.upstream));
        let (probes, prober_start) = probes.transpose().map_err(SpawnError::from)?.unzip();
        let writer = setup.store.map(|path| open_store(path, on_event.clone()));
        let writer = writer.transpose()?;
        let store = writer.as_ref().map(DocumentWriter::store);
        let port = setup.admin.map(Admin::bind).transpose()?;
        let mut config = servicer::Config::default();
        // A signed document may name hundreds of ports.
        let ports = if is_signed {
            SIGNED_PORTS_MAX
        } else {
            ports_max
        };
        config.opened_max = flows.saturating_add(ports);
        let context = ForwarderContext {
            name: &setup.name,
            emulation: &setup.emulation,
        };
        let servicer = UdpServicer::named(&*setup.name).with_config(config);
        let handle = setup.emulation.apply(servicer).spawn(
            own,
            NodeMachine::new(node, tcp_sockets),
            NodeApp::new(
                setup.upstream,
                store.clone(),
                probes,
                Box::new(move |event| on_event(RelayEvent::Event(event))),
            ),
        )?;
        let forwarder_threads = ForwarderThreads::start(forwarders, &handle.requests(), &context)?;
        let poll_thread = poller.map(|poller| {
            let node = handle.requests();
            poller.start(move || node.wake())
        });
        let poll_thread = poll_thread.transpose().map_err(SpawnError::from)?;
        let prober = prober_start.map(|prober_start| prober_start.start(handle.requests()));
        let prober = prober.transpose().map_err(SpawnError::from)?;
        let start = AdminStart {
            client: NodeClient::new(handle.requests(), forwarder_threads.counts()),
            store,
        };
        let admin = port.map(|port| port.start(start)).transpose()?;
        Ok(Self {
            admin,
            handle,
            forwarder_threads,
            poll_thread,
            prober,
            writer,
            address,
        })
    }

    /// Returns the address of the mesh socket.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the node's counters; `None` if it does not answer within `timeout`.
    pub fn stats(&self, timeout: Duration) -> Option<Stats> {
        let client = self.client();
        let counted = client.call_blocking(timeout, |_, node| NodeCounters::of(node))?;
        Some(counted.with(&client.counters(), client.strays()))
    }

    /// Starts to drain the node; `None` if it does not answer within `timeout`.
    pub fn drain(&self, timeout: Duration) -> Option<Draining> {
        self.client().call_blocking(timeout, |now, node| {
            node.drain(now);
            node.draining()
        })?
    }

    /// Returns what is left to drain; `None` if the node is not draining or does not answer.
    pub fn draining(&self, timeout: Duration) -> Option<Draining> {
        self.client()
            .call_blocking(timeout, |_, node| node.draining())?
    }

    /// Returns the address of the admin interface.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Returns the driver counters of each shard, the node's own first.
    pub fn shards(&self) -> Vec<Counters> {
        self.client().shards()
    }

    pub(super) fn client(&self) -> NodeClient {
        NodeClient::new(self.handle.requests(), self.forwarder_threads.counts())
    }

    /// Returns whether all threads of the node run.
    pub fn is_running(&self) -> bool {
        self.handle.is_running() && self.forwarder_threads.is_running()
    }

    /// Stops the node; queued packets may be sent until `within` has passed.
    pub fn shutdown(self, within: Duration) -> Report {
        drop(self.admin);
        let report = self.handle.shutdown(within);
        drop(self.forwarder_threads);
        drop(self.poll_thread);
        drop(self.prober);
        drop(self.writer);
        report
    }
}

/// Binds a socket per shard, and fills in advertised ports that are 0.
fn bind(setup: &mut Setup) -> Result<(SocketAddr, Vec<UdpSocket>), StartError> {
    let shards = NonZeroU8::new(setup.node.shards)
        .filter(|shards| shards.get() <= ShardId::COUNT_MAX)
        .ok_or(NewError::Shards)?;
    let mut config = SocketConfig::default();
    config.stack = Stack::Dual;
    let sockets = mesh::bind_shards(setup.listen, &config, shards)?;
    let first = sockets.first();
    let address = first.map_or(setup.listen, UdpSocket::local_address);
    for advertised in &mut setup.node.profile.addresses {
        if advertised.port() == 0 {
            advertised.set_port(address.port());
        }
    }
    Ok((address, sockets))
}

/// Opens the document store; write errors go to `on_event`.
fn open_store(
    path: PathBuf,
    on_event: impl Fn(RelayEvent) + Send + 'static,
) -> Result<DocumentWriter, StartError> {
    let writer = DocumentWriter::start(path, move |version, why| {
        let why = why.to_owned();
        on_event(RelayEvent::NotStored { version, why });
    });
    writer.map_err(|_| StartError::Thread)
}

/// Binds each game port once and closes it again; returns the number of UDP ports.
///
/// The running node opens its ports itself and retries for ever. A port that is in use at the start
/// is a configuration error.
fn try_ports(setup: &Setup) -> Result<usize, StartError> {
    let ports = |games: &[Game]| -> Vec<SocketAddr> {
        let entries = games.iter().filter_map(|game| game.entry.as_ref());
        entries.flat_map(|entry| entry.listen.clone()).collect()
    };
    let datagrams = ports(&setup.node.games);
    for &port in &datagrams {
        UdpSocket::bind(port, &SocketConfig::default())?;
    }
    let tcp = setup.node.tcp.as_ref();
    for port in tcp.map(|tcp| ports(&tcp.games)).unwrap_or_default() {
        check_port(port).map_err(|error| {
            let kind = error.kind();
            StartError::Listen(ListenError {
                address: port,
                kind,
            })
        })?;
    }
    if let Some(upstream) = setup.upstream {
        // Each flow opens a socket on this address.
        UdpSocket::bind(SocketAddr::new(upstream, 0), &SocketConfig::default())?;
    }
    Ok(datagrams.len())
}

/// An event of a running node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelayEvent {
    /// An event of the node itself.
    Event(Event),
    /// The document in force could not be stored; it is retried.
    NotStored {
        /// Version of the document.
        version: u64,
        /// The reason, one sentence.
        why: String,
    },
}

/// Why a node could not be started. `Display` is one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// A socket could not be bound.
    Bind(BindError),
    /// A TCP port could not be opened.
    Listen(ListenError),
    /// The configuration violates a limit of the mesh.
    Node(NewError),
    /// No thread or descriptor is left.
    Spawn(SpawnError),
    /// No thread is left for the store.
    Thread,
    /// The admin interface could not be opened.
    Admin(Failure),
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        Self::Admin(failure)
    }
}

impl From<BindError> for StartError {
    fn from(error: BindError) -> Self {
        Self::Bind(error)
    }
}

impl From<NewError> for StartError {
    fn from(error: NewError) -> Self {
        Self::Node(error)
    }
}

impl From<SpawnError> for StartError {
    fn from(error: SpawnError) -> Self {
        Self::Spawn(error)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(error) => error.fmt(f),
            Self::Listen(error) => error.fmt(f),
            Self::Node(error) => error.fmt(f),
            Self::Spawn(error) => error.fmt(f),
            Self::Thread => f.write_str("the system has no thread left"),
            Self::Admin(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

const SIGNED_PORTS_MAX: usize = 1_024;

/// Publishes a node's events, stores its documents, and runs requests.
struct NodeApp {
    upstream: Option<IpAddr>,
    store: Option<Arc<DocumentStore>>,
    /// Measures game servers; `None` unless the node is an exit.
    probes: Option<ProbeQueue>,
    on_event: Box<dyn FnMut(Event) + Send>,
}

impl NodeApp {
    fn new(
        upstream: Option<IpAddr>,
        store: Option<Arc<DocumentStore>>,
        probes: Option<ProbeQueue>,
        on_event: Box<dyn FnMut(Event) + Send>,
    ) -> Self {
        Self {
            upstream,
            store,
            probes,
            on_event,
        }
    }
}

impl fmt::Debug for NodeApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeApp")
            .field("upstream", &self.upstream)
            .finish_non_exhaustive()
    }
}

impl Application<NodeMachine> for NodeApp {
    type Request = NodeRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        node: &mut NodeMachine,
        request: NodeRequest,
    ) -> ControlFlow<()> {
        request.run(now, node);
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, node: &mut NodeMachine, event: Event) {
        if let (Event::ConfigAccepted(_), Some(store)) = (&event, &self.store)
            && let (Some(document), Some(bytes)) = (node.document(), node.stored_config())
        {
            let number = node.config_stats().map_or(0, |stats| stats.accepted);
            store.put((number, document.version), bytes);
        }
        (self.on_event)(event);
    }

    fn socket_order(&self, command: &Command) -> Option<SocketOrder> {
        mesh::order(command, self.upstream)
    }

    fn on_socket(
        &mut self,
        now: Instant,
        node: &mut NodeMachine,
        id: CommandId,
        outcome: SocketOutcome,
    ) {
        node.handle_completed(now, id, mesh::outcome(outcome));
    }

    fn on_receive_drops(
        &mut self,
        now: Instant,
        node: &mut NodeMachine,
        SocketIndex(socket): SocketIndex,
        count: u64,
    ) {
        node.record_receive_drops(now, Some(SocketId(socket)), count);
    }

    fn on_command(
        &mut self,
        now: Instant,
        node: &mut NodeMachine,
        id: CommandId,
        command: Command,
    ) {
        let Command::Measure { server, probe } = command else {
            return;
        };
        let probes = self.probes.as_ref();
        if !probes.is_some_and(|probes| probes.enqueue(id, server, probe)) {
            node.handle_completed(now, id, Outcome::Failed);
        }
    }
}
