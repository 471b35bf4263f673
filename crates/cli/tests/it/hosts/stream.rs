//! Latency of a TCP player under loss, through the mesh and directly.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{BootstrapNode, FileGame, FileRole, Mode, ProcessEvent, Protocol};
use servicer::Clock;

use super::network::Network;
use crate::mesh_node::PATIENCE;

const ENTRY: usize = 0;
const EXIT: usize = 1;
const NODES: [(&str, FileRole); 6] = [
    ("entry", FileRole::Entry),
    ("exit", FileRole::Exit),
    ("north-1", FileRole::Relay),
    ("north-2", FileRole::Relay),
    ("south-1", FileRole::Relay),
    ("south-2", FileRole::Relay),
];
/// Links of the two paths from entry to exit, 10 ms each; the middle ones lose 1 %.
const LINES: [(usize, usize); 6] = [(ENTRY, 2), (2, 3), (3, EXIT), (ENTRY, 4), (4, 5), (5, EXIT)];
const PLAYER: usize = 6;
const SERVER: usize = 7;
const SERVER_PORT: u16 = 7_100;
const MODES: [(Mode, u16); 2] = [(Mode::Dup, 8_101), (Mode::Shadow, 8_102)];
/// The ends of the direct link between player and server, 30 ms.
const DIRECT: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 214, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 214, 0, 2)),
];

/// What a player sends 60 times a second.
const WORD: [u8; 100] = [7; 100];
const TICK: Duration = Duration::from_micros(16_667);
const WORDS: usize = 3_600;

struct Testbed {
    nodes: Vec<NodeProcess>,
    line: Child,
    /// Holds the nodes' files.
    _sandbox: Sandbox,
    network: Network,
}

impl Testbed {
    /// `None` if this process may not create network namespaces.
    fn new() -> Option<Self> {
        let network = Network::new(NODES.len() + 2)?;
        let mut sandbox = Sandbox::new(&NODES).unwrap();
        let port = 9_000;
        for node in 0..NODES.len() {
            let known = BootstrapNode {
                node: sandbox.id(2).unwrap(),
                address: SocketAddr::new(network.ip(2), port),
            };
            let config = sandbox.config_mut(node).unwrap();
            config.listen = SocketAddr::new(network.ip(node), port);
            config.upstream_ip = Some(network.ip(node));
            config.bootstrap = (node != 2).then_some(known).into_iter().collect();
        }
        for (one, other) in (0..NODES.len()).flat_map(|one| (0..one).map(move |other| (other, one)))
        {
            let is_on_a_way = LINES.contains(&(one, other)) || LINES.contains(&(other, one));
            sandbox.link(one, other, if is_on_a_way { 10 } else { 60 });
        }
        let exit = sandbox.id(EXIT).unwrap();
        for (mode, port) in MODES {
            let game = FileGame {
                name: format!("{mode:?}"),
                protocol: Protocol::Tcp,
                mode,
                listen: Vec::new(),
                exits: Vec::new(),
                server: None,
                entries: None,
                proxy_header: None,
            };
            sandbox.config_mut(ENTRY).unwrap().games.push(FileGame {
                listen: vec![SocketAddr::new(network.ip(ENTRY), port)],
                exits: vec![exit],
                ..game.clone()
            });
            let server = Some(SocketAddr::new(network.ip(SERVER), SERVER_PORT));
            sandbox
                .config_mut(EXIT)
                .unwrap()
                .games
                .push(FileGame { server, ..game });
        }
        let line = line(&network);
        let start = |node| {
            let mut command = network.command(node);
            command.arg(env!("CARGO_BIN_EXE_tickwire"));
            command.args(["relay", "--end-with-stdin", "--config"]);
            sandbox.start(node, command).unwrap()
        };
        Some(Self {
            nodes: (0..NODES.len()).map(start).collect(),
            line,
            _sandbox: sandbox,
            network,
        })
    }

    /// Waits until the entry sends over two relays.
    fn wait_for_two_relays(&self) {
        let news = self.nodes[ENTRY].wait_for(PATIENCE, |news| {
            matches!(news, ProcessEvent::Route { relays, .. } if relays.len() == 2).then_some(())
        });
        news.expect("a route over two relays");
    }

