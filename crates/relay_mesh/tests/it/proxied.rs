//! Players behind proxies in front of a game's port.

use core::net::SocketAddr;

use netsim::{Chance, Datagram, Loss, for_each_seed, test_site};
use relay_mesh::link_state::Roles;
use relay_mesh::proxy_header::{
    Checksum, Ends, HeaderPolicy, LEN_USUAL, Subject, Transport, TrustedProxies, read_datagram,
    write_block,
};
use relay_mesh::{Config, Event, ExitGame, ServerHeader};
use wire::{NodeId, Seed};

use crate::harness::{
    Adjust, ENTRY, EXIT, Mesh, RELAY, START, Shape, address, game, link, ms, player_address,
    server, shape,
};
use crate::signed;

/// The player that the header names. The proxy has the address of the usual player.
const TOLD: &str = "198.51.100.77:4321";

fn proxies(index: usize, config: &mut Config, need: HeaderPolicy) {
    if index == ENTRY {
        let trusted = TrustedProxies::parse(["203.0.113.0/24"], need).unwrap();
        config.proxies = [("echo".to_owned(), trusted)].into();
    }
    let Some(game) = config.games.first_mut() else {
        return;
    };
    if let Some(exit) = &mut game.exit {
        exit.header = Some(ServerHeader::default());
    }
}

fn required(index: usize, config: &mut Config, _: &[NodeId]) {
    proxies(index, config, HeaderPolicy::Required);
}

/// Connections of the game need no header, but its datagrams do.
fn optional(index: usize, config: &mut Config, _: &[NodeId]) {
    proxies(index, config, HeaderPolicy::Optional);
}

/// The game is from the signed document, the proxies from the entry's own file.
fn of_document(index: usize, config: &mut Config, ids: &[NodeId]) {
    signed::signed(index, config, ids);
    required(index, config, ids);
}

/// The entry is also the exit.
fn here(index: usize, config: &mut Config, ids: &[NodeId]) {
    if index == ENTRY {
        config.profile.roles = Roles::ALL;
        config.games[0].exit = Some(ExitGame {
            server: server(),
            entries: None,
            header: None,
        });
        config.games[0].entry.as_mut().unwrap().exits = vec![ids[ENTRY]];
    }
    required(index, config, ids);
}

fn header(source: SocketAddr, transport: Transport) -> Vec<u8> {
    let ends = Ends {
        transport,
        source,
        destination: game(),
    };
    let mut out = Vec::new();
    write_block(&Subject::Flow(ends), &[], Checksum::Crc32c, &mut out).unwrap();
    out
}

/// A mesh in which the player is a proxy that prepends this header.
fn mesh(seed: Seed, shape: &Shape, header: Vec<u8>) -> Mesh {
    let mut mesh = Mesh::new(seed, shape);
    let server = mesh.server;
    mesh.world
        .apply(server, |server, _| server.takes_headers = true);
    let player = mesh.player;
    mesh.world.apply(player, |player, _| player.header = header);
    mesh
}

/// Players of the flows that the entry opened, in order.
fn opened(mesh: &Mesh) -> Vec<SocketAddr> {
    let events = mesh.process(ENTRY).events.iter();
    let players = events.filter_map(|(_, event)| {
        if let Event::FlowOpened { player, .. } = event {
            return Some(*player);
        }
        None
    });
    players.collect()
}

fn refused(mesh: &Mesh) -> u64 {
    mesh.process(ENTRY).node.stats().headers_refused
}

#[test]
fn sim_pgx10_a_server_learns_the_player_behind_a_proxy_of_the_entry() {
    let reported = address(TOLD);
    let sides: [(Adjust, usize); 2] = [(required, EXIT), (here, ENTRY)];
    for_each_seed(&test_site!(), 3, |seed| {
        for (adjust, exit) in sides {
            let header = header(reported, Transport::Datagram);
            let mut mesh = mesh(seed, &shape(adjust), header);
            let (relay, exit) = (mesh.nodes[RELAY], mesh.nodes[exit]);
            let lossy = link(15).with_loss(Loss::Bernoulli(Chance::percent(2)));
            mesh.world.set_links(relay, exit, lossy);
            let tap = mesh.world.tap(exit, mesh.server, 100_000);
            mesh.run(START + 4_000);
            let first = &mesh.world.captured(tap)[0].datagram.bytes;
            let said = read_datagram(first, LEN_USUAL).unwrap().unwrap();
            assert_eq!(said.ends().unwrap().source, reported);
            assert_eq!(first.len(), said.len + 100, "what the proxy wrote is off");
            assert_eq!(opened(&mesh), [reported], "one flow");
            assert_eq!(mesh.player().faults, 0, "answers are bare");
            assert!(mesh.player().answers.len() > 180);
            assert_eq!(refused(&mesh), 0);
        }
    });
}

