//! TCP games through a mesh of processes.

mod bounds;
mod close;
mod hostile;
mod idle;
mod transfer;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{
    FileConfig, FileGame, FileProbe, FileRole, Mode, NodeName, ProcessEvent, Protocol,
};
use socket2::{Domain, SockRef, Socket, Type};

use crate::mesh_node::{PATIENCE, tickwire_relay};
use crate::net::until;

const ENTRY: usize = 0;
/// Most relays of a route.
const RELAYS_MAX: usize = 3;
const GAME_PORT: u16 = 4_680;
/// One-way delays, ms: to the next node of the row, and to the others.
const NEXT_MS: u64 = 2;
const OTHER_MS: u64 = 80;
const PAUSE: Duration = Duration::from_millis(100);

/// An entry, relays and an exit in a row, in which each is nearest to the next, and a game server
/// in this process.
struct Row {
    nodes: Vec<Option<NodeProcess>>,
    server: TcpListener,
    sandbox: Sandbox,
}

impl Row {
    /// Starts a row with `relays` relays; `change` edits each configuration first.
    fn new(relays: usize, change: impl Fn(usize, &mut FileConfig)) -> Self {
        let mut names = vec![("entry", FileRole::Entry)];
        let all = [
            ("near", FileRole::Relay),
            ("mid", FileRole::Relay),
            ("far", FileRole::Relay),
        ];
        names.extend(&all[..relays]);
        names.push(("exit", FileRole::Exit));
        let mut sandbox = Sandbox::new(&names).unwrap();
        for one in 0..names.len() {
            for other in one + 1..names.len() {
                let is_next = other == one + 1;
                sandbox.link(one, other, if is_next { NEXT_MS } else { OTHER_MS });
            }
        }
        let exit = names.len() - 1;
        let server = TcpListener::bind((sandbox.host(200), 0)).unwrap();
        let game = game();
        let exit_id = sandbox.id(exit).unwrap();
        let entry = SocketAddr::new(sandbox.host(1), GAME_PORT);
        sandbox.config_mut(ENTRY).unwrap().games = vec![FileGame {
            listen: vec![entry],
            exits: vec![exit_id],
            ..game.clone()
        }];
        let config = sandbox.config_mut(exit).unwrap();
        config.games = vec![FileGame {
            server: Some(server.local_addr().unwrap()),
            ..game
        }];
        // A probe would be accepted like a player's connection.
        config.probes.insert("web".to_owned(), FileProbe::None);
        for node in 0..names.len() {
            let config = sandbox.config_mut(node).unwrap();
            config.limits.flow_bytes_per_second = Some(100 << 20);
            change(node, config);
        }
        let nodes =
            (0..names.len()).map(|node| Some(sandbox.start(node, tickwire_relay()).unwrap()));
        Self {
            nodes: nodes.collect(),
            server,
            sandbox,
        }
    }

    fn exit(&self) -> usize {
        self.nodes.len() - 1
    }

    fn node(&self, node: usize) -> &NodeProcess {
        self.nodes[node].as_ref().unwrap()
    }

    fn kill(&mut self, node: usize) {
        self.nodes[node].take().unwrap().kill().unwrap();
    }

    fn entry(&self) -> SocketAddr {
        SocketAddr::new(self.sandbox.host(1), GAME_PORT)
    }

    /// A player's address in this sandbox.
    fn player_ip(&self) -> IpAddr {
        self.sandbox.host(100)
    }

    /// Connects a player, retrying until there is a route; returns both ends.
    fn connect(&self) -> (TcpStream, TcpStream) {
        until("a connection has passed the mesh", || {
            let player = dial(self.player_ip(), self.entry()).ok()?;
            self.passed(player)
        })
    }

    /// The server's end of a player's connection; `None` if it was reset.
    fn passed(&self, mut player: TcpStream) -> Option<(TcpStream, TcpStream)> {
        self.server.set_nonblocking(true).unwrap();
        player.set_read_timeout(Some(PAUSE)).unwrap();
        let server = loop {
            match self.server.accept() {
                Ok((server, _)) => break server,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            match player.read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return None,
            }
        };
        server.set_nonblocking(false).unwrap();
        for stream in [&player, &server] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        Some((player, server))
    }

    /// Reconnects until the entry uses all relays.
    fn settle(&self) {
        let relays: Vec<NodeName> = (1..self.exit())
            .map(|node| self.sandbox.id(node).unwrap())
            .collect();
        let (mut player, mut server) = self.connect();
        let mut route = None;
        until("the route is the whole row", || {
            player.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
            for news in self.node(ENTRY).events() {
                if let ProcessEvent::Route { relays, .. } = news {
                    route = Some(relays);
                }
            }
            (route.as_ref() == Some(&relays)).then_some(())
        });
    }
}

fn game() -> FileGame {
    FileGame {
        name: "web".to_owned(),
        protocol: Protocol::Tcp,
        mode: Mode::Shadow,
        listen: Vec::new(),
        exits: Vec::new(),
        server: None,
        entries: None,
        proxy_header: None,
    }
}

/// Connects from an address of this host.
fn dial(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// Bytes without repeats at short distance, to detect reordering.
fn words(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)).to_le_bytes()[0])
        .collect()
}

/// Resets a connection.
fn reset(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(stream);
}

/// Reads to the end; returns how it ended.
fn end_of(stream: &mut TcpStream) -> std::io::Result<usize> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)
}

fn assert_reset(stream: &mut TcpStream) {
    let end = end_of(stream).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
}
