//! A mesh in virtual time, with a game server and a player.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::{Identity, Provider, Secret32};
use netsim::provider::{NonceLog, Recording, SimProvider};
use netsim::{Handle, LinkConfig, NodeConfig, World};
use relay_mesh::link_state::{Profile, Roles};
use relay_mesh::routes::Path;
use relay_mesh::{
    Bootstrap, Config, EntryGame, Event, ExitGame, Game, Mode, Node, RouteCause, ServerProbe,
    TurnedAway,
};
use wire::{InstanceId, Instant, NodeId, Seed};

use crate::echo::EchoServer;
use crate::player::Player;
use crate::process::Process;

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("a test's own address")
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// When the player starts, in ms. Links are up and measured by then.
pub(crate) const START: u64 = 6_000;

/// Indices of the nodes of a [`Mesh`].
pub(crate) const ENTRY: usize = 0;
pub(crate) const EXIT: usize = 1;
pub(crate) const RELAY: usize = 2;

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
    /// The roles in the relays' own configuration, if they differ from what they advertise.
    pub(crate) own_roles: Option<Roles>,
    /// Whether the exit accepts the entry's players.
    pub(crate) is_entry_listed: bool,
    /// Idle timeout of a flow, in s.
    pub(crate) idle: u64,
    /// Whether the nodes' clocks are offset and drift.
    pub(crate) has_odd_clocks: bool,
    pub(crate) adjust: Adjust,
}

/// Changes the configuration of the node with this index.
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

/// The default shape with this change of the configuration.
pub(crate) fn shape(adjust: Adjust) -> Shape {
    Shape {
        adjust,
        ..Shape::default()
    }
}

const PLAYER: &str = "203.0.113.9:5000";
const SERVER: &str = "198.51.100.7:7000";
const GAME: &str = "192.0.2.1:27015";

pub(crate) fn server() -> SocketAddr {
    address(SERVER)
}

pub(crate) fn player_address() -> SocketAddr {
    address(PLAYER)
}

pub(crate) fn game() -> SocketAddr {
    address(GAME)
}

/// What one node of a mesh is built from.
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

    /// One-way delays: 80 ms directly, 30 over the first relay, 40 and 60 over the others.
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

    /// The path from the entry through these relays to the exit.
    pub(crate) fn path(&self, relays: &[usize]) -> Path {
        Path {
            relays: relays.iter().map(|relay| self.ids[*relay]).collect(),
            destination: self.ids[EXIT],
        }
    }

    /// Path changes that a node reported since `from`: time, new path and cause.
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

    /// The rejections that a node reported: each reason with its count.
    pub(crate) fn turned_away(&self, index: usize) -> Vec<(TurnedAway, u64)> {
        let events = self.process(index).events.iter();
        let reported = events.filter_map(|(_, event)| {
            if let Event::TurnedAway { reason, count, .. } = event {
                Some((*reason, *count))
            } else {
                None
            }
        });
        reported.collect()
    }

    /// The path of the entry's packets.
    pub(crate) fn route(&self) -> Option<Path> {
        self.moves(ENTRY, Instant::ZERO)
            .pop()
            .map(|(_, path, _)| path)
    }

    pub(crate) fn stop_player(&mut self) {
        let player = self.player;
        self.world
            .apply(player, |player, _| player.is_silent = true);
    }

    pub(crate) fn wake_player(&mut self) {
        let player = self.player;
        self.world.apply(player, Player::wake);
    }

    pub(crate) fn kill(&mut self, index: usize) {
        let node = self.nodes[index];
        assert!(self.world.kill(node));
    }

    /// Starts a second node with the same identity, at another address and without games.
    pub(crate) fn add_copy(&mut self, index: usize) {
        let at = mesh_address(200);
        let mut config = configure((index, Role::of(index)), (&self.ids, self.adjust));
        (config.games, config.profile.addresses) = (Vec::new(), vec![at]);
        let (seed, mut draws) = (self.seed, self.seed.generator(30_000));
        let provider = Recording::new(SimProvider::new(draws.seed()), &self.nonces);
        config.instance = InstanceId(draws.next_u64());
        self.world.add(at, |now| {
            let node = Node::new(config, identity(seed, index), provider, now).expect("seeded");
            Process::new(node, at)
        });
    }

    /// Restarts a killed node with the same identity and other randomness.
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
    let shards = config.shards;
    let node = Node::new(config, identity(seed, index), provider, now).expect("seeded");
    let mut process = Process::new(node, mesh_address(index));
    process.other_shards.forwarders = (1..shards)
        .filter_map(|place| {
            let provider = Recording::new(SimProvider::new(draws.seed()), nonces);
            process.node.forwarder(place, provider)
        })
        .collect();
    process
}

/// An entry, an exit and a relay without the surrounding processes.
pub(crate) fn bare_nodes<P: Provider>(
    seed: Seed,
    now: Instant,
    adjust: Adjust,
    provider: impl Fn(SimProvider) -> P,
) -> Vec<Node<P>> {
    let identities = [ENTRY, EXIT, RELAY].map(|index| identity(seed, index));
    let ids = [0, 1, 2].map(|index: usize| identities[index].node_id());
    (0..)
        .zip(identities)
        .map(|(index, identity)| {
            let mut draws = seed.generator(20_000 + u64::try_from(index).unwrap());
            let provider = provider(SimProvider::new(draws.seed()));
            let mut config = configure((index, Role::of(index)), (&ids, adjust));
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
    if index == EXIT {
        let request = b"status".to_vec();
        config.probes = BTreeMap::from([("echo".into(), ServerProbe::Query { request })]);
    }
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
            header: None,
        }),
    }];
    adjust(index, &mut config, ids);
    config
}
