//! Floods of players and datagrams at an entry: what they affect, and which limits they reach.

use core::net::SocketAddr;

use netsim::{Chance, Loss, Verdict};
use relay_mesh::{Event, Mode, PeerAddr, SocketId};
use wire::Seed;

use crate::harness::{Adjust, ENTRY, EXIT, Mesh, RELAY, START, Shape, link, ms, shape};
use crate::many_players::{gather, gather_more, silence};
use crate::member::{RELIABLE, join_at};

/// The game port of the entry, as named by its driver.
const PORT: SocketId = SocketId(1);

/// A player in its own /24 for each number.
fn player(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    SocketAddr::from(([203, high, low, 7], 5_000))
}

/// Hands players' datagrams to a node before its driver polls any output.
fn flood(mesh: &mut Mesh, players: core::ops::Range<u16>, (count, len): (usize, usize)) {
    mesh.world.apply(mesh.nodes[ENTRY], |process, now| {
        for _ in 0..count {
            for number in players.clone() {
                let peer_addr = PeerAddr {
                    socket: PORT,
                    address: player(number),
                };
                let mut datagram = vec![7; len];
                process
                    .node
                    .handle_datagram(now, peer_addr.into(), &mut datagram);
            }
        }
    });
}

#[test]
fn flows_max_bounds_players_at_the_entry_and_sockets_at_the_exit() {
    let entry: Adjust = |index, config, _| {
        config.open_rate = 256;
        if index == ENTRY {
            config.flows_max = 3;
        }
    };
    let exit: Adjust = |index, config, _| {
        config.open_rate = 256;
        if index == EXIT {
            config.flows_max = 3;
        }
    };
    for (adjust, seed) in [(entry, 8), (exit, 9)] {
        let mut mesh = Mesh::new(Seed::from_number(seed), &shape(adjust));
        mesh.run(START + 1_000);
        let before = mesh.process(EXIT).node.memory() + mesh.process(ENTRY).node.memory();
        for _ in 0..20 {
            flood(&mut mesh, 0..200, (1, 100));
            mesh.run(200);
            // Plus the mesh socket.
            assert!(mesh.process(EXIT).sockets() <= 1 + 3);
        }
        let flows = |index| {
            mesh.process(index)
                .node
                .routes()
                .map(|route| route.flows)
                .sum::<usize>()
        };
        assert_eq!(flows(EXIT), 3, "all of the bound is used");
        assert!(flows(ENTRY) >= 3);
        assert!(mesh.process(ENTRY).node.stats().refused_players > 1_000);
        let after = mesh.process(EXIT).node.memory() + mesh.process(ENTRY).node.memory();
        // Three flows there, or the flows that asked if the exit refuses them.
        assert!(after < before + (8 << 20), "{before} {after}");
        let now = mesh.now();
        let gap = mesh.player().gap(now.saturating_sub(ms(1_000)), now);
        assert!(gap < ms(50), "who was there plays on: {gap:?}");
        assert_eq!(mesh.process(ENTRY).node.stats().setups_failed, 0);
    }
}

#[test]
fn pgx11_thousands_of_new_players_do_not_disturb_a_present_one() {
    // The entry's defaults would admit fewer, so relays are not asked for more than they grant.
    let all: Adjust = |_, config, _| {
        config.open_rate = 10_000;
        config.request_rate = 1_024;
        config.unproved_max = config.flows_max;
    };
    let mut mesh = Mesh::new(Seed::from_number(16), &shape(all));
    mesh.run(START + 1_000);
    let start = mesh.now();
    // More messages than the session's queue holds, and more labels than nodes grant at once.
    flood(&mut mesh, 0..6_000, (1, 60));
    mesh.run(10_000);
    let gap = mesh.player().gap(start, mesh.now());
    assert!(gap < ms(100), "{gap:?}");
    assert_eq!(mesh.moves(ENTRY, start).len(), 0);
    let entry = &mesh.process(ENTRY).node;
    let flows: usize = entry.routes().map(|route| route.flows).sum();
    assert!(flows > 1_000, "those whose wish found room: {flows}");
    let sockets = mesh.process(EXIT).sockets() - 1;
    assert_eq!(sockets, flows, "each has its own");
    assert!(mesh.world[mesh.server].sources.len() > 1_000);

    // As many again and again, until the relay grants no more labels for now.
    let start = mesh.now();
    for round in 1..10 {
        flood(&mut mesh, round * 6_000..round * 6_000 + 900, (1, 60));
        mesh.run(250);
    }
    let refused = mesh.process(RELAY).node.stats().requests_refused;
    assert!(refused.too_many > 0, "{refused:?}");
    mesh.run(10_000);
    let gap = mesh.player().gap(start, mesh.now());
    assert!(gap < ms(100), "{gap:?}");
    assert_eq!(mesh.moves(ENTRY, start).len(), 0);
    assert!(mesh.world[mesh.server].sources.len() > 4_000, "they wait");
}

