//! A real game through the mesh: Chocolate Doom's server answers a query of its client.

use std::ffi::OsString;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{
    FileGame, FileMode, FileProtocol, FileRole, NodeName, ProcessCommand, ProcessEvent,
};
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
/// Not the game's own, which its client would not print.
const ENTRY_PORT: u16 = 2_343;
/// What [`babble`] sends: many times what an idle relay hears in the meantime.
const BABBLE_BYTES: u64 = 400_000;
/// What the server calls itself.
const TITLE: &str = "Tickwire mesh test";

#[test]
#[ignore = "needs chocolate-doom"]
fn pg9_pgd_p2_a_doom_client_finds_its_server_through_the_mesh() {
    let mut sandbox = Sandbox::new(&NAMES).unwrap();
    // The direct way is slow, so that the way over the relay is better by far.
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
        // Both others; until then an entry would send players by the only way it knows.
        for _ in 0..2 {
            let met = |news| matches!(news, ProcessEvent::LinkUp { .. }).then_some(());
            node.wait_for(PATIENCE, met).unwrap();
        }
    }
    // Asked again until the way over the relay is in use: at first the nodes do not know yet
    // which way is how long.
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

    // Beside what nodes always exchange, what players send there passes the relay.
    let before = stats(&mut nodes[RELAY]);
    babble(entry);
    let after = stats(&mut nodes[RELAY]);
    let bytes = after.1 - before.1;
    eprintln!("of {BABBLE_BYTES} bytes from a player the relay heard {bytes}");
    assert!(bytes > BABBLE_BYTES / 2, "{bytes}");

    // Without its exit the mesh carries nothing, though entry and server are there.
    nodes[EXIT].kill().unwrap();
    let (text, is_answered) = query(entry);
    assert!(!is_answered, "{text}");
    let (text, is_answered) = query(server.address);
    assert!(is_answered, "the server itself is well: {text}");
}

/// Lets the entry take Doom's packets at `entry` and the exit hand them to `server`.
fn carry(sandbox: &mut Sandbox, entry: SocketAddr, server: SocketAddr) {
    let exit = sandbox.id(EXIT).unwrap();
    // One path, no copies on the other: what arrives has passed the relay.
    let game = FileGame {
        name: "doom".to_owned(),
        protocol: FileProtocol::Udp,
        mode: FileMode::Single,
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

/// The relays of the route that a node has told of last.
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

/// Sends for two seconds what Doom's server takes no notice of.
fn babble(entry: SocketAddr) {
    let player = UdpSocket::bind("127.0.0.1:0").unwrap();
    let pace = Duration::from_millis(5);
    player.set_read_timeout(Some(pace)).unwrap();
    for _ in 0..BABBLE_BYTES / 1_000 {
        player.send_to(&[0xff; 1_000], entry).unwrap();
        // The server has no answer to this.
        drop(player.recv(&mut [0; 8]));
    }
}

/// Hop frames that a node has sent on, and bytes that it has heard.
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

/// Runs Doom's client to ask `server` who it is; returns what it printed, and whether there was
/// an answer.
fn query(server: SocketAddr) -> (String, bool) {
    let output = Command::new(program("chocolate-doom"))
        .args(["-query", &server.to_string()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    // It asks three times, two seconds apart, and says so when it gives up.
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
        // Once it answers itself, the rest is up to the mesh.
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

/// Debian keeps games where a service's `PATH` does not look.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/games")]);
    folders
        .map(|folder| folder.join(OsString::from(name)))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed"))
}
