//! A real game through the mesh: Chocolate Doom's server answers its client's query.

use std::ffi::OsString;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{FileGame, FileRole, Mode, NodeName, ProcessCommand, ProcessEvent, Protocol};
use servicer::Clock;

use crate::mesh_node::{PATIENCE, tickwire_relay};

const ENTRY: usize = 0;
const RELAY: usize = 1;
const EXIT: usize = 2;
const NAMES: [(&str, FileRole); 3] = [
    ("entry", FileRole::Entry),
    ("relay", FileRole::Relay),
    ("exit", FileRole::Exit),
];
/// Different from the game's own port, so that the client prints it.
const ENTRY_PORT: u16 = 2_343;
/// Bytes that [`babble`] sends: many times the traffic of an idle relay.
const BABBLE_BYTES: u64 = 400_000;
const TITLE: &str = "Tickwire mesh test";

#[test]
#[ignore = "needs chocolate-doom"]
fn pg9_pgd_p2_a_doom_client_finds_its_server_through_the_mesh() {
    let mut sandbox = Sandbox::new(&NAMES).unwrap();
    // The direct link is slow, so the route over the relay is much better.
    sandbox.link(ENTRY, EXIT, 150);
    sandbox.link(ENTRY, RELAY, 15);
    sandbox.link(RELAY, EXIT, 15);
    let server = Server::start();
    let entry = SocketAddr::new(sandbox.host(1), ENTRY_PORT);
    carry(&mut sandbox, entry, server.address);

    let (text, is_answered) = query(entry);
    assert!(!is_answered, "there are no nodes yet: {text}");

    let mut nodes = [ENTRY, RELAY, EXIT].map(|node| sandbox.start(node, tickwire_relay()).unwrap());
    for node in &nodes {
        // If only one link were up, the entry would use the only path it knows.
        for _ in 0..2 {
            let met = |news| matches!(news, ProcessEvent::LinkUp { .. }).then_some(());
            node.wait_for(PATIENCE, met).unwrap();
        }
    }
    // Repeated until the relay is in use: at first the link costs are unknown.
    let relay = sandbox.id(RELAY).unwrap();
    let end = Clock::new().now() + PATIENCE;
    let mut relays = Vec::new();
    while relays != [relay] {
        assert!(Clock::new().now() < end, "the route is {relays:?}");
        query(entry);
        relays = newest_route(&nodes[ENTRY]).unwrap_or(relays);
    }

    let before = stats(&mut nodes[RELAY]);
    let (text, is_answered) = query(entry);
    let after = stats(&mut nodes[RELAY]);
    assert!(is_answered, "{text}");
    assert!(text.contains(TITLE), "{text}");
    assert!(text.contains(&entry.to_string()), "{text}");
    let [frames, bytes] = [after.0 - before.0, after.1 - before.1];
    eprintln!("{text}the relay passed {frames} frames on and heard {bytes} bytes");
    assert!(frames >= 2, "question and answer: {frames}");

    // The players' datagrams pass the relay, in addition to the nodes' own traffic.
    let before = stats(&mut nodes[RELAY]);
    babble(entry);
    let after = stats(&mut nodes[RELAY]);
    let bytes = after.1 - before.1;
    eprintln!("of {BABBLE_BYTES} bytes from a player the relay heard {bytes}");
    assert!(bytes > BABBLE_BYTES / 2, "{bytes}");

    // Without its exit the mesh forwards nothing.
    nodes[EXIT].kill().unwrap();
    let (text, is_answered) = query(entry);
    assert!(!is_answered, "{text}");
    let (text, is_answered) = query(server.address);
    assert!(is_answered, "the server itself is well: {text}");
}

/// Configures the game at the entry's and the exit's address.
fn carry(sandbox: &mut Sandbox, entry: SocketAddr, server: SocketAddr) {
    let exit = sandbox.id(EXIT).unwrap();
    // Only one path, so that all datagrams pass the relay.
    let game = FileGame {
        name: "doom".to_owned(),
        protocol: Protocol::Udp,
        mode: Mode::Single,
        listen: Vec::new(),
        exits: Vec::new(),
        server: None,
        entries: None,
        proxy_header: None,
    };
    sandbox.config_mut(ENTRY).unwrap().games = vec![FileGame {
        listen: vec![entry],
        exits: vec![exit],
        ..game.clone()
    }];
    sandbox.config_mut(EXIT).unwrap().games = vec![FileGame {
        server: Some(server),
        ..game
    }];
}

/// The relays of the newest route event.
fn newest_route(node: &NodeProcess) -> Option<Vec<NodeName>> {
    let routes = node.events().filter_map(|news| {
        if let ProcessEvent::Route { relays, .. } = news {
            Some(relays)
        } else {
            None
        }
    });
    routes.last()
}

/// Sends datagrams that the server ignores, for two seconds.
fn babble(entry: SocketAddr) {
    let player = UdpSocket::bind("127.0.0.1:0").unwrap();
    let pace = Duration::from_millis(5);
    player.set_read_timeout(Some(pace)).unwrap();
    for _ in 0..BABBLE_BYTES / 1_000 {
        player.send_to(&[0xff; 1_000], entry).unwrap();
        // The server does not answer.
        drop(player.recv(&mut [0; 8]));
    }
}

/// Hop frames sealed and bytes received by a node.
fn stats(node: &mut NodeProcess) -> (u64, u64) {
    node.send(&ProcessCommand::Stats).unwrap();
    let stats = node.wait_for(PATIENCE, |news| {
        if let ProcessEvent::Stats {
            frames_sealed,
            bytes_in,
            ..
        } = news
        {
            Some((frames_sealed, bytes_in))
        } else {
            None
        }
    });
    stats.unwrap()
}

/// Runs Doom's client to query `server`; returns its output and whether it got an answer.
fn query(server: SocketAddr) -> (String, bool) {
    let output = Command::new(program("chocolate-doom"))
        .args(["-query", &server.to_string()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    // The client queries three times, two seconds apart, and then prints this.
    let is_answered = output.status.success() && !text.contains("No response");
    (text, is_answered)
}

/// Doom's server as a process.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let child = Command::new(program("chocolate-server"))
            .args(["-privateserver", "-servername", TITLE])
            .args(["-port", &address.port().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, address };
        // When it answers directly, the mesh can be tested.
        let end = Clock::new().now() + PATIENCE;
        while !query(address).1 {
            assert!(Clock::new().now() < end, "the server does not answer");
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Debian installs games outside the `PATH` of a service.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/games")]);
    folders
        .map(|folder| folder.join(OsString::from(name)))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed"))
}
