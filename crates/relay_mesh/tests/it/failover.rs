//! Which failures count against paths and relays, and which do not.

use core::net::SocketAddr;

use crypto::Provider;
use netsim::provider::SimProvider;
use netsim::{Chance, Datagram, Jitter, Loss, Verdict, for_each_seed, test_site};
use relay_mesh::cost::{Cost, Loss as LossShare};
use relay_mesh::link_state::{Message, Network, Profile, Publisher, Roles};
use relay_mesh::measure::LinkReport;
use relay_mesh::{Event, Mode, RouteCause};
use wire::{Instant, Seed};

use crate::harness::{
    ENTRY, EXIT, Mesh, RELAY, START, Shape, game, identity, link, mesh_address, ms,
};
use crate::member::join_at;

#[test]
fn a_relay_that_the_entry_cannot_reach_delays_nothing() {
    let mut mesh = Mesh::new(Seed::from_number(30), &Shape::default());
    // The path over both relays would be the cheapest, but the entry has no session with the
    // second.
    let nodes = mesh.nodes.clone();
    for (a, b) in [(ENTRY, RELAY), (RELAY, RELAY + 1), (RELAY + 1, EXIT)] {
        mesh.world.set_links(nodes[a], nodes[b], link(5));
    }
    mesh.world.set_links(nodes[RELAY], nodes[EXIT], link(60));
    let (entry, second) = (nodes[ENTRY].index(), nodes[RELAY + 1].index());
    mesh.world.partition(&[entry], &[second]);
    mesh.run(START + 15_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY + 2])));
    assert_eq!(mesh.process(ENTRY).node.stats().setups_failed, 0);
    let now = mesh.now();
    let trip = mesh.player().round_trip(now.saturating_sub(ms(5_000)), now);
    assert_eq!(
        trip,
        ms(87),
        "5 + 60 + 1 there, and back over the two that the exit can reach"
    );
    // When the second relay is reachable again, the path is used.
    mesh.world.heal(&[entry], &[second]);
    mesh.world
        .set_links(nodes[ENTRY], nodes[RELAY + 1], link(100));
    mesh.run(40_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY, RELAY + 1])));
}

#[test]
fn sim_pgx6_a_relay_that_delays_data_is_detected() {
    for_each_seed(&test_site!(), 2, |seed| {
        for mode in [Mode::Single, Mode::Shadow] {
            let shape = Shape {
                mode,
                ..Shape::default()
            };
            let mut mesh = Mesh::new(seed, &shape);
            // Its probes are as fast as before, so link state still prefers it.
            let (relay, exit) = (mesh.nodes[RELAY], mesh.nodes[EXIT]);
            mesh.world.intercept(relay, exit, |_, datagram| {
                if datagram.bytes.first() == Some(&0x81) {
                    Verdict::Delay(ms(100))
                } else {
                    Verdict::Pass
                }
            });
            mesh.run(START + 5_000);
            let taken = mesh.moves(ENTRY, Instant::ZERO);
            let relay = mesh.ids[RELAY];
            let is_used = taken.iter().any(|(_, to, _)| to.relays.contains(&relay));
            assert!(is_used, "link state likes it best: {taken:?}");
            mesh.run(60_000);
            let (honest, from) = (mesh.path(&[RELAY + 1]), mesh.now());
            assert_eq!(
                mesh.route(),
                Some(honest),
                "{:?}",
                mesh.moves(ENTRY, Instant::ZERO)
            );
            assert!(mesh.process(ENTRY).node.stats().paths_refuted > 0);
            mesh.run(120_000);
            assert_eq!(mesh.moves(ENTRY, from), [], "and not tried again soon");
            let trip = mesh.player().round_trip(from, mesh.now());
            // The return path may be either one, and delays nothing.
            assert!(trip <= ms(92), "{trip:?}, twice 5 + 20 + 20 + 1 at most");
        }
    });
}

#[test]
fn sim_pgx6_a_truthful_node_is_not_refuted() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(START + 5_000);
        for (round, half) in [40, 15, 25, 10, 60, 15].into_iter().enumerate() {
            let (relay, end) = (mesh.nodes[RELAY], mesh.nodes[[ENTRY, EXIT][round % 2]]);
            let line = link(half)
                .with_jitter(Jitter::Uniform(ms(3)))
                .with_loss(Loss::Bernoulli(Chance::percent(1)));
            mesh.world.set_links(relay, end, line);
            mesh.run(40_000);
        }
        for index in [ENTRY, EXIT] {
            assert_eq!(mesh.process(index).node.stats().paths_refuted, 0);
        }
    });
}

