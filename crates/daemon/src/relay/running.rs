//! A node on a thread of its own.

mod room;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::time::Duration;

use crypto::{Identity, Ring, Secret32};
use relay_mesh::gossip::GossipStats;
use relay_mesh::link_state::{Roles, TableStats};
use relay_mesh::shard::ShardId;
use relay_mesh::signed_config::HolderStats;
use relay_mesh::tunnel::TunnelStats;
use relay_mesh::{Config, Draining, Event, FrameStats, Game, NewError, Node, NodeStats};
use servicer::{
    BindError, Clock, Counters, Handle, ListenError, Report, SocketConfig, SpawnError, Stack,
    UdpServicer, UdpSocket, mesh,
};
use udp_proto::EndpointStats;

use super::admin::{Admin, AdminStart};
use super::ask::{Ask, Asker};
use super::beside::{Beside, StrayStats, Surroundings};
use super::emulation::Emulation;
use super::operator::Operator;
use super::probing::{self, Prober};
use super::store::Store;
use super::tcp::{Carrier, Sockets, TcpCounted, TcpSetup, Watcher, try_port};
use crate::exit::Failure;

/// What a node needs to run.
#[derive(Debug)]
pub struct Setup {
    /// Name of the thread.
    pub name: String,
    /// Who the node is.
    pub identity: Identity,
    /// What it is and allows.
    pub node: Config,
    /// Where the mesh's socket is bound.
    pub listen: SocketAddr,
    /// The address that packets to game servers leave from; `None` leaves it to the system.
    pub upstream: Option<IpAddr>,
    /// Rules of an emulated network; none for the real one.
    pub emulation: Emulation,
    /// What its TCP sockets may do, where it carries TCP games.
    pub tcp: TcpSetup,
    /// Where signed documents are kept; `None` keeps none.
    pub store: Option<PathBuf>,
    /// Where its operator asks it; `None` for nowhere.
    pub admin: Option<AdminSetup>,
}

/// The admin interface of a node.
#[derive(Debug)]
pub struct AdminSetup {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who knows it may ask anything.
    pub token: Secret32,
}

/// A running node. Dropping it ends it.
#[derive(Debug)]
pub struct Relay {
    // First, so that nobody asks a node that has ended.
    admin: Option<Admin>,
    handle: Handle<Ask>,
    // After the node, which tells its neighbours that it leaves.
    beside: Beside,
    // After the node, whose sockets it waits for.
    watcher: Option<Watcher>,
    // After the node, whose orders it waits for.
    prober: Option<Prober>,
    // After the node, so that its last document is written.
    store: Option<Store>,
    address: SocketAddr,
}

impl Relay {
    /// Starts a node; `tell` hears of it on its threads, and must not block.
    ///
    /// # Errors
    ///
    /// [`StartError`], whose text is one sentence for an operator.
    pub fn start(
        mut setup: Setup,
        tell: impl Fn(Told) + Clone + Send + 'static,
    ) -> Result<Self, StartError> {
        let ports_max = try_ports(&setup)?;
        let (address, sockets) = bind(&mut setup)?;
        let mut sockets = sockets.into_iter();
        let own: Vec<UdpSocket> = sockets.by_ref().take(1).collect();
        room::fit(&mut setup);
        let flows = usize::try_from(setup.node.flows_max).unwrap_or(usize::MAX);
        let is_signed = setup.node.signed.is_some();
        let has_tcp = setup.node.tcp.is_some();
        let is_exit = setup.node.profile.roles.contains(Roles::EXIT);
        let node = Node::new(setup.node, setup.identity, Ring::new(), Clock::new().now())?;
        let forwarders = (1..)
            .zip(sockets)
            .filter_map(|(place, socket)| Some((node.forwarder(place, Ring::new())?, socket)));
        let forwarders = forwarders.collect();
        let streams = has_tcp.then(|| Sockets::new(setup.tcp, setup.upstream));
        let streams = streams.transpose().map_err(SpawnError::from)?;
        let (streams, waiting) = streams.unzip();
        let probes = is_exit.then(|| probing::open(setup.upstream));
        let (probes, measuring) = probes.transpose().map_err(SpawnError::from)?.unzip();
        let store = setup.store.map(|path| open_store(path, tell.clone()));
        let store = store.transpose()?;
        let desk = store.as_ref().map(Store::desk);
        let port = setup.admin.map(Admin::bind).transpose()?;
        let mut config = servicer::Config::default();
        // A document may name ports by the hundred, as it likes.
        let ports = if is_signed { PORTS_SIGNED } else { ports_max };
        config.opened_max = flows.saturating_add(ports);
        let around = Surroundings {
            name: &setup.name,
            emulation: &setup.emulation,
        };
        let servicer = UdpServicer::named(&*setup.name).with_config(config);
        let handle = setup.emulation.apply(servicer).spawn(
            own,
            Carrier::new(node, streams),
            Operator::new(
                setup.upstream,
                desk.clone(),
                probes,
                Box::new(move |event| tell(Told::Event(event))),
            ),
        )?;
        let beside = Beside::start(forwarders, &handle.requests(), &around)?;
        let watcher = waiting.map(|waiting| waiting.start(handle.requests()));
        let watcher = watcher.transpose().map_err(SpawnError::from)?;
        let prober = measuring.map(|measuring| measuring.start(handle.requests()));
        let prober = prober.transpose().map_err(SpawnError::from)?;
        let start = AdminStart {
            asker: Asker::new(handle.requests(), beside.counts()),
            store: desk,
        };
        let admin = port.map(|port| port.start(start)).transpose()?;
        Ok(Self {
            admin,
            handle,
            beside,
            watcher,
            prober,
            store,
            address,
        })
    }

