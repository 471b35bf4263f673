//! Address changes in the configuration of running nodes.

use std::net::SocketAddr;

use relay_mesh::AddressUse;
use relay_mesh::signed_config::Protocol;
use wire::Seed;

use crate::echo::EchoServer;
use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, link, mesh_address, ms, server};
use crate::many_players::gather;
#[cfg(feature = "tcp")]
use crate::{
    harness::shape,
    streams::{self, web},
};

/// The same port on a host that the simulation does not know until a test binds it.
fn elsewhere(of: SocketAddr) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 201], of.port()))
}

fn replace(
    mesh: &mut Mesh,
    index: usize,
    of: &AddressUse,
    change: (SocketAddr, SocketAddr),
) -> bool {
    let node = mesh.nodes[index];
    let mut is_replaced = false;
    mesh.world.apply(node, |process, now| {
        is_replaced = process.node.replace_address(now, of, change);
    });
    is_replaced
}

#[test]
fn sim_a_node_of_the_bootstrap_list_is_dialled_where_it_moved() {
    let shape = Shape {
        relays: 1,
        adjust: |index, config, ids| {
            // Only the entry dials, and at an address that nobody listens on.
            config.bootstrap.nodes.clear();
            if index == ENTRY {
                let wrong = elsewhere(mesh_address(RELAY));
                config.bootstrap.nodes.push((ids[RELAY], wrong));
            }
        },
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(61), &shape);
    mesh.run(60_000);
    assert_eq!(mesh.process(ENTRY).node.links().count(), 0);
    let change = (elsewhere(mesh_address(RELAY)), mesh_address(RELAY));
    let relay = AddressUse::Bootstrap(mesh.ids[RELAY]);
    let other = AddressUse::Bootstrap(mesh.ids[EXIT]);
    assert!(!replace(&mut mesh, ENTRY, &other, change));
    assert!(replace(&mut mesh, ENTRY, &relay, change));
    assert!(!replace(&mut mesh, ENTRY, &relay, change), "it is replaced");
    mesh.run(2_000);
    assert_eq!(mesh.process(ENTRY).node.links().count(), 1);
}

/// If a node was reached at an address that its name no longer resolves to, that address is not
/// dialled again.
#[test]
fn sim_a_node_is_not_dialled_at_an_address_its_name_no_longer_has() {
    let shape = Shape {
        relays: 1,
        adjust: |index, config, ids| {
            config.bootstrap.nodes.clear();
            if index == ENTRY {
                let relay = (ids[RELAY], mesh_address(RELAY));
                config.bootstrap.nodes.push(relay);
            } else if index == RELAY {
                // Its node record lists no address.
                config.profile.addresses.clear();
            }
        },
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(66), &shape);
    mesh.run(START);
    assert_eq!(mesh.process(ENTRY).node.links().count(), 1);
    let (relay, old) = (mesh.nodes[RELAY], mesh_address(RELAY));
    let new = elsewhere(old);
    mesh.world.bind_address(relay, new);
    mesh.world.unbind_address(old);
    let of = AddressUse::Bootstrap(mesh.ids[RELAY]);
    mesh.run(20_000);
    assert_eq!(mesh.process(ENTRY).node.links().count(), 0);
    assert!(replace(&mut mesh, ENTRY, &of, (old, new)));
    mesh.run(1_000);
    assert_eq!(mesh.process(ENTRY).node.links().count(), 1);
}

#[test]
fn sim_an_own_address_that_changes_is_advertised() {
    let mut mesh = Mesh::new(Seed::from_number(62), &Shape::default());
    mesh.run(START);
    let new = elsewhere(mesh_address(RELAY));
    let relay = mesh.nodes[RELAY];
    mesh.world.bind_address(relay, new);
    let change = (mesh_address(RELAY), new);
    assert!(replace(&mut mesh, RELAY, &AddressUse::Own, change));
    mesh.run(2_000);
    let view = mesh.process(ENTRY).node.mesh();
    let relay = view.nodes.iter().find(|view| view.node == mesh.ids[RELAY]);
    assert_eq!(relay.unwrap().addresses, [new]);
}

/// Two names of one node resolve to the same address for a while. Each then changes on its own.
#[test]
fn sim_two_names_with_one_address_both_keep_working() {
    let at = |host: u8| SocketAddr::from(([192, 0, 2, host], 4_000));
    let shape = Shape {
        adjust: |index, config, _| {
            if index == RELAY {
                let second = SocketAddr::from(([192, 0, 2, 202], 4_000));
                config.profile.addresses.push(second);
            }
        },
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(67), &shape);
    mesh.run(START);
    let first = mesh_address(RELAY);
    for (change, expected) in [
        ((first, at(202)), vec![at(202)]),
        ((at(202), at(203)), vec![at(203), at(202)]),
        ((at(202), at(204)), vec![at(203), at(204)]),
    ] {
        assert!(replace(&mut mesh, RELAY, &AddressUse::Own, change));
        mesh.run(2_000);
        let view = mesh.process(ENTRY).node.mesh();
        let relay = view.nodes.iter().find(|view| view.node == mesh.ids[RELAY]);
        assert_eq!(relay.unwrap().addresses, expected);
    }
}