#[test]
fn a_node_without_free_labels_keeps_existing_ones() {
    let all: Adjust = |_, config, _| config.request_rate = 64;
    let exit: Adjust = |index, config, _| {
        if index == EXIT {
            config.request_rate = 64;
        }
    };
    for (adjust, node) in [(all, RELAY), (exit, EXIT)] {
        let mut mesh = Mesh::new(Seed::from_number(17), &shape(adjust));
        mesh.run(START + 1_000);
        let start = mesh.now();
        flood(&mut mesh, 0..600, (1, 60));
        mesh.run(5_000);
        let refused = mesh.process(node).node.stats().requests_refused;
        assert!(refused.too_many > 3, "{refused:?}");
        let gap = mesh.player().gap(start, mesh.now());
        assert!(gap < ms(100), "{gap:?}");
        assert_eq!(mesh.moves(ENTRY, start).len(), 0);
    }
}

#[test]
fn a_relay_without_free_labels_sends_new_flows_over_another_path() {
    // The player's flow and its probes have labels there in both directions.
    let adjust: Adjust = |index, config, _| {
        if index == RELAY {
            config.labels_max = 4;
        }
    };
    for mode in [Mode::Shadow, Mode::Single] {
        newcomers_go_another_way(mode, adjust);
    }
}

#[test]
fn a_relay_with_labels_for_some_leaves_others_on_another_path() {
    for mode in [Mode::Shadow, Mode::Single] {
        for loss in [0, 1] {
            let mut mesh = Mesh::new(Seed::from_number(18), &short_of_labels(mode));
            // Probes of the fallback paths are lost, too.
            for relay in [RELAY + 1, RELAY + 2] {
                let lossy = link(15).with_loss(Loss::Bernoulli(Chance::percent(loss)));
                let ends = (mesh.nodes[relay], mesh.nodes[EXIT]);
                mesh.world.set_links(ends.0, ends.1, lossy);
            }
            mesh.run(START + 2_000);
            let first = gather(&mut mesh, 36, ms(500));
            mesh.run(3_000);
            // Of a hundred players, those get room that ask in a request of their own.
            let many_players = gather_more(&mut mesh, 36..136, ms(500));
            mesh.run(6_000);
            let waited = |mesh: &Mesh| mesh.process(ENTRY).node.stats().waited;
            let (start, before) = (mesh.now(), waited(&mesh));
            silence(&mut mesh, first);
            mesh.run(20_000);
            assert_eq!(mesh.world[many_players].served(), 100);
            assert_eq!(waited(&mesh), before, "all have a way: {mode:?} {loss}");
            assert_eq!(mesh.moves(ENTRY, start), [], "the path is good");
        }
    }
}

#[test]
fn a_relay_that_grants_few_labels_does_not_delay_a_hundred_flows() {
    for mode in [Mode::Shadow, Mode::Single] {
        let mut mesh = Mesh::new(Seed::from_number(20), &short_of_labels(mode));
        mesh.run(START + 2_000);
        let come = |mesh: &mut Mesh, millis: u16| {
            for _ in 0..millis / 20 {
                let number = mesh.now().saturating_since(wire::Instant::ZERO).as_millis() / 20;
                let number = u16::try_from(number).unwrap();
                flood(mesh, number..number + 1, (1, 60));
                mesh.run(20);
            }
        };
        come(&mut mesh, 4_000);
        let many_players = gather(&mut mesh, 100, ms(500));
        come(&mut mesh, 8_000);
        assert_eq!(mesh.world[many_players].served(), 100, "{mode:?}");
        let settled = mesh.now();
        come(&mut mesh, 4_000);
        let gap = mesh.world[many_players].gap(settled, mesh.now());
        assert!(gap < ms(800), "{mode:?}: {gap:?}");
    }
}

/// The first relay has labels for 36 players and the mesh's own player. Flows end after 3 s.
fn short_of_labels(mode: Mode) -> Shape {
    let adjust: Adjust = |index, config, _| {
        if index == RELAY {
            config.labels_max = 4 + 2 * 36;
        }
    };
    Shape {
        mode,
        idle: 3,
        ..shape(adjust)
    }
}

