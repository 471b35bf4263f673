//! Exits measure game servers, and entries choose exits by the results.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use netsim::Datagram;
use relay_mesh::cost::Cost;
use relay_mesh::game_edge::GameEdge;
use relay_mesh::link_state::Roles;
use relay_mesh::signed_config::Protocol;
use relay_mesh::{
    Config, Event, ExitGame, Game, Mode, NewError, Node, NodeStats, Outcome, ServerProbe,
};
use wire::{NodeId, Seed};

use crate::echo::EchoServer;
use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, address, game, link, ms, server, shape};
use crate::member::Harness;
use crate::signed::{ALL, put_games, rule, signed};

const NEAR_SERVER: &str = "198.51.100.77:7000";

/// The first relay is also an exit with its own server. It is 30 ms away, the usual exit 61 ms.
fn two_exits(index: usize, config: &mut Config, ids: &[NodeId]) {
    near_exit(index, config, ids);
    if let Some(entry) = &mut config.games[0].entry {
        entry.exits = vec![ids[EXIT], ids[RELAY]];
    }
}

/// The same, but the entry does not know it as an exit.
fn near_exit(index: usize, config: &mut Config, _: &[NodeId]) {
    if index == RELAY {
        config.profile.roles = Roles::ALL;
        config.games[0].exit = Some(ExitGame {
            server: address(NEAR_SERVER),
            entries: None,
            header: None,
        });
        config.probes = BTreeMap::from([("echo".into(), ServerProbe::Icmp)]);
    }
}

fn mesh(adjust: fn(usize, &mut Config, &[NodeId])) -> Mesh {
    let mut mesh = Mesh::new(Seed::from_number(7), &shape(adjust));
    let relay = mesh.nodes[RELAY];
    let near = mesh
        .world
        .add(address(NEAR_SERVER), |_| EchoServer::default());
    mesh.world.set_links(relay, near, link(1));
    mesh
}

/// Sets how the server of the near exit, or of the usual one, answers from now on.
fn answer(mesh: &mut Mesh, index: usize, outcome: Option<Outcome>) {
    let at = [server(), address(NEAR_SERVER)][usize::from(index == RELAY)];
    let node = mesh.nodes[index];
    mesh.world.apply(node, |process, _| {
        process.answers.insert(at, outcome);
    });
}

const fn after(millis: u64) -> Outcome {
    Outcome::Measured(ms(millis))
}

/// Adds a new player, and returns the exit that it got.
fn newcomer(mesh: &mut Mesh, number: u16) -> Option<NodeId> {
    let player = SocketAddr::from(([198, 18, 7, 7], number));
    let datagram = Datagram::new(player, game(), vec![1; 40]);
    mesh.world.inject(ms(0), datagram);
    mesh.run(100);
    let events = mesh.process(ENTRY).events.iter().rev();
    let mut opened = events.filter_map(|(_, event)| {
        if let Event::FlowOpened {
            player: of,
            remote_end,
            ..
        } = event
        {
            (*of == player).then_some(*remote_end)
        } else {
            None
        }
    });
    opened.next()
}

fn entry_stats(mesh: &Mesh) -> NodeStats {
    *mesh.process(ENTRY).node.stats()
}

fn reported(mesh: &Mesh, index: usize, wanted: fn(&Event) -> bool) -> usize {
    let events = mesh.process(index).events.iter();
    events.filter(|(_, event)| wanted(event)).count()
}

const fn is_lost(event: &Event) -> bool {
    matches!(event, Event::ServerLost { .. })
}

const fn is_reached(event: &Event) -> bool {
    matches!(event, Event::ServerReached { .. })
}

