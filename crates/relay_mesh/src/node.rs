//! The node: sessions, control plane and data plane behind one machine.

mod advertised_links;
mod config_news;
mod datagram_queue;
mod dialling;
mod edges;
mod entry;
mod exit;
mod exit_selection;
mod failure_counts;
mod flow_ids;
mod flow_open;
mod flow_queues;
mod flow_table;
mod flows;
mod known_routes;
mod label_scheduler;
mod label_search;
mod link_state_audit;
mod links;
mod measuring;
mod overload;
mod path_backoff;
mod path_cost;
mod path_labels;
mod path_probes;
mod path_selection;
mod path_selector;
mod path_set;
mod path_setups;
mod path_table;
mod peers;
mod planes;
mod probe_flow;
mod recent_lengths;
mod reconfigure;
mod releases;
mod reserve;
mod route_targets;
mod selecting;
mod session_relay;
#[cfg(feature = "tcp")]
mod tcp;
#[cfg(feature = "tcp")]
mod tunnel_flows;
#[cfg(feature = "tcp")]
mod tunnels;
mod views;

pub use reconfigure::AddressUse;

use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

#[cfg(feature = "tcp")]
use crypto::tls::TlsIdentity;
use crypto::{Identity, Provider, Secret32};
use udp_proto::{AppId, ChannelId, CidLen, Endpoint, Listen, ListenError, Mtu};
use wire::{
    Arrival, CommandId, Generator, Instant, Machine, NodeId, TokenBucket, Transmit, UnixTime,
};

use crate::choice::{Penalties, PenaltyConfig};
use crate::config::{Config, NewError};
use crate::data_plane::DataPlane;
use crate::event::{Command, Event, Outcome};
use crate::flow_message::GAME_NAME_MAX;
use crate::game::{Game, ServerProbe};
use crate::gossip::Gossip;
use crate::grant::LinkGate;
use crate::hop::{HopHeader, ShardId};
use crate::label::LabelLimits;
use crate::link::{LinkId, LinkTable};
use crate::link_state::{Admission, LinkStateTable, Network, Publisher, TableConfig};
use crate::measure::LinkReport;
use crate::peer_addr::{PeerAddr, SocketId};
use crate::reply_budget::ReplyBudget;
use crate::route_request::RequestId;
use crate::shard::Shards;
use crate::stats::NodeStats;
#[cfg(feature = "tcp")]
use crate::tcp::TcpConfig;
use crate::view::Draining;
use config_news::ConfigNews;
use edges::Edges;
use entry::Ports;
use failure_counts::{LinkFailures, RejectionCounts};
use flow_open::EarlyDatagrams;
use flow_table::FlowTable;
use known_routes::KnownRoutes;
use overload::OverloadDetector;
use path_set::PathSet;
use peers::{Peers, Rates};
use releases::Releases;
use selecting::Selecting;
use session_relay::Detours;
#[cfg(feature = "tcp")]
use tunnels::Tunnels;

/// A node of the mesh; a [`wire::Machine`] with [`PeerAddr`]s as peers.
///
/// It owns no socket, clock or thread. Its driver opens the mesh socket as [`SocketId::MESH`].
/// Every other socket is opened at the node's [`Command`] and named by [`Outcome::Opened`]. Each
/// datagram is identified by its socket and the remote address.
pub struct Node<P: Provider> {
    config: Config,
    /// UDP games in force. Flows and ports refer to them by index.
    games: Vec<Game>,
    own: NodeId,
    endpoint: Endpoint<P>,
    generator: Generator,
    /// The data plane of the first shard; all local flows end there.
    plane: DataPlane<P::Aead>,
    shards: Shards<P::Aead>,
    /// Label admission of each link that is up.
    gates: LinkTable<LinkGate>,
    peers: Peers,
    selecting: Selecting,
    gossip: Gossip<P>,
    penalties: Penalties,
    detours: Detours,
    early: EarlyDatagrams,
    reports: BTreeMap<NodeId, LinkReport>,
    known_routes: KnownRoutes,
    path_sets: BTreeMap<LinkId, PathSet<P::Aead>>,
    releases: Releases,
    flows: FlowTable<P::Aead>,
    ports: Ports,
    budget: ReplyBudget,
    rejections: RejectionCounts,
    link_failures: LinkFailures,
    edges: Edges,
    #[cfg(feature = "tcp")]
    tunnels: Option<Box<Tunnels>>,
    config_news: ConfigNews,
    /// Limiter of new flows of players.
    newcomers: TokenBucket,
    commands: VecDeque<(CommandId, Command)>,
    /// The purpose of each incomplete command.
    pending: BTreeMap<CommandId, Pending>,
    next_command: u64,
    last_request: RequestId,
    next_serial: u32,
    events: VecDeque<Event>,
    sealed: Vec<u8>,
    /// Scratch buffer for one message or datagram of a player.
    message: Vec<u8>,
    ticks: u64,
    tick_at: Instant,
    /// The deadline of the node's own timers, without those of its endpoint.
    wake_at: Instant,
    /// Whether [`run_paths`](Self::run_paths) is due.
    paths_dirty: bool,
    /// Time of the last run.
    paths_run_at: Option<Instant>,
    overload: OverloadDetector,
    stats: NodeStats,
    now: Instant,
    unix: Option<(Instant, UnixTime)>,
}