    /// Returns where the mesh's socket is bound.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks the node for its counters; `None` where it does not answer within `patience`.
    pub fn stats(&self, patience: Duration) -> Option<Stats> {
        let asker = self.asker();
        let counted = asker.wait(patience, |_, node| Counted::of(node))?;
        Some(counted.with(&asker.counters(), asker.strays()))
    }

    /// Has the node take its leave; `None` where it does not answer within `patience`.
    pub fn drain(&self, patience: Duration) -> Option<Draining> {
        self.asker().wait(patience, |now, node| {
            node.drain(now);
            node.draining()
        })?
    }

    /// Returns what is left to carry; `None` where the node does not drain, or not answer.
    pub fn draining(&self, patience: Duration) -> Option<Draining> {
        self.asker().wait(patience, |_, node| node.draining())?
    }

    /// Returns where its operator asks it.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Returns what the drivers of its shards have counted, the node's own first.
    pub fn shards(&self) -> Vec<Counters> {
        self.asker().shards()
    }

    pub(super) fn asker(&self) -> Asker {
        Asker::new(self.handle.requests(), self.beside.counts())
    }

    /// Returns whether the node's thread is at work, and those of its shards.
    pub fn is_running(&self) -> bool {
        self.handle.is_running() && self.beside.is_running()
    }

    /// Ends the node.
    pub fn shutdown(self, within: Duration) -> Report {
        drop(self.admin);
        let report = self.handle.shutdown(within);
        drop(self.beside);
        drop(self.watcher);
        drop(self.prober);
        drop(self.store);
        report
    }
}

/// Binds a socket for each shard, and has the node say where they are.
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

/// Opens the store of documents, which tells of what it cannot keep.
fn open_store(path: PathBuf, tell: impl Fn(Told) + Send + 'static) -> Result<Store, StartError> {
    let store = Store::start(path, move |version, why| {
        let why = why.to_owned();
        tell(Told::NotStored { version, why });
    });
    store.map_err(|_| StartError::Thread)
}

/// Opens each port of the games once, and lets go of it; returns how many are for datagrams.
///
/// The node opens them once it runs, and tries again for ever; a port that is taken from the start
/// is a fault of the configuration.
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
        try_port(port).map_err(|error| {
            let kind = error.kind();
            StartError::Listen(ListenError {
                address: port,
                kind,
            })
        })?;
    }
    if let Some(upstream) = setup.upstream {
        // Each flow will have a socket there.
        UdpSocket::bind(SocketAddr::new(upstream, 0), &SocketConfig::default())?;
    }
    Ok(datagrams.len())
}

/// What a running node tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// News of the node itself.
    Event(Event),
    /// Its document could not be stored; it is tried again.
    NotStored {
        /// The document's version.
        version: u64,
        /// Why, one sentence.
        why: String,
    },
}

/// What a node itself counts.
pub(super) struct Counted {
    frames: FrameStats,
    node: NodeStats,
    records: TableStats,
    gossip: GossipStats,
    endpoint: EndpointStats,
    config: Option<HolderStats>,
    tcp: Option<TcpCounted>,
    tunnels: Option<TunnelStats>,
    labels: u32,
}

