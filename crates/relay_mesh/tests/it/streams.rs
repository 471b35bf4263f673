//! TCP games through a mesh: what the driver of a node's TCP sockets does, and the results.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use crypto::Provider;
use netsim::{Chance, Loss, for_each_seed, test_site};
use relay_mesh::flow_message::FlowMessage;
use relay_mesh::proxy_header::{Found, LEN_USUAL, read};
use relay_mesh::tunnel::{ConnEnd, ConnId, Refusal, TunnelEnd};
use relay_mesh::{
    Config, EntryGame, ExitGame, FlowId, Game, Mode, Node, ServerHeader, TcpConfig, TcpPort,
    TcpRefused, TcpWork,
};
use wire::{Instant, NodeId, Seed};

use crate::detour::part;
use crate::harness::{Adjust, ENTRY, EXIT, Mesh, RELAY, START, address, link, server, shape};
use crate::member::Harness;
use crate::signed::{ALL, put_games, rule, signed};

/// The TCP sockets of a process: players at an entry, and echo servers behind an exit.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) ports: Vec<TcpPort>,
    pub(crate) held: BTreeMap<ConnId, Stream>,
    /// Servers that were dialled.
    pub(crate) dialled: Vec<SocketAddr>,
    /// Why servers are unreachable, if they are.
    refusal: Option<Refusal>,
}

#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) is_server: bool,
    to_write: Vec<u8>,
    half: Half,
    pub(crate) got: Vec<u8>,
    has_all: bool,
    pub(crate) end: Option<ConnEnd>,
}

/// The half toward the remote end.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Half {
    #[default]
    Open,
    /// Closes after the pending bytes are written.
    Closing,
    Closed,
}

impl Streams {
    /// Makes its server refuse connections from now on.
    pub(crate) fn refuse(&mut self) {
        self.refusal = Some(Refusal::Server);
    }

    pub(crate) fn obey<P: Provider>(&mut self, node: &mut Node<P>, now: Instant, work: TcpWork) {
        match work {
            TcpWork::Listen { port, .. } => {
                self.ports.push(port);
                node.tcp_listening(now, port, Ok(()));
            }
            TcpWork::Unlisten { port } => self.ports.retain(|open| *open != port),
            TcpWork::Dial { conn, server } => {
                self.dialled.push(server);
                let stream = Stream {
                    is_server: true,
                    ..Stream::default()
                };
                self.held.insert(conn, stream);
                let outcome = self.refusal.map_or(Ok(()), Err);
                node.tcp_dialled(now, conn, outcome).unwrap();
            }
            TcpWork::Readable { conn } => self.read(node, conn),
            TcpWork::Writable { conn } => self.write(node, conn),
            TcpWork::Finished { conn } => {
                let stream = self.held.get_mut(&conn).unwrap();
                stream.has_all = true;
                if stream.is_server {
                    stream.half = Half::Closing;
                }
                self.write(node, conn);
            }
            TcpWork::Ended { conn, end } => self.held.get_mut(&conn).unwrap().end = Some(end),
            _ => panic!("{work:?}"),
        }
    }

    fn read<P: Provider>(&mut self, node: &mut Node<P>, conn: ConnId) {
        let stream = self.held.get_mut(&conn).unwrap();
        loop {
            let bytes = node.tcp_readable(conn);
            let len = bytes.len();
            if len == 0 {
                break;
            }
            stream.got.extend_from_slice(bytes);
            if stream.is_server {
                stream.to_write.extend_from_slice(bytes);
            }
            node.tcp_consume(conn, len);
        }
        self.write(node, conn);
    }

    fn write<P: Provider>(&mut self, node: &mut Node<P>, conn: ConnId) {
        let stream = self.held.get_mut(&conn).unwrap();
        let Ok(taken) = node.tcp_write(conn, &stream.to_write) else {
            return;
        };
        stream.to_write.drain(..taken);
        if stream.half == Half::Closing && stream.to_write.is_empty() {
            stream.half = Half::Closed;
            node.tcp_finish(conn).unwrap();
        }
    }
}

impl Mesh {
    /// Opens a player's connection at the entry.
    pub(crate) fn connect_open(&mut self) -> ConnId {
        let entry = self.nodes[ENTRY];
        self.world.apply(entry, |process, now| {
            let port = process.streams.ports[0];
            let ends = (address(PLAYER), address(LISTEN));
            let conn = process.node.tcp_accept(now, port, ends).unwrap();
            process.streams.held.insert(conn, Stream::default());
            conn
        })
    }

