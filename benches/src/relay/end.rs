//! A node whose socket the one who measures holds.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use crypto::{Identity, Ring, Secret32};
use relay_mesh::hop::HopKind;
use relay_mesh::link_state::Roles;
use relay_mesh::{
    Bootstrap, Command, Config, EntryGame, ExitGame, Game, Leg, Mode, Node, Outcome, SocketId,
};
use servicer::Clock;
use wire::{Arrival, InstanceId, Instant, NodeId};

use super::socket::{Intake, Mass};

/// A node, its socket, and what it asks for, which is said to be there and never opened.
#[derive(Debug)]
pub struct End {
    /// The node.
    pub node: Node<Ring>,
    /// The mesh's socket.
    pub socket: Mass,
    /// Name of the next socket that the node asks for.
    next_socket: u32,
    /// The game's port, at an entry.
    pub port: Option<SocketId>,
    /// What the node sends by the mesh's socket, until it is taken.
    outgoing: VecDeque<(SocketAddr, Vec<u8>)>,
    scratch: Vec<u8>,
}

/// What an end is made of.
#[derive(Debug)]
pub struct Plan {
    /// Its links' protection.
    pub kind: HopKind,
    /// What it does.
    pub roles: Roles,
    /// The game that it carries.
    pub game: Game,
    /// Whom it dials.
    pub neighbour: (NodeId, SocketAddr),
    /// How its socket is handed what comes.
    pub intake: Intake,
}

/// What all nodes of a mesh on this machine share.
#[must_use]
pub fn config(kind: HopKind) -> Config {
    let mut config = Config::new(Secret32::new([7; 32]), InstanceId(1));
    config.hop_kind = kind;
    // What is measured is the way, not its limits.
    config.label_rate = u32::MAX;
    config.flow_rate = u32::MAX;
    config.owner_rate = u32::MAX;
    config.open_rate = 1 << 16;
    config.request_rate = 1 << 20;
    config.labels_per_peer_max = 1 << 16;
    config.flows_max = 1 << 15;
    config.unproved_max = 1 << 15;
    // A machine that has no time for it for a while takes the relay again at once.
    config.choice.confirm = Duration::ZERO;
    config.choice.confirm_spread = Duration::ZERO;
    config.choice.hold = Duration::ZERO;
    // Data is sealed long before it is sent, and counted where it arrives instead of opened.
    config.choice.judges_data = false;
    config
}

/// The game of such a mesh.
#[must_use]
pub fn game(entry: Option<EntryGame>, exit: Option<ExitGame>) -> Game {
    Game {
        name: "game".to_owned(),
        mode: Mode::Single,
        entry,
        exit,
    }
}

/// Its port at an entry whose players leave by `exit`.
#[must_use]
pub fn port(exit: NodeId) -> EntryGame {
    EntryGame {
        listen: vec![PORT],
        exits: vec![exit],
    }
}

impl End {
    /// Makes a node, which dials its neighbour.
    ///
    /// # Errors
    ///
    /// The system's.
    ///
    /// # Panics
    ///
    /// Where the system has no randomness.
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

    /// A datagram of a player comes to the game's port.
    pub fn play(&mut self, now: Instant, player: u32, datagram: &mut [u8]) {
        let Some(socket) = self.port else {
            return;
        };
        // 64 of a /24: that many may be unproved.
        let [.., a, b] = (player / 64).to_be_bytes();
        let last = u8::try_from(player % 64).unwrap_or(0);
        let peer = Leg {
            socket,
            address: SocketAddr::from(([10, a, b, last], 4_000)),
        };
        self.node
            .handle_datagram(now, Arrival::from(peer), datagram);
    }

    /// Does what is due, and says of each socket that is asked for that it is there.
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

    /// Takes the next datagram that the node has for the mesh.
    pub fn take(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        while self.outgoing.is_empty() {
            self.scratch.clear();
            let transmit = self.node.poll_transmit(now, &mut self.scratch)?;
            let Leg { socket, address } = transmit.destination;
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
