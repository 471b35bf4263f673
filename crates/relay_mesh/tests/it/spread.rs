use relay_mesh::message::code;

use crate::world::World;

/// A ring of `count` nodes, 10 ms a link.
fn ring(seed: u64, count: usize) -> World {
    let mut world = World::new(seed, count);
    for index in 0..count {
        world.link(index, (index + 1) % count, 10);
    }
    world
}

#[test]
fn every_node_learns_every_link_and_each_record_passes_each_link_at_most_twice() {
    let count: usize = 10;
    let mut world = ring(1, count);
    world.run(3_000);
    for node in &world.nodes {
        assert_eq!(node.table.digest().entries().len(), count);
        assert_eq!(node.graph(), world.nodes[0].graph(), "all see the same");
    }
    let route = world.nodes[0].route(world.nodes[3].id).unwrap();
    let relays = [world.nodes[1].id, world.nodes[2].id];
    assert_eq!(route.path.relays, relays);
    assert_eq!(route.cost.units(), 320, "three links and two relays");
    // Each of 10 records over each of 10 links, once each way at most.
    for code in [code::NODE_RECORD, code::LINK_RECORD] {
        let sent = world.sent[&code];
        assert!((90..=200).contains(&sent), "{code}: {sent}");
    }
}

#[test]
fn a_latecomer_learns_all_from_its_only_neighbour() {
    let mut world = ring(2, 8);
    let late = 5;
    world.nodes[late].is_alive = false;
    // Not in the ring: what it knows can only come from the one session.
    let id = world.nodes[late].id;
    for node in &mut world.nodes {
        node.links.remove(&id);
    }
    world.nodes[late].links.clear();
    world.link(4, 6, 10);
    world.run(5_000);
    world.nodes[late].is_alive = true;
    world.link(late, 0, 25);
    world.exchange_digests(late, 0);
    world.run(2_000);
    assert_eq!(
        world.nodes[late].table.digest(),
        world.nodes[0].table.digest()
    );
    let route = world.nodes[late].route(world.nodes[2].id).unwrap();
    assert_eq!(route.path.next_hop(), world.nodes[0].id);
    assert!(world.nodes[3].route(id).is_some(), "and all learn of it");
}

#[test]
fn mesh_g3_links_of_a_dead_node_are_known_as_down_within_a_second() {
    let mut world = ring(3, 10);
    world.run(3_000);
    world.kill(1);
    world.run(1_000);
    let [a, b] = [0, 2].map(|index| world.nodes[index].id);
    let dead = world.nodes[1].id;
    for node in world.nodes.iter().filter(|node| node.is_alive) {
        let graph = node.graph();
        let index = graph.index(&dead).unwrap();
        for end in [a, b] {
            let end = graph.index(&end).unwrap();
            assert!(!graph.link(end, index).is_routable());
        }
    }
    // Its own record goes when it is 90 s old.
    world.run(95_000);
    for node in world.nodes.iter().filter(|node| node.is_alive) {
        assert_eq!(node.table.digest().entries().len(), 9);
    }
    // And does not come back from a neighbour.
    world.exchange_digests(4, 5);
    world.run(1_000);
    assert_eq!(world.nodes[4].table.digest().entries().len(), 9);
}

#[test]
fn equal_seeds_spread_equally() {
    let run = |seed| {
        let mut world = ring(seed, 6);
        world.run(2_000);
        world.kill(2);
        world.run(2_000);
        (world.sent.clone(), world.nodes[0].table.digest())
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4).1, run(5).1);
}