    /// Opens a player's connection at the entry, sends `words` and closes that half.
    pub(crate) fn connect(&mut self, words: &[u8]) -> Result<ConnId, TcpRefused> {
        let entry = self.nodes[ENTRY];
        self.world.apply(entry, |process, now| {
            let port = process.streams.ports[0];
            let ends = (address(PLAYER), address(LISTEN));
            let conn = process.node.tcp_accept(now, port, ends)?;
            let stream = Stream {
                to_write: words.to_vec(),
                half: Half::Closing,
                ..Stream::default()
            };
            process.streams.held.insert(conn, stream);
            process.streams.write(&mut process.node, conn);
            Ok(conn)
        })
    }

    /// Sends more on a connection that the player keeps open.
    pub(crate) fn transmit(&mut self, conn: ConnId, words: &[u8]) {
        let entry = self.nodes[ENTRY];
        self.world.apply(entry, |process, _| {
            let stream = process.streams.held.get_mut(&conn).unwrap();
            stream.to_write.extend_from_slice(words);
            process.streams.write(&mut process.node, conn);
        });
    }

    fn stream(&self, index: usize) -> &Stream {
        let held = &self.process(index).streams.held;
        assert_eq!(held.len(), 1);
        held.values().next().unwrap()
    }
}

const PLAYER: &str = "203.0.113.77:4000";
pub(crate) const LISTEN: &str = "192.0.2.1:443";
pub(crate) const SERVER: &str = "198.51.100.8:8080";

pub(crate) fn web(index: usize, config: &mut Config, ids: &[NodeId]) {
    let mut tcp = TcpConfig::new(epoch());
    tcp.games = vec![Game {
        name: "web".into(),
        mode: Mode::Shadow,
        entry: (index == ENTRY).then(|| EntryGame {
            listen: vec![address(LISTEN)],
            exits: vec![ids[EXIT]],
        }),
        exit: (index == EXIT).then(|| ExitGame {
            server: address(SERVER),
            entries: None,
            header: None,
        }),
    }];
    config.tcp = Some(tcp);
}

fn at_exit(index: usize, config: &mut Config, change: impl FnOnce(&mut ExitGame)) {
    let tcp = config.tcp.as_mut().filter(|_| index == EXIT);
    if let Some(exit) = tcp.and_then(|tcp| tcp.games[0].exit.as_mut()) {
        change(exit);
    }
}

pub(crate) fn words(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at ^ (at >> 8)).to_le_bytes()[0])
        .collect()
}

#[test]
fn pg8_a_tcp_game_passes_over_no_relay_and_over_one() {
    for (relays, direct) in [(&[][..], 20), (&[RELAY], 80)] {
        let mut mesh = Mesh::new(Seed::from_number(1), &shape(web));
        mesh.world
            .set_links(mesh.nodes[ENTRY], mesh.nodes[EXIT], link(direct));
        mesh.stop_player();
        mesh.run(START);
        let words = words(300_000);
        mesh.connect(&words).unwrap();
        mesh.run(5_000);
        assert_eq!(mesh.route(), Some(mesh.path(relays)));
        assert!(mesh.stream(EXIT).got == words && mesh.stream(ENTRY).got == words);
        for end in [ENTRY, EXIT] {
            assert_eq!(mesh.stream(end).end, Some(ConnEnd::Done));
            assert_eq!(mesh.process(end).node.tcp_len(), (0, 1));
        }
        assert_eq!(mesh.process(EXIT).streams.dialled, [address(SERVER)]);
        mesh.run(65_000);
        for end in [ENTRY, EXIT] {
            assert_eq!(mesh.process(end).node.tcp_len(), (0, 0), "an idle tunnel");
        }
    }
}

/// The web game alone, without a UDP game.
fn web_alone(index: usize, config: &mut Config, ids: &[NodeId]) {
    web(index, config, ids);
    config.games = Vec::new();
}

/// The same from a signed document. The node's own file has no game.
fn web_signed(index: usize, config: &mut Config, ids: &[NodeId]) {
    signed(index, config, ids);
    config.tcp = Some(TcpConfig::new(epoch()));
}

#[test]
fn sim_ends_of_a_tcp_game_without_a_direct_path_use_a_relay() {
    for_each_seed(&test_site!(), 4, |seed| {
        for is_signed in [false, true] {
            let games = if is_signed { web_signed } else { web_alone };
            let mut mesh = Mesh::new(seed, &shape(games));
            part(&mut mesh);
            mesh.stop_player();
            mesh.run(START - 2_000);
            if is_signed {
                let game = rule("web", 443, ALL, ALL).replace("udp", "tcp");
                put_games(&mut mesh, 1, &[game.replace(&server().to_string(), SERVER)]);
            }
            mesh.run(20_000);
            let words = words(100_000);
            mesh.connect(&words).unwrap();
            mesh.run(10_000);
            assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
            assert!(mesh.stream(EXIT).got == words && mesh.stream(ENTRY).got == words);
        }
    });
}