#[test]
fn pg5_the_cost_from_exit_to_server_counts() {
    let mut mesh = mesh(two_exits);
    answer(&mut mesh, RELAY, Some(after(90)));
    answer(&mut mesh, EXIT, Some(after(2)));
    mesh.run(START);
    let edges: Vec<_> = mesh.process(ENTRY).node.game_edges().collect();
    assert_eq!(edges.len(), 2, "{edges:?}");
    for (exit, millis) in [(EXIT, 2), (RELAY, 90)] {
        let of = edges.iter().find(|edge| edge.exit == mesh.ids[exit]);
        let of = of.unwrap();
        assert_eq!((of.game.as_str(), of.protocol), ("echo", Protocol::Udp));
        assert_eq!(of.cost, Some(Cost::from_millis(millis)));
    }
    // 61 + 2 ms, against 30 + 90 ms by the near exit.
    assert_eq!(newcomer(&mut mesh, 1), Some(mesh.ids[EXIT]));
    let way = mesh
        .process(ENTRY)
        .node
        .route_to_game(&mesh.ids[ENTRY], "echo");
    assert_eq!(way.unwrap().path, mesh.path(&[RELAY]));
    // The median of three counts, so two new values are enough.
    answer(&mut mesh, RELAY, Some(after(3)));
    mesh.run(26_000);
    assert_eq!(newcomer(&mut mesh, 2), Some(mesh.ids[RELAY]));
    assert_eq!(mesh.player().faults, 0);
    assert_eq!(mesh.process(ENTRY).closed_flows(), [], "who plays stays");
    let stats = entry_stats(&mesh);
    assert!(stats.edges_received >= 3, "{stats:?}");
    assert_eq!((stats.edges_refused, stats.edges_unknown), (0, 0));
}

#[test]
fn pg5_pgd_p16_a_server_that_does_not_answer_in_time_loses_its_edge_alone() {
    let mut mesh = mesh(two_exits);
    mesh.run(START + 1_000);
    assert_eq!(newcomer(&mut mesh, 1), Some(mesh.ids[RELAY]));
    answer(&mut mesh, RELAY, None);
    // A measurement starts every 10 s, or 2 s after a failure. Each times out after 2 s.
    mesh.run(8_000);
    assert_eq!(reported(&mesh, RELAY, is_lost), 0, "it may be chance");
    mesh.run(16_000);
    assert_eq!(reported(&mesh, RELAY, is_lost), 1);
    let stats = *mesh.process(RELAY).node.stats();
    assert!((3..=5).contains(&stats.server_probes_failed), "{stats:?}");
    assert_eq!(newcomer(&mut mesh, 2), Some(mesh.ids[EXIT]));
    let now = mesh.now();
    let gap = mesh.player().gap(now.saturating_sub(ms(20_000)), now);
    assert!(gap < ms(50), "who plays by it is not disturbed: {gap:?}");
    let lost = mesh.process(ENTRY).node.game_edges();
    let lost: Vec<_> = lost.filter(|edge| edge.cost.is_none()).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].exit, mesh.ids[RELAY]);
    // If no server is reachable, all exits are tried as if nothing was measured.
    answer(&mut mesh, EXIT, Some(Outcome::Failed));
    mesh.run(24_000);
    assert_eq!(reported(&mesh, EXIT, is_lost), 1);
    assert_eq!(newcomer(&mut mesh, 3), Some(mesh.ids[RELAY]));
    answer(&mut mesh, EXIT, Some(after(5)));
    mesh.run(14_000);
    assert_eq!(reported(&mesh, EXIT, is_reached), 2);
    assert_eq!(newcomer(&mut mesh, 4), Some(mesh.ids[EXIT]));
}

#[test]
fn pg5_one_measurement_at_a_time_and_one_each_ten_seconds() {
    let mut mesh = mesh(two_exits);
    mesh.run(1_000);
    assert_eq!(mesh.process(RELAY).probes.len(), 1, "the first at once");
    mesh.run(119_000);
    let probes = &mesh.process(RELAY).probes;
    assert!((11..=15).contains(&probes.len()), "{}", probes.len());
    let gaps: Vec<Duration> = probes
        .windows(2)
        .map(|pair| pair[1].0.saturating_since(pair[0].0))
        .collect();
    assert!(
        gaps.iter()
            .all(|gap| (ms(8_000)..=ms(12_100)).contains(gap)),
        "{gaps:?}"
    );
    assert!(gaps.iter().any(|gap| *gap != gaps[0]), "not in step");
    let (_, at, probe) = &probes[0];
    assert_eq!((*at, probe), (address(NEAR_SERVER), &ServerProbe::Icmp));
    // If the driver never answers, at most one measurement is pending.
    answer(&mut mesh, RELAY, None);
    mesh.run(60_000);
    let stats = *mesh.process(RELAY).node.stats();
    assert!(
        stats.server_probes - stats.server_probes_failed <= 14,
        "{stats:?}"
    );
    assert_eq!(stats.stray_completions, 0);
}