/// What a command is for.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Port(usize),
    /// The exit flow with this index, and its id.
    Upstream(u32, LinkId, crate::flow_key::FlowId),
    Measure,
    Close,
}

impl<P: Provider> Node<P> {
    /// Makes a node that holds `identity`. It dials its bootstrap list at once.
    ///
    /// # Errors
    ///
    /// [`NewError`] if the provider has no randomness or the configuration breaks a bound.
    pub fn new(
        mut config: Config,
        identity: Identity,
        mut provider: P,
        now: Instant,
    ) -> Result<Self, NewError> {
        check(&config)?;
        let own = identity.node_id();
        let public = *identity.public_key();
        let mut generator = provider.random_seed()?.generator(0);
        let key = provider.signing_key(&identity)?;
        let (network, previous) = networks_of(&provider, &config);
        let publisher = Publisher::new(key, public, network, config.profile.clone())
            .map_err(|_| NewError::Profile)?;
        let table = table(&config, (network, previous), own);
        #[cfg(feature = "tcp")]
        let tunnels = tunnels(config.tcp.take(), &identity, now)?;
        let endpoint = endpoint(&config, identity, provider, now)?;
        let (limits, outbox_max) = (label_limits(&config), config.outbox_bytes_max);
        let mut node = Self {
            own,
            endpoint,
            plane: DataPlane::new(ShardId::FIRST, limits, outbox_max),
            shards: Shards::new(config.shards, limits, outbox_max),
            gates: LinkTable::new(),
            peers: Peers::new(config.peers_max, Rates::of(&config)),
            selecting: Selecting::new(now, &config, &mut generator),
            gossip: Gossip::new(publisher, table, generator.seed().generator(0), now),
            penalties: Penalties::new(PenaltyConfig::default()),
            detours: Detours::default(),
            early: EarlyDatagrams::default(),
            reports: BTreeMap::new(),
            known_routes: KnownRoutes::default(),
            path_sets: BTreeMap::new(),
            releases: Releases::default(),
            flows: FlowTable::new((config.flows_max, config.unproved_max), &mut generator),
            ports: Ports::new(&config.games, now),
            budget: ReplyBudget::default(),
            rejections: RejectionCounts::default(),
            link_failures: LinkFailures::default(),
            edges: Edges::default(),
            #[cfg(feature = "tcp")]
            tunnels,
            config_news: ConfigNews::default(),
            newcomers: TokenBucket::new(config.open_rate, config.open_rate.saturating_mul(4), now),
            commands: VecDeque::new(),
            pending: BTreeMap::new(),
            next_command: 0,
            last_request: RequestId(generator.next_u64()),
            next_serial: 0,
            events: VecDeque::new(),
            sealed: Vec::new(),
            message: Vec::new(),
            ticks: 0,
            tick_at: now,
            wake_at: now,
            paths_dirty: false,
            paths_run_at: None,
            overload: OverloadDetector::new(now),
            stats: NodeStats::default(),
            now,
            unix: None,
            generator,
            games: core::mem::take(&mut config.games),
            config,
        };
        node.register_bootstrap(now);
        node.apply_document(now);
        Ok(node)
    }

