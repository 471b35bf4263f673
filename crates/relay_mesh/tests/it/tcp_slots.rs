//! Allocation of TCP connection slots at an entry and an exit.

use relay_mesh::link_state::Roles;
use relay_mesh::tunnel::{ConnEnd, ConnId, Refusal};
use relay_mesh::{Config, EntryGame, Event, ExitGame, TcpConfig, TcpRefused, TurnedAway};
use wire::{NodeId, Seed};

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, address, shape};
use crate::streams::{LISTEN, SERVER, Stream, web_and_chat};

/// Two games of different modes, with a tunnel each, and two entries.
fn two_entries(index: usize, config: &mut Config, ids: &[NodeId]) {
    web_and_chat(index, config, ids);
    if index == RELAY {
        config.profile.roles = Roles::ENTRY | Roles::RELAY;
        for game in tcp(config).games.iter_mut().take(1) {
            game.entry = Some(EntryGame {
                listen: vec![address("192.0.2.3:443")],
                exits: vec![ids[EXIT]],
            });
        }
    }
    if index == EXIT {
        tcp(config).connections_max = 16;
    }
}

fn tcp(config: &mut Config) -> &mut TcpConfig {
    config.tcp.as_mut().expect("all nodes carry TCP games")
}

/// Opens a connection from `player` to the node's port with this number, and keeps it.
fn connect(mesh: &mut Mesh, index: usize, port: usize, player: &str) -> Result<ConnId, TcpRefused> {
    let node = mesh.nodes[index];
    mesh.world.apply(node, |process, now| {
        let port = process.streams.ports[port];
        let ends = (format!("{player}:4000").parse().unwrap(), address(LISTEN));
        let conn = process.node.tcp_accept(now, port, ends)?;
        process.streams.held.insert(conn, Stream::default());
        Ok(conn)
    })
}

/// The number of a node's open connections, and how many were refused for lack of a slot.
fn standing(mesh: &Mesh, index: usize) -> (usize, usize) {
    let held = mesh.process(index).streams.held.values();
    let ends: Vec<Option<ConnEnd>> = held.map(|stream| stream.end).collect();
    let crowded = Some(ConnEnd::Refused(Refusal::LimitReached));
    let count = |of| ends.iter().filter(|end| **end == of).count();
    (count(None), count(crowded))
}

#[test]
fn mesh_a1_one_entry_gets_seven_eighths_of_the_connections_of_an_exit() {
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(two_entries));
    mesh.stop_player();
    mesh.run(START);
    for host in 1..=10 {
        for port in [0, 1] {
            connect(&mut mesh, ENTRY, port, &format!("203.0.113.{host}")).unwrap();
        }
    }
    mesh.run(2_000);
    assert_eq!(standing(&mesh, ENTRY), (14, 6));
    assert_eq!(standing(&mesh, EXIT), (14, 0));
    let stats = mesh.process(EXIT).node.tunnel_stats().unwrap();
    assert_eq!((stats.over_share, stats.refused), (6, 6));
    for host in 1..=2 {
        connect(&mut mesh, RELAY, 0, &format!("203.0.113.{host}")).unwrap();
    }
    mesh.run(2_000);
    assert_eq!(standing(&mesh, RELAY), (2, 0), "another entry has places");
    // A connection that ends frees its slot.
    let mut held = mesh.process(ENTRY).streams.held.iter();
    let stands = held.find(|(_, stream)| stream.end.is_none());
    let gone = *stands.unwrap().0;
    let entry = mesh.nodes[ENTRY];
    mesh.world.apply(entry, |process, _| {
        process.node.tcp_reset(gone);
        process.streams.held.remove(&gone);
    });
    mesh.run(1_000);
    for host in 11..=12 {
        connect(&mut mesh, ENTRY, 0, &format!("203.0.113.{host}")).unwrap();
    }
    mesh.run(2_000);
    assert_eq!(standing(&mesh, ENTRY), (14, 7));
}

/// The same with few slots at the entry.
fn small_entry(index: usize, config: &mut Config, ids: &[NodeId]) {
    web_and_chat(index, config, ids);
    if index == ENTRY {
        let tcp = tcp(config);
        tcp.connections_max = 64;
        tcp.tunnel.per_address_max = 4;
    }
}

