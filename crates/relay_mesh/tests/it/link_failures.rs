//! Links that fail to open, and what both ends report to their operators.

use core::net::SocketAddr;

use crypto::Secret32;
use relay_mesh::link_state::Roles;
use relay_mesh::{Event, NodeRefusal};
use udp_proto::{CloseCode, ConnectFailure};
use wire::{NodeId, Seed};

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, mesh_address, shape};

/// Failed dials that a node reported: node, addresses, reason and count.
fn failed(mesh: &Mesh, index: usize) -> Vec<(NodeId, Vec<SocketAddr>, ConnectFailure, u64)> {
    let events = mesh.process(index).events.iter();
    let failed = events.filter_map(|(_, event)| {
        if let Event::BootstrapFailed {
            node,
            addresses,
            failure,
            attempts,
        } = event
        {
            Some((*node, addresses.clone(), *failure, *attempts))
        } else {
            None
        }
    });
    failed.collect()
}

fn refused(mesh: &Mesh, index: usize) -> Vec<(NodeRefusal, u64)> {
    let events = mesh.process(index).events.iter();
    let refused = events.filter_map(|(_, event)| {
        if let Event::NodesRefused { reason, count } = event {
            Some((*reason, *count))
        } else {
            None
        }
    });
    refused.collect()
}

#[test]
fn sim_mesh_b6_a_wrong_network_secret_is_reported_by_both_ends() {
    let entry_differs = shape(|index, config, _| {
        if index == ENTRY {
            config.secret = Secret32::new([8; 32]);
        }
    });
    let mut mesh = Mesh::new(Seed::from_number(31), &entry_differs);
    mesh.run(START + 13_000);
    let first = failed(&mesh, ENTRY);
    assert!(!first.is_empty(), "within 15 s of the start");
    let (node, addresses, failure, _) = &first[0];
    assert!(mesh.ids.contains(node) && *node != mesh.ids[ENTRY]);
    assert!(
        addresses
            .iter()
            .all(|at| at.port() == mesh_address(0).port())
    );
    assert_eq!(*failure, ConnectFailure::Timeout);
    let at_relay = refused(&mesh, RELAY);
    assert_eq!(at_relay.len(), 1, "{at_relay:?}");
    assert_eq!(at_relay[0].0, NodeRefusal::WrongSecret);

    // Once a minute per node.
    mesh.run(180_000);
    let (failed, refused) = (failed(&mesh, ENTRY), refused(&mesh, RELAY));
    let of_one = failed.iter().filter(|(of, ..)| of == node).count();
    assert!((3..=4).contains(&of_one), "{of_one}");
    assert!((3..=4).contains(&refused.len()), "{refused:?}");
}

#[test]
fn sim_mesh_b6_a_wrong_bootstrap_id_is_reported_by_the_dialler() {
    let wrong_id = shape(|index, config, _| {
        if index == ENTRY {
            let relay = mesh_address(RELAY);
            config.bootstrap.nodes = vec![(NodeId([9; 32]), relay)];
        }
    });
    let mut mesh = Mesh::new(Seed::from_number(32), &wrong_id);
    mesh.run(START + 13_000);
    let failed = failed(&mesh, ENTRY);
    let [(node, addresses, failure, _)] = &failed[..] else {
        panic!("{failed:?}");
    };
    assert_eq!(
        (*node, &addresses[..]),
        (NodeId([9; 32]), &[mesh_address(RELAY)][..])
    );
    assert!(
        matches!(failure, ConnectFailure::NotTheServer { .. }),
        "{failure}"
    );
    assert_eq!(refused(&mesh, RELAY), []);
}

#[test]
fn sim_mesh_b6_a_node_that_is_no_member_is_reported_by_both_ends() {
    let without_entry = shape(|index, config, ids| {
        if index != ENTRY {
            let others = ids.iter().enumerate().filter(|(of, _)| *of != ENTRY);
            config.members = Some(others.map(|(_, id)| (*id, Roles::ALL)).collect());
        }
    });
    let mut mesh = Mesh::new(Seed::from_number(33), &without_entry);
    mesh.run(START + 13_000);
    let failed = failed(&mesh, ENTRY);
    assert!(!failed.is_empty());
    let refusal = ConnectFailure::Refused(CloseCode::PeerIdentity);
    assert!(
        failed.iter().all(|(.., failure, _)| *failure == refusal),
        "{failed:?}"
    );
    let at_relay = refused(&mesh, RELAY);
    assert_eq!(at_relay.len(), 1, "{at_relay:?}");
    assert_eq!(at_relay[0].0, NodeRefusal::NotMember);
}