fn newcomers_go_another_way(mode: Mode, adjust: Adjust) {
    let shape = Shape {
        mode,
        ..shape(adjust)
    };
    let mut mesh = Mesh::new(Seed::from_number(18), &shape);
    mesh.run(START + 2_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    let start = mesh.now();
    let many_players = gather(&mut mesh, 30, ms(500));
    mesh.run(6_000);
    let refused = mesh.process(RELAY).node.stats().requests_refused;
    assert!(refused.full > 3, "{refused:?}");
    assert_eq!(mesh.moves(ENTRY, start), [], "the path is good");
    assert!(mesh.player().gap(start, mesh.now()) < ms(50));
    assert_eq!(mesh.world[many_players].served(), 30);
    let settled = mesh.now().saturating_sub(ms(2_000));
    mesh.run(12_000);
    let gap = mesh.world[many_players].gap(settled, mesh.now());
    assert!(gap < ms(700), "{mode:?}: {gap:?}");
}

/// Newcomers use the second relay as a fallback, because the first one has no labels for them. Then
/// the second one drops its data, or dies.
#[test]
fn a_flow_on_a_path_that_fails_finds_another() {
    let adjust: Adjust = |index, config, _| {
        if index == RELAY {
            config.labels_max = 4;
        }
    };
    for mode in [Mode::Shadow, Mode::Single] {
        for dies in [false, true] {
            let shape = Shape {
                mode,
                ..shape(adjust)
            };
            let mut mesh = Mesh::new(Seed::from_number(18), &shape);
            mesh.run(START + 2_000);
            let many_players = gather(&mut mesh, 30, ms(500));
            mesh.run(8_000);
            assert_eq!(mesh.world[many_players].served(), 30);
            assert_eq!(mesh.process(RELAY + 2).node.labels(), 0);
            let at = mesh.now();
            if dies {
                mesh.kill(RELAY + 1);
            } else {
                // Its sessions and their probes continue, so link state prefers it as before.
                let (relay, exit) = (mesh.nodes[RELAY + 1], mesh.nodes[EXIT]);
                mesh.world.intercept(relay, exit, |_, datagram| {
                    let is_frame = matches!(datagram.bytes.first(), Some(0x80..=0x82));
                    if is_frame {
                        Verdict::Drop
                    } else {
                        Verdict::Pass
                    }
                });
            }
            mesh.run(12_000);
            let gap = mesh.world[many_players].gap(at, mesh.now());
            assert!(gap < ms(1_900), "{mode:?}, dies: {dies}: {gap:?}");
            assert_eq!(mesh.moves(ENTRY, at), [], "the path of the others is good");
        }
    }
}

/// The only path has labels for some of the players that arrive at once.
#[test]
fn a_relay_with_room_for_some_of_a_request_serves_these() {
    for rate in [None, Some(16)] {
        let mut mesh = Mesh::new(Seed::from_number(22), &only_way(rate));
        let ends = [ENTRY, EXIT].map(|index| [mesh.nodes[index].into()]);
        mesh.world.partition(&ends[0], &ends[1]);
        mesh.run(START + 8_000);
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
        let many_players = gather(&mut mesh, 64, ms(500));
        mesh.run(12_000);
        // The first seconds may have been served over the session of entry and exit.
        let served = mesh.world[many_players].served_since(mesh.now().saturating_sub(ms(3_000)));
        let (least, most) = if rate.is_some() { (64, 64) } else { (33, 36) };
        assert!((least..=most).contains(&served), "{rate:?}: {served}");
    }
}

/// One relay, which has labels for 36 players and the player of the mesh, or a limited rate of
/// labels per second.
fn only_way(rate: Option<u32>) -> Shape {
    Shape {
        relays: 1,
        adjust: match rate {
            None => |index, config, _| {
                if index == RELAY {
                    config.labels_max = 4 + 2 * 36;
                }
            },
            Some(_) => |index, config, _| {
                if index == RELAY {
                    config.request_rate = 16;
                }
            },
        },
        ..Shape::default()
    }
}

/// Sixty flows move to a relay with a label rate that grants fewer labels at once than one request
/// may ask for.
#[test]
fn a_relay_with_a_low_rate_takes_over_from_one_that_died() {
    let shape = Shape {
        mode: Mode::Single,
        relays: 2,
        adjust: |index, config, _| {
            if index >= RELAY {
                config.request_rate = 20;
            }
        },
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(7), &shape);
    let ends = [ENTRY, EXIT].map(|end| [mesh.nodes[end].into()]);
    mesh.world.partition(&ends[0], &ends[1]);
    mesh.run(START + 20_000);
    let many_players = gather(&mut mesh, 60, ms(500));
    mesh.run(60_000);
    assert_eq!(mesh.world[many_players].served(), 60);
    mesh.kill(RELAY);
    mesh.run(60_000);
    let now = mesh.now();
    let gap = mesh.world[many_players].gap(now.saturating_sub(ms(30_000)), now);
    assert!(gap < ms(1_000), "{gap:?}");
}

#[test]
fn small_messages_cause_no_repeated_scan_of_all_flows() {
    // The relay is short of labels for players all the time.
    let adjust: Adjust = |index, config, _| {
        if index == RELAY {
            config.labels_max = 4;
        }
    };
    let mut mesh = Mesh::new(Seed::from_number(19), &shape(adjust));
    mesh.run(START + 2_000);
    gather(&mut mesh, 30, ms(500));
    let member = join_at(&mut mesh, 98, ENTRY);
    mesh.run(6_000);
    let searches = |mesh: &Mesh| mesh.process(ENTRY).node.stats().label_searches;
    let (before, start) = (searches(&mesh), mesh.now());
    for _ in 0..5_000 {
        mesh.world.apply(member, |host, now| {
            let session = host.app.session.unwrap();
            host.machine.send(now, session, RELIABLE, &[0x77]).unwrap();
        });
        mesh.run(1);
    }
    let malformed = mesh.process(ENTRY).node.stats().messages_malformed;
    assert!(malformed > 4_500, "they come: {malformed}");
    let made = searches(&mesh) - before;
    // A path with a failed set-up is retried every 4 s. Each result starts one more search.
    assert!((1..=12).contains(&made), "{made}");
    assert!(mesh.player().gap(start, mesh.now()) < ms(50));
}

/// Each failure triggers a new request as fast as replies arrive, and a thousand flows need labels.
#[test]
fn failed_set_ups_are_retried_a_few_times_a_second_for_any_flow_count() {
    let refusals: [(&str, Adjust); 2] = [
        ("too many", |_, config, _| config.request_rate = 0),
        ("no labels", |_, config, _| config.labels_max = 0),
    ];
    for (number, (what, adjust)) in (40..).zip(refusals) {
        let mut mesh = Mesh::new(Seed::from_number(number), &shape(adjust));
        mesh.run(START);
        for round in 0..10 {
            flood(&mut mesh, round * 100..(round + 1) * 100, (3, 1_000));
            mesh.run(500);
        }
        let tries = |mesh: &Mesh| mesh.process(ENTRY).node.stats().setups_failed;
        let datagrams = |mesh: &Mesh| -> u64 {
            let entry = mesh.nodes[ENTRY];
            let others = (0..mesh.nodes.len()).filter(|index| *index != ENTRY);
            others
                .map(|index| mesh.world.link_stats(entry, mesh.nodes[index]).sent)
                .sum()
        };
        let before = (tries(&mesh), datagrams(&mesh));
        mesh.run(10_000);
        let after = (tries(&mesh), datagrams(&mesh));
        assert!((5..=60).contains(&after.0), "{what}: {after:?}");
        assert!(after.0 - before.0 <= 40, "{what}: {before:?} {after:?}");
        assert!(after.1 - before.1 <= 500, "{what}: {before:?} {after:?}");
    }
}

#[test]
fn outbox_bytes_max_bounds_the_queue_for_a_slow_driver() {
    let mut mesh = Mesh::new(
        Seed::from_number(10),
        &shape(|_, config, _| config.outbox_bytes_max = 20_000),
    );
    mesh.run(START + 1_000);
    // Their flows have paths before the flood.
    flood(&mut mesh, 0..10, (1, 100));
    mesh.run(1_000);
    let entry = &mesh.process(ENTRY).node;
    let (memory, frames) = (entry.memory(), entry.frame_stats());
    flood(&mut mesh, 0..10, (100, 1_000));
    let entry = &mesh.process(ENTRY).node;
    let sealed = entry.frame_stats().sealed - frames.sealed;
    // 1,000 bytes, 35 of headers, and 64 of accounting overhead per datagram.
    assert!((10..=20).contains(&sealed), "{sealed}");
    assert_eq!(
        entry.frame_stats().outbox_full - frames.outbox_full,
        1_000 - sealed
    );
    assert!(entry.memory() < memory + 100_000, "{}", entry.memory());
    mesh.run(1_000);
    assert_eq!(mesh.player().faults, 0);
}

#[test]
fn events_max_bounds_the_queue_for_the_application() {
    let mut mesh = Mesh::new(
        Seed::from_number(11),
        &shape(|_, config, _| config.events_max = 8),
    );
    mesh.run(START + 1_000);
    let memory = mesh.process(ENTRY).node.memory();
    let opened = mesh.process(ENTRY).events.len();
    flood(&mut mesh, 0..50, (1, 100));
    assert_eq!(mesh.process(ENTRY).node.stats().events_dropped, 42);
    assert!(mesh.process(ENTRY).node.memory() < memory + 50 * 65_536);
    mesh.run(0);
    let entry = mesh.process(ENTRY);
    let newest = entry.events[opened..].iter().filter_map(|(_, event)| {
        if let Event::FlowOpened { player, .. } = event {
            Some(*player)
        } else {
            None
        }
    });
    let newest: Vec<SocketAddr> = newest.take(8).collect();
    assert_eq!(
        newest,
        (42..50).map(player).collect::<Vec<_>>(),
        "the oldest went"
    );
}