#[test]
fn mesh_a1_one_network_gets_a_quarter_of_the_connections_of_an_entry() {
    let mut mesh = Mesh::new(Seed::from_number(2), &shape(small_entry));
    mesh.stop_player();
    mesh.run(START);
    // Each from its own /64, over two tunnels.
    let line = |number: usize| format!("[2001:db8:0:{number:x}::1]");
    let taken: Vec<ConnId> = (0..40)
        .filter_map(|number| connect(&mut mesh, ENTRY, number % 2, &line(number)).ok())
        .collect();
    assert_eq!(taken.len(), 16);
    let crowded = Err(TcpRefused::LimitReached);
    assert_eq!(connect(&mut mesh, ENTRY, 0, &line(99)), crowded);
    connect(&mut mesh, ENTRY, 0, "[2001:db8:1::1]").unwrap();
    for host in 1..=16 {
        connect(&mut mesh, ENTRY, host % 2, &format!("203.0.113.{host}")).unwrap();
    }
    assert_eq!(connect(&mut mesh, ENTRY, 0, "203.0.113.99"), crowded);
    connect(&mut mesh, ENTRY, 0, "203.0.112.1").unwrap();
    let stats = mesh.process(ENTRY).node.tunnel_stats().unwrap();
    assert_eq!(stats.over_prefix, 24 + 2);
    mesh.run(2_000);
    assert_eq!(standing(&mesh, ENTRY), (16 + 1 + 16 + 1, 0));
    let entry = mesh.nodes[ENTRY];
    mesh.world
        .apply(entry, |process, _| process.node.tcp_reset(taken[0]));
    connect(&mut mesh, ENTRY, 0, &line(99)).unwrap();
    assert_eq!(connect(&mut mesh, ENTRY, 0, &line(98)), crowded);
}

/// Silent connections from many networks take three quarters of an entry's slots. Each newcomer
/// evicts one that was idle for 5 s. Connections that sent data stay.
#[test]
fn mesh_a7_idle_connections_give_way_to_newcomers() {
    let mut mesh = Mesh::new(Seed::from_number(3), &shape(small_entry));
    mesh.stop_player();
    mesh.run(START);
    for network in 0..6 {
        for host in 1..=8 {
            let player = format!("203.0.{network}.{host}");
            connect(&mut mesh, ENTRY, host % 2, &player).unwrap();
        }
    }
    let spoke = connect(&mut mesh, ENTRY, 0, "198.51.100.1").unwrap();
    let entry = mesh.nodes[ENTRY];
    mesh.run(6_000);
    assert_eq!(standing(&mesh, ENTRY).0, 49);
    mesh.world
        .apply(entry, |process, _| process.node.tcp_write(spoke, b"here"))
        .unwrap();
    for host in 2..=31 {
        connect(&mut mesh, ENTRY, 0, &format!("198.51.{host}.1")).unwrap();
        mesh.run(100);
    }
    assert_eq!(standing(&mesh, ENTRY).0, 49, "one went for each that came");
    assert_eq!(mesh.process(ENTRY).streams.held[&spoke].end, None);
    mesh.run(1_000);
    assert_eq!(standing(&mesh, EXIT).0, 49, "the exit has let them go");
    let events = mesh.process(ENTRY).events.iter();
    let reported = events.filter_map(|(_, event)| {
        if let Event::TurnedAway { reason, .. } = event {
            Some(*reason)
        } else {
            None
        }
    });
    let reported: Vec<_> = reported.collect();
    assert_eq!(
        reported,
        [TurnedAway::TcpIdle; 2],
        "once for each of both games"
    );
}