impl Counted {
    pub(super) fn of(node: &Carrier) -> Self {
        Self {
            frames: node.frame_stats(),
            node: *node.stats(),
            records: node.table_stats(),
            gossip: *node.gossip_stats(),
            endpoint: *node.endpoint_stats(),
            config: node.config_stats().copied(),
            tcp: node.tcp(),
            tunnels: node.tunnel_stats(),
            labels: node.labels(),
        }
    }

    pub(super) const fn with(self, driver: &Counters, strays: StrayStats) -> Stats {
        Stats {
            frames: self.frames,
            node: self.node,
            records: self.records,
            gossip: self.gossip,
            endpoint: self.endpoint,
            config: self.config,
            tcp: self.tcp,
            tunnels: self.tunnels,
            labels: self.labels,
            driver: *driver,
            strays,
        }
    }
}

/// What a node has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Hop frames.
    pub frames: FrameStats,
    /// All else of the mesh.
    pub node: NodeStats,
    /// Records and deltas of link state that came.
    pub records: TableStats,
    /// How they spread.
    pub gossip: GossipStats,
    /// Datagrams at the mesh's socket that are no hop frames.
    pub endpoint: EndpointStats,
    /// Signed documents offered; `None` where the node goes by none.
    pub config: Option<HolderStats>,
    /// TCP sockets; `None` where the node carries no TCP games.
    pub tcp: Option<TcpCounted>,
    /// Tunnels of TCP games, ended ones too; `None` where the node carries none.
    pub tunnels: Option<TunnelStats>,
    /// Labels given out that have not ended.
    pub labels: u32,
    /// Sockets and threads, of all shards.
    pub driver: Counters,
    /// What came to the socket of another shard than its own.
    pub strays: StrayStats,
}

impl Stats {
    /// Returns how many hop frames were dropped, for whatever reason.
    #[must_use]
    pub fn frames_dropped(&self) -> u64 {
        let frames = &self.frames;
        // On their way in, and on their way out.
        let dropped = [
            frames.dropped(),
            frames.no_link,
            frames.not_sealed,
            frames.outbox_full,
        ];
        dropped.into_iter().fold(0, u64::saturating_add)
    }
}

/// Why a node could not be started; the text is one sentence for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// A socket could not be bound.
    Bind(BindError),
    /// A TCP port could not be listened on.
    Listen(ListenError),
    /// The configuration breaks a bound of the mesh.
    Node(NewError),
    /// The system has no thread or descriptor left.
    Spawn(SpawnError),
    /// The system has no thread left for the store.
    Thread,
    /// The admin interface cannot be served.
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

/// Ports of games that a signed document may have opened at an entry.
const PORTS_SIGNED: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_that_is_dropped_counts_as_dropped() {
        let drops: [fn(&mut FrameStats) -> &mut u64; 19] = [
            |frames| &mut frames.truncated,
            |frames| &mut frames.oversize,
            |frames| &mut frames.unknown_kind,
            |frames| &mut frames.bad_trunk,
            |frames| &mut frames.malformed,
            |frames| &mut frames.tag_only,
            |frames| &mut frames.not_tag_only,
            |frames| &mut frames.unknown_label,
            |frames| &mut frames.expired,
            |frames| &mut frames.wrong_link,
            |frames| &mut frames.not_bound,
            |frames| &mut frames.replayed,
            |frames| &mut frames.wrong_tag,
            |frames| &mut frames.over_rate,
            |frames| &mut frames.over_owner_rate,
            |frames| &mut frames.hops_spent,
            |frames| &mut frames.no_link,
            |frames| &mut frames.not_sealed,
            |frames| &mut frames.outbox_full,
        ];
        let mut stats = Stats {
            frames: FrameStats::default(),
            node: NodeStats::default(),
            records: TableStats::default(),
            gossip: GossipStats::default(),
            endpoint: EndpointStats::default(),
            config: None,
            tcp: None,
            tunnels: None,
            labels: 0,
            driver: Counters::default(),
            strays: StrayStats::default(),
        };
        // All but those that went on or arrived: a counter that is new has to be put above.
        let fields = format!("{:?}", stats.frames).matches(": ").count();
        assert_eq!(fields, drops.len() + 2);
        for (drop, expected) in drops.into_iter().zip(1..) {
            *drop(&mut stats.frames) = 1;
            assert_eq!(stats.frames_dropped(), expected);
        }
        stats.frames.sealed = 1;
        stats.frames.arrived = 1;
        assert_eq!(stats.frames_dropped(), 19);
    }
}
