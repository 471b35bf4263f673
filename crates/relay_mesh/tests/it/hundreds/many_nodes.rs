//! Many whole nodes on a map, including an entry and an exit, with a player and a game server.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::{Identity, Secret32};
use netsim::{Handle, LinkConfig, NodeIndex, World};
use relay_mesh::cost::{Cost, CostModel};
use relay_mesh::link_state::{Profile, Roles};
use relay_mesh::routes::{Graph, Path, RouteLimits, SourceRoutes};
use relay_mesh::{Bootstrap, Config, EntryGame, ExitGame, Game, Mode, Node, NodeStats};
use wire::{Generator, InstanceId, Instant, NodeId, Seed};

use crate::echo::EchoServer;
use crate::harness::{game, ms, player_address, server};
use crate::player::Player;
use crate::process::Process;
use crate::test_provider::TestProvider;

pub(crate) const ENTRY: usize = 0;
pub(crate) const EXIT: usize = 1;

type Member = Process<TestProvider>;

/// Size of a large world: `NODES`, or `usual` if it is not set.
pub(crate) fn nodes(usual: usize) -> usize {
    let asked = std::env::var("NODES").ok();
    asked.map_or(usual, |asked| asked.parse().expect("NODES is a number"))
}

/// All nodes and their positions.
pub(crate) struct ManyNodes {
    pub(crate) world: World,
    seed: Seed,
    generator: Generator,
    pub(crate) nodes: Vec<Handle<Member>>,
    pub(crate) ids: Vec<NodeId>,
    pub(crate) alive: Vec<bool>,
    /// One-way delays in 0.1 ms, by both ends, lower index first.
    delays: BTreeMap<(usize, usize), u64>,
    places: Vec<(u64, u64)>,
    links_max: fn(usize) -> usize,
    pub(crate) player: Handle<Player>,
    server: Handle<EchoServer>,
    /// Counters and bytes at the last call of [`Self::look`].
    before: Vec<(NodeStats, u64)>,
    looked_at: Instant,
    lives: u64,
    /// A node in everybody's bootstrap list.
    named: Option<(NodeId, SocketAddr)>,
}

/// When the player starts, in s.
const START: u64 = 20;
const RATE: u32 = 20;

impl ManyNodes {
    pub(crate) fn new(seed: Seed, count: usize, links_max: fn(usize) -> usize) -> Self {
        Self::with(seed, count, links_max, None)
    }

    pub(crate) fn with(
        seed: Seed,
        count: usize,
        links_max: fn(usize) -> usize,
        named: Option<(NodeId, SocketAddr)>,
    ) -> Self {
        let mut world = World::new(seed);
        let server = world.add(server(), |_| EchoServer::default());
        let player = world.add(player_address(), |now| {
            Player::new(game(), RATE, 100, now + Duration::from_secs(START))
        });
        let mut many_nodes = Self {
            world,
            seed,
            generator: seed.generator(7),
            nodes: Vec::new(),
            ids: Vec::new(),
            alive: Vec::new(),
            delays: BTreeMap::new(),
            places: Vec::new(),
            links_max,
            player,
            server,
            before: Vec::new(),
            looked_at: Instant::ZERO,
            lives: 0,
            named,
        };
        many_nodes.ids = (0..count)
            .map(|index| many_nodes.identity(index).node_id())
            .collect();
        for _ in 0..count {
            many_nodes.bear();
        }
        many_nodes
    }

    fn identity(&self, index: usize) -> Identity {
        let purpose = 500 + u64::try_from(index).unwrap();
        let mut provider = TestProvider::new(self.seed.generator(purpose).seed());
        Identity::generate(&mut provider).expect("seeded")
    }