#[test]
fn sim_pgx3_a_stream_outlives_its_relay() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut mesh = Mesh::new(seed, &shape(web));
        mesh.run(START);
        let words = words(2 << 20);
        mesh.connect(&words).unwrap();
        mesh.run(1_500);
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
        let before = mesh.stream(EXIT).got.len();
        assert!((1..words.len()).contains(&before), "{before}");
        mesh.kill(RELAY);
        mesh.run(3_000);
        let after = mesh.stream(EXIT).got.len();
        assert!(after > before, "nothing came for 3 s");
        mesh.run(40_000);
        assert_eq!(mesh.stream(ENTRY).end, Some(ConnEnd::Done));
        assert!(mesh.stream(EXIT).got == words && mesh.stream(ENTRY).got == words);
    });
}

#[test]
fn pg8_the_failure_of_an_exit_resets_its_players() {
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(web));
    mesh.run(START);
    mesh.connect(&words(8 << 20)).unwrap();
    mesh.run(1_000);
    mesh.kill(EXIT);
    mesh.run(30_000);
    let lost = ConnEnd::Lost(TunnelEnd::Silent);
    assert_eq!(mesh.stream(ENTRY).end, Some(lost));
    assert_eq!(mesh.process(ENTRY).node.tcp_len(), (0, 0));
    assert_eq!(mesh.connect(b"x"), Err(TcpRefused::NoExit));
}

#[test]
fn pg11_pgd_p6_an_unknown_peers_stream_is_refused_by_the_exit() {
    let mut mesh = Mesh::new(
        Seed::from_number(1),
        &shape(|index, config, ids| {
            web(index, config, ids);
            at_exit(index, config, |exit| exit.entries = Some(BTreeSet::new()));
        }),
    );
    mesh.run(START);
    mesh.connect(b"secret").unwrap();
    mesh.run(2_000);
    let refused = ConnEnd::Refused(Refusal::Policy);
    assert_eq!(mesh.stream(ENTRY).end, Some(refused));
    assert!(
        mesh.process(EXIT).streams.held.is_empty(),
        "its server was dialled"
    );
}

#[test]
fn pg8_a_server_that_cannot_be_reached_resets_the_player() {
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(web));
    let exit = mesh.nodes[EXIT];
    mesh.world.apply(exit, |process, _| {
        process.streams.refusal = Some(Refusal::Server);
    });
    mesh.run(START);
    mesh.connect(b"hello").unwrap();
    mesh.run(2_000);
    let refused = ConnEnd::Refused(Refusal::Server);
    assert_eq!(mesh.stream(ENTRY).end, Some(refused));
    assert_eq!(mesh.process(EXIT).node.tcp_len(), (0, 1));
}

#[test]
fn pg10_a_server_gets_its_players_address_once_before_the_first_byte() {
    let mut mesh = Mesh::new(
        Seed::from_number(1),
        &shape(|index, config, ids| {
            web(index, config, ids);
            let header = Some(ServerHeader::default());
            at_exit(index, config, |exit| exit.header = header);
        }),
    );
    mesh.run(START);
    mesh.connect(b"GET /").unwrap();
    mesh.run(3_000);
    let got = &mesh.stream(EXIT).got;
    let Ok(Found::Header(header)) = read(got, LEN_USUAL) else {
        panic!("{got:?}");
    };
    let ends = header.ends().unwrap();
    let reported: [SocketAddr; 2] = [ends.source, ends.destination];
    assert_eq!(reported, [address(PLAYER), address(LISTEN)]);
    assert_eq!(&got[header.len..], b"GET /");
}

#[expect(
    clippy::disallowed_methods,
    reason = "the standard library's time has no number; only differences to this one count"
)]
pub(crate) fn epoch() -> std::time::Instant {
    std::time::Instant::now()
}

