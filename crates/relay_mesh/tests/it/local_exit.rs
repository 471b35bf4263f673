//! Players whose entry is also their exit.

use netsim::Datagram;
use relay_mesh::link_state::Roles;
use relay_mesh::{
    Config, Event, ExitGame, FlowEnd, Outcome, ServerHeader, ServerProbe, TurnedAway,
};
use std::collections::BTreeMap;
use wire::{NodeId, Seed};

use crate::harness::{ENTRY, EXIT, Mesh, START, address, game, link, ms, server, shape};
use crate::signed::{ALL, put_games, rule, signed};

/// The game has two exits: the entry itself and the usual one.
fn here(index: usize, config: &mut Config, ids: &[NodeId]) {
    if index != ENTRY {
        return;
    }
    config.profile.roles = Roles::ALL;
    let game = &mut config.games[0];
    if let Some(entry) = &mut game.entry {
        entry.exits = vec![ids[EXIT], ids[ENTRY]];
    }
    game.exit = Some(ExitGame {
        server: server(),
        entries: None,
        header: None,
    });
    config.probes = BTreeMap::from([("echo".into(), ServerProbe::Icmp)]);
}

/// The same, without the other exit.
fn here_alone(index: usize, config: &mut Config, ids: &[NodeId]) {
    here(index, config, ids);
    if let Some(entry) = &mut config.games[0].entry {
        entry.exits = vec![ids[ENTRY]];
    }
}

fn mesh(adjust: fn(usize, &mut Config, &[NodeId])) -> Mesh {
    let mut mesh = Mesh::new(Seed::from_number(9), &shape(adjust));
    let (entry, server) = (mesh.nodes[ENTRY], mesh.server);
    mesh.world.set_links(entry, server, link(1));
    mesh
}

fn last_exit(mesh: &Mesh) -> Option<NodeId> {
    let mut events = mesh.process(ENTRY).events.iter().rev();
    events.find_map(|(_, event)| {
        if let Event::FlowOpened { remote_end, .. } = event {
            Some(*remote_end)
        } else {
            None
        }
    })
}

#[test]
fn pg7_an_exit_at_the_entry_serves_its_players_without_the_mesh() {
    let mut mesh = mesh(here_alone);
    mesh.run(START + 5_000);
    assert_eq!(mesh.player().faults, 0);
    let now = mesh.now();
    let trip = mesh.player().round_trip(now.saturating_sub(ms(2_000)), now);
    assert_eq!(trip, ms(12), "to the entry and its server, and back");
    assert_eq!(mesh.player().missing_from(mesh.player().sent() - 60), 1);
    let entry = mesh.process(ENTRY);
    assert_eq!(entry.node.frame_stats().sealed, 0);
    assert_eq!(last_exit(&mesh), Some(mesh.ids[ENTRY]));
    let view: Vec<_> = entry.node.routes().collect();
    assert_eq!(view.len(), 1);
    assert_eq!((view[0].remote_end, view[0].flows), (mesh.ids[ENTRY], 1));
    let sockets = entry.sockets();
    mesh.stop_player();
    mesh.run(62_000);
    let entry = mesh.process(ENTRY);
    assert_eq!(entry.closed_flows(), [FlowEnd::Idle]);
    assert_eq!(entry.sockets(), sockets - 1, "and its socket is closed");
    assert_eq!(entry.node.routes().count(), 0);
}

/// 60 datagrams of 100 bytes per second, of which the rate admits 10.
#[test]
fn mesh_a3_the_rate_of_a_flow_holds_where_the_exit_is_the_entry() {
    let mut mesh = mesh(|index, config, ids| {
        here_alone(index, config, ids);
        config.flow_rate = 1_000;
    });
    mesh.run(START + 10_000);
    let entry = mesh.process(ENTRY);
    assert!(entry.node.stats().over_flow_rate > 400);
    let reported = mesh.turned_away(ENTRY);
    assert!(
        matches!(reported[..], [(TurnedAway::FlowRate, _)]),
        "{reported:?}"
    );
    let answered = mesh.player().sent() - mesh.player().missing();
    assert!((60..=120).contains(&answered), "{answered}");
}

/// The player's 6,000 bytes/s are within the rate. Three copies of each answer are not.
#[test]
fn mesh_a3_server_datagrams_have_their_own_rate_at_a_local_exit() {
    let mut mesh = mesh(|index, config, ids| {
        here_alone(index, config, ids);
        config.flow_rate = 8_000;
    });
    let server = mesh.server;
    mesh.world.apply(server, |server, _| server.copies = 2);
    mesh.run(START + 10_000);
    let got: u64 = mesh.world[server].sources.values().sum();
    assert!(
        got + 2 >= mesh.player().sent(),
        "{got}: all reach the server"
    );
    let over = mesh.process(ENTRY).node.stats().over_flow_rate;
    // 80 of 180 per second pass.
    assert!((700..1_100).contains(&over), "{over}");
}

#[test]
fn pg7_an_exit_at_the_entry_is_chosen_by_cost_like_any_other() {
    for (own, expected) in [(2, ENTRY), (900, EXIT)] {
        let mut mesh = mesh(here);
        let node = mesh.nodes[ENTRY];
        mesh.world.apply(node, |process, _| {
            let span = Outcome::Measured(ms(own));
            process.answers.insert(server(), Some(span));
        });
        mesh.run(START + 2_000);
        assert_eq!(last_exit(&mesh), Some(mesh.ids[expected]), "{own}");
        assert_eq!(mesh.player().faults, 0);
        assert!(mesh.player().answers.len() > 60);
    }
}