#[test]
fn mesh_a3_each_tcp_reason_is_reported_once_a_minute_with_its_count() {
    let mut mesh = Mesh::new(Seed::from_number(6), &shape(small_entry));
    mesh.stop_player();
    mesh.run(100);
    let player = "203.0.113.1";
    for _ in 0..3 {
        let no_exit = Err(TcpRefused::NoExit);
        assert_eq!(connect(&mut mesh, ENTRY, 0, player), no_exit);
    }
    mesh.run(START);
    assert_eq!(mesh.turned_away(ENTRY), [(TurnedAway::TcpNoExit, 3)]);
    let (entry, exit) = (mesh.nodes[ENTRY], mesh.nodes[EXIT]);
    for _ in 0..4 {
        connect(&mut mesh, ENTRY, 0, player).unwrap();
    }
    for _ in 0..5 {
        connect(&mut mesh, ENTRY, 0, player).unwrap_err();
    }
    for _ in 0..7 {
        mesh.world.apply(entry, |process, now| {
            let port = process.streams.ports[0];
            process.node.tcp_header_refused(now, port);
        });
    }
    mesh.run(2_000);
    mesh.world
        .apply(exit, |process, _| process.streams.refuse());
    for host in 1..=2 {
        connect(&mut mesh, ENTRY, 0, &format!("198.51.100.{host}")).unwrap();
    }
    mesh.run(2_000);
    let expected = [
        (TurnedAway::TcpNoExit, 3),
        (TurnedAway::TcpGreeting, 7),
        (TurnedAway::TcpShare, 5),
        (TurnedAway::TcpReset, 2),
    ];
    assert_eq!(mesh.turned_away(ENTRY), expected);
    // Repeated within the minute, and reported at its end.
    for _ in 0..2 {
        connect(&mut mesh, ENTRY, 0, player).unwrap_err();
    }
    mesh.run(3_000);
    assert_eq!(mesh.turned_away(ENTRY), expected);
    mesh.run(60_000);
    let reported = mesh.turned_away(ENTRY);
    assert_eq!(reported[expected.len()..], [(TurnedAway::TcpShare, 2)]);
}

/// All connections that an address may have with an exit are idle. Each new connection from that
/// address evicts the oldest.
#[test]
fn mesh_a7_an_idle_connection_of_an_address_gives_way_to_a_newcomer_of_it() {
    let mut mesh = Mesh::new(Seed::from_number(4), &shape(small_entry));
    mesh.stop_player();
    mesh.run(START);
    let player = "203.0.113.1";
    for _ in 0..4 {
        connect(&mut mesh, ENTRY, 0, player).unwrap();
    }
    let crowded = Err(TcpRefused::LimitReached);
    assert_eq!(
        connect(&mut mesh, ENTRY, 0, player),
        crowded,
        "none is idle"
    );
    mesh.run(6_000);
    for _ in 0..6 {
        let newest = connect(&mut mesh, ENTRY, 0, player).unwrap();
        mesh.run(6_000);
        assert_eq!(standing(&mesh, ENTRY), (4, 0));
        assert_eq!(mesh.process(ENTRY).streams.held[&newest].end, None);
    }
    assert_eq!(standing(&mesh, EXIT), (4, 0), "the exit has let them go");
}

/// Idle connections fill another entry's share of an exit. New connections of that entry evict
/// some.
#[test]
fn mesh_a7_an_idle_connection_gives_way_in_the_share_of_another_entry() {
    let mut mesh = Mesh::new(Seed::from_number(5), &shape(two_entries));
    mesh.stop_player();
    mesh.run(START);
    for host in 1..=7 {
        for port in [0, 1] {
            connect(&mut mesh, ENTRY, port, &format!("203.0.113.{host}")).unwrap();
        }
    }
    mesh.run(6_000);
    assert_eq!(standing(&mesh, EXIT), (14, 0));
    for host in 11..=20 {
        connect(&mut mesh, ENTRY, 0, &format!("203.0.113.{host}")).unwrap();
        mesh.run(1_000);
    }
    assert_eq!(standing(&mesh, ENTRY), (14, 0), "none was refused");
    assert_eq!(standing(&mesh, EXIT), (14, 0));
}

/// The entry is its players' exit, and has few slots.
fn small_entry_alone(index: usize, config: &mut Config, ids: &[NodeId]) {
    small_entry(index, config, ids);
    if index != ENTRY {
        return;
    }
    config.profile.roles = Roles::ALL;
    for game in &mut tcp(config).games {
        game.exit = Some(ExitGame {
            server: address(SERVER),
            entries: None,
            header: None,
        });
        if let Some(entry) = &mut game.entry {
            entry.exits = vec![ids[ENTRY]];
        }
    }
}

#[test]
fn mesh_a1_a_connection_that_enters_and_leaves_here_has_two_slots() {
    let mut mesh = Mesh::new(Seed::from_number(3), &shape(small_entry_alone));
    mesh.stop_player();
    mesh.run(START);
    for host in 1..=20 {
        // Each one's server is dialled before the next connects.
        connect(&mut mesh, ENTRY, 0, &format!("203.0.113.{host}")).ok();
        mesh.run(100);
    }
    assert_eq!(mesh.process(ENTRY).node.tcp_len(), (16, 2), "8 of them");
    connect(&mut mesh, ENTRY, 0, "203.0.112.1").unwrap();
    mesh.run(100);
    assert_eq!(mesh.process(ENTRY).node.tcp_len(), (18, 2));
}