    /// Adds a node at a random position. It knows three of the existing nodes.
    pub(crate) fn bear(&mut self) -> usize {
        let index = self.nodes.len();
        if index >= self.ids.len() {
            self.ids.push(self.identity(index).node_id());
        }
        let place = match index {
            ENTRY => (0, 0),
            EXIT => (900, 600),
            _ => (self.generator.below(1_000), self.generator.below(700)),
        };
        let config = self.configure(index);
        let (identity, life) = (self.identity(index), self.lives);
        self.lives += 1;
        let provider = TestProvider::new(self.seed.generator(100_000 + life).seed());
        let node = self.world.add(mesh_address(index), |now| {
            let node = Node::new(config, identity, provider, now).expect("seeded");
            Process::new(node, mesh_address(index))
        });
        for (other, at) in self.places.iter().copied().enumerate() {
            let line = place.0.abs_diff(at.0) + place.1.abs_diff(at.1) / 2;
            // Some lines take a long route, including the one from the entry to the exit.
            let is_long = self.generator.chance(300_000);
            let length = self.generator.between(12, 25);
            let detour = match (other, index) {
                (ENTRY, EXIT) => 20,
                _ if is_long => length,
                _ => 10,
            };
            let delay = 10 + self.generator.below(20) + line * detour / 20;
            self.delays.insert((other, index), delay);
            let delay = Duration::from_micros(delay * 100);
            let link = LinkConfig::default().with_delay(delay);
            self.world.set_links(self.nodes[other], node, link);
        }
        let near = LinkConfig::default().with_delay(ms(1));
        match index {
            ENTRY => self.world.set_links(self.player, node, near),
            EXIT => self.world.set_links(self.server, node, near),
            _ => {}
        }
        self.places.push(place);
        self.nodes.push(node);
        self.alive.push(true);
        self.before.push((NodeStats::default(), 0));
        index
    }

    fn configure(&mut self, index: usize) -> Config {
        let mut config = Config::new(
            Secret32::new([7; 32]),
            InstanceId(self.generator.next_u64()),
        );
        config.links_max = (self.links_max)(index);
        config.bootstrap = Bootstrap {
            nodes: self.draw_some(index),
        };
        let roles = match index {
            EXIT => Roles::EXIT,
            _ if is_entry(index) => Roles::ENTRY,
            _ => Roles::RELAY,
        };
        config.profile = Profile {
            roles,
            name: format!("node{index}"),
            addresses: vec![mesh_address(index)],
        };
        config.games = vec![Game {
            name: "echo".into(),
            mode: Mode::Shadow,
            entry: is_entry(index).then(|| EntryGame {
                listen: vec![port(index)],
                exits: vec![self.ids[EXIT]],
            }),
            exit: (index == EXIT).then(|| ExitGame {
                server: server(),
                entries: None,
                header: None,
            }),
        }];
        config
    }

    /// Three other nodes to start with, which may include nodes that do not exist yet.
    fn draw_some(&mut self, besides: usize) -> Vec<(NodeId, SocketAddr)> {
        let count = u64::try_from(self.ids.len()).unwrap();
        let mut drawn = Vec::from_iter(self.named);
        while drawn.len() < 3 + usize::from(self.named.is_some()) {
            let other = usize::try_from(self.generator.below(count)).unwrap();
            if other != besides && self.alive.get(other) != Some(&false) {
                drawn.push((self.ids[other], mesh_address(other)));
            }
        }
        drawn
    }

    /// A random live node other than the entry and the exit, if there is one.
    pub(crate) fn draw(&mut self) -> Option<usize> {
        let is_one = |index: &usize| *index > EXIT && self.alive[*index];
        let all: Vec<usize> = (0..self.nodes.len()).filter(is_one).collect();
        let count = u64::try_from(all.len()).unwrap();
        let drawn = usize::try_from(self.generator.below(count)).unwrap();
        all.get(drawn).copied()
    }

    pub(crate) fn kill(&mut self, index: usize) {
        assert!(self.world.kill(self.nodes[index]));
        self.alive[index] = false;
    }

    /// Separates the nodes with odd indices from the others, and returns both halves.
    pub(crate) fn cut_in_two(&mut self) -> (Vec<NodeIndex>, Vec<NodeIndex>) {
        let (mut these, mut those) = (Vec::new(), Vec::new());
        for (index, node) in self.nodes.iter().enumerate() {
            let half = if index <= EXIT || index % 2 == 0 {
                &mut these
            } else {
                &mut those
            };
            half.push((*node).into());
        }
        self.world.partition(&these, &those);
        (these, those)
    }

    /// Separates a node from all others.
    pub(crate) fn cut_off(&mut self, index: usize) {
        let mut others: Vec<NodeIndex> = self.nodes.iter().map(|node| (*node).into()).collect();
        let one = others.remove(index);
        self.world.partition(&[one], &others);
    }

