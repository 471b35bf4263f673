//! Control planes of 100 and 1,000 nodes in virtual time: their traffic, how fast a change spreads,
//! and the effect of a node's death, a partition, flapping links and a byzantine node.
//!
//! Whole nodes would take hours at that size. These are only their control planes, connected by a
//! queue with delays, loss and the headers of sessions. Probes and sessions are not simulated.
//! Neighbours detect a node's death after 1 to 3 s, as with probes.

use std::collections::BTreeSet;

use crypto::Provider;
use netsim::provider::SimProvider;
use netsim::{for_each_seed, test_site};
use relay_mesh::measure::LinkReport;
use wire::Seed;

use crate::test_provider::TestProvider;
use crate::world::{World, up};

/// A mesh in which each node measures `degree` others, 2 to 80 ms away.
pub(crate) struct Swarm<P: Provider> {
    pub(crate) world: World<P>,
    pub(crate) pairs: Vec<(usize, usize)>,
}

impl<P: Provider> Swarm<P> {
    pub(crate) fn new(
        seed: Seed,
        count: usize,
        degree: usize,
        provider: impl Fn(Seed) -> P,
    ) -> Self {
        let mut world = World::with(seed, count, provider);
        world.loss = 20_000;
        let mut pairs = BTreeSet::new();
        // Circles with random step sizes: every node has two neighbours in each.
        let mut steps = BTreeSet::new();
        while steps.len() < degree / 2 {
            let bound = u64::try_from(count / 2).unwrap();
            let drawn = usize::try_from(world.generator.between(1, bound - 1)).unwrap();
            steps.insert(drawn);
        }
        for step in steps {
            for node in 0..count {
                let other = (node + step) % count;
                pairs.insert((node.min(other), node.max(other)));
            }
        }
        for &(a, b) in &pairs {
            let millis = u16::try_from(world.generator.between(4, 160)).unwrap();
            world.measure(a, b, millis);
            world.measure(b, a, millis);
        }
        for node in &mut world.nodes {
            node.is_alive = false;
        }
        let pairs: Vec<_> = pairs.into_iter().collect();
        world.settle(&pairs);
        Self { world, pairs }
    }

    fn count(&self) -> u64 {
        u64::try_from(self.world.nodes.len()).unwrap()
    }

    /// A random link's two ends.
    fn draw(&mut self) -> (usize, usize) {
        let bound = u64::try_from(self.pairs.len()).unwrap();
        let drawn = usize::try_from(self.world.generator.below(bound)).unwrap();
        let (a, b) = self.pairs[drawn];
        if self.world.generator.chance(500_000) {
            (a, b)
        } else {
            (b, a)
        }
    }

    /// Runs while every node measures a new cost on one of its links every 5 s.
    pub(crate) fn run(&mut self, millis: u64, kept: &[(usize, usize)]) {
        let changes = self.count() * millis / 5_000;
        for number in 0..changes {
            let (a, b) = self.draw();
            let is_kept = |pair: &&(usize, usize)| **pair == (a, b) || **pair == (b, a);
            if kept.iter().find(is_kept).is_none() && self.is_up(a, b) {
                let millis = u16::try_from(self.world.generator.between(4, 160)).unwrap();
                self.world.measure(a, b, millis);
            }
            let span = millis * (number + 1) / changes - millis * number / changes;
            self.world.run(span);
        }
    }

    fn is_up(&self, a: usize, b: usize) -> bool {
        let to = self.world.nodes[b].id;
        self.world.nodes[a].links[&to].is_up()
    }

    /// Share of live nodes, in thousandths, whose table has `report` for these link ends.
    pub(crate) fn known(
        &self,
        ends: &[(usize, usize)],
        report: impl Fn(usize) -> LinkReport,
    ) -> u64 {
        let (mut known, mut all) = (0, 0);
        for node in self.world.nodes.iter().filter(|node| node.is_alive) {
            for (index, &(a, b)) in ends.iter().enumerate() {
                let [from, to] = [a, b].map(|end| self.world.nodes[end].id);
                all += 1;
                known += u64::from(node.table().report(&from, to) == Some(report(index)));
            }
        }
        known * 1_000 / all
    }