#[test]
fn pg7_an_exit_at_the_entry_without_a_socket_sends_its_players_elsewhere() {
    let mut mesh = mesh(here);
    let node = mesh.nodes[ENTRY];
    mesh.run(START - 1_000);
    mesh.world.apply(node, |process, _| {
        process.sockets_max = process.sockets();
    });
    mesh.run(3_000);
    assert_eq!(mesh.process(ENTRY).closed_flows(), [FlowEnd::Refused]);
    assert_eq!(last_exit(&mesh), Some(mesh.ids[EXIT]));
    assert!(mesh.player().answers.len() > 60);
}

#[test]
fn pg7_a_server_behind_the_entry_gets_its_players_addresses() {
    let mut mesh = mesh(|index, config, ids| {
        here_alone(index, config, ids);
        if let Some(exit) = &mut config.games[0].exit {
            exit.header = Some(ServerHeader::default());
        }
    });
    let server = mesh.server;
    mesh.world
        .apply(server, |server, _| server.takes_headers = true);
    mesh.run(START + 2_000);
    assert_eq!(mesh.player().faults, 0);
    assert!(mesh.player().answers.len() > 60);
}

#[test]
fn pg7_forged_players_of_a_server_behind_the_entry_get_their_ration() {
    let mut mesh = mesh(here_alone);
    mesh.run(START - 1_000);
    let server = mesh.server;
    mesh.world.apply(server, |server, _| server.copies = 9);
    let victim = address("203.0.113.200:99");
    mesh.world.bind_address(mesh.player, victim);
    let tap = mesh.world.tap_all(100_000);
    // All at once: a sender that does not receive the answers does not know when to send.
    for _ in 0..10 {
        let datagram = Datagram::new(victim, game(), vec![1; 100]);
        mesh.world.inject(ms(0), datagram);
    }
    mesh.run(800);
    let captured = mesh.world.captured(tap).iter();
    let got = captured.filter(|of| of.datagram.destination == victim);
    let got = got.count();
    assert!((1..=4).contains(&got), "of 100 answers: {got}");
    assert!(mesh.process(ENTRY).node.stats().over_reply_budget > 50);
}

#[test]
fn pg7_a_document_makes_an_entry_the_exit_of_its_players_and_bars_it() {
    let mut mesh = mesh(|index, config, ids| {
        signed(index, config, ids);
        if index == ENTRY {
            config.profile.roles = Roles::ALL;
            config.probes = BTreeMap::from([("echo".into(), ServerProbe::Icmp)]);
        }
    });
    mesh.run(START - 2_000);
    put_games(&mut mesh, 1, &[rule("echo", game().port(), ALL, ALL)]);
    mesh.run(4_000);
    assert_eq!(last_exit(&mesh), Some(mesh.ids[ENTRY]));
    let own = mesh.ids[ENTRY];
    let list = format!("{{\"type\":\"black\",\"nodes\":[\"{own}\"]}}");
    put_games(&mut mesh, 2, &[rule("echo", game().port(), ALL, &list)]);
    mesh.run(3_000);
    assert_eq!(mesh.process(ENTRY).closed_flows(), [FlowEnd::Local]);
    assert_eq!(last_exit(&mesh), Some(mesh.ids[EXIT]));
    let now = mesh.now();
    assert!(mesh.player().gap(now.saturating_sub(ms(1_000)), now) < ms(50));
}

#[test]
fn pg7_an_unreachable_exit_is_reported_and_counted() {
    let mut mesh = mesh(|_, _, _| {});
    mesh.run(START - 2_000);
    mesh.kill(EXIT);
    mesh.run(17_000);
    let entry = mesh.process(ENTRY);
    let is_it = |event: &Event| matches!(event, Event::NoExit { game } if game == "echo");
    let times = entry.events.iter().filter(|(_, event)| is_it(event));
    let times = times.count();
    assert!((1..=2).contains(&times), "each 10 s: {times}");
    let stats = entry.node.stats();
    assert!(stats.no_exit > 100, "{stats:?}");
    assert!(stats.no_exit <= stats.refused_players);
    assert_eq!(entry.node.route_to_game(&mesh.ids[ENTRY], "echo"), None);
    assert!(entry.node.carries_game("echo") && !entry.node.carries_game("chess"));
}

#[cfg(feature = "tcp")]
#[test]
fn pg7_a_tcp_game_passes_an_exit_at_its_entry() {
    use crate::streams::{LISTEN, SERVER, epoch, words};
    use relay_mesh::tunnel::ConnEnd;
    use relay_mesh::{EntryGame, Game, Mode, TcpConfig};

    let mut mesh = mesh(|index, config, ids| {
        let mut tcp = TcpConfig::new(epoch());
        if index == ENTRY {
            config.profile.roles = Roles::ALL;
            tcp.games = vec![Game {
                name: "web".into(),
                mode: Mode::Shadow,
                entry: Some(EntryGame {
                    listen: vec![address(LISTEN)],
                    exits: vec![ids[ENTRY]],
                }),
                exit: Some(ExitGame {
                    server: address(SERVER),
                    entries: None,
                    header: None,
                }),
            }];
        }
        config.tcp = Some(tcp);
    });
    mesh.stop_player();
    mesh.run(START);
    let words = words(300_000);
    mesh.connect(&words).unwrap();
    mesh.run(3_000);
    let entry = mesh.process(ENTRY);
    assert_eq!(entry.streams.held.len(), 2, "the player's and the server's");
    for stream in entry.streams.held.values() {
        assert_eq!(stream.end, Some(ConnEnd::Done), "{}", stream.is_server);
        assert!(stream.got == words);
    }
    assert_eq!(entry.node.tcp_len(), (0, 2));
    assert_eq!(entry.node.frame_stats().sealed, 0);
    mesh.run(65_000);
    assert_eq!(mesh.process(ENTRY).node.tcp_len(), (0, 0), "an idle tunnel");
}