/// The 99th percentile of a player's wait for an echo, in ms: 100 bytes every 16 ms, over lines
/// that lose 5 of 1,000.
fn patience(seed: Seed, adjust: Adjust) -> u64 {
    let mut mesh = Mesh::new(seed, &shape(adjust));
    let (entry, exit) = (mesh.nodes[ENTRY], mesh.nodes[EXIT]);
    let lossy = |delay| link(delay).with_loss(Loss::Bernoulli(Chance::per_million(5_000)));
    for relay in mesh.nodes[RELAY..].iter().copied() {
        mesh.world.set_links(entry, relay, lossy(20));
        mesh.world.set_links(relay, exit, lossy(20));
    }
    mesh.world.set_links(entry, exit, lossy(100));
    mesh.run(START + 4_000);
    let conn = mesh.connect_open();
    mesh.transmit(conn, &[1; 100]);
    mesh.run(1_000);
    let (mut waits, mut said) = (Vec::new(), Vec::new());
    for millis in 0_u64..32_000 {
        let incoming = mesh.stream(ENTRY).got.len() / 100;
        waits.extend((waits.len() + 1..incoming).map(|word| millis - said[word - 1]));
        if millis % 16 == 0 && millis < 30_000 {
            mesh.transmit(conn, &[2; 100]);
            said.push(millis);
        }
        mesh.run(1);
    }
    assert_eq!(waits.len(), said.len(), "all were heard");
    waits.sort_unstable();
    waits[waits.len() * 99 / 100]
}

fn web_dup(index: usize, config: &mut Config, ids: &[NodeId]) {
    web(index, config, ids);
    let games = config.tcp.iter_mut().flat_map(|tcp| &mut tcp.games);
    games.for_each(|game| game.mode = Mode::Dup);
}

#[test]
fn sim_mesh_c2_a_stream_over_two_paths_waits_for_no_lost_packet() {
    for_each_seed(&test_site!(), 2, |seed| {
        // The round trip takes 80 ms, and the server is on the exit's host.
        let (dup, shadow) = (patience(seed, web_dup), patience(seed, web));
        assert!(dup < 130, "{dup}");
        assert!(shadow > dup + 50, "{shadow} with one path, {dup} with two");
    });
}

/// Two games that differ only in their mode.
pub(crate) fn web_and_chat(index: usize, config: &mut Config, ids: &[NodeId]) {
    web(index, config, ids);
    let tcp = config.tcp.as_mut().unwrap();
    let mut chat = tcp.games[0].clone();
    (chat.name, chat.mode) = ("chat".into(), Mode::Dup);
    if let Some(entry) = &mut chat.entry {
        entry.listen = vec![address("192.0.2.1:444")];
    }
    tcp.games.push(chat);
}

#[test]
fn games_of_one_mode_share_a_tunnel_and_those_of_another_have_their_own() {
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(web_and_chat));
    mesh.stop_player();
    mesh.run(START);
    let entry = mesh.nodes[ENTRY];
    let conns: Vec<ConnId> = [0, 1, 0, 1]
        .map(|port| {
            mesh.world.apply(entry, |process, now| {
                let port = process.streams.ports[port];
                let ends = (address(PLAYER), address(LISTEN));
                let conn = process.node.tcp_accept(now, port, ends).unwrap();
                process.streams.held.insert(conn, Stream::default());
                conn
            })
        })
        .to_vec();
    for (conn, word) in conns.iter().zip(0..) {
        mesh.transmit(*conn, &[word; 100]);
    }
    mesh.run(2_000);
    for end in [ENTRY, EXIT] {
        assert_eq!(mesh.process(end).node.tcp_len(), (4, 2), "{end}");
    }
    let held = &mesh.process(ENTRY).streams.held;
    for (conn, word) in conns.iter().zip(0..) {
        assert_eq!(held[conn].got, [word; 100]);
    }
}

#[test]
fn mesh_a1_an_entry_has_one_tunnel_of_each_mode_at_an_exit() {
    let mut harness = Harness::at(5, &shape(web_and_chat), EXIT);
    let tunnels = |harness: &Harness| harness.mesh.process(EXIT).node.tcp_len().1;
    let mut open = |flow, mode| {
        let mut message = Vec::new();
        let flow = FlowId(flow);
        FlowMessage::OpenTunnel { flow, mode }.encode(&mut message);
        harness.transmit(&message);
        harness.mesh.run(400);
        tunnels(&harness)
    };
    assert_eq!(open(1, Mode::Dup), 1);
    assert_eq!(open(3, Mode::Dup), 1, "a second one");
    assert_eq!(open(5, Mode::Shadow), 2);
    assert_eq!(open(5, Mode::Single), 2, "an id that was given before");
    assert_eq!(open(7, Mode::Single), 3);
    for flow in 9..50 {
        assert_eq!(open(flow, Mode::Shadow), 3);
    }
}