    /// Bytes per second that nodes received since `before`: the mean and the maximum.
    pub(crate) fn rates(&self, before: &[u64], millis: u64) -> (u64, u64) {
        let rates = self.world.nodes.iter().zip(before);
        let rates: Vec<u64> = rates
            .map(|(node, before)| (node.received - before) * 1_000 / millis)
            .collect();
        let sum: u64 = rates.iter().sum();
        (sum / self.count(), rates.into_iter().max().unwrap())
    }

    pub(crate) fn received(&self) -> Vec<u64> {
        self.world.nodes.iter().map(|node| node.received).collect()
    }

    /// Kills one node. Its neighbours detect that within 1 to 3 s.
    fn kill(&mut self, dead: usize) -> Vec<(usize, usize)> {
        self.world.nodes[dead].is_alive = false;
        let mut neighbours = self.world.neighbours(dead);
        let ends = neighbours.iter().map(|node| (*node, dead)).collect();
        self.world.run(1_000);
        let step = 2_000 / u64::try_from(neighbours.len()).unwrap();
        while let Some(node) = neighbours.pop() {
            self.world.cut(node, dead);
            self.world.run(step);
        }
        ends
    }
}

/// Prints the cost of a network of this size, and when all nodes know of a change and of a death.
#[expect(clippy::print_stdout, reason = "a goal's figures are shown")]
fn show<P: Provider>(swarm: &mut Swarm<P>, limit: u64) {
    swarm.run(6_000, &[]);
    let before = swarm.received();
    swarm.run(4_000, &[]);
    let (mean, most) = swarm.rates(&before, 4_000);
    let changed: Vec<(usize, usize)> = (0..20).map(|_| swarm.draw()).collect();
    // Below the largest cost that a delta may report.
    let report = |index: usize| up(u16::try_from(350 + index).unwrap());
    for (index, &(a, b)) in changed.iter().enumerate() {
        let to = swarm.world.nodes[b].id;
        swarm.world.nodes[a].links.insert(to, report(index));
    }
    swarm.run(2_000, &changed);
    let soon = swarm.known(&changed, report);
    let dead = (0..swarm.world.nodes.len())
        .find(|node| changed.iter().all(|(a, b)| a != node && b != node));
    let ends = swarm.kill(dead.unwrap());
    swarm.world.run(5_000);
    let late = swarm.known(&changed, report);
    swarm.world.run(1_500);
    let down = swarm.known(&ends, |_| LinkReport::DOWN);
    println!(
        "{} nodes: {mean} B/s a node, {most} B/s the busiest; of 1,000 a change is known by {soon} \
         after 2 s and {late} after 10 s, a death by {down} after 10 s",
        swarm.count()
    );
    let case = format!("control{}", swarm.count());
    println!("figure: {case} bytes_per_s {mean}");
    for (metric, known) in [
        ("known_2s_percent", soon),
        ("known_10s_percent", late),
        ("death_known_10s_percent", down),
    ] {
        println!("figure: {case} {metric} {}.{}", known / 10, known % 10);
    }
    assert!(mean <= limit, "{mean} B/s");
    assert!(soon >= 990 && late == 1_000, "{soon} {late}");
    assert!(down >= 990, "{down}");
}

#[test]
fn sim_mesh_g1_g3_control_of_100_nodes_keeps_its_budget_and_its_time() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut swarm = Swarm::new(seed, 100, 64, SimProvider::new);
        show(&mut swarm, 3_000);
    });
}

#[test]
fn sim_mesh_g1_g3_control_of_1000_nodes_keeps_its_budget_and_its_time() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut swarm = Swarm::new(seed, 1_000, 64, TestProvider::new);
        show(&mut swarm, 25_000);
    });
}