#[test]
fn a_relay_that_drops_data_is_abandoned() {
    let mut mesh = Mesh::new(Seed::from_number(31), &Shape::default());
    mesh.run(START + 2_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    let at = mesh.now();
    // Its sessions and their probes continue, so link state prefers it as before.
    let (relay, exit) = (mesh.nodes[RELAY], mesh.nodes[EXIT]);
    mesh.world.intercept(relay, exit, |_, datagram| {
        if datagram.bytes.first() == Some(&0x81) {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    });
    mesh.run(20_000);
    let now = mesh.now();
    assert!(mesh.player().gap(at, now) <= ms(300));
    let moves = mesh.moves(ENTRY, at);
    let away: Vec<_> = moves.iter().map(|(_, to, cause)| (to, *cause)).collect();
    assert_eq!(
        away,
        [(&mesh.path(&[RELAY + 1]), RouteCause::Killed)],
        "and not back"
    );
    let view = mesh.process(ENTRY).node.routes().next().unwrap();
    assert_eq!(
        view.standby,
        Some(mesh.path(&[RELAY + 2])),
        "a spare is there"
    );
    // So the next failure costs no more.
    let at = mesh.now();
    mesh.kill(RELAY + 1);
    mesh.run(3_000);
    assert!(mesh.player().gap(at, mesh.now()) <= ms(300));
}

#[test]
fn the_failure_of_an_exit_is_not_attributed_to_relays() {
    let shape = Shape {
        adjust: |index, config, ids| {
            // The last relay is also an exit.
            let game = &mut config.games[0];
            if index == RELAY + 2 {
                config.profile.roles = Roles::ALL;
                game.exit = Some(relay_mesh::ExitGame {
                    server: crate::harness::server(),
                    entries: None,
                    header: None,
                });
            }
            if let Some(entry) = &mut game.entry {
                entry.exits = vec![ids[EXIT], ids[RELAY + 2]];
            }
        },
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(32), &shape);
    let nodes = mesh.nodes.clone();
    mesh.world
        .set_links(nodes[ENTRY], nodes[RELAY + 2], link(100));
    mesh.world
        .set_links(nodes[RELAY], nodes[RELAY + 2], link(25));
    mesh.world
        .set_links(nodes[RELAY + 1], nodes[RELAY + 2], link(90));
    mesh.world.set_links(nodes[RELAY + 2], mesh.server, link(1));
    mesh.run(START + 2_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    mesh.kill(EXIT);
    mesh.run(13_000);
    // Players that return get the second exit, over the relay that was never at fault.
    let entry = mesh.process(ENTRY);
    let second = mesh.ids[RELAY + 2];
    assert!(entry.events.iter().any(|(_, event)| matches!(
        event,
        Event::FlowOpened { remote_end, .. } if *remote_end == second
    )));
    let view = entry.node.routes().find(|view| view.remote_end == second);
    let path = view.and_then(|view| view.path).unwrap();
    assert_eq!(path.relays, [mesh.ids[RELAY]]);
}

#[test]
fn flows_outlive_a_line_that_was_cut_for_a_while() {
    let shape = Shape {
        mode: Mode::Shadow,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(33), &shape);
    mesh.run(START + 2_000);
    let entry = mesh.nodes[ENTRY].index();
    let others: Vec<_> = mesh.nodes[1..].iter().map(|node| node.index()).collect();
    mesh.world.partition(&[entry], &others);
    mesh.run(4_000);
    mesh.world.heal(&[entry], &others);
    let at = mesh.now();
    mesh.run(8_000);
    assert_eq!(mesh.process(ENTRY).closed_flows(), []);
    let first = mesh.player().answers.iter().map(|answer| answer.2);
    let first = first.filter(|came| *came > at).min().unwrap();
    assert!(
        first.saturating_since(at) < ms(2_500),
        "{first:?} after {at:?}"
    );
    assert_eq!(mesh.player().faults, 0);
}

#[test]
fn a_node_with_two_addresses_replies_from_the_addressed_one() {
    let shape = Shape {
        adjust: |index, config, ids| {
            let second = second_address(mesh_address(RELAY));
            if index == RELAY {
                // It dials nobody and waits for a connection.
                config.bootstrap.nodes.clear();
                config.profile.addresses = vec![second];
            } else {
                config.bootstrap.nodes[0] = (ids[RELAY], second);
            }
        },
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(34), &shape);
    let second = second_address(mesh_address(RELAY));
    mesh.world.bind_address(mesh.nodes[RELAY], second);
    let port = second_address(game());
    mesh.world.bind_address(mesh.nodes[ENTRY], port);
    let player = "198.18.9.1:2000".parse().unwrap();
    mesh.world.bind_address(mesh.player, player);
    let tap = mesh.world.tap_all(200_000);
    mesh.run(START + 3_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    for index in 0..5 {
        assert_eq!(
            mesh.process(index).node.frame_stats().wrong_link,
            0,
            "{index}"
        );
    }
    let now = mesh.now();
    let trip = mesh.player().round_trip(now.saturating_sub(ms(1_000)), now);
    assert_eq!(trip, ms(72), "packets take that path too");
    mesh.world
        .inject(ms(0), Datagram::new(player, port, vec![9; 50]));
    mesh.run(1_000);
    let mut captured = mesh.world.captured(tap).iter();
    let answer = captured.find(|captured| captured.datagram.destination == player);
    assert_eq!(answer.map(|captured| captured.datagram.source), Some(port));
}

fn second_address(of: SocketAddr) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 200], of.port()))
}

