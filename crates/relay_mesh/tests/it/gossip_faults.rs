//! Control planes under a byzantine node, a partition, flapping links, and a neighbour that sends
//! too much.

use netsim::{for_each_seed, test_site};
use relay_mesh::cost::Cost;
use relay_mesh::link_state::{Digest, LinkDelta, Message, Request, ShortId};
use relay_mesh::measure::LinkReport;
use wire::Seed;

use crate::swarm::Swarm;
use crate::test_provider::TestProvider;
use crate::world::{World, up};

/// A member claims in unsigned deltas to all its neighbours that others' links cost 3 s.
#[test]
fn sim_mesh_g3_false_deltas_take_no_link_down_and_are_detected() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut swarm = Swarm::new(seed, 60, 16, TestProvider::new);
        swarm.world.run(5_000);
        let byzantine = 30;
        let lies: Vec<LinkDelta> = swarm
            .world
            .nodes
            .iter()
            .filter_map(|node| {
                let origin = ShortId::from(node.id);
                let digest = swarm.world.nodes[byzantine].table().digest();
                let entry = digest.entries().iter().find(|(id, _)| *id == origin)?;
                let report = LinkReport {
                    delay: Cost::from_millis(3_000),
                    ..up(0)
                };
                Some(LinkDelta {
                    origin,
                    base: u32::try_from(entry.1).unwrap(),
                    after: 60_000,
                    changes: vec![(0, report)],
                })
            })
            .collect();
        for to in swarm.world.neighbours(byzantine) {
            swarm
                .world
                .transmit(byzantine, to, &Message::LinkDeltas(lies.clone()));
        }
        swarm.world.run(3_000);
        let bent = bent(&swarm.world);
        assert!(bent > 1_000, "the lie is heard: {bent}");
        assert_eq!(lost(&swarm.world), 0, "no link is lost");
        swarm.world.run(32_000);
        assert_eq!(self::bent(&swarm.world), 0, "records put it right");
        assert_eq!(lost(&swarm.world), 0);
        let found: u64 = stats(&swarm.world, |stats| stats.deltas_forged);
        assert!(found > 1_000, "{found}");
        for node in &swarm.world.nodes {
            assert_eq!(node.table().digest().entries().len(), 60, "none is removed");
        }
        // Honest nodes forwarded the forged deltas. Soon they trust each other again.
        swarm.world.run(32_000);
        assert_eq!(told_by_delta(&mut swarm.world, byzantine), 60);
    });
}

/// Number of nodes that know the new cost of a link within 8 s. The change follows its end's
/// record, so only a delta can report it.
fn told_by_delta(world: &mut World<TestProvider>, byzantine: usize) -> usize {
    let near = 1;
    let neighbours = world.neighbours(near).into_iter();
    let remote = neighbours
        .into_iter()
        .find(|remote| *remote != byzantine)
        .unwrap();
    let [from, to] = [near, remote].map(|end| world.nodes[end].id);
    let state = |world: &World<TestProvider>| {
        let digest = world.nodes[near].table().digest();
        let mut entries = digest.entries().iter();
        entries.find(|(id, _)| *id == from.into()).unwrap().1
    };
    let held = state(world);
    while state(world) == held {
        world.run(100);
    }
    world.run(2_000);
    for (a, b) in [(near, remote), (remote, near)] {
        world.measure(a, b, 300);
    }
    world.run(8_000);
    let knows =
        |node: &&crate::world::Node<TestProvider>| node.table().report(&from, to) == Some(up(300));
    world.nodes.iter().filter(knows).count()
}

/// Link ends with a reported cost of 3 s.
fn bent(world: &World<TestProvider>) -> usize {
    // A report of 3 s is capped at this.
    count(world, |report| report.delay == Cost::from_millis(400))
}

fn lost(world: &World<TestProvider>) -> usize {
    count(world, |report| !report.is_up())
}

fn count(world: &World<TestProvider>, is: impl Fn(LinkReport) -> bool) -> usize {
    let ends = |node: &crate::world::Node<TestProvider>| {
        let all = world.nodes.iter();
        let links = all.flat_map(|from| from.links.keys().map(|to| (from.id, *to)));
        links
            .filter(|(from, to)| node.table().report(from, *to).is_none_or(&is))
            .count()
    };
    world.nodes.iter().map(ends).sum()
}

fn stats(
    world: &World<TestProvider>,
    of: impl Fn(relay_mesh::link_state::TableStats) -> u64,
) -> u64 {
    world
        .nodes
        .iter()
        .map(|node| of(node.table().stats()))
        .sum()
}

