//! A mesh in a virtual world, a game server behind it and a player before it.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::{Identity, Provider, Secret32};
use netsim::provider::{NonceLog, Recording, SimProvider};
use netsim::{Handle, LinkConfig, NodeConfig, Outbox, World};
use relay_mesh::link_state::{Profile, Roles};
use relay_mesh::routes::Path;
use relay_mesh::{
    Bootstrap, Command, Config, EntryGame, Event, ExitGame, FlowEnd, Game, Leg, Mode, Node,
    Outcome, RouteCause, SocketId,
};
use wire::{Arrival, InstanceId, Instant, NodeId, Seed, UnixTime};

pub(crate) type Crypto = Recording<SimProvider>;

/// A node and its sockets.
pub(crate) struct Process<P: Provider = Crypto> {
    pub(crate) node: Node<P>,
    sockets: BTreeMap<SocketId, SocketAddr>,
    next_socket: u32,
    next_port: u16,
    pub(crate) events: Vec<(Instant, Event)>,
    /// Sockets that the system has.
    pub(crate) sockets_max: usize,
}

impl<P: Provider> Process<P> {
    pub(crate) fn new(node: Node<P>, mesh: SocketAddr) -> Self {
        Self {
            node,
            sockets: BTreeMap::from([(SocketId::MESH, mesh)]),
            next_socket: 1,
            next_port: 40_000,
            events: Vec::new(),
            sockets_max: usize::MAX,
        }
    }

    /// Why flows ended so far.
    pub(crate) fn closed_flows(&self) -> Vec<FlowEnd> {
        self.events
            .iter()
            .filter_map(|(_, event)| {
                if let Event::FlowClosed { reason, .. } = event {
                    Some(*reason)
                } else {
                    None
                }
            })
            .collect()
    }

    /// The name of an exit's newest upstream socket.
    pub(crate) fn upstream_socket(&self) -> SocketId {
        *self.sockets.keys().last().expect("a socket")
    }

    /// The address of an exit's upstream socket.
    pub(crate) fn upstream(&self) -> SocketAddr {
        *self.sockets.values().last().expect("a socket")
    }

    pub(crate) fn sockets(&self) -> usize {
        self.sockets.len()
    }

    fn open(&mut self, address: SocketAddr, outbox: &mut Outbox<'_>) -> Outcome {
        if self.sockets.len() >= self.sockets_max {
            return Outcome::Failed;
        }
        let socket = SocketId(self.next_socket);
        self.next_socket += 1;
        self.sockets.insert(socket, address);
        outbox.bind(address);
        Outcome::Opened(socket)
    }

    fn obey(&mut self, command: Command, outbox: &mut Outbox<'_>) -> Outcome {
        match command {
            Command::Listen { address } => self.open(address, outbox),
            Command::Open { .. } => {
                let mesh = self.sockets[&SocketId::MESH];
                self.next_port += 1;
                self.open(SocketAddr::new(mesh.ip(), self.next_port), outbox)
            }
            Command::Close { socket } => {
                if let Some(address) = self.sockets.remove(&socket) {
                    outbox.unbind(address);
                }
                Outcome::Closed
            }
        }
    }
}