#[test]
fn pg5_a_driver_that_never_answers_is_asked_for_few_at_a_time() {
    let adjust = |index, config: &mut Config, _: &[NodeId]| {
        if index == RELAY {
            let games = (0..100).map(|number| Game {
                name: format!("game{number}"),
                mode: Mode::Shadow,
                entry: None,
                exit: Some(ExitGame {
                    server: address(NEAR_SERVER),
                    entries: None,
                    header: None,
                }),
            });
            config.games = games.collect();
            let names = config.games.iter().map(|game| game.name.clone());
            config.probes = names.map(|name| (name, ServerProbe::Icmp)).collect();
        }
    };
    let mut mesh = mesh(adjust);
    answer(&mut mesh, RELAY, None);
    mesh.run(1_900);
    for turn in 1..=3 {
        assert_eq!(mesh.process(RELAY).probes.len(), 32 * turn);
        mesh.run(2_000);
    }
    let stats = *mesh.process(RELAY).node.stats();
    assert_eq!(
        (stats.server_probes_failed, stats.stray_completions),
        (96, 0)
    );
}

#[test]
fn pg5_a_probe_the_system_forbids_is_reported_once_and_not_measured() {
    let mut mesh = mesh(two_exits);
    answer(&mut mesh, RELAY, Some(Outcome::NotPermitted));
    mesh.run(START + 30_000);
    let is_told = |event: &Event| matches!(event, Event::ProbeNotPermitted { .. });
    assert_eq!(reported(&mesh, RELAY, is_told), 1);
    assert_eq!(mesh.process(RELAY).probes.len(), 1);
    let edges: Vec<_> = mesh.process(ENTRY).node.game_edges().collect();
    assert_eq!(edges.len(), 1, "{edges:?}");
    // Only the distance of the near one is known. The other is known to reach its server.
    assert_eq!(newcomer(&mut mesh, 1), Some(mesh.ids[EXIT]));
}

#[test]
fn pg11_pgd_p6_an_edge_of_an_exit_that_is_not_listed_is_ignored() {
    let mut mesh = mesh(near_exit);
    answer(&mut mesh, RELAY, Some(after(0)));
    answer(&mut mesh, EXIT, Some(after(500)));
    mesh.run(START);
    let stats = entry_stats(&mesh);
    assert_eq!(
        (stats.edges_received, stats.edges_refused),
        (1, 1),
        "{stats:?}"
    );
    let edges: Vec<_> = mesh.process(ENTRY).node.game_edges().collect();
    assert_eq!(edges.len(), 1);
    assert_eq!(newcomer(&mut mesh, 1), Some(mesh.ids[EXIT]));
}

#[test]
fn pg11_an_edge_of_an_exit_that_the_document_bars_is_ignored() {
    let adjust = |index, config: &mut Config, ids: &[NodeId]| {
        signed(index, config, ids);
        if index == RELAY {
            config.profile.roles = Roles::ALL;
            config.probes = BTreeMap::from([("echo".into(), ServerProbe::Icmp)]);
        }
    };
    let mut mesh = mesh(adjust);
    mesh.run(START - 2_000);
    put_games(&mut mesh, 1, &[rule("echo", game().port(), ALL, ALL)]);
    mesh.run(35_000);
    let known = |mesh: &Mesh| -> Vec<NodeId> {
        let edges = mesh.process(ENTRY).node.game_edges();
        edges.map(|edge| edge.exit).collect()
    };
    assert_eq!(known(&mesh).len(), 2);
    let barred = mesh.ids[RELAY];
    let list = format!("{{\"type\":\"black\",\"nodes\":[\"{barred}\"]}}");
    put_games(&mut mesh, 2, &[rule("echo", game().port(), ALL, &list)]);
    mesh.run(1_000);
    assert_eq!(newcomer(&mut mesh, 1), Some(mesh.ids[EXIT]));
    mesh.run(110_000);
    assert_eq!(known(&mesh), [mesh.ids[EXIT]], "it measures no more");
}