#[test]
fn pgx10_invalid_headers_at_a_port_behind_proxies_are_counted_drops() {
    let reported = address(TOLD);
    let good = header(reported, Transport::Datagram);
    let mut mesh = mesh(Seed::from_number(1), &shape(required), good.clone());
    mesh.run(START + 1_000);
    let before = mesh.process(EXIT).sockets();
    let outsider = address("198.51.100.99:50");
    mesh.world.bind_address(mesh.player, outsider);
    let proxy = |port| SocketAddr::new(player_address().ip(), port);
    let mut torn = good.clone();
    torn.truncate(20);
    let mut changed = good.clone();
    changed[20] ^= 1;
    let stream = header(reported, Transport::Stream);
    let mut cases = vec![
        (outsider, good),
        (outsider, torn.clone()),
        (proxy(60), torn),
        (proxy(60), changed),
        (proxy(60), stream),
        (proxy(60), b"without a header".to_vec()),
        (proxy(60), Vec::new()),
        // From a proxy that has a flow.
        (player_address(), b"without a header".to_vec()),
    ];
    // No player sends from these addresses.
    for nobody in [
        "198.51.100.77:0",
        "0.0.0.0:9",
        "224.0.0.251:9",
        "255.255.255.255:9",
        "[::]:9",
        "[ff02::1]:9",
        "[2001:db8::1]:0",
    ] {
        let said = header(address(nobody), Transport::Datagram);
        cases.push((proxy(60), [&*said, &[7; 20]].concat()));
    }
    for (source, bytes) in cases {
        let count = refused(&mesh);
        mesh.world
            .inject(ms(0), Datagram::new(source, game(), bytes.clone()));
        mesh.run(50);
        assert_eq!(refused(&mesh), count + 1, "{source} {bytes:02x?}");
    }
    assert_eq!(mesh.process(EXIT).sockets(), before, "no flow");
    assert_eq!(opened(&mesh), [reported]);
    // A sender that is not a proxy and sends no header is a player. So is a proxy that sends a
    // header for itself.
    let mut local = Vec::new();
    write_block(&Subject::Proxy, &[], Checksum::None, &mut local).unwrap();
    local.extend([7; 20]);
    for (source, bytes) in [(outsider, vec![7; 20]), (proxy(61), local)] {
        mesh.world
            .inject(ms(0), Datagram::new(source, game(), bytes));
        mesh.run(50);
    }
    assert_eq!(opened(&mesh), [reported, outsider, proxy(61)]);
    let now = mesh.now();
    assert!(mesh.player().gap(now.saturating_sub(ms(400)), now) < ms(50));
    // Its own answers, and those to the injected datagrams.
    assert!(mesh.player().faults <= 2);
}

#[test]
fn pgx10_proxies_stand_before_a_game_of_a_signed_document_too() {
    let reported = address(TOLD);
    let good = header(reported, Transport::Datagram);
    let mut mesh = mesh(Seed::from_number(4), &shape(of_document), good.clone());
    let tap = mesh.world.tap(mesh.nodes[EXIT], mesh.server, 100_000);
    mesh.run(START - 2_000);
    let exit = "\"exit\":";
    let rule = signed::echo().replace(exit, &format!("\"proxy_header\":{{}},{exit}"));
    signed::put_games(&mut mesh, 1, &[rule]);
    mesh.run(6_000);
    let first = &mesh.world.captured(tap)[0].datagram.bytes;
    let said = read_datagram(first, LEN_USUAL).unwrap().unwrap();
    assert_eq!(said.ends().unwrap().source, reported);
    assert_eq!(opened(&mesh), [reported], "one flow");
    assert_eq!((mesh.player().faults, refused(&mesh)), (0, 0));
    assert!(mesh.player().answers.len() > 180);
    let outsider = Datagram::new(address("198.51.100.99:50"), game(), good);
    mesh.world.inject(ms(0), outsider);
    mesh.run(50);
    assert_eq!((refused(&mesh), opened(&mesh)), (1, vec![reported]));
}

