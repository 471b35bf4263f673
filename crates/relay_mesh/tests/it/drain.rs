//! Draining nodes.

use netsim::{for_each_seed, test_site};
use relay_mesh::{Event, Mode, RouteCause, SocketId};

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, ms};

fn drain(mesh: &mut Mesh, index: usize) {
    let node = mesh.nodes[index];
    mesh.world
        .apply(node, |process, now| process.node.drain(now));
}

/// A draining relay carries nothing after a minute, and no packet is lost by it.
#[test]
fn sim_pgx12_flows_leave_a_draining_relay_without_loss() {
    for mode in [Mode::Single, Mode::Shadow, Mode::Dup] {
        for_each_seed(&test_site!(), 2, |seed| {
            let shape = Shape {
                mode,
                ..Shape::default()
            };
            let mut mesh = Mesh::new(seed, &shape);
            mesh.run(START + 2_000);
            assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
            assert_eq!(mesh.process(RELAY).node.draining(), None);
            let (at, sent) = (mesh.now(), mesh.player().sent() - 30);
            drain(&mut mesh, RELAY);
            let left = mesh.process(RELAY).node.draining().unwrap();
            assert!(left.labels > 0, "{left:?}");
            assert!(!left.is_done());
            mesh.run(5_000);
            let moves = mesh.moves(ENTRY, at);
            assert!(!moves.is_empty(), "{mode:?}");
            for end in [ENTRY, EXIT] {
                let moves = mesh.moves(end, at);
                let left = moves.first().map(|(_, _, cause)| *cause);
                assert_eq!(left, Some(RouteCause::Drained), "{mode:?} {end}: {moves:?}");
            }
            assert_eq!(mesh.route(), Some(mesh.path(&[RELAY + 1])), "{mode:?}");
            mesh.run(60_000);
            let left = mesh.process(RELAY).node.draining().unwrap();
            assert!(left.is_done(), "{left:?}");
            assert_eq!(mesh.route(), Some(mesh.path(&[RELAY + 1])), "{mode:?}");
            mesh.kill(RELAY);
            mesh.run(2_000);
            assert_eq!(mesh.player().faults, 0);
            mesh.stop_player();
            mesh.run(1_000);
            assert_eq!(mesh.player().missing_from(sent), 0, "{mode:?}");
        });
    }
}

/// An overloaded end leaves a draining relay, although it does not judge paths by its measurements.
#[test]
fn sim_mesh_a4_flows_leave_a_draining_relay_despite_an_overloaded_end() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(START + 2_000);
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
        let at = mesh.now();
        let entry = mesh.nodes[ENTRY];
        for tenth in 0..100 {
            mesh.world.apply(entry, |process, now| {
                let node = &mut process.node;
                node.record_receive_drops(now, Some(SocketId::MESH), 1_000);
            });
            mesh.run(100);
            if tenth == 20 {
                assert_eq!(mesh.process(ENTRY).node.stats().overloads, 1);
                drain(&mut mesh, RELAY);
            }
        }
        for end in [ENTRY, EXIT] {
            let moves = mesh.moves(end, at);
            let causes: Vec<_> = moves.iter().map(|(_, _, cause)| *cause).collect();
            assert_eq!(causes, [RouteCause::Drained], "{end}: {moves:?}");
        }
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY + 1])));
    });
}

/// A relay that stops draining is used again. No packet is lost when it starts or stops.
#[test]
fn sim_pgx12_a_relay_that_no_longer_drains_is_used_again() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(START + 2_000);
        let sent = mesh.player().sent() - 30;
        drain(&mut mesh, RELAY);
        mesh.run(30_000);
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY + 1])));
        let relay = mesh.nodes[RELAY];
        mesh.world
            .apply(relay, |process, now| process.node.undrain(now));
        assert_eq!(mesh.process(RELAY).node.draining(), None);
        mesh.run(60_000);
        assert_eq!(
            mesh.route(),
            Some(mesh.path(&[RELAY])),
            "it is the best way"
        );
        mesh.stop_player();
        mesh.run(1_000);
        assert_eq!(mesh.player().missing_from(sent), 0);
    });
}

