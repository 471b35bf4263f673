//! A mesh of processes with signed documents, and its admin commands.

mod access;
mod config;
mod graph;
mod signals;
mod tcp;

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use crypto::{Identity, Ring, identity_file};
use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{FileAdmin, FileProbe, FileRole, FileSigned, ProcessEvent};
use relay_mesh::signed_config::AdminKeys;
use serde_json::{Value, json};
use servicer::Clock;

use crate::mesh_node::{PATIENCE, tickwire_relay};

/// An entry, a relay and an exit that trust an admin's key, and an echo server.
struct Testbed {
    sandbox: Sandbox,
    server: UdpSocket,
}

const ENTRY: usize = 0;
const RELAY: usize = 1;
const EXIT: usize = 2;
const GAME_PORT: u16 = 4_700;

impl Testbed {
    fn new() -> Self {
        let roles = [
            ("lisbon", FileRole::Entry),
            ("paris", FileRole::Relay),
            ("oslo", FileRole::Exit),
        ];
        let mut sandbox = Sandbox::new(&roles).unwrap();
        let mut keys = Vec::new();
        for name in ["admin", "other", "stranger"] {
            let identity = Identity::generate(&mut Ring::new()).unwrap();
            identity_file::write_new(&sandbox.directory().join(name), &identity).unwrap();
            keys.push(*identity.public_key());
        }
        let admins = AdminKeys::new([keys[0], keys[1]], 1).unwrap();
        for node in [ENTRY, RELAY, EXIT] {
            let listen = sandbox.host(u8::try_from(node + 1).unwrap());
            let config = sandbox.config_mut(node).unwrap();
            config.members = None;
            config.signed = Some(FileSigned {
                network: "test".to_owned(),
                admins: admins.clone(),
                store: format!("{}.config", config.name).into(),
                minimum: None,
                listen: vec![listen],
            });
            config.admin = Some(FileAdmin {
                listen: SocketAddr::new(listen, 4_800),
                token_file: format!("{}.token", config.name).into(),
            });
        }
        // Probes would count as players' datagrams.
        let probes = ["stay", "go", "new"].map(|game| (game.to_owned(), FileProbe::None));
        sandbox.config_mut(EXIT).unwrap().probes.extend(probes);
        let server = UdpSocket::bind((sandbox.host(9), 0)).unwrap();
        server
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        Self { sandbox, server }
    }

    fn start(&self, node: usize) -> NodeProcess {
        self.sandbox.start(node, tickwire_relay()).unwrap()
    }

    /// Starts all three and waits for their links.
    fn start_all(&self) -> Vec<NodeProcess> {
        let nodes: Vec<NodeProcess> = (0..3).map(|node| self.start(node)).collect();
        for node in &nodes {
            let mut met = 0;
            node.wait_for(PATIENCE, |news| {
                met += u8::from(matches!(news, ProcessEvent::LinkUp { .. }));
                (met == 2).then_some(())
            })
            .expect("they meet");
        }
        nodes
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.directory().join(name)
    }

    fn http(&self, node: usize) -> SocketAddr {
        SocketAddr::new(self.sandbox.host(u8::try_from(node + 1).unwrap()), 4_800)
    }

    fn game(&self) -> SocketAddr {
        SocketAddr::new(self.sandbox.host(1), GAME_PORT)
    }

    /// Writes a document with these games; returns its path.
    fn document(&self, version: u64, games: &[Value]) -> PathBuf {
        let admins = &self
            .sandbox
            .config(ENTRY)
            .unwrap()
            .signed
            .as_ref()
            .unwrap()
            .admins;
        let document = json!({
            "network": "test",
            "version": version,
            "not_before": 0,
            "not_after": unix() + 86_400,
            "admins": admins,
            "games": games,
        });
        let path = self.path(&format!("v{version}.json"));
        fs::write(&path, document.to_string()).unwrap();
        path
    }

    fn echo(&self) -> Value {
        json!({
            "name": "echo",
            "protocol": "udp",
            "server": self.server.local_addr().unwrap(),
            "listen_ports": [GAME_PORT],
            "entry": {"type": "all"},
            "exit": {"type": "all"},
        })
    }

    fn admin(&self, node: usize, verb: &str, arguments: &[&str]) -> Output {
        let name = &self.sandbox.config(node).unwrap().name;
        tickwire_admin(verb)
            .args(["--http", &self.http(node).to_string(), "--token-file"])
            .arg(self.path(&format!("{name}.token")))
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Signs a document with `key` and sends it to a node.
    fn put(&self, node: usize, document: &PathBuf, key: &str) -> Output {
        let key = self.path(key);
        let arguments = [document, &key].map(|path| path.to_str().unwrap());
        self.admin(node, "put", &[arguments[0], "--key", arguments[1]])
    }

    /// Sends `word` until the echo arrives.
    fn play(&self, player: &UdpSocket, word: &[u8]) -> bool {
        let mut buffer = [0; 2_000];
        player
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        (0..200).any(|_| {
            player.send_to(word, self.game()).unwrap();
            if let Ok((len, from)) = self.server.recv_from(&mut buffer) {
                self.server.send_to(&buffer[..len], from).unwrap();
            }
            player
                .recv(&mut buffer)
                .is_ok_and(|len| &buffer[..len] == word)
        })
    }

    fn player(&self) -> UdpSocket {
        UdpSocket::bind((self.sandbox.host(10), 0)).unwrap()
    }
}

fn tickwire_admin(verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwire"));
    command.args(["admin", verb]);
    command
}

fn unix() -> u64 {
    Clock::new().unix_time().as_secs()
}

/// Sleeps; returns false, so that a search continues.
fn wait(span: Duration) -> bool {
    let (_open, nothing) = mpsc::channel::<()>();
    nothing.recv_timeout(span).is_ok()
}

/// Waits until a version is in force at a node.
fn in_force(node: &NodeProcess, wanted: u64) -> ProcessEvent {
    node.wait_for(PATIENCE, |news| {
        matches!(news, ProcessEvent::ConfigInForce { version, .. } if version == wanted)
            .then_some(news)
    })
    .expect("it comes into force")
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn assert_refused(output: &Output, code: i32, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{words}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
