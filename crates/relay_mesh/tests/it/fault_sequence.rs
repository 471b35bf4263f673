//! Control planes of 100 and 1,000 nodes through a sequence of faults: lines that lose in one
//! direction, flapping links, deaths and joins, a byzantine node, and a partition.
//!
//! Lossy lines stay lossy to the end.

use std::collections::{BTreeMap, BTreeSet};

use netsim::{for_each_seed, test_site};
use relay_mesh::cost::Cost;
use relay_mesh::link_state::{LINK_DELTAS_MAX, LinkDelta, LinkRecord, Message, Request, ShortId};
use relay_mesh::measure::LinkReport;
use relay_mesh::routes::{Graph, RouteLimits, SourceRoutes};
use wire::Seed;

use crate::hundreds::many_nodes::nodes;
use crate::swarm::Swarm;
use crate::test_provider::TestProvider;
use crate::world::{Node, up};

/// Runs 100 nodes, or `NODES` from the environment. If `ALL_SIZES` is set, as by `cargo xtask sim`,
/// the first seed also runs 1,000 nodes, which takes some minutes of one core.
#[test]
fn sim_pgx13_control_planes_survive_random_faults() {
    let count = nodes(100);
    let (seeds, shape) = if count > 300 {
        (1, &SHAPE_1000)
    } else {
        (3, &SHAPE_100)
    };
    for_each_seed(&test_site!(), seeds, |seed| {
        live_through_trouble(seed, count, shape);
    });
    if count != 1_000 && std::env::var_os("ALL_SIZES").is_some() {
        live_through_trouble(Seed::from_number(0), 1_000, &SHAPE_1000);
    }
}

fn live_through_trouble(seed: Seed, count: usize, shape: &Shape) {
    let mut mesh = Troubled {
        swarm: Swarm::new(seed, count, shape.links, TestProvider::new),
        count,
        seed,
    };
    mesh.lines_lose_one_way(shape.lossy);
    mesh.links_flap(shape.flapping);
    mesh.nodes_die_and_others_come(shape.dying, shape.churn);
    mesh.one_lies();
    mesh.halves_part_and_meet(shape.parted, shape.meeting);
}

/// The parameters of a mesh, and the average limits of bytes per second and node during each fault,
/// set to 1.5 times the measured values.
struct Shape {
    /// Per node.
    links: usize,
    /// One of this many nodes dies.
    dying: usize,
    /// Duration of the partition, ms.
    parted: u64,
    lossy: u64,
    flapping: u64,
    churn: u64,
    meeting: u64,
}

const SHAPE_100: Shape = Shape {
    links: 16,
    dying: 10,
    parted: 100_000,
    lossy: 3_700,
    flapping: 4_900,
    churn: 9_000,
    meeting: 8_300,
};
const SHAPE_1000: Shape = Shape {
    links: 12,
    dying: 20,
    parted: 100_000,
    lossy: 22_000,
    flapping: 35_000,
    churn: 41_000,
    meeting: 77_000,
};

struct Troubled {
    swarm: Swarm<TestProvider>,
    /// At the start.
    count: usize,
    seed: Seed,
}

impl Troubled {
    /// A tenth of the links lose 30 % in one direction.
    fn lines_lose_one_way(&mut self, limit: u64) {
        for &(a, b) in self.swarm.pairs.iter().step_by(10) {
            self.swarm.world.losses.insert((a, b), 300_000);
        }
        self.swarm.run(2_000, &[]);
        let before = self.swarm.received();
        let changed: Vec<_> = self.swarm.pairs.iter().copied().step_by(41).collect();
        for &(a, b) in &changed {
            self.swarm.world.measure(a, b, 300);
        }
        self.swarm.run(3_000, &changed);
        self.show("lossy", before, 3_000, limit);
        self.swarm.world.run(2_000);
        let soon = self.swarm.known(&changed, |_| up(300));
        self.swarm.world.run(5_000);
        let late = self.swarm.known(&changed, |_| up(300));
        assert!(soon >= 990 && late >= 995, "{soon} {late}");
        assert_eq!(self.forged(), 0, "nobody is blamed without a lie");
        self.assert_all_reached();
    }