/// Sends a datagram to the entry from the proxy.
fn transmit(mesh: &mut Mesh, header: Vec<u8>) {
    let datagram = Datagram::new(player_address(), game(), header);
    mesh.world.inject(ms(0), datagram);
    mesh.run(20);
}

#[test]
fn pgx10_each_player_that_a_proxy_names_at_a_port_has_a_flow_of_his_own() {
    let (one, other) = (address(TOLD), address("198.51.100.78:1"));
    for adjust in [required as Adjust, optional] {
        let first = header(one, Transport::Datagram);
        let mut mesh = mesh(Seed::from_number(2), &shape(adjust), first.clone());
        mesh.run(START + 1_000);
        let player = mesh.player;
        let second = header(other, Transport::Datagram);
        transmit(&mut mesh, second.clone());
        assert_eq!(opened(&mesh), [one, other]);
        // A header that names the proxy itself starts a flow of the proxy.
        let mut local = Vec::new();
        write_block(&Subject::Proxy, &[], Checksum::None, &mut local).unwrap();
        transmit(&mut mesh, local);
        let all = [one, other, player_address()];
        assert_eq!(opened(&mesh), all);
        mesh.world.apply(player, |player, _| player.header = second);
        let count = mesh.player().answers.len();
        mesh.run(1_000);
        // A new player's first answers are rate-limited.
        assert!(mesh.player().answers.len() > count + 20);
        transmit(&mut mesh, first);
        assert_eq!((refused(&mesh), opened(&mesh)), (0, all.to_vec()));
        // Without a header nothing is trusted. A player's own header behind the proxy's is payload.
        mesh.world.apply(player, |player, _| player.header.clear());
        let count = mesh.player().answers.len();
        mesh.run(500);
        assert!(refused(&mesh) > 20);
        assert!(mesh.player().answers.len() < count + 10);
    }
}

#[test]
fn pgx10_forged_proxy_datagrams_neither_take_nor_delay_a_players_flow() {
    let reported = header(address(TOLD), Transport::Datagram);
    let mut mesh = mesh(Seed::from_number(2), &shape(required), reported);
    mesh.run(START + 3_000);
    let forged = [
        header(address("198.51.100.66:6"), Transport::Datagram),
        vec![7; 10],
    ]
    .concat();
    mesh.stop_player();
    mesh.run(1_100);
    transmit(&mut mesh, forged.clone());
    mesh.wake_player();
    let start = mesh.now();
    for _ in 0..25 {
        mesh.run(800);
        transmit(&mut mesh, forged.clone());
    }
    let answers = mesh.player().answers.iter();
    let answered = answers.filter(|(_, sent, _)| *sent >= start).count();
    assert!(answered > 1_200, "{answered} in 20.5 s of 60/s");
    assert_eq!(mesh.process(ENTRY).closed_flows(), []);
}

#[test]
fn pgx11_players_behind_a_proxy_have_the_limits_of_their_own_addresses() {
    // A player named by a trusted proxy counts as validated, so the limit per prefix does not
    // apply. Ended flows free their slots.
    for prefixes in [200, 1] {
        let shape = Shape {
            idle: 3,
            ..shape(required)
        };
        let mut mesh = mesh(Seed::from_number(3), &shape, Vec::new());
        mesh.run(START - 500);
        let player = mesh.player;
        mesh.world
            .apply(player, |player, _| player.is_silent = true);
        for round in 1..=2 {
            for number in 0..200_u8 {
                let reported = SocketAddr::from(([10, 7, number % prefixes, number], 9));
                let proxy = SocketAddr::new(player_address().ip(), 10_000 + u16::from(number));
                let bytes = header(reported, Transport::Datagram);
                mesh.world
                    .inject(ms(0), Datagram::new(proxy, game(), bytes));
                mesh.run(5);
            }
            let opened = opened(&mesh).len();
            assert_eq!(opened, round * 200, "{prefixes}");
            mesh.run(9_000);
        }
    }
}
