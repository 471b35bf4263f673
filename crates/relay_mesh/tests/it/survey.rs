//! A node operator's view of the whole mesh.

use netsim::LinkConfig;
use relay_mesh::cost::Cost;
use relay_mesh::link_state::Roles;
use relay_mesh::{Event, MeshView};
use wire::{NodeId, Seed};

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, mesh_address, ms};

fn assert_nodes(mesh: &Mesh, view: &MeshView) {
    assert!(view.nodes.is_sorted_by(|one, next| one.node < next.node));
    assert_eq!(view.nodes.len(), 5);
    for (index, id) in mesh.ids.iter().enumerate() {
        let of = view.nodes.iter().find(|of| of.node == *id).unwrap();
        assert_eq!(of.name, format!("node{index}"));
        assert_eq!(of.addresses, [mesh_address(index)]);
        assert_eq!(of.may_relay, index >= RELAY);
        assert_eq!(of.roles.contains(Roles::EXIT), index == EXIT);
    }
}

/// In ms. A link is probed every second, and faster while it is new.
const PERIOD: u64 = 1_000;

/// Counted from the moment that a link's session is up. The link is measured, and the result is
/// distributed.
#[test]
fn pg4_links_of_5_20_and_80_ms_are_shown_by_every_node_within_two_periods() {
    let mut mesh = Mesh::new(Seed::from_number(5), &Shape::default());
    let round_trips = [(ENTRY, RELAY, 5), (RELAY, EXIT, 20), (ENTRY, EXIT, 80)];
    for (one, other, millis) in round_trips {
        let half = LinkConfig::default().with_delay(ms(millis) / 2);
        let (one, other) = (mesh.nodes[one], mesh.nodes[other]);
        mesh.world.set_links(one, other, half);
    }
    let up = |mesh: &Mesh, (one, other): (usize, usize)| {
        let other = mesh.ids[other];
        let mut events = mesh.process(one).events.iter();
        let is_up = |event: &Event| matches!(event, Event::LinkUp { node, .. } if *node == other);
        events.find(|(_, event)| is_up(event)).map(|(at, _)| *at)
    };
    let shown = |mesh: &Mesh, (one, other): (usize, usize)| -> Vec<u16> {
        let (one, other) = (mesh.ids[one], mesh.ids[other]);
        let ends = (one.min(other), one.max(other));
        (0..mesh.nodes.len())
            .filter_map(|by| {
                let links = mesh.process(by).node.mesh().links;
                let link = links.iter().find(|link| (link.low, link.high) == ends);
                link.map(|link| link.cost.units())
            })
            .collect()
    };
    let mut firsts = [None; 3];
    for _ in 0..120 {
        mesh.run(50);
        for ((one, other, millis), first) in round_trips.into_iter().zip(&mut firsts) {
            let costs = shown(&mesh, (one, other));
            let tenths = u16::try_from(millis * 10).unwrap();
            let is_near = |cost: &u16| cost.abs_diff(tenths) <= 10;
            assert!(costs.iter().all(is_near), "{millis} ms: {costs:?}");
            if !costs.is_empty() {
                let since = mesh
                    .now()
                    .saturating_since(up(&mesh, (one, other)).unwrap());
                first.get_or_insert(since);
                let is_due = since >= ms(2 * PERIOD);
                assert!(!is_due || costs.len() == mesh.nodes.len(), "{millis} ms");
            }
        }
    }
    // The first value takes less than a full period.
    assert!(
        firsts
            .iter()
            .all(|first| first.is_some_and(|first| first < ms(PERIOD))),
        "{firsts:?}"
    );
}

#[test]
fn pg15_every_node_shows_the_mesh_and_the_routes_through_it() {
    let mut mesh = Mesh::new(Seed::from_number(4), &Shape::default());
    mesh.run(START + 3_000);
    for shown_by in 0..mesh.nodes.len() {
        let node = &mesh.process(shown_by).node;
        let view = node.mesh();
        assert_nodes(&mesh, &view);
        assert_eq!(view.links.len(), 10, "each with each");
        assert!(view.links.iter().all(|link| link.low < link.high));
        let pair = |one: usize, other: usize| {
            let (low, high) = (
                mesh.ids[one].min(mesh.ids[other]),
                mesh.ids[one].max(mesh.ids[other]),
            );
            let link = view
                .links
                .iter()
                .find(|link| (link.low, link.high) == (low, high));
            link.unwrap().cost.units()
        };
        // Round trips of 160, 30 and 40 ms. A report may be off by a millisecond.
        for (link, expected) in [
            ((ENTRY, EXIT), 1_600),
            ((ENTRY, RELAY), 300),
            ((RELAY + 1, EXIT), 400),
        ] {
            let cost = pair(link.0, link.1);
            assert!(cost.abs_diff(expected) <= 10, "{link:?}: {cost}");
        }

        let route = node
            .route_between(&mesh.ids[ENTRY], &mesh.ids[EXIT])
            .unwrap();
        assert_eq!(route.path, mesh.path(&[RELAY]));
        let relay = Cost::from_millis(1).units();
        let legs = pair(ENTRY, RELAY) + pair(RELAY, EXIT);
        assert_eq!(route.cost.units(), legs + relay);
        let stay = node
            .route_between(&mesh.ids[EXIT], &mesh.ids[EXIT])
            .unwrap();
        assert_eq!((stay.cost, stay.path.relays), (Cost::ZERO, Vec::new()));
        assert_eq!(node.route_between(&mesh.ids[ENTRY], &NodeId([9; 32])), None);
        assert_eq!(node.route_between(&NodeId([9; 32]), &mesh.ids[EXIT]), None);
    }

    let node = &mesh.process(ENTRY).node;
    let route = node.route_to_game(&mesh.ids[ENTRY], "echo").unwrap();
    assert_eq!(route.path, mesh.path(&[RELAY]));
    let route = node.route_to_game(&mesh.ids[EXIT], "echo").unwrap();
    assert_eq!(route.path, mesh.path(&[]));
    assert_eq!(route.cost, Cost::ZERO, "the exit itself");
    assert_eq!(node.route_to_game(&mesh.ids[ENTRY], "chess"), None);

    mesh.kill(RELAY);
    mesh.run(5_000);
    let node = &mesh.process(EXIT).node;
    let route = node.route_between(&mesh.ids[ENTRY], &mesh.ids[EXIT]);
    assert_eq!(route.unwrap().path, mesh.path(&[RELAY + 1]));
    let gone = mesh.ids[RELAY];
    let links = node.mesh().links;
    assert!(
        links
            .iter()
            .all(|link| link.low != gone && link.high != gone)
    );
    assert_eq!(mesh.player().faults, 0);
}
