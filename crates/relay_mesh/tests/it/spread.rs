use relay_mesh::message::code;

use crate::world::World;

/// A ring of `count` nodes with links of 10 ms.
fn ring(seed: u64, count: usize) -> World {
    let mut world = World::new(seed, count);
    for index in 0..count {
        world.link(index, (index + 1) % count, 10);
    }
    world
}

#[test]
fn pg6_every_node_learns_every_link_and_records_rarely_pass_one_twice() {
    let count: usize = 10;
    let mut world = ring(1, count);
    world.run(5_000);
    for node in &world.nodes {
        assert_eq!(node.table().digest().entries().len(), count);
        assert_eq!(node.graph(), world.nodes[0].graph(), "all see the same");
    }
    let route = world.nodes[0].route(world.nodes[3].id).unwrap();
    let relays = [world.nodes[1].id, world.nodes[2].id];
    assert_eq!(route.path.relays, relays);
    assert_eq!(route.cost.units(), 320, "three links and two relays");
    // Each of 10 records over each of 10 links, at most once per direction, plus what nodes fetch
    // when they connect.
    for code in [code::NODE_RECORD, code::LINK_RECORD] {
        let sent = world.sent[&code];
        assert!((90..=250).contains(&sent), "{code}: {sent}");
    }
    // A ring has one link more than a tree.
    let eager: usize = world
        .nodes
        .iter()
        .map(|node| node.gossip.eager().count())
        .sum();
    assert!((2 * 9..=2 * 10).contains(&eager), "{eager}");
    let before = world.sent[&code::LINK_RECORD];
    world.run(30_000);
    let sent = world.sent[&code::LINK_RECORD] - before;
    // One renewal of nine nodes and ten of the root, over nine links. Some messages cross.
    assert!((9 * 19 - 9..=9 * 19 + 40).contains(&sent), "{sent}");
}

#[test]
fn a_late_node_learns_all_from_its_only_neighbour() {
    let mut world = World::new(2, 8);
    let late = 5;
    for index in [0, 1, 2, 3, 4, 6] {
        let next = if index == 4 { 6 } else { index + 1 };
        world.link(index, next, 10);
    }
    world.link(7, 0, 10);
    world.run(5_000);
    world.link(late, 0, 25);
    world.run(3_000);
    assert_eq!(
        world.nodes[late].table().digest(),
        world.nodes[0].table().digest()
    );
    let (id, of) = (world.nodes[late].id, world.nodes[2].id);
    let route = world.nodes[late].route(of).unwrap();
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
    // Its own record expires after 90 s.
    world.run(95_000);
    for node in world.nodes.iter().filter(|node| node.is_alive) {
        assert_eq!(node.table().digest().entries().len(), 9);
    }
    // It does not return from a neighbour.
    world.disconnect(4, 5);
    world.connect(4, 5);
    world.run(1_000);
    assert_eq!(world.nodes[4].table().digest().entries().len(), 9);
}

/// Nodes that held its records before accept no lower versions, and digests omit expired records.
#[test]
fn mesh_g3_a_node_with_a_clock_ahead_is_known_after_any_restart() {
    for (down, millis) in [(&[2][..], 30_000), (&[2], 95_000), (&[1, 2, 3], 95_000)] {
        let mut world = ring(6, 6);
        let publisher = world.nodes[2].gossip.publisher_mut();
        publisher.raise(1 << 40);
        world.run(40_000);
        for &index in down {
            world.kill(index);
        }
        world.run(millis);
        for &index in down {
            world.restart(index);
        }
        // Its neighbours know as little as itself. The nodes behind them know more.
        for index in 0..4 {
            world.link(index, index + 1, 10);
        }
        world.run(5_000);
        for node in &world.nodes {
            assert_eq!(node.table().digest().entries().len(), 6, "{down:?}");
            assert_eq!(node.graph(), world.nodes[2].graph(), "{down:?}");
        }
        assert!(world.nodes[2].gossip.publisher().version() > 1 << 40);
        assert_eq!(
            world.nodes[5]
                .route(world.nodes[2].id)
                .unwrap()
                .path
                .relays
                .len(),
            2
        );
    }
}

#[test]
fn equal_seeds_spread_equally() {
    let run = |seed| {
        let mut world = ring(seed, 6);
        world.run(2_000);
        world.kill(2);
        world.run(2_000);
        (world.sent.clone(), world.nodes[0].table().digest())
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4).1, run(5).1);
}