    /// Handles one datagram, which is decrypted in place. Invalid ones are counted and dropped.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: Arrival<PeerAddr>,
        datagram: &mut [u8],
    ) {
        let now = self.advance(now);
        let PeerAddr { socket, address } = arrival.peer;
        if socket != SocketId::MESH {
            self.on_game_datagram(now, (arrival.peer, arrival.local), datagram);
            return;
        }
        if datagram
            .first()
            .is_some_and(|first| HopHeader::claims(*first))
        {
            self.on_frames(now, address, datagram);
            return;
        }
        let arrival = Arrival {
            peer: address,
            real_source: arrival.real_source,
            local: arrival.local,
            ecn: arrival.ecn,
        };
        self.endpoint.handle_datagram(now, arrival, datagram);
        self.pump(now);
    }

    /// Runs every timer due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        self.endpoint.handle_timeout(now);
        self.pump(now);
        if now >= self.tick_at {
            self.on_tick(now);
        }
        self.run_paths(now);
        #[cfg(feature = "tcp")]
        self.run_tunnels(now);
    }

    /// Handles the outcome of a command. An unknown or repeated id is counted and ignored.
    pub fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        let now = self.advance(now);
        let Some(pending) = self.pending.remove(&id) else {
            self.stats.stray_completions = self.stats.stray_completions.saturating_add(1);
            return;
        };
        match (pending, outcome) {
            (Pending::Port(port), outcome) => self.on_port(now, port, outcome),
            (Pending::Upstream(index, remote, flow), outcome) => {
                self.on_upstream(now, (index, remote, flow), outcome);
            }
            (Pending::Measure, outcome) => self.on_measured(now, id, outcome),
            (Pending::Close, _) => {}
        }
    }

    /// Sets the wall clock. Before the first call no signed document is valid.
    pub fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        let now = self.advance(now);
        self.unix = Some((now, unix));
        self.endpoint.set_unix_time(now, unix);
    }

    /// Appends the next datagram to `buf`; `None` when there is none.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerAddr>> {
        let now = self.advance(now);
        loop {
            if let Some(transmit) = self.plane.outbox.poll_transmit(buf) {
                return Some(transmit);
            }
            let start = buf.len();
            if let Some(transmit) = self.endpoint.poll_transmit(now, buf) {
                if !self.send_via_relay(now, &transmit, buf.get(start..).unwrap_or_default()) {
                    buf.truncate(start);
                    continue;
                }
                return Some(Transmit {
                    destination: PeerAddr::mesh(transmit.destination),
                    source: transmit.source,
                    segment_len: transmit.segment_len,
                    ecn: transmit.ecn,
                });
            }
            // After session packets, since unknown nodes can cause frames as well.
            if let Some(transmit) = self.poll_shards(buf) {
                return Some(transmit);
            }
            let has_news = self.pump(now);
            #[cfg(feature = "tcp")]
            let has_news = self.pump_tunnels(now) || has_news;
            let may_run = self
                .paths_run_at
                .is_none_or(|run_at| run_at + PATHS_MIN_INTERVAL <= now);
            if self.paths_dirty && may_run {
                self.run_paths(now);
            } else if !has_news {
                return None;
            }
        }
    }

    /// Returns the next command for the driver.
    pub fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        self.commands.pop_front()
    }

    /// Returns the next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when `handle_timeout` is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let again = self.paths_run_at.filter(|_| self.paths_dirty);
        let own = again.map_or(self.wake_at, |run_at| {
            self.wake_at.min(run_at + PATHS_MIN_INTERVAL)
        });
        #[cfg(feature = "tcp")]
        let own = self
            .tunnels
            .as_ref()
            .and_then(|tunnels| tunnels.poll_timeout())
            .map_or(own, |due| due.min(own));
        Some(self.endpoint.poll_timeout().map_or(own, |due| due.min(own)))
    }

    /// Stops accepting players and granting labels, and announces it, so that other nodes move the
    /// traffic that this node relays. Flows of this node's own players and game servers continue
    /// until they end. [`undrain`](Self::undrain) reverts it.
    pub fn drain(&mut self, now: Instant) {
        let now = self.advance(now);
        self.gossip.publisher_mut().leave();
        self.publish(now);
    }

    /// Reverts [`drain`](Self::drain) and announces it. Flows return only to better paths.
    pub fn undrain(&mut self, now: Instant) {
        let now = self.advance(now);
        if self.draining().is_none() {
            return;
        }
        self.gossip.publisher_mut().stay();
        #[cfg(feature = "tcp")]
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.reopen_ports(now);
        }
        self.publish(now);
    }

    /// Returns the remaining flows and labels, or `None` if the node is not draining.
    #[must_use]
    pub fn draining(&self) -> Option<Draining> {
        self.gossip.publisher().is_leaving().then(|| Draining {
            flows: self.flows.len(),
            labels: self.transit_labels(),
        })
    }

    /// Returns the node's id.
    pub const fn id(&self) -> NodeId {
        self.own
    }

    /// Returns the node's counters.
    pub const fn stats(&self) -> &NodeStats {
        &self.stats
    }

    /// Returns the counters of the sessions' endpoint.
    pub const fn endpoint_stats(&self) -> &udp_proto::EndpointStats {
        self.endpoint.stats()
    }

    fn advance(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "time went back");
        self.watch_for_stalls(now);
        self.now = self.now.max(now);
        self.now
    }

    fn emit(&mut self, event: Event) {
        if self.events.len() >= self.config.events_max {
            self.events.pop_front();
            self.stats.events_dropped = self.stats.events_dropped.saturating_add(1);
        }
        self.events.push_back(event);
    }

    fn command(&mut self, command: Command, pending: Pending) {
        let id = CommandId(self.next_command);
        self.next_command = self.next_command.saturating_add(1);
        self.pending.insert(id, pending);
        self.commands.push_back((id, command));
    }

    /// Queues a message to a neighbour. Returns false if it has no session or its queue is full.
    fn send(&mut self, now: Instant, link: LinkId, channel: ChannelId, message: &[u8]) -> bool {
        let Some(session) = self.peers.session(link) else {
            return false;
        };
        let is_sent = self.endpoint.send(now, session, channel, message).is_ok();
        if !is_sent {
            self.stats.messages_unsent = self.stats.messages_unsent.saturating_add(1);
        }
        is_sent
    }

    /// Queues a message that `encode` writes.
    fn send_with(
        &mut self,
        now: Instant,
        link: LinkId,
        channel: ChannelId,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        // Holds a relayed datagram without growing.
        let mut message = Vec::with_capacity(1_500);
        encode(&mut message);
        self.send(now, link, channel, &message)
    }

    fn on_tick(&mut self, now: Instant) {
        self.tick_at = now + TICK_INTERVAL;
        self.ticks = self.ticks.wrapping_add(1);
        self.watch_queues(now);
        self.run_detours(now);
        // In a large mesh, once a second is enough.
        if self.selecting.has_news && !self.selecting.is_choosing {
            self.learn_peers(now);
        }
        self.dial_due(now);
        self.publish(now);
        self.open_ports(now);
        #[cfg(feature = "tcp")]
        self.run_tunnel_ports(now);
        self.run_config(now);
        self.run_edges(now);
        self.emit_rejections(now);
        self.emit_link_failures(now);
        self.send_releases(now);
        self.sweep_labels(now);
        if self.ticks.is_multiple_of(10) {
            self.learn_peers(now);
            self.select_links(now);
            self.end_idle_flows(now);
            self.keep_labels_alive(now);
            self.send_epochs(now);
            self.peers.drop_old_probers(now);
        }
        if self.ticks.is_multiple_of(100) {
            self.forget_nodes(now);
            self.report_identity_in_use(now);
        }
        self.paths_dirty = true;
    }

    /// Runs all path sets and sends due probes; sets the next deadline.
    fn run_paths(&mut self, now: Instant) {
        self.paths_dirty = false;
        self.paths_run_at = Some(now);
        let links: Vec<LinkId> = self.path_sets.keys().copied().collect();
        for link in links {
            self.run_path_set(now, link);
        }
        let probers_at = self.run_probers(now, self.tick_at);
        self.run_watches(now);
        let watches = self
            .path_sets
            .values()
            .flat_map(|path_set| path_set.paths.iter())
            .filter(|path| path.is_watched())
            .map(|path| path.watch.poll_timeout(now));
        let path_sets = self.path_sets.values();
        let due = path_sets.filter_map(|path_set| path_set.next_due(now));
        let due = due.map(|at| at.max(now + PATHS_MIN_INTERVAL));
        self.wake_at = watches.chain(due).fold(probers_at, Instant::min);
    }
}

