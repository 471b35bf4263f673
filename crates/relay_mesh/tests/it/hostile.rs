//! Unknown senders, and players with forged addresses.

use core::net::SocketAddr;

use netsim::Datagram;
use relay_mesh::UnprovedLimits;
use relay_mesh::link_state::Roles;
use wire::Seed;

use crate::harness::{
    ENTRY, EXIT, Mesh, RELAY, START, Shape, address, game, mesh_address, ms, server, shape,
};
use crate::tag_only::all_tag_only;

fn outsider() -> SocketAddr {
    address("198.18.0.66:666")
}

/// Number of bytes that nodes sent to `to`, of those that the tap captured.
fn bytes_to(mesh: &Mesh, tap: netsim::TapId, to: SocketAddr) -> usize {
    mesh.world
        .captured(tap)
        .iter()
        .filter(|captured| captured.datagram.destination == to)
        .map(|captured| captured.datagram.bytes.len())
        .sum()
}

#[test]
fn mesh_a1_unknown_senders_get_no_answer_to_hop_frames() {
    attack(&Shape::default(), 0x81);
    attack(&shape(all_tag_only), 0x80);
}

/// Replays frames of this kind, and garbage, in a mesh of this shape.
fn attack(shape: &Shape, kind: u8) {
    let mut mesh = Mesh::new(Seed::from_number(1), shape);
    let tap = mesh.world.tap_all(200_000);
    mesh.run(START + 2_000);
    // Genuine frames captured by an observer, and garbage.
    let mut frames: Vec<Vec<u8>> = mesh
        .world
        .captured(tap)
        .iter()
        .map(|captured| &captured.datagram)
        .filter(|datagram| {
            datagram.source == mesh_address(ENTRY)
                && datagram.destination == mesh_address(RELAY)
                && datagram.bytes.first() == Some(&kind)
        })
        .take(100)
        .map(|datagram| datagram.bytes.clone())
        .collect();
    assert_eq!(frames.len(), 100);
    let mut generator = Seed::from_number(2).generator(0);
    for _ in 0..1_000 {
        let len = usize::try_from(generator.below(1_400)).unwrap();
        let mut bytes = vec![0; len.max(1)];
        generator.fill(&mut bytes);
        bytes[0] = 0x80 | (bytes[0] & 0x3F);
        frames.push(bytes);
    }
    let before = mesh.process(RELAY).node.frame_stats();
    let sent = mesh.player().missing();
    for (index, frame) in (0..).zip(frames) {
        for source in [outsider(), mesh_address(ENTRY)] {
            let datagram = Datagram::new(source, mesh_address(RELAY), frame.clone());
            mesh.world.inject(ms(index), datagram);
        }
    }
    mesh.run(2_000);
    assert_eq!(bytes_to(&mesh, tap, outsider()), 0);
    let after = mesh.process(RELAY).node.frame_stats();
    assert!(
        after.replayed >= before.replayed + 100,
        "claimed to be the entry"
    );
    assert!(
        after.wrong_link >= before.wrong_link + 100,
        "came from a stranger"
    );
    assert!(after.unknown_kind > before.unknown_kind + 1_000);
    assert!(mesh.player().missing() <= sent + 6, "the game goes on");
    assert_eq!(mesh.player().faults, 0);
}

#[test]
fn pgx11_forged_players_stay_within_the_rate_limit() {
    let shape = shape(|_, config, _| {
        let mut limits = UnprovedLimits::default();
        (limits.newcomers, limits.unproved, limits.bytes) = (16, 64, 64 << 10);
        config.unproved_limits = [("echo".into(), limits)].into();
    });
    let mut mesh = Mesh::new(Seed::from_number(3), &shape);
    // The server answers each datagram three times.
    let echo = mesh.server;
    mesh.world.apply(echo, |server, _| server.copies = 2);
    let tap = mesh.world.tap_all(500_000);
    mesh.run(START);
    mesh.stop_player();
    for host in 0..200 {
        let victim = mesh.player;
        mesh.world
            .bind_address(victim, SocketAddr::from(([198, 18, 5, 1], 2_000 + host)));
    }
    // 200 victims in one network. Each has 4 datagrams sent in its name before any answer arrives.
    for round in 0..4_u64 {
        for host in 0..200_u16 {
            let victim = SocketAddr::from(([198, 18, 5, 1], 2_000 + host));
            let datagram = Datagram::new(victim, game(), vec![9; 300]);
            mesh.world.inject(ms(round), datagram);
        }
    }
    mesh.run(3_000);
    let each: Vec<usize> = (0..200)
        .map(|host| SocketAddr::from(([198, 18, 5, 1], 2_000 + host)))
        .map(|victim| bytes_to(&mesh, tap, victim))
        .collect();
    let answered = each.iter().filter(|bytes| **bytes > 0).count();
    assert!((1..=64).contains(&answered), "asked for once, answered");
    // The rate for three seconds, plus the burst.
    assert!(each.iter().all(|bytes| *bytes <= 4 * 4_096), "{each:?}");
    let all: usize = each.iter().sum();
    assert!(all <= 4 * 65_536, "{all}");
    let stats = mesh.process(ENTRY).node.stats();
    assert!(
        stats.over_reply_budget > 100 && stats.refused_players > 500,
        "{stats:?}"
    );
}

#[test]
fn mesh_a1_an_upstream_socket_receives_from_its_server_only() {
    let mut mesh = Mesh::new(Seed::from_number(4), &Shape::default());
    mesh.run(START + 1_000);
    let upstream = mesh.process(EXIT).upstream();
    for _ in 0..50 {
        let forged = Datagram::new(outsider(), upstream, vec![1; 100]);
        mesh.world.inject(ms(0), forged);
    }
    mesh.run(500);
    assert_eq!(mesh.process(EXIT).node.stats().strangers, 50);
    assert_eq!(mesh.player().faults, 0);
    assert_ne!(upstream, server());
}

#[test]
fn mesh_a1_requests_beyond_policy_are_refused() {
    // The relays' own configuration does not make them relays, although they claim to be.
    let shape = Shape {
        own_roles: Some(Roles::EXIT),
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(5), &shape);
    mesh.run(START + 4_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[])), "nobody relays");
    assert!(!mesh.player().answers.is_empty());

    // The exit does not accept this entry's players.
    let shape = Shape {
        is_entry_listed: false,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(6), &shape);
    mesh.run(START + 2_000);
    assert_eq!(mesh.player().answers.len(), 0);
    assert!(!mesh.process(ENTRY).closed_flows().is_empty());
    assert_eq!(mesh.process(EXIT).sockets(), 1);
}
