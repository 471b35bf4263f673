//! A node on its own threads.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use crypto::{Identity, Ring};
use relay_mesh::hop::ShardId;
use relay_mesh::link_state::Roles;
use relay_mesh::{Command, Config, Draining, Event, Game, NewError, Node, Outcome, SocketId};
use servicer::{
    Application, Clock, Counters, Handle, ListenError, Report, SocketConfig, SocketIndex,
    SocketOrder, SocketOutcome, SpawnError, Stack, UdpServicer, UdpSocket, mesh,
};
use wire::{CommandId, Instant};

use super::admin::{self, AdminSetup};
use super::emulation::Emulation;
use super::forwarder_threads::{ForwarderContext, ForwarderThreads};
use super::machine::{NodeClient, NodeMachine, NodeRequest, Stats};
use super::probing;
use super::probing::{ProbeQueue, Prober};
use super::store::{DocumentStore, DocumentWriter};
use super::tcp::{PollThread, TcpSetup, TcpSockets, check_port};
use crate::exit::Failure;
use crate::http::Server;

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
    admin: Option<Server>,
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
    /// One sentence: a port is in use, a limit of the mesh is violated, or no thread is left.
    pub fn start(
        mut setup: Setup,
        on_event: impl Fn(RelayEvent) + Clone + Send + 'static,
    ) -> Result<Self, Failure> {
        let ports_max = try_ports(&setup)?;
        let (address, sockets) = bind(&mut setup)?;
        let mut sockets = sockets.into_iter();
        let own: Vec<UdpSocket> = sockets.by_ref().take(1).collect();
        limit_to_descriptors(&mut setup);
        // A signed document may name hundreds of ports.
        let ports = if setup.node.signed.is_some() {
            SIGNED_PORTS_MAX
        } else {
            ports_max
        };
        let flows = usize::try_from(setup.node.flows_max).unwrap_or(usize::MAX);
        let mut config = servicer::Config::default();
        config.opened_max = flows.saturating_add(ports);
        let has_tcp = setup.node.tcp.is_some();
        let is_exit = setup.node.profile.roles.contains(Roles::EXIT);
        let now = Clock::new().now();
        let node =
            Node::new(setup.node, setup.identity, Ring::new(), now).map_err(Failure::usage)?;
        let forwarders = (1..)
            .zip(sockets)
            .filter_map(|(shard, socket)| Some((node.forwarder(shard, Ring::new())?, socket)))
            .collect();
        let tcp_sockets = has_tcp.then(|| TcpSockets::new(setup.tcp, setup.upstream));
        let tcp_sockets = tcp_sockets.transpose().map_err(no_thread)?;
        let (tcp_sockets, poller) = tcp_sockets.unzip();
        let probes = is_exit.then(|| probing::open(setup.upstream));
        let (probes, prober_start) = probes.transpose().map_err(no_thread)?.unzip();
        let writer = setup.store.map(|path| open_store(path, on_event.clone()));
        let writer = writer.transpose()?;
        let store = writer.as_ref().map(DocumentWriter::store);
        let port = setup.admin.map(admin::bind).transpose()?;
        let context = ForwarderContext {
            name: &setup.name,
            emulation: &setup.emulation,
        };
        let servicer = UdpServicer::named(&*setup.name).with_config(config);
        let handle = setup
            .emulation
            .apply(servicer)
            .spawn(
                own,
                NodeMachine::new(node, tcp_sockets),
                NodeApp {
                    upstream: setup.upstream,
                    store: store.clone(),
                    probes,
                    on_event: Box::new(move |event| on_event(RelayEvent::Event(event))),
                },
            )
            .map_err(Failure::refused)?;
        let forwarder_threads = ForwarderThreads::start(forwarders, &handle.requests(), &context)
            .map_err(Failure::refused)?;
        let poll_thread = poller.map(|poller| {
            let node = handle.requests();
            poller.start(move || node.wake())
        });
        let poll_thread = poll_thread.transpose().map_err(no_thread)?;
        let prober = prober_start.map(|prober_start| prober_start.start(handle.requests()));
        let prober = prober.transpose().map_err(no_thread)?;
        let client = NodeClient::new(handle.requests(), forwarder_threads.counts());
        let admin = port.map(|port| port.start(client, store)).transpose()?;
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
        let counted = client.clone();
        client.call_blocking(timeout, move |_, node| Stats::of(node, &counted))
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
        self.admin.as_ref().map(Server::address)
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
fn bind(setup: &mut Setup) -> Result<(SocketAddr, Vec<UdpSocket>), Failure> {
    let shards = NonZeroU8::new(setup.node.shards)
        .filter(|shards| shards.get() <= ShardId::COUNT_MAX)
        .ok_or_else(|| Failure::usage(NewError::Shards))?;
    let mut config = SocketConfig::default();
    config.stack = Stack::Dual;
    let sockets = mesh::bind_shards(setup.listen, &config, shards).map_err(Failure::refused)?;
    let first = sockets.first();
    let address = first.map_or(setup.listen, UdpSocket::local_address);
    for advertised in &mut setup.node.profile.addresses {
        if advertised.port() == 0 {
            advertised.set_port(address.port());
        }
    }
    Ok((address, sockets))
}

fn open_store(
    path: PathBuf,
    on_event: impl Fn(RelayEvent) + Send + 'static,
) -> Result<DocumentWriter, Failure> {
    let writer = DocumentWriter::start(path, move |version, why| {
        let why = why.to_owned();
        on_event(RelayEvent::NotStored { version, why });
    });
    writer.map_err(|_| Failure::refused("the system has no thread left"))
}

/// Binds each game port once and closes it again; returns the number of UDP ports.
///
/// The running node opens its ports itself and retries for ever. A port that is in use at the start
/// is a configuration error.
fn try_ports(setup: &Setup) -> Result<usize, Failure> {
    let ports = |games: &[Game]| -> Vec<SocketAddr> {
        let entries = games.iter().filter_map(|game| game.entry.as_ref());
        entries.flat_map(|entry| entry.listen.clone()).collect()
    };
    let datagrams = ports(&setup.node.games);
    for &port in &datagrams {
        try_udp(port)?;
    }
    let tcp = setup.node.tcp.as_ref();
    for port in tcp.map(|tcp| ports(&tcp.games)).unwrap_or_default() {
        check_port(port).map_err(|error| {
            let kind = error.kind();
            Failure::refused(ListenError {
                address: port,
                kind,
            })
        })?;
    }
    if let Some(upstream) = setup.upstream {
        // Each flow opens a socket on this address.
        try_udp(SocketAddr::new(upstream, 0))?;
    }
    Ok(datagrams.len())
}

fn try_udp(address: SocketAddr) -> Result<(), Failure> {
    let bound = UdpSocket::bind(address, &SocketConfig::default());
    bound.map(drop).map_err(Failure::refused)
}

fn no_thread(error: io::Error) -> Failure {
    Failure::refused(SpawnError::from(error))
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

const SIGNED_PORTS_MAX: usize = 1_024;

struct NodeApp {
    upstream: Option<IpAddr>,
    store: Option<Arc<DocumentStore>>,
    /// Measures game servers; `None` unless the node is an exit.
    probes: Option<ProbeQueue>,
    on_event: Box<dyn FnMut(Event) + Send>,
}

wire::debug_fields!(
    NodeApp,
    this {
        upstream: this.upstream
    }
);

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

/// Lowers the limits of flows and TCP connections so that the node rejects them before the system
/// does. Each flow of an exit and each TCP connection needs a descriptor.
fn limit_to_descriptors(setup: &mut Setup) {
    if let Some(files) = descriptor_limit() {
        limit_to(files, &mut setup.node, &mut setup.tcp);
    }
}

fn limit_to(files: u32, node: &mut Config, tcp: &mut TcpSetup) {
    let mut available = files.saturating_sub(reserved_of(files));
    if let Some(shared) = &mut node.tcp {
        tcp.connections_max = tcp.connections_max.min(available / 2);
        // The node shares out the same number.
        shared.connections_max = tcp.connections_max;
        available = available.saturating_sub(tcp.connections_max);
    }
    if may_be_exit(node) {
        node.flows_max = node.flows_max.min(available);
    }
}

/// Whether flows may need sockets: the node serves games, or a signed document may add some later.
fn may_be_exit(node: &Config) -> bool {
    let is_exit = node.profile.roles.contains(Roles::EXIT);
    (node.signed.is_some() && is_exit) || node.games.iter().any(|game| game.exit.is_some())
}

/// Descriptors reserved for other uses: [`RESERVED_FILES`], but at most a quarter of `files`.
fn reserved_of(files: u32) -> u32 {
    RESERVED_FILES.min(files / 4)
}

/// The process's soft limit of open files; `None` if it is unknown.
fn descriptor_limit() -> Option<u32> {
    parse_limit(&fs::read_to_string("/proc/self/limits").ok()?)
}

/// Parses the soft limit from `/proc/self/limits`; `None` for "unlimited".
fn parse_limit(limits: &str) -> Option<u32> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    line?.split_whitespace().next()?.parse().ok()
}

/// Descriptors that are not flows: ports of 190 games, which a document may add at run time, 32
/// server probes, 32 for 8 shards (socket, poll, waker), and 34 for log, store and admin
/// connections.
const RESERVED_FILES: u32 = 288;

#[cfg(test)]
mod tests {
    use crypto::{Identity, Ring, Secret32};
    use relay_mesh::signed_config::{AdminKeys, Holder};
    use relay_mesh::{ExitGame, Game, Mode, Signed};
    use wire::InstanceId;

    use super::*;
    use crate::relay::FileRole;
    use crate::relay::sandbox::Sandbox;

    /// Flow limit of a node whose process may open 1,024 files.
    fn flows(roles: Roles, change: impl FnOnce(&mut Config)) -> u32 {
        let mut node = Config::new(Secret32::new([0; 32]), InstanceId(0));
        node.profile.roles = roles;
        change(&mut node);
        limit_to(1_024, &mut node, &mut TcpSetup::default());
        node.flows_max
    }

    #[test]
    fn an_exit_has_no_more_flows_than_open_files() {
        let with_game = |node: &mut Config| {
            node.games.push(Game {
                name: "echo".to_owned(),
                mode: Mode::Single,
                entry: None,
                exit: Some(ExitGame {
                    server: ([127, 0, 0, 1], 9).into(),
                    entries: None,
                    header: None,
                }),
            });
        };
        let by_documents = |node: &mut Config| {
            let admin = Identity::generate(&mut Ring::new()).unwrap();
            let keys = AdminKeys::new([*admin.public_key()], 1).unwrap();
            node.signed = Some(Signed {
                holder: Holder::new("east-1", keys),
                listen: Vec::new(),
            });
        };
        assert_eq!(flows(Roles::EXIT, with_game), 768);
        assert_eq!(flows(Roles::EXIT, by_documents), 768);
        assert_eq!(flows(Roles::ENTRY, by_documents), 16_384);
        assert_eq!(flows(Roles::EXIT, |_| {}), 16_384);
    }

    #[test]
    fn the_limit_of_open_files_is_parsed() {
        let table = "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max processes             63704                63704                processes \n\
                     Max open files            1024                 524288               files     \n";
        assert_eq!(parse_limit(table), Some(1_024));
        assert_eq!(parse_limit(&table.replace("1024", "unlimited")), None);
        assert_eq!(parse_limit(""), None);
        #[cfg(target_os = "linux")]
        assert!(descriptor_limit().is_some_and(|files| files > RESERVED_FILES));
    }

    #[test]
    fn few_open_files_leave_few_shared_connections() {
        let mut sandbox = Sandbox::new(&[("one", FileRole::Exit)]).unwrap();
        let config = sandbox.config_mut(0).unwrap();
        let text = r#"[{"name": "web", "protocol": "tcp", "server": "127.0.0.1:80"}]"#;
        config.games = serde_json::from_str(text).unwrap();
        let config = config.clone();
        let mut setup = config.setup(sandbox.directory()).unwrap();
        for (files, connections) in [(524_288, 1_024), (1_024, 384)] {
            limit_to(files, &mut setup.node, &mut setup.tcp);
            let shared = setup.node.tcp.as_ref().map(|tcp| tcp.connections_max);
            assert_eq!(shared, Some(connections));
            assert_eq!(setup.tcp.connections_max, connections);
        }
    }

    #[test]
    fn ports_and_probes_of_190_games_fit_in_addition_to_the_flows() {
        let (games, probes, shards) = (190, 32, 32);
        for (files, flows) in [
            (524_288, 524_000),
            (1_152, 864),
            (1_024, 768),
            (256, 192),
            (0, 0),
        ] {
            let reserved = reserved_of(files);
            assert_eq!(files - reserved, flows);
            assert!(files < 1_152 || reserved > games + probes + shards);
        }
    }
}
