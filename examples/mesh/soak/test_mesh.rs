//! The nodes and game servers of a soak run, and operations on them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{FileLink, FileRole, ProcessCommand, ProcessEvent};
use serde_json::Value;

use super::flows;
use crate::admin;

/// A game of the signed document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Game {
    /// UDP in mode `shadow`.
    Shadow,
    /// UDP in mode `single`.
    Single,
    /// TCP.
    Stream,
}

impl Game {
    const fn port(self) -> u16 {
        match self {
            Self::Shadow => 7_001,
            Self::Single => 7_002,
            Self::Stream => 7_003,
        }
    }
}

/// A mesh under test.
pub(super) struct TestMesh {
    /// Processes by index in [`NODES`]. Dropped before the folder with their files.
    nodes: BTreeMap<usize, NodeProcess>,
    sandbox: Sandbox,
    admins: Value,
    games: Vec<Value>,
    /// Version of the newest document.
    version: u64,
}

impl TestMesh {
    /// Starts the game servers and all nodes, and publishes the games.
    pub(super) fn start() -> io::Result<Self> {
        let mut sandbox = Sandbox::new(&NODES)?;
        for (one, other, delay_ms) in links() {
            sandbox.link(one, other, delay_ms);
        }
        let server = sandbox.host(SERVER_HOST);
        let (udp, tcp) = flows::serve(SocketAddr::new(server, 0), SocketAddr::new(server, 0))?;
        let admins = admin::found(&mut sandbox, NODES.len(), None)?;
        let game = |name, game: Game, server| {
            let protocol = if game == Game::Stream { "tcp" } else { "udp" };
            admin::game(name, protocol, (game.port(), server))
        };
        let mut single = game("single", Game::Single, udp);
        if let Some(fields) = single.as_object_mut() {
            fields.insert("mode".to_owned(), "single".into());
        }
        let games = vec![
            game("shadow", Game::Shadow, udp),
            single,
            game("stream", Game::Stream, tcp),
        ];
        let mut test_mesh = Self {
            nodes: BTreeMap::new(),
            sandbox,
            admins,
            games,
            version: 0,
        };
        for node in 0..NODES.len() {
            test_mesh.restart(node)?;
        }
        test_mesh.publish()?;
        Ok(test_mesh)
    }

    /// Returns the address for players of `game` at the given entry.
    pub(super) fn entry(&self, number: usize, game: Game) -> SocketAddr {
        let host = self.host(ENTRIES.get(number).copied().unwrap_or(0));
        SocketAddr::new(host, game.port())
    }

    /// Returns a player's source address.
    pub(super) const fn player_host(&self, number: u16) -> IpAddr {
        let [_, low] = number.to_be_bytes();
        self.sandbox.host(PLAYER_HOST + low % 128)
    }

    /// Returns a node's process id.
    pub(super) fn pid(&self, node: usize) -> io::Result<u32> {
        let process = self.nodes.get(&node).ok_or(io::ErrorKind::NotFound)?;
        Ok(process.id())
    }

