//! A mesh on several hosts: network namespaces joined by a bridge, real sockets and processes.

mod capture;
mod live;
pub(crate) mod network;
mod programs;
mod stream;

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{BootstrapNode, FileGame, FileRole, Mode, NodeName, ProcessEvent, Protocol};
use servicer::Clock;

use crate::mesh_node::PATIENCE;
use network::Network;

const ENTRY: usize = 0;
const EXIT: usize = 1;
const NEAR: usize = 2;
const FAR: usize = 3;
/// The only node that the others know at first.
const BOOTSTRAP: usize = 4;
const PLAYER: usize = 5;
const SERVER: usize = 6;

const NODES: [(&str, FileRole); 5] = [
    ("entry", FileRole::Entry),
    ("exit", FileRole::Exit),
    ("near", FileRole::Relay),
    ("far", FileRole::Relay),
    ("seed", FileRole::Relay),
];
/// One-way delays, ms: direct, over each relay, over the bootstrap node. Those between relays are
/// too long for a route over two.
const DELAYS: [(usize, usize, u64); 10] = [
    (ENTRY, EXIT, 60),
    (ENTRY, NEAR, 10),
    (NEAR, EXIT, 10),
    (ENTRY, FAR, 20),
    (FAR, EXIT, 20),
    (ENTRY, BOOTSTRAP, 40),
    (BOOTSTRAP, EXIT, 40),
    (NEAR, FAR, 60),
    (NEAR, BOOTSTRAP, 60),
    (FAR, BOOTSTRAP, 60),
];
const GAME_PORT: u16 = 4_600;
const MESH_PORT: u16 = 9_000;
/// Payload of each datagram after its number.
const PATTERN: &[u8] = b"a pattern that nobody on the way may read";

/// Hosts with nodes, a player and an echo server.
struct Testbed {
    nodes: Vec<Option<NodeProcess>>,
    player: UdpSocket,
    next: u64,
    /// Relays of the entry's newest route event.
    route: Option<Vec<NodeName>>,
    server: Option<(JoinHandle<()>, Arc<AtomicBool>)>,
    sandbox: Sandbox,
    network: Network,
}

impl Testbed {
    /// `None` if this process may not create network namespaces.
    fn new(mode: Mode) -> Option<Self> {
        let network = Network::new(7)?;
        let mut sandbox = Sandbox::new(&NODES).unwrap();
        for node in 0..NODES.len() {
            let known = BootstrapNode {
                node: sandbox.id(BOOTSTRAP).unwrap(),
                address: SocketAddr::new(network.ip(BOOTSTRAP), MESH_PORT),
            };
            let config = sandbox.config_mut(node).unwrap();
            config.listen = SocketAddr::new(network.ip(node), MESH_PORT);
            config.upstream_ip = Some(network.ip(node));
            config.bootstrap = (node != BOOTSTRAP).then_some(known).into_iter().collect();
        }
        for (one, other, delay_ms) in DELAYS {
            sandbox.link(one, other, delay_ms);
        }
        let server = network.socket(SERVER, 7_000);
        let game = FileGame {
            name: "game".to_owned(),
            protocol: Protocol::Udp,
            mode,
            listen: Vec::new(),
            exits: Vec::new(),
            server: None,
            entries: None,
            proxy_header: None,
        };
        let exit = sandbox.id(EXIT).unwrap();
        sandbox.config_mut(ENTRY).unwrap().games = vec![FileGame {
            listen: vec![SocketAddr::new(network.ip(ENTRY), GAME_PORT)],
            exits: vec![exit],
            ..game.clone()
        }];
        sandbox.config_mut(EXIT).unwrap().games = vec![FileGame {
            server: Some(server.local_addr().unwrap()),
            ..game
        }];
        Some(Self {
            nodes: (0..NODES.len()).map(|_| None).collect(),
            player: network.socket(PLAYER, 0),
            next: 0,
            route: None,
            server: Some(echo(server)),
            sandbox,
            network,
        })
    }

    fn start(&mut self, node: usize) {
        let mut command = self.network.command(node);
        command.arg(env!("CARGO_BIN_EXE_tickwire"));
        command.args(["relay", "--end-with-stdin", "--config"]);
        self.nodes[node] = Some(self.sandbox.start(node, command).unwrap());
    }

