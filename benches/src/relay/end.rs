//! A node with a socket that the benchmark holds.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use crypto::{Identity, Ring, Secret32};
use relay_mesh::hop::HopKind;
use relay_mesh::link_state::Roles;
use relay_mesh::{
    Bootstrap, Command, Config, EntryGame, ExitGame, Game, Mode, Node, Outcome, PeerAddr, SocketId,
};
use servicer::Clock;
use wire::{Arrival, InstanceId, Instant, NodeId};

use super::socket::{Intake, Mass};

/// A node and its socket. Other sockets that it requests are reported as open but never opened.
#[derive(Debug)]
pub struct End {
    /// The node.
    pub node: Node<Ring>,
    /// The mesh socket.
    pub socket: Mass,
    /// Id of the next socket that the node requests.
    next_socket: u32,
    /// The game's port, if this is an entry.
    pub port: Option<SocketId>,
    /// Outgoing datagrams of the mesh socket.
    outgoing: VecDeque<(SocketAddr, Vec<u8>)>,
    scratch: Vec<u8>,
}

/// Settings of an end.
#[derive(Debug)]
pub struct Plan {
    /// Protection of its links.
    pub kind: HopKind,
    /// Its roles.
    pub roles: Roles,
    /// The game.
    pub game: Game,
    /// The neighbour to dial.
    pub neighbour: (NodeId, SocketAddr),
    /// How its socket receives.
    pub intake: Intake,
}

/// Returns the common configuration of the benchmark's nodes.
#[must_use]
pub fn config(kind: HopKind) -> Config {
    let mut config = Config::new(Secret32::new([7; 32]), InstanceId(1));
    config.hop_kind = kind;
    // The benchmark measures the path, not the rate limits.
    config.label_rate = u32::MAX;
    config.flow_rate = u32::MAX;
    config.owner_rate = u32::MAX;
    config.open_rate = 1 << 16;
    config.request_rate = 1 << 20;
    config.labels_per_peer_max = 1 << 16;
    config.flows_max = 1 << 15;
    config.unproved_max = 1 << 15;
    // After a period without CPU time, the relay is used again at once.
    config.choice.confirm = Duration::ZERO;
    config.choice.confirm_spread = Duration::ZERO;
    config.choice.hold = Duration::ZERO;
    // Data is sealed long before it is sent, and at the destination it is counted instead of
    // opened.
    config.choice.judges_data = false;
    config
}

/// Returns the game of this mesh.
#[must_use]
pub fn game(entry: Option<EntryGame>, exit: Option<ExitGame>) -> Game {
    Game {
        name: "game".to_owned(),
        mode: Mode::Single,
        entry,
        exit,
    }
}

/// Returns the game's port at an entry whose players leave the mesh by `exit`.
#[must_use]
pub fn port(exit: NodeId) -> EntryGame {
    EntryGame {
        listen: vec![PORT],
        exits: vec![exit],
    }
}

impl End {
    /// Creates a node, which dials its neighbour.
    ///
    /// # Errors
    ///
    /// The system's error.
    ///
    /// # Panics
    ///
    /// If the system has no randomness.
    pub fn new(clock: &Clock, identity: Identity, plan: Plan) -> io::Result<Self> {
        let socket = Mass::new(plan.intake)?;
        let mut config = config(plan.kind);
        config.bootstrap = Bootstrap {
            nodes: vec![plan.neighbour],
        };
        config.profile.roles = plan.roles;
        config.profile.addresses = vec![socket.address()];
        config.games = vec![plan.game];
        let node = Node::new(config, identity, Ring::new(), clock.now());
        Ok(Self {
            node: node.expect("entropy"),
            socket,
            next_socket: 1,
            port: None,
            outgoing: VecDeque::new(),
            scratch: Vec::new(),
        })
    }

    /// Delivers a player's datagram to the game's port.
    pub fn play(&mut self, now: Instant, player: u32, datagram: &mut [u8]) {
        let Some(socket) = self.port else {
            return;
        };
        // 64 players share a /24: the maximum of unvalidated ones.
        let [.., a, b] = (player / 64).to_be_bytes();
        let last = u8::try_from(player % 64).unwrap_or(0);
        let peer = PeerAddr {
            socket,
            address: SocketAddr::from(([10, a, b, last], 4_000)),
        };
        self.node
            .handle_datagram(now, Arrival::from(peer), datagram);
    }

    /// Runs due work, and reports each requested socket as open.
    pub fn tend(&mut self, now: Instant) {
        if self.node.poll_timeout().is_some_and(|due| due <= now) {
            self.node.handle_timeout(now);
        }
        while let Some((id, command)) = self.node.poll_command() {
            let outcome = match command {
                Command::Close { .. } => Outcome::Closed,
                Command::Measure { .. } => Outcome::NotPermitted,
                Command::Listen { .. } | Command::Open { .. } => {
                    let socket = SocketId(self.next_socket);
                    self.next_socket += 1;
                    if matches!(command, Command::Listen { .. }) {
                        self.port = Some(socket);
                    }
                    Outcome::Opened(socket)
                }
            };
            self.node.handle_completed(now, id, outcome);
        }
        while self.node.poll_event().is_some() {}
    }

    /// Returns the node's next outgoing datagram for the mesh.
    pub fn take(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        while self.outgoing.is_empty() {
            self.scratch.clear();
            let transmit = self.node.poll_transmit(now, &mut self.scratch)?;
            let PeerAddr { socket, address } = transmit.destination;
            if socket == SocketId::MESH {
                let datagrams = transmit.datagrams(&self.scratch);
                let datagrams = datagrams.map(|datagram| (address, datagram.to_vec()));
                self.outgoing.extend(datagrams);
            }
        }
        self.outgoing.pop_front()
    }
}

/// The game's port at the entry, which is not opened.
const PORT: SocketAddr = SocketAddr::new(
    core::net::IpAddr::V4(core::net::Ipv4Addr::new(198, 19, 0, 1)),
    4_000,
);