    /// Runs for `seconds`, and checks every second that no node exceeds its maximum of links.
    pub(crate) fn run_checked(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.world.run_for(ms(1_000));
            for index in self.living() {
                let links = self.node(index).links().count();
                assert!(
                    links <= (self.links_max)(index),
                    "{index} has {links} links"
                );
            }
        }
    }

    pub(crate) fn living(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|index| self.alive[*index])
            .collect()
    }

    pub(crate) fn node(&self, index: usize) -> &Node<TestProvider> {
        &self.world[self.nodes[index]].node
    }

    /// All open links, by index.
    pub(crate) fn links(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let index: BTreeMap<NodeId, usize> = self.ids.iter().copied().zip(0..).collect();
        let living = self.living().into_iter();
        let of = living.map(|from| {
            let links = self.node(from).links();
            (
                from,
                links
                    .filter_map(|link| index.get(&link.node).copied())
                    .collect(),
            )
        });
        of.collect()
    }

    /// Number of nodes that a node knows.
    pub(crate) fn known(&self, index: usize) -> usize {
        self.node(index).mesh().nodes.len()
    }

    pub(crate) fn assert_all_known(&self) {
        let living = self.living();
        for &index in &living {
            let known = self.node(index).mesh().nodes;
            let known: BTreeSet<NodeId> = known.into_iter().map(|of| of.node).collect();
            let missing = living
                .iter()
                .filter(|other| !known.contains(&self.ids[**other]));
            assert_eq!(missing.count(), 0, "of {} at {index}", living.len());
        }
    }

    /// Asserts that any node is reachable from any other over at most `steps_max` links.
    pub(crate) fn assert_joined(&self, steps_max: usize) {
        let links = self.links();
        for &from in links.keys() {
            let mut seen = BTreeSet::from([from]);
            for _ in 0..steps_max {
                let next: Vec<usize> = seen.iter().flat_map(|of| &links[of]).copied().collect();
                seen.extend(next.into_iter().filter(|of| self.alive[*of]));
            }
            assert_eq!(seen.len(), links.len(), "from {from}");
        }
    }

    /// Asserts that every entry has a session with the exit, which has slots for only a few nodes.
    pub(crate) fn assert_entries(&self) {
        let joined = self.entries_in();
        for entry in self.living().into_iter().filter(|of| is_entry(*of)) {
            assert!(joined.contains(&entry), "{entry} of {joined:?}");
        }
    }

    /// Entries that have a link with the exit.
    pub(crate) fn entries_in(&self) -> Vec<usize> {
        let joined = &self.links()[&EXIT];
        joined.iter().copied().filter(|of| is_entry(*of)).collect()
    }

    /// The first relay of the game's route.
    pub(crate) fn relay_in_use(&self) -> Option<usize> {
        let route = self.node(ENTRY).routes().next()?;
        let relay = *route.path?.relays.first()?;
        self.ids.iter().position(|id| *id == relay)
    }

    /// Asserts that the player still gets answers.
    pub(crate) fn assert_unbroken(&self) {
        let now = self.world.now();
        let from = now.saturating_sub(ms(5_000));
        let gap = self.world[self.player].gap(from, now);
        assert!(gap < ms(200), "a silence of {gap:?}");
    }

    /// Asserts that the player still gets answers, over a route at most a fifth more expensive than
    /// the best one.
    pub(crate) fn assert_game(&self) {
        self.assert_unbroken();
        let (taken, best) = self.costs();
        let units = [taken, best].map(|cost| u32::from(cost.units()));
        assert!(units[0] * 10 <= units[1] * 12, "{taken:?} over {best:?}");
    }

    /// The cost of the entry's route, and of the best route in a full mesh.
    pub(crate) fn costs(&self) -> (Cost, Cost) {
        let mut graph = Graph::new(
            self.living()
                .into_iter()
                .map(|of| (self.ids[of], of != EXIT && !is_entry(of))),
        );
        for (&(one, other), &delay) in &self.delays {
            let ends = [one, other].map(|of| graph.index(&self.ids[of]));
            if let [Some(one), Some(other)] = ends {
                let units = u16::try_from(delay * 2).unwrap();
                graph.set_link(one, other, Cost::from_units(units));
            }
        }
        let relay_cost = CostModel::default().relay();
        let limits = RouteLimits {
            relay_cost,
            ..RouteLimits::default()
        };
        let [entry, exit] = [ENTRY, EXIT].map(|of| graph.index(&self.ids[of]).unwrap());
        let best = SourceRoutes::compute(&graph, entry, limits).cost(exit);
        let route = self.node(ENTRY).routes().next();
        let path: Option<Path> = route.and_then(|route| route.path);
        let taken = path.map_or(Cost::UNROUTABLE, |path| {
            graph.path_cost(entry, &path, relay_cost)
        });
        (taken, best)
    }

    /// The counters of all nodes since the last call.
    pub(crate) fn look(&mut self) -> Look {
        let now = self.world.now();
        let millis = now.saturating_since(self.looked_at).as_millis();
        let mut look = Look {
            millis: u64::try_from(millis).unwrap().max(1),
            ..Look::default()
        };
        for index in self.living() {
            let (stats, endpoint) = {
                let node = self.node(index);
                (*node.stats(), *node.endpoint_stats())
            };
            let datagrams = endpoint.datagrams_received();
            let bytes = endpoint.bytes_received + datagrams * HEADERS;
            let (then, bytes_then) = core::mem::replace(&mut self.before[index], (stats, bytes));
            let links = u64::try_from(self.node(index).links().count()).unwrap();
            look.nodes += 1;
            look.links += links;
            look.links_most = look.links_most.max(links);
            look.dials += stats.dials - then.dials;
            look.refused += stats.dials_refused - then.dials_refused;
            look.parted += stats.links_parted - then.links_parted;
            look.probe_bytes += (stats.probes - then.probes) * PROBE;
            look.bytes += bytes - bytes_then;
        }
        self.looked_at = now;
        look
    }

    #[expect(clippy::print_stdout, reason = "a goal's figures are shown")]
    pub(crate) fn show(&mut self, what: &str) -> Look {
        let look = self.look();
        let (taken, best) = self.costs();
        println!(
            "{what}: {look}; the game's route {} of {} units",
            taken.units(),
            best.units()
        );
        look
    }
}