    /// Each second, one link per forty nodes goes down or up.
    fn links_flap(&mut self, limit: u64) {
        let step = self.swarm.pairs.len() * 40 / self.swarm.world.nodes.len();
        let flapping: Vec<_> = self.swarm.pairs.iter().copied().step_by(step).collect();
        let before = self.swarm.received();
        for round in 0..10 {
            for &(a, b) in &flapping {
                for (from, to) in [(a, b), (b, a)] {
                    if round % 2 == 0 {
                        self.swarm.world.cut(from, to);
                    } else {
                        self.swarm.world.measure(from, to, 50);
                    }
                }
            }
            self.swarm.world.run(1_000);
        }
        self.show("flapping", before, 10_000, limit);
        self.swarm.world.run(5_000);
        let ends = both_ends(&flapping);
        let known = self.swarm.known(&ends, |_| up(50));
        assert!(known >= 990, "{known}");
        self.assert_all_reached();
    }

    /// Some nodes die within 10 s, and in the next 10 s as many start. A fifth of these are new
    /// nodes, the others are restarts.
    fn nodes_die_and_others_come(&mut self, dying: usize, limit: u64) {
        let dead: Vec<usize> = (3..self.count).step_by(dying).collect();
        let before = self.swarm.received();
        let ends = self.die(&dead);
        self.swarm.world.run(7_000);
        // The last one died 10 s ago.
        let living = |ends: &[(usize, usize)]| -> Vec<(usize, usize)> {
            let nodes = &self.swarm.world.nodes;
            let ends = ends.iter().copied();
            ends.filter(|(a, _)| nodes[*a].is_alive).collect()
        };
        let ends = living(&ends);
        let down = self.swarm.known(&ends, |_| LinkReport::DOWN);
        assert!(down >= 990, "{down}");
        self.assert_all_reached();
        let links = self.come(&dead);
        self.swarm.world.run(10_000);
        self.show("churn", before, 30_000, limit);
        let back = self.swarm.known(&both_ends(&links), |_| up(40));
        assert!(back >= 990, "{back}");
        self.swarm.world.run(5_000);
        let back = self.swarm.known(&both_ends(&links), |_| up(40));
        assert!(back >= 995, "{back}");
        self.assert_all_reached();
    }