/// An end that stops draining accepts the players that it rejected before.
#[test]
fn sim_pgx12_an_end_that_no_longer_drains_accepts_players() {
    for_each_seed(&test_site!(), 2, |seed| {
        for end in [ENTRY, EXIT] {
            let shape = Shape {
                idle: 5,
                ..Shape::default()
            };
            let mut mesh = Mesh::new(seed, &shape);
            mesh.run(START + 2_000);
            drain(&mut mesh, end);
            mesh.stop_player();
            mesh.run(20_000);
            let left = mesh.process(end).node.draining().unwrap();
            assert_eq!(left.flows, 0, "the player was idle");
            mesh.wake_player();
            mesh.run(2_000);
            assert_eq!(mesh.process(end).node.draining().unwrap().flows, 0);
            let node = mesh.nodes[end];
            mesh.world
                .apply(node, |process, now| process.node.undrain(now));
            mesh.run(5_000);
            let opened = mesh.process(end).events.iter();
            let opened = opened.filter(|(_, event)| matches!(event, Event::FlowOpened { .. }));
            assert_eq!(opened.count(), 2);
        }
    });
}

/// An end that drains keeps its players and admits no new ones.
#[test]
fn sim_pgx12_a_draining_end_keeps_its_players_and_accepts_no_others() {
    for_each_seed(&test_site!(), 2, |seed| {
        for end in [ENTRY, EXIT] {
            let shape = Shape {
                idle: 5,
                ..Shape::default()
            };
            let mut mesh = Mesh::new(seed, &shape);
            mesh.run(START + 2_000);
            let sent = mesh.player().sent() - 30;
            drain(&mut mesh, end);
            mesh.run(3_000);
            let left = mesh.process(end).node.draining().unwrap();
            assert_eq!(left.flows, 1);
            mesh.stop_player();
            mesh.run(1_000);
            assert_eq!(mesh.player().missing_from(sent), 0);
            mesh.run(9_000);
            let left = mesh.process(end).node.draining().unwrap();
            assert_eq!(left.flows, 0, "the player was idle");
            // The same address returns: a newcomer at a node that admits none.
            mesh.wake_player();
            mesh.run(2_000);
            let left = mesh.process(end).node.draining().unwrap();
            assert_eq!(left.flows, 0);
            let opened = mesh.process(end).events.iter();
            let opened = opened.filter(|(_, event)| matches!(event, Event::FlowOpened { .. }));
            assert_eq!(opened.count(), 1);
            mesh.run(40_000);
            assert!(mesh.process(end).node.draining().unwrap().is_done());
        }
    });
}

/// No request makes a draining node carry more.
#[test]
fn pgx12_a_draining_relay_grants_no_labels() {
    let mut mesh = Mesh::new(wire::Seed::from_number(9), &Shape::default());
    for relay in RELAY..RELAY + 3 {
        drain(&mut mesh, relay);
    }
    mesh.run(START + 3_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[])), "the direct way is left");
    for relay in RELAY..RELAY + 3 {
        let left = mesh.process(relay).node.draining().unwrap();
        assert!(left.is_done(), "{left:?}");
    }
    let now = mesh.now();
    let trip = mesh.player().round_trip(now.saturating_sub(ms(1_000)), now);
    assert_eq!(trip, ms(172), "twice 5 + 80 + 1");
}

/// The session with a draining relay ends before its flows have moved. That is not a failure.
#[test]
fn sim_pgx12_a_relay_that_drains_and_ends_at_once_counts_as_drained() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(START + 4_000);
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
        let at = mesh.now();
        drain(&mut mesh, RELAY);
        // Both ends know of the drain, and have not moved yet or have just moved.
        mesh.run(150);
        mesh.kill(RELAY);
        mesh.run(5_000);
        for end in [ENTRY, EXIT] {
            let moves = mesh.moves(end, at);
            let left = moves.first().map(|(_, _, cause)| *cause);
            assert_eq!(left, Some(RouteCause::Drained), "{end}: {moves:?}");
        }
    });
}