#[test]
fn pg11_forged_edges_of_a_member_are_counted_and_take_no_room() {
    let mut harness = Harness::with(
        8,
        &shape(|index, config, ids| {
            // The harness's member dials the first relay, which is an entry here.
            if index == RELAY {
                config.profile.roles = Roles::ALL;
                let mut game = config.games[0].clone();
                game.entry = Some(relay_mesh::EntryGame {
                    listen: vec![address("192.0.2.3:27015")],
                    exits: vec![ids[EXIT]],
                });
                config.games = vec![game];
            }
        }),
    );
    let before = harness.mesh.process(RELAY).node.memory();
    let edge = |game: String, cost| GameEdge {
        protocol: Protocol::Udp,
        game,
        cost,
    };
    let mut message = Vec::new();
    GameEdge::encode(&[edge("echo".into(), Cost::ZERO)], &mut message);
    harness.transmit(&message);
    for round in 0..100 {
        let edges: Vec<GameEdge> = (0..16)
            .map(|index| edge(format!("game{round:03}{index:02}"), Cost::ZERO))
            .collect();
        message.clear();
        GameEdge::encode(&edges, &mut message);
        harness.transmit(&message);
        if round % 10 == 0 {
            harness.mesh.run(200);
        }
    }
    message.pop();
    harness.transmit(&message);
    harness.mesh.run(2_000);
    let relay = &harness.mesh.process(RELAY).node;
    let stats = relay.stats();
    assert_eq!(stats.edges_refused, 1, "{stats:?}");
    assert_eq!((stats.edges_unknown, stats.messages_malformed), (1_600, 1));
    let forged = relay.game_edges().filter(|edge| edge.exit == harness.own);
    assert_eq!(forged.count(), 0);
    assert!(relay.memory() < before + (64 << 10));
}

#[test]
fn pg5_probes_of_no_port_or_too_long_are_no_configuration() {
    let made = |probe: ServerProbe| {
        let seed = Seed::from_number(1);
        let identity = crate::harness::identity(seed, 1);
        let provider = netsim::provider::SimProvider::new(seed);
        let secret = crypto::Secret32::new([7; 32]);
        let mut config = Config::new(secret, wire::InstanceId(1));
        config.probes = BTreeMap::from([("echo".into(), probe)]);
        Node::new(config, identity, provider, wire::Instant::ZERO).map(|_| ())
    };
    let query = |len| ServerProbe::Query {
        request: vec![0; len],
    };
    assert_eq!(made(query(ServerProbe::QUERY_LEN_MAX)), Ok(()));
    assert_eq!(made(query(513)), Err(NewError::Probe));
    assert_eq!(made(ServerProbe::Connect { port: 0 }), Err(NewError::Probe));
    assert_eq!(made(ServerProbe::Connect { port: 1 }), Ok(()));
}

#[cfg(feature = "tcp")]
#[test]
fn pg5_a_tcp_game_is_measured_by_a_connection_where_that_is_asked_for() {
    let measured = |index: usize, config: &mut Config, ids: &[NodeId]| {
        crate::streams::web(index, config, ids);
        if index == EXIT {
            let probe = ServerProbe::Connect { port: 8_080 };
            config.probes.insert("web".into(), probe);
        }
    };
    let server = address(crate::streams::SERVER);
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(crate::streams::web));
    mesh.run(START);
    let mut probes = mesh.process(EXIT).probes.iter();
    assert!(
        probes.all(|(_, at, _)| *at != server),
        "it would be a line in the server's log"
    );
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(measured));
    mesh.run(START);
    let probes = &mesh.process(EXIT).probes;
    let of = probes.iter().find(|(_, at, _)| *at == server).unwrap();
    assert_eq!(of.2, ServerProbe::Connect { port: 8_080 });
    let edges: Vec<_> = mesh.process(ENTRY).node.game_edges().collect();
    let web = edges.iter().find(|edge| edge.game == "web").unwrap();
    assert_eq!(web.protocol, Protocol::Tcp);
    assert_eq!(web.cost, Some(Cost::from_millis(1)));
}