impl<P: Provider> Machine for Node<P> {
    type Peer = PeerAddr;
    type Event = Event;
    type Command = Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerAddr>, datagram: &mut [u8]) {
        self.handle_datagram(now, arrival, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        self.handle_completed(now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.set_unix_time(now, unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerAddr>> {
        self.poll_transmit(now, buf)
    }

    fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        self.poll_command()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}

wire::debug_fields!([P: Provider] Node<P>, this {
    own: this.own,
    flows: this.flows.len(),
    path_sets: this.path_sets.len(),
});

fn check(config: &Config) -> Result<(), NewError> {
    if !(1..=ShardId::COUNT_MAX).contains(&config.shards) {
        return Err(NewError::Shards);
    }
    let is_long = |game: &Game| game.name.len() > GAME_NAME_MAX;
    if config.games.iter().any(is_long) {
        return Err(NewError::GameName);
    }
    #[cfg(feature = "tcp")]
    if config.tcp.iter().flat_map(|tcp| &tcp.games).any(is_long) {
        return Err(NewError::GameName);
    }
    if !config.probes.values().all(ServerProbe::is_valid) {
        return Err(NewError::Probe);
    }
    if config.games.iter().any(Game::has_line_for_datagrams) {
        return Err(NewError::HeaderVersion);
    }
    Ok(())
}

#[cfg(feature = "tcp")]
fn tunnels(
    config: Option<TcpConfig>,
    identity: &Identity,
    now: Instant,
) -> Result<Option<Box<Tunnels>>, NewError> {
    let Some(tcp) = config else {
        return Ok(None);
    };
    let identity = TlsIdentity::new(identity).map_err(|_| NewError::TunnelIdentity)?;
    Ok(Some(Box::new(Tunnels::new(tcp, identity, now))))
}

const fn label_limits(config: &Config) -> LabelLimits {
    LabelLimits {
        labels_max: config.labels_max,
        per_owner_max: config.labels_per_peer_max,
        rate: config.label_rate,
        burst: config.label_rate / 4,
        owner_rate: config.owner_rate,
    }
}

/// Network ids of both secrets: the current one, and the previous one.
fn networks_of<P: Provider>(provider: &P, config: &Config) -> (Network, Option<Network>) {
    let of = |secret| network_of(provider, secret);
    (of(&config.secret), config.previous_secret.as_ref().map(of))
}

fn network_of<P: Provider>(provider: &P, secret: &Secret32) -> Network {
    let hash = provider.hmac_sha256(secret.expose(), &[b"tw1 mesh network"]);
    Network(hash.first_chunk().copied().unwrap_or_default())
}

fn table(
    config: &Config,
    (network, previous): (Network, Option<Network>),
    own: NodeId,
) -> LinkStateTable {
    let mut limits = TableConfig::default();
    if let Some(members) = &config.members {
        limits.admission = Admission::Listed(members.clone());
    }
    let mut table = LinkStateTable::new(limits, network, own);
    if let Some(previous) = previous {
        table.accept_also(previous);
    }
    table
}

fn endpoint<P: Provider>(
    config: &Config,
    identity: Identity,
    provider: P,
    now: Instant,
) -> Result<Endpoint<P>, NewError> {
    let mut sessions = udp_proto::Config::default();
    sessions.sessions_max = u16::try_from(config.links_max.saturating_mul(4)).unwrap_or(u16::MAX);
    sessions.half_open_max = 256;
    sessions.mtu_check = Some(Mtu::MESH);
    sessions.receive_window = RECEIVE_WINDOW;
    sessions.realtime_rate = CONTROL_RATE;
    sessions.realtime_burst = CONTROL_RATE.get() / 4;
    if config.reset_secret.is_some() {
        sessions.cid_len = CidLen::Eight;
    }
    let mut endpoint = Endpoint::new(sessions, APP, provider, now)?;
    let network = udp_proto::Network {
        secret: config.secret.clone(),
        previous: config.previous_secret.clone(),
    };
    let mut listen = Listen::new(identity, config.instance).with_network(network);
    listen.reset_secret.clone_from(&config.reset_secret);
    // A new endpoint with connection ids can fail only for lack of randomness.
    endpoint
        .listen(now, listen)
        .map_err(|_: ListenError| NewError::NoEntropy)?;
    if let Some(members) = &config.members {
        endpoint.set_allowed_nodes(Some(members.keys().copied().collect()));
    }
    Ok(endpoint)
}

const UNRELIABLE: ChannelId = ChannelId(0);
const RELIABLE: ChannelId = ChannelId(1);
const PATHS_MIN_INTERVAL: Duration = Duration::from_millis(1);
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// "tickmesh"; distinct from the application ids of games.
const APP: AppId = AppId(0x7469_636b_6d65_7368);
/// Control traffic with one neighbour, in bytes per second. The burst is a quarter of it, so that
/// the answer to a full request is sent at once.
const CONTROL_RATE: NonZeroU32 = NonZeroU32::new(1 << 20).unwrap();
/// Twice the answer to a full request, in bytes.
const RECEIVE_WINDOW: u32 = 192 << 10;
