//! What an exit reports to a game server about its players.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use crypto::Secret32;
use netsim::provider::SimProvider;
use netsim::{Chance, Datagram, Loss, TapId, Verdict, for_each_seed, test_site};
use relay_mesh::link_state::ShortId;
use relay_mesh::proxy_header::{
    HeaderPolicy, LEN_USUAL, TlvKind, Transport, TrustedProxies, Version, read_datagram,
};
use relay_mesh::{
    Config, ExitGame, Game, HeaderExtras, HeaderTiming, Mode, NewError, Node, PeerAddr,
    ServerHeader,
};
use wire::{InstanceId, Instant, NodeId, Seed};

use crate::alloc::allocations;
use crate::harness::{
    ENTRY, EXIT, Mesh, RELAY, START, Shape, identity, link, mesh_address, player_address, server,
};

/// A header on each datagram.
const EACH: ServerHeader = ServerHeader {
    version: Version::Two,
    timing: HeaderTiming::Each,
    extras: HeaderExtras::NONE,
};

fn tell(index: usize, config: &mut Config, header: ServerHeader) {
    if index == EXIT {
        config.games[0].exit.as_mut().unwrap().header = Some(header);
    }
}

fn tell_all(index: usize, config: &mut Config, _ids: &[NodeId]) {
    let extras = HeaderExtras::CHECKSUM | HeaderExtras::SESSION_ID | HeaderExtras::NODES;
    tell(index, config, ServerHeader { extras, ..EACH });
}

/// A mesh with a server that parses headers, and a tap of what its exit sends to it.
fn mesh(seed: Seed, shape: &Shape) -> (Mesh, TapId) {
    let mut mesh = Mesh::new(seed, shape);
    let (exit, server) = (mesh.nodes[EXIT], mesh.server);
    mesh.world
        .apply(server, |server, _| server.takes_headers = true);
    let tap = mesh.world.tap(exit, server, 100_000);
    (mesh, tap)
}

fn sent(mesh: &Mesh, tap: TapId) -> Vec<Vec<u8>> {
    let captured = mesh.world.captured(tap).iter();
    captured
        .map(|datagram| datagram.datagram.bytes.clone())
        .collect()
}

/// The content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ParsedHeader {
    source: SocketAddr,
    destination: SocketAddr,
    session: Option<Vec<u8>>,
    nodes: Option<Vec<u8>>,
    has_checksum: bool,
    len: usize,
}

/// Parses the header of a datagram, as a server that trusts its exit.
fn said(datagram: &[u8]) -> Option<ParsedHeader> {
    let trusted = TrustedProxies::parse(["192.0.2.0/24"], HeaderPolicy::Optional).unwrap();
    let header = read_datagram(datagram, LEN_USUAL).unwrap()?;
    let exit = mesh_address(EXIT).ip();
    let ends = trusted.judge(exit, Some(&header)).unwrap().unwrap();
    assert_eq!(ends.transport, Transport::Datagram);
    let value = |kind| header.tlv(kind).map(<[u8]>::to_vec);
    Some(ParsedHeader {
        source: ends.source,
        destination: ends.destination,
        session: value(TlvKind::SESSION_ID),
        nodes: value(TlvKind::NODES),
        has_checksum: header.tlv(TlvKind::CRC32C).is_some(),
        len: header.len,
    })
}

fn names(mesh: &Mesh, nodes: &[usize]) -> Vec<u8> {
    let names = nodes.iter().map(|node| ShortId::from(mesh.ids[*node]).0);
    names.collect::<Vec<_>>().concat()
}

#[test]
fn sim_pgx10_each_datagram_carries_its_players_address() {
    for_each_seed(&test_site!(), 3, |seed| {
        let shape = Shape {
            adjust: tell_all,
            ..Shape::default()
        };
        let (mut mesh, tap) = mesh(seed, &shape);
        let (relay, exit) = (mesh.nodes[RELAY], mesh.nodes[EXIT]);
        let lossy = link(15).with_loss(Loss::Bernoulli(Chance::percent(2)));
        mesh.world.set_links(relay, exit, lossy);
        mesh.run(START + 5_000);
        let sent = sent(&mesh, tap);
        assert!(sent.len() > 250, "{}", sent.len());
        let mut sessions = BTreeSet::new();
        let mut ways = BTreeSet::new();
        for datagram in &sent {
            let said = said(datagram).expect("each");
            assert_eq!(
                (said.source, said.destination),
                (player_address(), server())
            );
            assert!(said.has_checksum);
            sessions.insert(said.session.unwrap());
            ways.insert(said.nodes.unwrap());
        }
        let sessions: Vec<_> = sessions.into_iter().collect();
        assert!(
            matches!(&sessions[..], [one] if one.len() == 16),
            "one flow"
        );
        let relays = [RELAY, RELAY + 1, RELAY + 2].map(|relay| names(&mesh, &[ENTRY, relay, EXIT]));
        let direct = names(&mesh, &[ENTRY, EXIT]);
        assert!(
            ways.iter()
                .all(|way| *way == direct || relays.contains(way)),
            "{ways:02x?}"
        );
        assert!(ways.iter().any(|way| relays.contains(way)), "{ways:02x?}");
        assert_eq!(mesh.player().faults, 0);
        assert!(mesh.player().answers.len() > 200);
    });
}