    /// Starts all nodes and waits for the links of entry and exit.
    fn start_all(&mut self) {
        for node in 0..NODES.len() {
            self.start(node);
        }
        for node in [ENTRY, EXIT] {
            self.wait_for_links(node, NODES.len() - 1);
        }
    }

    fn node(&self, node: usize) -> &NodeProcess {
        self.nodes[node].as_ref().unwrap()
    }

    fn wait_for_links(&self, node: usize, count: usize) {
        let mut up = 0;
        let met = self.node(node).wait_for(PATIENCE, |news| {
            up += usize::from(matches!(news, ProcessEvent::LinkUp { .. }));
            (up == count).then_some(())
        });
        met.unwrap_or_else(|| panic!("node {node} met {up} of {count}"));
    }

    fn kill(&mut self, node: usize) {
        self.nodes[node].take().unwrap().kill().unwrap();
    }

    fn entry(&self) -> SocketAddr {
        SocketAddr::new(self.network.ip(ENTRY), GAME_PORT)
    }

    /// Plays at 60 packets/s for `span`.
    fn play(&mut self, span: Duration) -> Tally {
        let (clock, entry) = (Clock::new(), self.entry());
        let end = clock.now() + span;
        let mut tally = Tally {
            asked: 0,
            answered: 0,
            silence: Duration::ZERO,
        };
        let (mut due, mut incoming) = (clock.now(), clock.now());
        let mut buffer = [0; 2_000];
        while clock.now() < end {
            if clock.now() >= due {
                let datagram = [&self.next.to_be_bytes()[..], PATTERN].concat();
                // The system may report that the entry's host is unreachable.
                self.player.send_to(&datagram, entry).ok();
                self.next += 1;
                tally.asked += 1;
                due += TICK;
            }
            let rest = due.saturating_since(clock.now());
            let wait = rest.max(Duration::from_millis(1));
            self.player.set_read_timeout(Some(wait)).unwrap();
            if let Ok(len) = self.player.recv(&mut buffer) {
                assert_eq!(&buffer[8..len], PATTERN, "nothing else comes back");
                tally.answered += 1;
                tally.silence = tally.silence.max(clock.now().saturating_since(incoming));
                incoming = clock.now();
            }
        }
        tally.silence = tally.silence.max(clock.now().saturating_since(incoming));
        tally
    }

    /// Plays until the entry uses `relays`; returns the time taken.
    fn play_until(&mut self, wanted: impl Fn(&[NodeName]) -> bool) -> Duration {
        let clock = Clock::new();
        let begin = clock.now();
        loop {
            self.play(Duration::from_millis(100));
            if self.look().is_some_and(&wanted) {
                return clock.now().saturating_since(begin);
            }
            let spent = clock.now().saturating_since(begin);
            let ids = [NEAR, FAR, BOOTSTRAP].map(|node| self.id(node));
            assert!(
                spent < ROUTE_MAX,
                "the route is {:?}; near, far, seed are {ids:?}",
                self.route
            );
        }
    }

    /// The relays in use.
    fn look(&mut self) -> Option<&[NodeName]> {
        let incoming: Vec<ProcessEvent> = self.node(ENTRY).events().collect();
        for news in incoming {
            if let ProcessEvent::Route { relays, .. } = news {
                self.route = Some(relays);
            }
        }
        self.route.as_deref()
    }

    fn id(&self, node: usize) -> NodeName {
        self.sandbox.id(node).unwrap()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // Nodes end before their hosts.
        self.nodes.clear();
        if let Some((thread, is_over)) = self.server.take() {
            is_over.store(true, Ordering::Relaxed);
            thread.join().ok();
        }
    }
}

#[derive(Debug)]
struct Tally {
    asked: u32,
    answered: u32,
    /// Longest time without an echo.
    silence: Duration,
}

/// Echoes datagrams.
fn echo(socket: UdpSocket) -> (JoinHandle<()>, Arc<AtomicBool>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    socket.set_read_timeout(Some(TICK)).unwrap();
    let thread = thread::spawn(move || {
        let mut buffer = [0; 2_000];
        while !over.load(Ordering::Relaxed) {
            if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                socket.send_to(&buffer[..len], from).ok();
            }
        }
    });
    (thread, is_over)
}

/// Runs a program, which must succeed.
fn run(mut command: Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// Longest wait for a route: link state covers losses of the last 30 s, and a flow returns to an
/// abandoned path after up to 18 s, plus set-up.
const ROUTE_MAX: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_micros(16_667);