/// Counters of all nodes over an interval.
#[derive(Default)]
pub(crate) struct Look {
    millis: u64,
    pub(crate) nodes: u64,
    links: u64,
    links_most: u64,
    dials: u64,
    refused: u64,
    parted: u64,
    /// Including all headers.
    bytes: u64,
    probe_bytes: u64,
}

impl Look {
    /// Average per node and minute, in tenths.
    fn a_minute(&self, count: u64) -> u64 {
        count * 600_000 / self.millis / self.nodes
    }

    /// Dials per node and minute, rounded up.
    pub(crate) fn dials_a_minute(&self) -> u64 {
        self.a_minute(self.dials).div_ceil(10)
    }

    /// Asserts that nodes dial only for trials, and that almost no dial is rejected.
    pub(crate) fn assert_calm(&self) {
        assert!(self.dials_a_minute() <= 12, "{self}");
        assert!(self.a_minute(self.refused) <= 10, "{self}");
    }

    pub(crate) fn control_a_second(&self) -> u64 {
        self.bytes.saturating_sub(self.probe_bytes) * 1_000 / self.millis / self.nodes
    }

    pub(crate) fn probes_a_second(&self) -> u64 {
        self.probe_bytes * 1_000 / self.millis / self.nodes
    }
}

impl core::fmt::Display for Look {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let tenths = |number: u64| format!("{}.{}", number / 10, number % 10);
        write!(
            f,
            "{} nodes, {} links each, {} at most; of a node in a minute {} dials, {} of them \
             refused, {} links parted from; control and all acknowledgements {} B/s, probes {} B/s",
            self.nodes,
            tenths(self.links * 10 / self.nodes),
            self.links_most,
            tenths(self.a_minute(self.dials)),
            tenths(self.a_minute(self.refused)),
            tenths(self.a_minute(self.parted)),
            self.control_a_second(),
            self.probes_a_second(),
        )
    }
}

/// Several nodes besides the first send players to the exit, which has no more slots than others.
fn is_entry(index: usize) -> bool {
    index == ENTRY || (30..36).contains(&index)
}

fn port(index: usize) -> SocketAddr {
    if index == ENTRY {
        game()
    } else {
        SocketAddr::new(mesh_address(index).ip(), game().port())
    }
}

pub(crate) fn mesh_address(index: usize) -> SocketAddr {
    let index = u16::try_from(index).unwrap();
    let [high, low] = index.to_be_bytes();
    SocketAddr::from(([10, 0, high, low], 9_000))
}

/// IPv4 and UDP.
const HEADERS: u64 = 28;
/// A probe or its answer in its own datagram: 13 bytes, plus header, frame and tag of the session.
const PROBE: u64 = 13 + 31 + HEADERS;