impl<P: Provider> netsim::Node for Process<P> {
    fn handle_datagram(
        &mut self,
        now: Instant,
        local: SocketAddr,
        arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        let socket = self
            .sockets
            .iter()
            .find(|(_, address)| address.port() == local.port())
            .map(|(socket, _)| *socket)
            .expect("an open socket");
        let leg = Leg {
            socket,
            address: arrival.peer,
        };
        let arrival = Arrival {
            local: Some(local.ip()),
            ..Arrival::from(leg)
        };
        self.node.handle_datagram(now, arrival, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.node.set_unix_time(now, unix);
    }

    fn drain(&mut self, now: Instant, outbox: &mut Outbox<'_>) {
        loop {
            let mut is_idle = true;
            let mut buf = Vec::new();
            while let Some(transmit) = self.node.poll_transmit(now, &mut buf) {
                is_idle = false;
                let Leg { socket, address } = transmit.destination;
                if let Some(&bound) = self.sockets.get(&socket) {
                    let ip = transmit.source.unwrap_or_else(|| bound.ip());
                    let from = SocketAddr::new(ip, bound.port());
                    for datagram in transmit.datagrams(&buf) {
                        outbox.send_from(from, address, None, datagram);
                    }
                }
                buf.clear();
            }
            while let Some((id, command)) = self.node.poll_command() {
                is_idle = false;
                let outcome = self.obey(command, outbox);
                self.node.handle_completed(now, id, outcome);
            }
            while let Some(event) = self.node.poll_event() {
                is_idle = false;
                self.events.push((now, event));
            }
            if is_idle {
                return;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.node.poll_timeout()
    }
}

/// Answers every datagram.
#[derive(Debug, Default)]
pub(crate) struct EchoServer {
    waiting: Vec<(SocketAddr, Vec<u8>)>,
    pub(crate) sources: BTreeMap<SocketAddr, u64>,
    /// Copies of each answer.
    pub(crate) copies: usize,
}

impl netsim::Node for EchoServer {
    fn handle_datagram(
        &mut self,
        _now: Instant,
        _local: SocketAddr,
        arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        *self.sources.entry(arrival.peer).or_default() += 1;
        for _ in 0..=self.copies {
            self.waiting.push((arrival.peer, datagram.to_vec()));
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn drain(&mut self, _now: Instant, outbox: &mut Outbox<'_>) {
        for (to, bytes) in self.waiting.drain(..) {
            outbox.send(None, to, None, &bytes);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Sends numbered datagrams at a rate and writes down when their answers come.
#[derive(Debug)]
pub(crate) struct Player {
    server: SocketAddr,
    interval: Duration,
    len: usize,
    next_at: Instant,
    next: u64,
    /// Number, when it was sent, when it came back.
    pub(crate) answers: Vec<(u64, Instant, Instant)>,
    sent: BTreeMap<u64, Instant>,
    /// Answers that were no copy of what was sent, or came twice.
    pub(crate) faults: u64,
    pub(crate) is_silent: bool,
}

impl Player {
    pub(crate) fn new(server: SocketAddr, rate: u32, len: usize, now: Instant) -> Self {
        Self {
            server,
            interval: Duration::from_secs(1) / rate,
            len,
            next_at: now,
            next: 0,
            answers: Vec::new(),
            sent: BTreeMap::new(),
            faults: 0,
            is_silent: false,
        }
    }

    fn datagram(&self, number: u64) -> Vec<u8> {
        let fill = u8::try_from(number % 251).unwrap();
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.resize(self.len, fill);
        bytes
    }

    pub(crate) const fn sent(&self) -> u64 {
        self.next
    }

    /// Datagrams without an answer so far.
    pub(crate) fn missing(&self) -> u64 {
        u64::try_from(self.sent.len()).unwrap()
    }

    /// Datagrams without an answer of those sent from number `first` on.
    pub(crate) fn missing_from(&self, first: u64) -> usize {
        self.sent.range(first..).count()
    }

    /// Longest time without an answer between `from` and `to`.
    pub(crate) fn gap(&self, from: Instant, to: Instant) -> Duration {
        let mut last = from;
        let mut gap = Duration::ZERO;
        let mut came: Vec<Instant> = self.answers.iter().map(|answer| answer.2).collect();
        came.sort_unstable();
        for at in came
            .into_iter()
            .filter(|at| *at >= from && *at <= to)
            .chain([to])
        {
            gap = gap.max(at.saturating_since(last));
            last = at;
        }
        gap
    }

    /// Median round trip of the answers that came between `from` and `to`.
    pub(crate) fn round_trip(&self, from: Instant, to: Instant) -> Duration {
        let mut trips: Vec<Duration> = self
            .answers
            .iter()
            .filter(|(_, _, came)| *came >= from && *came <= to)
            .map(|(_, sent, came)| came.saturating_since(*sent))
            .collect();
        trips.sort_unstable();
        trips.get(trips.len() / 2).copied().unwrap_or(Duration::MAX)
    }
}

impl netsim::Node for Player {
    fn handle_datagram(
        &mut self,
        now: Instant,
        _local: SocketAddr,
        _arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        let number = datagram
            .first_chunk()
            .map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
        match self.sent.remove(&number) {
            Some(sent) if self.datagram(number) == datagram => {
                self.answers.push((number, sent, now));
            }
            _ => self.faults += 1,
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn drain(&mut self, now: Instant, outbox: &mut Outbox<'_>) {
        while self.next_at <= now && !self.is_silent {
            let bytes = self.datagram(self.next);
            self.sent.insert(self.next, now);
            outbox.send(None, self.server, None, &bytes);
            self.next += 1;
            self.next_at += self.interval;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_silent).then_some(self.next_at)
    }
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("a test's own address")
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// When the player begins, ms: links are up and measured by then.
pub(crate) const START: u64 = 6_000;

/// Numbers of the nodes of a [`Mesh`].
pub(crate) const ENTRY: usize = 0;
pub(crate) const EXIT: usize = 1;
pub(crate) const RELAY: usize = 2;

/// An entry, an exit, relays, a server and a player.
pub(crate) struct Mesh {
    pub(crate) world: World,
    pub(crate) seed: Seed,
    pub(crate) nodes: Vec<Handle<Process>>,
    pub(crate) ids: Vec<NodeId>,
    pub(crate) server: Handle<EchoServer>,
    pub(crate) player: Handle<Player>,
    pub(crate) nonces: NonceLog,
    mode: Mode,
    adjust: Adjust,
}

/// What differs between meshes.
pub(crate) struct Shape {
    pub(crate) relays: usize,
    pub(crate) mode: Mode,
    pub(crate) rate: u32,
    pub(crate) len: usize,
    /// What relays really do, where it is not what they claim.
    pub(crate) own_roles: Option<Roles>,
    /// Whether the exit takes the entry's players.
    pub(crate) is_entry_listed: bool,
    /// Silence after which a flow ends, s.
    pub(crate) idle: u64,
    /// Whether the nodes' clocks differ and drift.
    pub(crate) has_odd_clocks: bool,
    /// Changes the configuration of the node with this index.
    pub(crate) adjust: Adjust,
}

/// What a test does to the configuration of each node.
pub(crate) type Adjust = fn(usize, &mut Config, &[NodeId]);

impl Default for Shape {
    fn default() -> Self {
        Self {
            relays: 3,
            mode: Mode::Shadow,
            rate: 60,
            len: 100,
            own_roles: None,
            is_entry_listed: true,
            idle: 60,
            has_odd_clocks: false,
            adjust: |_, _, _| {},
        }
    }
}

impl Shape {
    fn role(&self, index: usize) -> Role {
        let usual = Role::of(index);
        Role {
            roles: self
                .own_roles
                .filter(|_| index >= RELAY)
                .unwrap_or(usual.roles),
            mode: self.mode,
            is_entry_listed: self.is_entry_listed,
            idle: self.idle,
        }
    }
}

const PLAYER: &str = "203.0.113.9:5000";
const SERVER: &str = "198.51.100.7:7000";
const GAME: &str = "192.0.2.1:27015";

pub(crate) fn server() -> SocketAddr {
    address(SERVER)
}

pub(crate) fn game() -> SocketAddr {
    address(GAME)
}

/// What a node of a mesh is made for.
#[derive(Clone, Copy)]
pub(crate) struct Role {
    pub(crate) roles: Roles,
    pub(crate) mode: Mode,
    pub(crate) is_entry_listed: bool,
    pub(crate) idle: u64,
}

impl Role {
    pub(crate) const fn of(index: usize) -> Self {
        let roles = match index {
            ENTRY => Roles::ENTRY,
            EXIT => Roles::EXIT,
            _ => Roles::RELAY,
        };
        Self {
            roles,
            mode: Mode::Shadow,
            is_entry_listed: true,
            idle: 60,
        }
    }
}

pub(crate) fn mesh_address(index: usize) -> SocketAddr {
    let host = u8::try_from(index + 1).unwrap();
    SocketAddr::from(([192, 0, 2, host], 9_000))
}

pub(crate) fn identity(seed: Seed, index: usize) -> Identity {
    let purpose = 500 + u64::try_from(index).unwrap();
    let mut provider = SimProvider::new(seed.generator(purpose).seed());
    Identity::generate(&mut provider).expect("seeded")
}

impl Mesh {
    pub(crate) fn new(seed: Seed, shape: &Shape) -> Self {
        let mut world = World::new(seed);
        world.set_default_link(link(60));
        let count = 2 + shape.relays;
        let ids: Vec<NodeId> = (0..count)
            .map(|index| identity(seed, index).node_id())
            .collect();
        let nonces = NonceLog::default();
        let nodes = (0..count)
            .map(|index| {
                let mut config = NodeConfig::at(mesh_address(index));
                if shape.has_odd_clocks {
                    let hours = u32::try_from(index).unwrap();
                    let drift = [-80, 80][index % 2];
                    config = config.with_clock(Duration::from_secs(3_600) * hours, drift);
                }
                let role = shape.role(index);
                world.add(config, |now| {
                    let config = configure((index, role), (&ids, shape.adjust));
                    process((seed, 0), (index, config), &nonces, now)
                })
            })
            .collect();
        let server = world.add(address(SERVER), |_| EchoServer::default());
        let player = world.add(address(PLAYER), |now| {
            Player::new(address(GAME), shape.rate, shape.len, now + ms(START))
        });
        let mut mesh = Self {
            world,
            seed,
            nodes,
            ids,
            server,
            player,
            nonces,
            mode: shape.mode,
            adjust: shape.adjust,
        };
        mesh.lay_out();
        mesh
    }

    /// The direct way takes 80 ms; over the first relay 30, the second 40, the third 60.
    fn lay_out(&mut self) {
        let (entry, exit) = (self.nodes[ENTRY], self.nodes[EXIT]);
        self.world.set_links(entry, exit, link(80));
        for (relay, half) in self.nodes[RELAY..].iter().copied().zip([15, 20, 30]) {
            self.world.set_links(entry, relay, link(half));
            self.world.set_links(relay, exit, link(half));
        }
        self.world.set_links(self.player, entry, link(5));
        self.world.set_links(exit, self.server, link(1));
    }

    pub(crate) fn run(&mut self, millis: u64) {
        self.world.run_for(ms(millis));
    }

    pub(crate) fn now(&self) -> Instant {
        self.world.now()
    }

    pub(crate) fn process(&self, index: usize) -> &Process {
        &self.world[self.nodes[index]]
    }

    pub(crate) fn player(&self) -> &Player {
        &self.world[self.player]
    }

    /// The path from the entry through these nodes to the exit.
    pub(crate) fn path(&self, relays: &[usize]) -> Path {
        Path {
            relays: relays.iter().map(|relay| self.ids[*relay]).collect(),
            destination: self.ids[EXIT],
        }
    }

    /// Moves that a node told of since `from`: when, where to, why.
    pub(crate) fn moves(&self, index: usize, from: Instant) -> Vec<(Instant, Path, RouteCause)> {
        self.process(index)
            .events
            .iter()
            .filter(|(at, _)| *at >= from)
            .filter_map(|(at, event)| {
                if let Event::RouteChanged { to, cause, .. } = event {
                    Some((*at, to.clone(), *cause))
                } else {
                    None
                }
            })
            .collect()
    }

    /// Where the entry's packets go.
    pub(crate) fn route(&self) -> Option<Path> {
        self.moves(ENTRY, Instant::ZERO)
            .pop()
            .map(|(_, path, _)| path)
    }

    /// Lets the player say no more.
    pub(crate) fn stop_player(&mut self) {
        let player = self.player;
        self.world
            .apply(player, |player, _| player.is_silent = true);
    }

    /// Lets the player go on.
    pub(crate) fn wake_player(&mut self) {
        let player = self.player;
        self.world.apply(player, |player, now| {
            player.is_silent = false;
            player.next_at = now;
        });
    }

    pub(crate) fn kill(&mut self, index: usize) {
        let node = self.nodes[index];
        assert!(self.world.kill(node));
    }

    /// Starts a killed node again, with the same identity and other randomness.
    pub(crate) fn restart(&mut self, index: usize, life: u64) {
        let (made, nonces) = ((self.seed, life), self.nonces.clone());
        let role = Role {
            mode: self.mode,
            ..Role::of(index)
        };
        let node = self.nodes[index];
        let config = configure((index, role), (&self.ids, self.adjust));
        self.world
            .restart(node, |now| process(made, (index, config), &nonces, now));
    }
}

pub(crate) fn link(delay: u64) -> LinkConfig {
    LinkConfig::default().with_delay(ms(delay))
}

fn process(
    (seed, life): (Seed, u64),
    (index, mut config): (usize, Config),
    nonces: &NonceLog,
    now: Instant,
) -> Process {
    let purpose = 10_000 + life * 1_000 + u64::try_from(index).unwrap();
    let mut draws = seed.generator(purpose);
    let provider = Recording::new(SimProvider::new(draws.seed()), nonces);
    config.instance = InstanceId(draws.next_u64());
    let node = Node::new(config, identity(seed, index), provider, now).expect("seeded");
    Process::new(node, mesh_address(index))
}

/// An entry, an exit and a relay without processes around them.
pub(crate) fn bare_nodes<P: Provider>(
    seed: Seed,
    now: Instant,
    provider: impl Fn(SimProvider) -> P,
) -> Vec<Node<P>> {
    let identities = [ENTRY, EXIT, RELAY].map(|index| identity(seed, index));
    let ids = [0, 1, 2].map(|index: usize| identities[index].node_id());
    (0..)
        .zip(identities)
        .map(|(index, identity)| {
            let mut draws = seed.generator(20_000 + u64::try_from(index).unwrap());
            let provider = provider(SimProvider::new(draws.seed()));
            let mut config = configure((index, Role::of(index)), (&ids, |_, _, _| {}));
            config.instance = InstanceId(draws.next_u64());
            Node::new(config, identity, provider, now).expect("seeded")
        })
        .collect()
}

fn configure((index, role): (usize, Role), (ids, adjust): (&[NodeId], Adjust)) -> Config {
    let mut config = Config::new(Secret32::new([7; 32]), InstanceId(0));
    config.bootstrap = Bootstrap {
        nodes: vec![
            (ids[RELAY], mesh_address(RELAY)),
            (ids[EXIT], mesh_address(EXIT)),
        ],
    };
    config.profile = Profile {
        roles: role.roles,
        name: format!("node{index}"),
        addresses: vec![mesh_address(index)],
    };
    config.flow_idle = Duration::from_secs(role.idle);
    config.games = vec![Game {
        name: "echo".into(),
        mode: role.mode,
        entry: (index == ENTRY).then(|| EntryGame {
            listen: vec![address(GAME)],
            exits: vec![ids[EXIT]],
        }),
        exit: (index == EXIT).then(|| ExitGame {
            server: address(SERVER),
            entries: (!role.is_entry_listed).then(BTreeSet::new),
        }),
    }];
    adjust(index, &mut config, ids);
    config
}