#[test]
fn a_draining_relay_is_left() {
    let mut mesh = Mesh::new(Seed::from_number(35), &Shape::default());
    mesh.run(START + 2_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    let at = mesh.now();
    // A publisher with its identity and unchanged links.
    let provider = || SimProvider::new(Seed::from_number(4));
    let own = identity(mesh.seed, RELAY);
    let key = provider().signing_key(&own).unwrap();
    let hash = provider().hmac_sha256(&[7; 32], &[b"tw1 mesh network"]);
    let network = Network(*hash.first_chunk().unwrap());
    let neighbours = [ENTRY, EXIT, RELAY + 1, RELAY + 2].map(|index| mesh.ids[index]);
    let mut publisher = {
        let profile = Profile {
            roles: Roles::RELAY,
            name: "node2".into(),
            addresses: vec![mesh_address(RELAY)],
        };
        Publisher::new(key, *own.public_key(), network, profile).unwrap()
    };
    let up = LinkReport {
        delay: Cost::from_millis(1),
        loss: LossShare::NONE.into(),
    };
    let reports = neighbours.into_iter().map(|id| (id, up)).collect();
    publisher.leave();
    let member = join_at(&mut mesh, 98, ENTRY);
    mesh.run(1_000);
    // The relay replaces each such record as soon as it receives it, and is used again.
    for round in 1..=8 {
        publisher.raise((1 << 60) + (round << 20));
        let said = publisher.update(mesh.now(), None, &mut provider(), &reports);
        let said = said.unwrap();
        for message in [
            said.node.as_deref().map(Message::NodeRecord),
            said.links.as_deref().map(Message::LinkRecord),
        ] {
            let mut bytes = Vec::new();
            message.unwrap().encode(&mut bytes);
            mesh.world.apply(member, |host, now| {
                let session = host.app.session.unwrap();
                let reliable = udp_proto::ChannelId(1);
                host.machine.send(now, session, reliable, &bytes).unwrap();
            });
        }
        mesh.run(330);
    }
    let moves = mesh.moves(ENTRY, at);
    assert!(
        moves
            .iter()
            .any(|(_, to, _)| *to == mesh.path(&[RELAY + 1])),
        "{moves:?}"
    );
    let now = mesh.now();
    assert!(mesh.player().gap(at, now) < ms(50), "nobody waits");
}

#[test]
fn a_link_recovers_after_losing_all_frames_of_many_key_phases() {
    let mut mesh = Mesh::new(Seed::from_number(31), &Shape::default());
    let (entry, relay) = (mesh.nodes[ENTRY], mesh.nodes[RELAY]);
    mesh.run(START + 5_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    // Its session stays up, and the packets that the entry tries to send there advance its keys.
    mesh.world.intercept(entry, relay, |_, datagram| {
        if matches!(datagram.bytes.first(), Some(0x80..=0x82)) {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    });
    mesh.run(660_000);
    assert_ne!(mesh.route(), Some(mesh.path(&[RELAY])));
    mesh.world
        .intercept(entry, relay, |_, _: &mut Datagram| Verdict::Pass);
    mesh.run(400_000);
    let stats = mesh.process(RELAY).node.frame_stats();
    assert_eq!(stats.wrong_tag, 0);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
}