#[test]
fn sim_the_server_of_a_game_is_replaced_once() {
    let mut mesh = Mesh::new(Seed::from_number(63), &Shape::default());
    mesh.run(START + 2_000);
    let new = elsewhere(server());
    let of = |game: &str| AddressUse::Server {
        protocol: Protocol::Udp,
        game: game.to_owned(),
    };
    assert!(!replace(&mut mesh, EXIT, &of("other"), (server(), new)));
    assert!(!replace(&mut mesh, EXIT, &of("echo"), (new, server())));
    assert!(replace(&mut mesh, EXIT, &of("echo"), (server(), new)));
    assert!(!replace(&mut mesh, EXIT, &of("echo"), (server(), new)));
}

/// The server's old address is gone. The new one is on another host, which answers from there.
#[test]
fn sim_players_reach_a_server_that_moved() {
    let mut mesh = Mesh::new(Seed::from_number(65), &Shape::default());
    mesh.run(START + 2_000);
    let (old, new) = (server(), elsewhere(server()));
    let moved = mesh.world.add(new, |_| EchoServer::default());
    let exit = mesh.nodes[EXIT];
    mesh.world.set_links(exit, moved, link(1));
    mesh.world.unbind_address(old);
    let of = AddressUse::Server {
        protocol: Protocol::Udp,
        game: "echo".to_owned(),
    };
    assert!(replace(&mut mesh, EXIT, &of, (old, new)));
    mesh.run(1_000);
    let again = mesh.player().sent();
    mesh.run(3_000);
    mesh.stop_player();
    mesh.run(1_000);
    assert!(mesh.player().sent() > again + 100);
    assert_eq!(mesh.player().missing_from(again), 0);
    let served: u64 = mesh.world[moved].sources.values().sum();
    assert!(served > 100, "{served}");
}

/// Both ends close the open connection. A new connection reaches the new address.
#[cfg(feature = "tcp")]
#[test]
fn sim_tcp_players_reach_a_server_that_moved() {
    let mut mesh = Mesh::new(Seed::from_number(66), &shape(web));
    mesh.stop_player();
    mesh.run(START + 2_000);
    let old: SocketAddr = streams::SERVER.parse().unwrap();
    let new = elsewhere(old);
    let first = mesh.connect_open();
    mesh.transmit(first, b"hello");
    mesh.run(1_000);
    let end_of = |mesh: &Mesh, conn| mesh.process(ENTRY).streams.held[&conn].end;
    assert_eq!(mesh.process(ENTRY).streams.held[&first].got, b"hello");
    assert_eq!(end_of(&mesh, first), None);
    let of = AddressUse::Server {
        protocol: Protocol::Tcp,
        game: "web".to_owned(),
    };
    assert!(replace(&mut mesh, EXIT, &of, (old, new)));
    assert!(!replace(&mut mesh, EXIT, &of, (old, new)));
    mesh.run(1_000);
    assert!(end_of(&mesh, first).is_some());
    let next = mesh.connect(b"again").unwrap();
    mesh.run(2_000);
    assert_eq!(mesh.process(ENTRY).streams.held[&next].got, b"again");
    assert_eq!(mesh.process(EXIT).streams.dialled, [old, new]);
}

/// A session queues about 1,300 flow ends. The others are sent when the queue has room again.
#[test]
fn sim_all_players_are_served_again_after_their_server_was_replaced() {
    let mut mesh = Mesh::new(Seed::from_number(64), &Shape::default());
    mesh.run(START + 2_000);
    let many_players = gather(&mut mesh, 4_000, ms(2_000));
    mesh.run(8_000);
    assert_eq!(mesh.world[many_players].served(), 4_000);
    let new = elsewhere(server());
    let of = AddressUse::Server {
        protocol: Protocol::Udp,
        game: "echo".to_owned(),
    };
    // Each of the two changes ends all flows.
    assert!(replace(&mut mesh, EXIT, &of, (server(), new)));
    mesh.run(100);
    assert!(replace(&mut mesh, EXIT, &of, (new, server())));
    mesh.run(6_000);
    let again = mesh.now().saturating_sub(ms(2_000));
    mesh.run(1_000);
    let settled = mesh.now().saturating_sub(ms(500));
    assert_eq!(mesh.world[many_players].unanswered(again, settled), 0);
}