    /// Sets 1 % loss on each path, in each direction.
    fn lose(&self) {
        for (one, other) in [(2, 3), (4, 5)] {
            self.network.lose(one, other, 1);
            self.network.lose(other, one, 1);
        }
        self.network.lose_of(PLAYER, DIRECT[1], 1);
        self.network.lose_of(SERVER, DIRECT[0], 1);
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.nodes.clear();
        self.line.kill().ok();
        self.line.wait().ok();
    }
}

/// Adds a link between player and server.
fn line(network: &Network) -> Child {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/hosts/line.py");
    let mut command = network.command(PLAYER);
    command.args(["python3", script, &network.path(SERVER), "30"]);
    command.args(DIRECT.map(|end| end.to_string()));
    let mut line = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    let said = line.stdout.as_mut().unwrap().read_exact(&mut up);
    assert!(said.is_ok() && up == *b"up\n", "no line");
    line
}

/// Echoes on each connection.
fn echo(listener: &TcpListener) {
    let listener = listener.try_clone().unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || {
                let mut room = [0; 4_096];
                while let Ok(len @ 1..) = stream.read(&mut room) {
                    if stream.write_all(&room[..len]).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

/// Sends `count` messages, one per tick; returns the sorted round-trip times.
fn talk(mut stream: TcpStream, count: usize) -> Vec<Duration> {
    stream.set_nodelay(true).unwrap();
    let mut hears = stream.try_clone().unwrap();
    let (clock, begin) = (Clock::new(), Clock::new().now());
    let due = move |word: usize| begin + TICK * u32::try_from(word).unwrap();
    let incoming = thread::spawn(move || {
        let mut room = WORD;
        let mut waits: Vec<Duration> = (0..count)
            .map(|word| {
                hears.read_exact(&mut room).unwrap();
                clock.now().saturating_since(due(word))
            })
            .collect();
        waits.sort_unstable();
        waits
    });
    let (_nobody, never) = std::sync::mpsc::channel::<()>();
    for word in 0..count {
        // Its sender is held above, so this blocks until the timeout.
        never
            .recv_timeout(due(word).saturating_since(clock.now()))
            .ok();
        stream.write_all(&WORD).unwrap();
    }
    incoming.join().unwrap()
}

/// Goal C2. Times are printed, not asserted; every message must return.
#[test]
#[ignore = "needs ip, nft, python3"]
fn mesh_c2_tcp_latency_over_two_relays_and_over_a_lossy_direct_link() {
    let _alone = crate::alone();
    let Some(testbed) = Testbed::new() else {
        return;
    };
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), SERVER_PORT);
    let listener = testbed
        .network
        .inside(SERVER, move || TcpListener::bind(any).unwrap());
    echo(&listener);
    let entry = testbed.network.ip(ENTRY);
    let ports = MODES.map(|(mode, port)| (format!("{mode:?}"), SocketAddr::new(entry, port)));
    let direct = ("direct".to_owned(), SocketAddr::new(DIRECT[1], SERVER_PORT));
    let connect = |to: SocketAddr| {
        let connect = move || TcpStream::connect_timeout(&to, PATIENCE);
        testbed.network.inside(PLAYER, connect)
    };
    // The first messages set up the paths.
    crate::net::until("the entry has an exit", || {
        let mut stream = connect(ports[0].1).ok()?;
        let mut room = WORD;
        stream.write_all(&WORD).ok()?;
        stream.read_exact(&mut room).ok()
    });
    testbed.wait_for_two_relays();
    talk(connect(ports[0].1).unwrap(), 600);
    testbed.lose();
    let talks: Vec<_> = [direct]
        .into_iter()
        .chain(ports)
        .map(|(name, to)| {
            let stream = connect(to).unwrap();
            (name, thread::spawn(move || talk(stream, WORDS)))
        })
        .collect();
    let mut worst = Vec::new();
    for (name, talk) in talks {
        let waits = talk.join().unwrap();
        assert_eq!(waits.len(), WORDS);
        let at = |share: usize| waits[WORDS * share / 1_000].as_secs_f64() * 1e3;
        eprintln!(
            "{name}: p50 {:.1} ms, p95 {:.1}, p99 {:.1}, p99.9 {:.1}",
            at(500),
            at(950),
            at(990),
            at(999)
        );
        worst.push(at(990));
    }
    eprintln!(
        "C2: p99 of two copies over two relays each is {:.2} of the direct line's (goal: 0.5), of one {:.2}",
        worst[1] / worst[0],
        worst[2] / worst[0]
    );
}