    /// Kills nodes, a tenth of them each second. Half of a node's neighbours detect it after 1 to 2
    /// s, the others after 2 to 3 s. Returns the ends of their links.
    fn die(&mut self, dead: &[usize]) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        let mut noticed: [Vec<(usize, usize)>; 3] = Default::default();
        for round in 0..13 {
            for dead in dead
                .iter()
                .copied()
                .skip(round)
                .step_by(10)
                .take_while(|_| round < 10)
            {
                self.swarm.world.nodes[dead].is_alive = false;
                for (place, near) in self.swarm.world.neighbours(dead).into_iter().enumerate() {
                    noticed[1 + place % 2].push((near, dead));
                    all.push((near, dead));
                }
            }
            for (near, dead) in noticed[0].drain(..) {
                self.swarm.world.cut(near, dead);
                self.swarm.world.disconnect(near, dead);
            }
            noticed.rotate_left(1);
            self.swarm.world.run(1_000);
        }
        all
    }

    /// Restarts nodes, or adds new ones in their place. Returns their links.
    fn come(&mut self, dead: &[usize]) -> Vec<(usize, usize)> {
        let mut links = Vec::new();
        for round in 0..10 {
            for (place, &gone) in dead.iter().enumerate().skip(round).step_by(10) {
                let neighbours = self.swarm.pairs.iter().filter_map(|&(a, b)| match gone {
                    _ if gone == a => Some(b),
                    _ if gone == b => Some(a),
                    _ => None,
                });
                let neighbours: Vec<usize> = neighbours.collect();
                let is_new = place % 5 == 0;
                let node = if is_new {
                    let mut seed = self.seed.generator(2_000 + u64::try_from(place).unwrap());
                    self.swarm.world.bear(TestProvider::new(seed.seed()))
                } else {
                    self.swarm.world.restart(gone);
                    gone
                };
                for near in neighbours {
                    if self.swarm.world.nodes[near].is_alive {
                        self.swarm.world.link(node, near, 40);
                        links.push((node, near));
                    } else {
                        self.swarm.world.cut(node, near);
                    }
                }
            }
            self.swarm.world.run(1_000);
        }
        links
    }

    /// One node claims in unsigned deltas that a link of every other node costs 3 s.
    fn one_lies(&mut self) {
        let count = self.swarm.world.nodes.len();
        let byzantine = count / 2;
        let lies = self.lies(byzantine);
        for to in self.swarm.world.neighbours(byzantine) {
            for some in lies.chunks(LINK_DELTAS_MAX) {
                let message = Message::LinkDeltas(some.to_vec());
                self.swarm.world.transmit(byzantine, to, &message);
            }
        }
        self.swarm.world.run(3_000);
        let (bent, down) = self.bent_and_down();
        assert!(bent > 100, "the lie is heard: {bent}");
        assert_eq!(down, 0, "no link is lost");
        self.assert_all_reached();
        self.swarm.world.run(33_000);
        assert_eq!(self.bent_and_down(), (0, 0), "records put it right");
        let found = self.forged();
        assert!(found > 100, "{found}");
        self.assert_all_reached();
    }

    fn lies(&self, byzantine: usize) -> Vec<LinkDelta> {
        let table = self.swarm.world.nodes[byzantine].table();
        let living = self.living();
        let lies = living.iter().map(|node| {
            let origin = ShortId::from(node.id);
            let request = Request::new([(origin, 0)]);
            let record = table.answer(&request).find_map(|message| {
                if let Message::LinkRecord(bytes) = message {
                    LinkRecord::decode(bytes).ok()
                } else {
                    None
                }
            });
            let record = record.expect("known to all");
            let report = LinkReport {
                delay: LIE,
                ..up(0)
            };
            LinkDelta {
                origin,
                base: u32::try_from(record.version).unwrap(),
                after: 60_000,
                changes: vec![(0, report)],
            }
        });
        lies.collect()
    }

    /// Number of link ends of live nodes for which the lie is believed, and for which the link is
    /// down or unknown, in the tables of some nodes.
    fn bent_and_down(&self) -> (usize, usize) {
        let living = self.living();
        let ids: BTreeSet<_> = living.iter().map(|node| node.id).collect();
        let (mut bent, mut down) = (0, 0);
        for node in self.some() {
            for from in &living {
                for to in from.links.keys().filter(|to| ids.contains(to)) {
                    let report = node.table().report(&from.id, *to);
                    bent += usize::from(report.is_some_and(|report| report.delay == BELIEVED));
                    down += usize::from(report.is_none_or(|report| !report.is_up()));
                }
            }
        }
        (bent, down)
    }

    /// Partitions the nodes at random. After the merge each half knows the changes of the other.
    fn halves_part_and_meet(&mut self, parted: u64, limit: u64) {
        let half = self.halves();
        let mut across = Vec::new();
        for a in 0..half.len() {
            let all = self.swarm.world.neighbours(a).into_iter();
            let others = all.filter(|b| a < *b && half[a] != half[*b]);
            across.extend(others.map(|b| (a, b)));
        }
        for &(a, b) in &across {
            self.swarm.world.disconnect(a, b);
        }
        for round in 0..2 {
            self.swarm.world.run(1_500);
            for &(a, b) in across.iter().skip(round).step_by(2) {
                self.swarm.world.cut(a, b);
                self.swarm.world.cut(b, a);
            }
        }
        let (a, b) = self.pair_within(&half);
        self.swarm.world.run(parted - 13_000);
        self.swarm.world.measure(a, b, 250);
        self.swarm.world.run(10_000);
        let incoming = self.swarm.known(&[(a, b)], |_| up(250));
        assert!((300..700).contains(&incoming), "one half: {incoming}");
        if parted > LIFETIME {
            self.assert_halves_forget(&half);
        }
        let before = self.swarm.received();
        for &(a, b) in &across {
            self.swarm.world.link(a, b, 40);
        }
        self.swarm.world.run(15_000);
        self.show("meeting", before, 15_000, limit);
        let known = self.swarm.known(&both_ends(&across), |_| up(40));
        assert!(known >= 990, "{known}");
        let incoming = self.swarm.known(&[(a, b)], |_| up(250));
        assert!(incoming >= 990, "{incoming}");
        self.assert_all_reached();
    }

    /// Draws two halves without an isolated node.
    fn halves(&self) -> Vec<bool> {
        let world = &self.swarm.world;
        let drawn = world.nodes.iter().map(|node| node.id.0[31] % 2 == 0);
        let mut half: Vec<bool> = drawn.collect();
        for node in 0..half.len() {
            let near = world.neighbours(node).into_iter();
            let linked = near.filter(|near| half[*near] == half[node]).count();
            if linked < 3 {
                half[node] = !half[node];
            }
        }
        half
    }

    /// A link within one half.
    fn pair_within(&self, half: &[bool]) -> (usize, usize) {
        let world = &self.swarm.world;
        let of = |a: usize| {
            let near = world.neighbours(a).into_iter();
            near.filter(move |b| half[a] && half[*b])
                .map(move |b| (a, b))
        };
        (0..half.len()).find_map(|a| of(a).next()).unwrap()
    }

    /// Asserts that the records of the other half have expired, and no others.
    fn assert_halves_forget(&self, half: &[bool]) {
        let nodes = self.swarm.world.nodes.iter().zip(half);
        for side in [true, false] {
            let here = nodes
                .clone()
                .filter(|(node, half)| node.is_alive && **half == side);
            let all: BTreeSet<_> = here
                .clone()
                .map(|(node, _)| ShortId::from(node.id))
                .collect();
            for (node, _) in here {
                assert!(known(node) == all, "one half at {:?}", node.id);
            }
        }
    }

    /// Number of deltas that the origin's record disproved.
    fn forged(&self) -> u64 {
        let stats = self
            .swarm
            .world
            .nodes
            .iter()
            .map(|node| node.table().stats());
        stats.map(|stats| stats.deltas_forged).sum()
    }

    fn living(&self) -> Vec<&Node<TestProvider>> {
        let nodes = self.swarm.world.nodes.iter();
        nodes.filter(|node| node.is_alive).collect()
    }

    /// Twenty of the live nodes.
    fn some(&self) -> impl Iterator<Item = &Node<TestProvider>> {
        let living = self.living();
        let step = living.len() / 20;
        living.into_iter().step_by(step)
    }

    /// The links that both ends measure as up.
    fn truth(&self) -> Graph {
        let living = self.living();
        let links: BTreeMap<_, _> = living.iter().map(|node| (node.id, &node.links)).collect();
        let is_up = |from, to| {
            let report: Option<&LinkReport> = links.get(from).and_then(|links| links.get(to));
            report.is_some_and(LinkReport::is_up)
        };
        let mut graph = Graph::new(living.iter().map(|node| (node.id, true)));
        for node in &living {
            for to in node.links.keys() {
                let ends = (graph.index(&node.id), graph.index(to));
                if let (Some(a), Some(b)) = ends
                    && is_up(&node.id, to)
                    && is_up(to, &node.id)
                {
                    graph.set_link(a, b, Cost::from_millis(10));
                }
            }
        }
        graph
    }

    /// Asserts that all live nodes hold the links of all live nodes, and that the sampled ones find
    /// a route if the true links have one.
    fn assert_all_reached(&self) {
        let living = self.living();
        let all: BTreeSet<_> = living.iter().map(|node| ShortId::from(node.id)).collect();
        for node in &living {
            let missing = all.difference(&known(node)).count();
            assert_eq!(missing, 0, "of {} at {:?}", all.len(), node.id);
        }
        let truth = self.truth();
        for node in self.some() {
            let graph = node.graph();
            let source = graph.index(&node.id).unwrap();
            let routes = SourceRoutes::compute(&graph, source, RouteLimits::default());
            let source = truth.index(&node.id).unwrap();
            let true_routes = SourceRoutes::compute(&truth, source, RouteLimits::default());
            let lost = living.iter().filter(|to| {
                let is_there = |routes: &SourceRoutes, graph: &Graph| {
                    let to = graph.index(&to.id);
                    to.and_then(|to| routes.route(graph, to)).is_some()
                };
                is_there(&true_routes, &truth) && !is_there(&routes, &graph)
            });
            assert_eq!(lost.count(), 0, "routes from {:?}", node.id);
        }
    }

    #[expect(clippy::print_stdout, reason = "a goal's figures are shown")]
    fn show(&self, what: &str, mut before: Vec<u64>, millis: u64, limit: u64) {
        before.resize(self.swarm.world.nodes.len(), 0);
        let (mean, most) = self.swarm.rates(&before, millis);
        let count = self.count;
        println!("{count} nodes, {what}: {mean} B/s a node, {most} B/s the busiest");
        println!("figure: trouble{count} {what}_bytes_per_s {mean}");
        assert!(mean <= limit, "{mean} B/s");
    }
}

/// The nodes whose links a node holds.
fn known(node: &Node<TestProvider>) -> BTreeSet<ShortId> {
    let digest = node.table().digest();
    digest.entries().iter().map(|(origin, _)| *origin).collect()
}

fn both_ends(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect()
}

/// The cost that the byzantine node claims for others' links. Two of them would exceed any route,
/// if they were believed.
const LIE: Cost = Cost::from_millis(3_000);
/// The part of it that counts.
const BELIEVED: Cost = Cost::from_millis(400);
/// Of a record, ms.
const LIFETIME: u64 = 90_000;