    /// Starts or restarts a node and waits until it is ready.
    pub(super) fn restart(&mut self, node: usize) -> io::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", "--config"]);
        // The old process must have released its ports before the new one binds them.
        drop(self.nodes.remove(&node));
        let process = self.sandbox.start(node, command)?;
        let is_ready = |news| matches!(news, ProcessEvent::AdminReady { .. }).then_some(());
        process
            .wait_for(READY_MAX, is_ready)
            .ok_or(io::ErrorKind::TimedOut)?;
        self.nodes.insert(node, process);
        Ok(())
    }

    /// Kills a node by SIGKILL.
    pub(super) fn kill(&mut self, node: usize) -> io::Result<()> {
        let mut process = self.nodes.remove(&node).ok_or(io::ErrorKind::NotFound)?;
        process.kill().map(drop)
    }

    /// Drains a node, waits until it carries no traffic or `limit` has passed, and stops it.
    pub(super) fn drain(&mut self, node: usize, limit: Duration) -> io::Result<()> {
        let process = self.nodes.get_mut(&node).ok_or(io::ErrorKind::NotFound)?;
        let end = std::time::Instant::now() + limit;
        while std::time::Instant::now() < end {
            process.send(&ProcessCommand::Drain)?;
            let is_done = process.wait_for(DRAIN_LOOK, |news| {
                if let ProcessEvent::Draining { flows, labels } = news {
                    Some(flows == 0 && labels == 0)
                } else {
                    None
                }
            });
            if is_done == Some(true) {
                break;
            }
            std::thread::sleep(DRAIN_LOOK);
        }
        self.kill(node)
    }

    /// Sets the loss of datagrams from `from` to `to`, in millionths.
    pub(super) fn set_loss(
        &mut self,
        (from, to): (usize, usize),
        loss_per_million: u32,
    ) -> io::Result<()> {
        let remote = self.host(to);
        let delay_ms = links()
            .find(|&(one, other, _)| (one, other) == (from.min(to), from.max(to)))
            .map_or(0, |(_, _, delay_ms)| delay_ms);
        let process = self.nodes.get_mut(&from).ok_or(io::ErrorKind::NotFound)?;
        process.send(&ProcessCommand::Link(FileLink {
            remote,
            delay_ms,
            loss_per_million,
        }))
    }

    /// Publishes the next version of the document with all games in use.
    pub(super) fn publish(&mut self) -> io::Result<()> {
        self.publish_games(&self.games.clone())
    }

    /// Publishes the next version with one additional, unused game.
    pub(super) fn publish_with_extra(&mut self) -> io::Result<()> {
        let server = SocketAddr::new(self.sandbox.host(SERVER_HOST), 9);
        let extra = admin::game("extra", "udp", (7_004, server));
        let games: Vec<Value> = self.games.iter().cloned().chain([extra]).collect();
        self.publish_games(&games)
    }

    fn publish_games(&mut self, games: &[Value]) -> io::Result<()> {
        self.version += 1;
        let node = self.nodes.keys().next().copied().unwrap_or(0);
        admin::publish(&self.sandbox, node, self.version, (&self.admins, games)).map(drop)
    }

    fn host(&self, node: usize) -> IpAddr {
        let config = self.sandbox.config(node);
        config.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |config| config.listen.ip())
    }
}

/// Returns every pair of nodes, lower index first, with the delay between them in milliseconds. The
/// direct delay between an entry and an exit exceeds that over any relay.
fn links() -> impl Iterator<Item = (usize, usize, u64)> {
    let pairs =
        (0..NODES.len()).flat_map(|one| (one + 1..NODES.len()).map(move |other| (one, other)));
    pairs.map(|(one, other)| {
        let is_relay = |node| RELAYS.contains(&node);
        let delay_ms = match (one, other) {
            (one, other) if is_relay(one) && is_relay(other) => 12,
            (one, other) if is_relay(one) || is_relay(other) => 6 + 2 * (one + other) as u64 % 8,
            _ => 40,
        };
        (one, other, delay_ms)
    })
}

/// All nodes. The constants below are indices into it.
pub(super) const NODES: [(&str, FileRole); 7] = [
    ("entry-1", FileRole::Entry),
    ("entry-2", FileRole::Entry),
    ("relay-1", FileRole::Relay),
    ("relay-2", FileRole::Relay),
    ("relay-3", FileRole::Relay),
    ("exit-1", FileRole::Exit),
    ("exit-2", FileRole::Exit),
];
const ENTRIES: [usize; 2] = [0, 1];
pub(super) const RELAYS: [usize; 3] = [2, 3, 4];
/// Last byte of the game servers' address.
const SERVER_HOST: u8 = 20;
/// Last byte of the first player's address.
const PLAYER_HOST: u8 = 100;
const READY_MAX: Duration = Duration::from_secs(10);
const DRAIN_LOOK: Duration = Duration::from_millis(200);