/// A mesh without faults reports nothing, even if a bootstrap node restarts within seconds.
#[test]
fn sim_mesh_b6_established_links_are_not_reported() {
    let mut mesh = Mesh::new(Seed::from_number(34), &shape(|_, _, _| {}));
    mesh.run(START + 30_000);
    mesh.kill(RELAY);
    mesh.run(4_000);
    mesh.restart(RELAY, 1);
    mesh.run(60_000);
    for index in [ENTRY, EXIT, RELAY] {
        assert_eq!(failed(&mesh, index), [], "{index}");
        assert_eq!(refused(&mesh, index), [], "{index}");
    }
}

/// A node with the same identity at another address.
#[test]
fn sim_a_copy_of_an_identity_file_is_reported_by_its_owner() {
    let mut mesh = Mesh::new(Seed::from_number(35), &shape(|_, _, _| {}));
    mesh.run(START + 12_000);
    let copies = |mesh: &Mesh| {
        let events = mesh.process(ENTRY).events.iter();
        let copies = events.filter(|(_, event)| matches!(event, Event::IdentityInUse { .. }));
        copies.count()
    };
    mesh.kill(ENTRY);
    mesh.restart(ENTRY, 1);
    mesh.run(40_000);
    assert_eq!(copies(&mesh), 0);
    // Its neighbours return its earlier record once they are back.
    let (entry, nodes) = (mesh.nodes[ENTRY], mesh.nodes.clone());
    mesh.kill(ENTRY);
    mesh.restart(ENTRY, 2);
    for &other in &nodes[1..] {
        for (from, to) in [(entry, other), (other, entry)] {
            mesh.world.intercept(from, to, |_, _| netsim::Verdict::Drop);
        }
    }
    mesh.run(30_000);
    for &other in &nodes[1..] {
        for (from, to) in [(entry, other), (other, entry)] {
            mesh.world.intercept(from, to, |_, _| netsim::Verdict::Pass);
        }
    }
    mesh.run(60_000);
    assert_eq!(mesh.process(ENTRY).node.links().count(), 4);
    assert_eq!(copies(&mesh), 0);
    mesh.add_copy(ENTRY);
    mesh.run(50_000);
    assert_eq!(copies(&mesh), 1);
}

#[test]
fn sim_pg11_an_exit_reports_games_that_it_does_not_serve_once_a_minute() {
    let other_name = shape(|index, config, _| {
        if index == EXIT {
            for game in &mut config.games {
                game.name = "other".to_owned();
            }
        }
    });
    let mut mesh = Mesh::new(Seed::from_number(35), &other_name);
    mesh.run(START + 180_000);
    let events = mesh.process(EXIT).events.iter();
    let refused = events.filter_map(|(at, event)| {
        if let Event::GameRefused { entry, game, count } = event {
            assert_eq!((*entry, &**game), (mesh.ids[ENTRY], "echo"));
            Some((*at, *count))
        } else {
            None
        }
    });
    let refused: Vec<_> = refused.collect();
    assert!((2..=4).contains(&refused.len()), "{refused:?}");
    let mut pairs = refused.iter().zip(&refused[1..]);
    let minute = core::time::Duration::from_secs(60);
    assert!(pairs.all(|(one, next)| next.0.saturating_since(one.0) >= minute));
    assert_eq!(refused[0].1, 1, "one player asked within the first second");
    // An exit with the game reports none.
    let mut mesh = Mesh::new(Seed::from_number(35), &shape(|_, _, _| {}));
    mesh.run(START + 10_000);
    let mut events = mesh.process(EXIT).events.iter();
    assert!(!events.any(|(_, event)| matches!(event, Event::GameRefused { .. })));
}