#[test]
fn sim_pgx10_the_first_datagrams_have_headers_until_the_server_answers() {
    for_each_seed(&test_site!(), 3, |seed| {
        let shape = Shape {
            adjust: |index, config, _| tell(index, config, ServerHeader::default()),
            ..Shape::default()
        };
        let (mut mesh, tap) = mesh(seed, &shape);
        mesh.run(START + 3_000);
        let is_told = |datagram: &Vec<u8>| said(datagram).is_some();
        let before = sent(&mesh, tap);
        let reported = before
            .iter()
            .take_while(|datagram| is_told(datagram))
            .count();
        // The server's answer takes 2 ms, and a packet arrives every 16 ms. Packets that waited for
        // the socket arrive at once.
        assert!((1..=20).contains(&reported), "{reported}");
        assert!(!before[reported..].iter().any(is_told));
        assert_eq!(said(&before[0]).unwrap().len, 28, "nothing but addresses");

        mesh.stop_player();
        mesh.run(3_000);
        mesh.wake_player();
        mesh.run(1_000);
        let after = sent(&mesh, tap).split_off(before.len());
        let first = after.iter().position(is_told).unwrap();
        let last = after.iter().rposition(is_told).unwrap();
        assert!(last - first < 3, "{first} to {last} of {}", after.len());
        assert_eq!(mesh.player().faults, 0);
    });
}

#[test]
fn pgx10_no_two_flows_have_the_same_session_id() {
    let shape = Shape {
        adjust: tell_all,
        idle: 3,
        ..Shape::default()
    };
    let (mut mesh, tap) = mesh(Seed::from_number(5), &shape);
    mesh.run(START + 1_000);
    for _ in 0..2 {
        mesh.stop_player();
        mesh.run(5_000);
        mesh.wake_player();
        mesh.run(1_000);
    }
    let sent = sent(&mesh, tap);
    let sessions: BTreeSet<_> = sent
        .iter()
        .map(|bytes| said(bytes).unwrap().session)
        .collect();
    assert_eq!(sessions.len(), 3, "{sessions:02x?}");
}

#[test]
fn pg10_version_one_is_refused_for_a_game_of_datagrams() {
    let mut config = Config::new(Secret32::new([7; 32]), InstanceId(1));
    config.games = vec![Game {
        name: "echo".to_owned(),
        mode: Mode::Shadow,
        entry: None,
        exit: Some(ExitGame {
            server: server(),
            entries: None,
            header: Some(ServerHeader {
                version: Version::One,
                ..ServerHeader::default()
            }),
        }),
    }];
    let seed = Seed::from_number(1);
    let provider = SimProvider::new(seed);
    let node = Node::new(config, identity(seed, EXIT), provider, Instant::ZERO);
    assert_eq!(node.err(), Some(NewError::HeaderVersion));
}

#[test]
fn pgx10_a_header_before_each_datagram_allocates_nothing() {
    let (bare, none) = allocations_of_an_exit(|_, _, _| {});
    let (reported, all) = allocations_of_an_exit(tell_all);
    assert_eq!((none, all), (0, 400));
    assert_eq!(reported, bare, "more than without");
}

/// Number of allocations of an exit for 400 datagrams, and how many of these had a header.
fn allocations_of_an_exit(adjust: fn(usize, &mut Config, &[NodeId])) -> (u64, usize) {
    let shape = Shape {
        rate: 5_000,
        adjust,
        ..Shape::default()
    };
    let (mut mesh, _) = mesh(Seed::from_number(1), &shape);
    let (relay, exit) = (mesh.nodes[RELAY], mesh.nodes[EXIT]);
    mesh.run(START + 1_000);
    // Genuine frames that the exit has not seen.
    let tap = mesh.world.tap(relay, exit, 100_000);
    mesh.world
        .intercept(relay, exit, |_, datagram: &mut Datagram| {
            if datagram.bytes.first() == Some(&0x81) {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        });
    mesh.run(120);
    let is_long = |bytes: &Vec<u8>| bytes.first() == Some(&0x81) && bytes.len() > 140;
    let frames: Vec<Vec<u8>> = sent(&mesh, tap).into_iter().filter(is_long).collect();
    // Probes are as long as data, but have another label.
    let mut counts = BTreeMap::<[u8; 4], usize>::new();
    let label = |frame: &Vec<u8>| <[u8; 4]>::try_from(&frame[4..8]).unwrap();
    for frame in &frames {
        *counts.entry(label(frame)).or_default() += 1;
    }
    let (of_data, _) = counts.into_iter().max_by_key(|(_, count)| *count).unwrap();
    let frames = frames.into_iter().filter(|frame| label(frame) == of_data);
    let mut frames: Vec<Vec<u8>> = frames.take(500).collect();
    assert_eq!(frames.len(), 500);
    mesh.world.apply(exit, |process, now| {
        let mut out = Vec::with_capacity(2_048);
        let mut pass = |frame: &mut Vec<u8>| {
            let peer_addr = PeerAddr::mesh(mesh_address(RELAY));
            process.node.handle_datagram(now, peer_addr.into(), frame);
            let mut reported = 0;
            while process.node.poll_transmit(now, &mut out).is_some() {
                reported += usize::from(out.starts_with(b"\r\n\r\n\0\r\nQUIT\n"));
                out.clear();
            }
            reported
        };
        let (warm, counted) = frames.split_at_mut(100);
        let warmed: usize = warm.iter_mut().map(&mut pass).sum();
        let start = allocations();
        let reported: usize = counted.iter_mut().map(pass).sum();
        assert_eq!(warmed, reported / 4);
        (allocations() - start, reported)
    })
}