#[test]
fn sim_pgx13_rejoined_halves_know_all_within_15_s() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut swarm = Swarm::new(seed, 60, 12, TestProvider::new);
        swarm.world.run(4_000);
        let across: Vec<(usize, usize)> = swarm
            .pairs
            .iter()
            .copied()
            .filter(|(a, b)| (*a < 30) != (*b < 30))
            .collect();
        for &(a, b) in &across {
            swarm.world.cut(a, b);
            swarm.world.cut(b, a);
            swarm.world.disconnect(a, b);
        }
        // Longer than the lifetime of records.
        swarm.run(100_000, &[]);
        for node in &swarm.world.nodes {
            assert_eq!(node.table().digest().entries().len(), 30, "one half");
        }
        for &(a, b) in &across {
            swarm.world.link(a, b, 40);
        }
        swarm.world.run(15_000);
        for node in &swarm.world.nodes {
            assert_eq!(node.table().digest().entries().len(), 60);
        }
        let known = swarm.known(&across, |_| up(40));
        assert!(known >= 995, "{known}");
        // The halves merge into one tree: a change in one half is soon known in the other.
        swarm.world.run(90_000);
        let changed: Vec<(usize, usize)> = across.iter().copied().take(20).collect();
        for &(a, b) in &changed {
            swarm.world.measure(a, b, 120);
        }
        swarm.world.run(2_000);
        let known = swarm.known(&changed, |_| up(120));
        assert!(known >= 990, "{known}");
    });
}

#[test]
#[expect(clippy::print_stdout, reason = "a goal's figure is shown")]
fn sim_pgx13_flapping_links_cost_what_their_updates_cost() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut swarm = Swarm::new(seed, 60, 12, TestProvider::new);
        swarm.world.run(4_000);
        let flapping: Vec<(usize, usize)> = swarm.pairs.iter().copied().step_by(37).collect();
        let before = swarm.received();
        for round in 0..20 {
            for &(a, b) in &flapping {
                if round % 2 == 0 {
                    swarm.world.cut(a, b);
                } else {
                    swarm.world.measure(a, b, 50);
                }
            }
            swarm.world.run(1_000);
        }
        let (mean, most) = swarm.rates(&before, 20_000);
        println!("10 of 60 nodes flap each second: {mean} B/s a node, {most} B/s the busiest");
        assert!(mean < 12_000, "{mean}");
        swarm.world.run(10_000);
        assert_eq!(lost(&swarm.world), 0, "all is as it is");
    });
}

/// A dishonest neighbour of both halves advertises origins to both that do not exist.
#[test]
fn mesh_a1_halves_merge_despite_a_neighbour_that_invents_origins() {
    let mut world = World::new(4, 13);
    let byzantine = 12;
    world.nodes[byzantine].is_alive = false;
    for half in [0, 6] {
        for index in 0..6 {
            world.link(half + index, half + (index + 1) % 6, 10);
        }
    }
    for to in [2, 8] {
        world.link(byzantine, to, 10);
    }
    world.run(5_000);
    let mut number = 0_u64;
    let mut invent = |world: &mut World, seconds: u64| {
        for _ in 0..seconds * 14 {
            world.run(70);
            let origins = (0..1_024).map(|_| {
                number += 1;
                (ShortId(number.to_be_bytes()), u64::MAX)
            });
            let digest = Message::Digest(Digest::new(origins));
            for to in [2, 8] {
                world.transmit(byzantine, to, &digest);
            }
        }
    };
    invent(&mut world, 3);
    world.link(2, 8, 10);
    invent(&mut world, 20);
    for node in &world.nodes[..byzantine] {
        assert_eq!(node.table().digest().entries().len(), 12, "both halves");
    }
}

#[test]
fn pgx6_a_neighbour_that_sends_or_asks_too_much_is_limited_and_counted() {
    let mut world = World::<TestProvider>::with(Seed::from_number(7), 2, TestProvider::new);
    world.link(0, 1, 10);
    world.run(2_000);
    let node = world.nodes[0].id;
    for _ in 0..6_000 {
        // Unknown records, so that each would be examined.
        let junk = vec![9; 300];
        world.transmit(0, 1, &Message::LinkRecord(&junk));
    }
    world.run(1_000);
    let incoming =
        world.nodes[1].table().stats().malformed + world.nodes[1].table().stats().not_admitted;
    let over = world.nodes[1].gossip.stats().over_rate;
    assert!(over > 500, "{over} of 6,000, {incoming} heard");
    world.run(10_000);
    let request = Request::new([(ShortId::from(node), 0)]);
    for _ in 0..2_000 {
        world.transmit(0, 1, &Message::Request(request.clone()));
    }
    let before = world.nodes[0].received;
    world.run(1_000);
    let reported = world.nodes[0].received - before;
    // A burst of 256 KiB and 128 KiB per second, including headers.
    assert!(reported < 600_000, "{reported}");
    assert!(world.nodes[1].gossip.stats().unanswered > 500);
}
