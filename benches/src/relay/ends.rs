//! The neighbours of a relay that is measured: an entry and an exit, as real as any, whose sockets
//! the one who measures holds.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use crypto::{Identity, Ring, Secret32};
use relay_mesh::hop::HopHeader;
use relay_mesh::link_state::Roles;
use relay_mesh::{
    Bootstrap, Command, Config, EntryGame, ExitGame, Game, Leg, Mode, Node, Outcome, SocketId,
};
use servicer::Clock;
use wire::{Arrival, InstanceId, Instant, NodeId};

use super::socket::Mass;

/// An entry and an exit. What they send each other is held back, so that packets take the relay.
#[derive(Debug)]
pub struct Ends {
    entry: End,
    exit: End,
    relay: (NodeId, SocketAddr),
    clock: Clock,
    /// What is on the way between the two: when it comes, whether to the exit, and the bytes.
    between: VecDeque<(Instant, Side, Vec<u8>)>,
    /// Frames for the relay that are held back to be sent all at once.
    frames: Option<Frames>,
    /// Length of the frames that are counted at the exit instead of heard, and how many came.
    counted: (usize, u64),
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Entry,
    Exit,
}

/// Sealed frames of one length.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    len: usize,
}

impl Frames {
    /// The frames, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.len.max(1))
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.bytes.len() / self.len.max(1)
    }

    /// Bytes of each.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[derive(Debug)]
struct End {
    node: Node<Ring>,
    socket: Mass,
    /// Name of the next socket that the node asks for; none is opened.
    next_socket: u32,
    /// The game's port, at an entry.
    port: Option<SocketId>,
}

/// What all nodes of a mesh on this machine share.
#[must_use]
pub fn config() -> Config {
    let mut config = Config::new(Secret32::new([7; 32]), InstanceId(1));
    // What is measured is the way, not its limits.
    config.label_rate = u32::MAX;
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
    config
}

impl Ends {
    /// Makes both, who dial the relay.
    ///
    /// # Errors
    ///
    /// The system's.
    ///
    /// # Panics
    ///
    /// Where the system has no randomness.
    pub fn new(relay: (NodeId, SocketAddr)) -> io::Result<Self> {
        let identity = || Identity::generate(&mut Ring::new()).expect("entropy");
        let (entry, exit) = (identity(), identity());
        let game = |entry, exit| Game {
            name: "game".to_owned(),
            mode: Mode::Single,
            entry,
            exit,
        };
        let port = EntryGame {
            listen: vec![PORT],
            exits: vec![exit.node_id()],
        };
        let server = ExitGame {
            server: SERVER,
            entries: None,
            header: None,
        };
        let clock = Clock::new();
        let make = |identity, roles, game| End::new(&clock, identity, (roles, game), relay);
        Ok(Self {
            entry: make(entry, Roles::ENTRY, game(Some(port), None))?,
            exit: make(exit, Roles::EXIT, game(None, Some(server)))?,
            relay,
            clock,
            between: VecDeque::new(),
            frames: None,
            counted: (0, 0),
            scratch: Vec::new(),
        })
    }

    /// Opens as many flows, and waits until all of them go over the relay.
    ///
    /// # Panics
    ///
    /// Where that takes longer than `limit`.
    pub fn settle(&mut self, flows: u32, limit: Duration) {
        self.counted = (0, 0);
        let end = self.clock.now() + limit;
        let mut asked = 0;
        while !self.is_settled(flows) {
            assert!(
                self.clock.now() < end,
                "after {limit:?} there is {:?}",
                self.entry.node.routes().collect::<Vec<_>>()
            );
            // A few at a time, then all again, which keeps them from ending.
            for _ in 0..64 {
                if self.entry.port.is_some() {
                    self.play(asked % flows, 32);
                    asked = asked.wrapping_add(1);
                }
            }
            self.step();
            super::nap(Duration::from_millis(1));
        }
    }

    fn is_settled(&self, flows: u32) -> bool {
        let relay = self.relay.0;
        let wanted = usize::try_from(flows).unwrap_or(usize::MAX);
        self.entry.node.routes().any(|view| {
            let over = view.path.is_some_and(|path| path.relays == [relay]);
            over && view.flows == wanted
        })
    }

    /// Has the entry seal `count` datagrams of `len` bytes, of `flows` players in turn.
    pub fn seal(&mut self, count: usize, (flows, len): (u32, usize)) -> Frames {
        self.frames = Some(Frames {
            bytes: Vec::with_capacity(count.saturating_mul(len + OVERHEAD)),
            len: len + OVERHEAD,
        });
        let mut player = 0;
        for number in 0..count {
            if number % STEP == 0 {
                self.step();
            }
            self.play(player, len);
            player = (player + 1) % flows;
        }
        self.frames.take().unwrap_or_default()
    }

    /// Sends frames as fast as may be; returns how many came to the exit meanwhile.
    pub fn send(&mut self, frames: &Frames) -> u64 {
        self.counted = (frames.len(), 0);
        let mut rest = frames.iter();
        for burst in 0.. {
            let some: Vec<&[u8]> = rest.by_ref().take(super::socket::BATCH).collect();
            if some.is_empty() {
                break;
            }
            self.entry.socket.send(self.relay.1, some.into_iter());
            if burst % STEP == 0 {
                self.step();
            } else {
                self.hear(Side::Exit, self.clock.now());
            }
        }
        self.take_count()
    }

    /// Lets both ends do what is due; returns how many frames came to the exit since it was last
    /// asked.
    pub fn count(&mut self) -> u64 {
        self.step();
        self.take_count()
    }

    const fn take_count(&mut self) -> u64 {
        let (_, count) = &mut self.counted;
        core::mem::replace(count, 0)
    }

    /// Takes what came for an end. Frames of the length that is counted are counted at the exit,
    /// which hears all else.
    fn hear(&mut self, side: Side, now: Instant) {
        let (len, mut count) = self.counted;
        let End { node, socket, .. } = self.end(side);
        socket.receive(|from, datagram| {
            let is_frame = datagram.first().is_some_and(|it| HopHeader::claims(*it));
            if is_frame && datagram.len() == len && side == Side::Exit {
                count += 1;
            } else {
                node.handle_datagram(now, Arrival::from(Leg::mesh(from)), datagram);
            }
        });
        self.counted = (len, count);
    }

    /// Lets both ends do what is due.
    pub fn step(&mut self) {
        let now = self.clock.now();
        while self.between.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, side, mut datagram)) = self.between.pop_front() else {
                break;
            };
            let (end, other) = match side {
                Side::Entry => (&mut self.entry, &self.exit),
                Side::Exit => (&mut self.exit, &self.entry),
            };
            let from = Leg::mesh(other.socket.address());
            end.node
                .handle_datagram(now, Arrival::from(from), &mut datagram);
        }
        for side in [Side::Entry, Side::Exit] {
            self.hear(side, now);
            let end = self.end(side);
            if end.node.poll_timeout().is_some_and(|due| due <= now) {
                end.node.handle_timeout(now);
            }
            end.obey(now);
            self.drain(side, now);
        }
    }

    const fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Entry => &mut self.entry,
            Side::Exit => &mut self.exit,
        }
    }

    /// A datagram of a player comes to the entry's port.
    fn play(&mut self, player: u32, len: usize) {
        let now = self.clock.now();
        let Some(socket) = self.entry.port else {
            return;
        };
        // 64 of a /24: that many may be unproved.
        let [.., a, b] = (player / 64).to_be_bytes();
        let last = u8::try_from(player % 64).unwrap_or(0);
        let peer = Leg {
            socket,
            address: SocketAddr::from(([10, a, b, last], 4_000)),
        };
        let mut datagram = vec![0x5A; len];
        self.entry
            .node
            .handle_datagram(now, Arrival::from(peer), &mut datagram);
        self.drain(Side::Entry, now);
    }

    /// Sends what an end has to send.
    fn drain(&mut self, side: Side, now: Instant) {
        let mut bytes = core::mem::take(&mut self.scratch);
        let other = match side {
            Side::Entry => self.exit.socket.address(),
            Side::Exit => self.entry.socket.address(),
        };
        let far = match side {
            Side::Entry => Side::Exit,
            Side::Exit => Side::Entry,
        };
        loop {
            bytes.clear();
            let Some(transmit) = self.end(side).node.poll_transmit(now, &mut bytes) else {
                break;
            };
            let Leg { socket, address } = transmit.destination;
            if socket != SocketId::MESH {
                continue;
            }
            for datagram in transmit.datagrams(&bytes) {
                let is_frame = datagram.first().is_some_and(|it| HopHeader::claims(*it));
                if address == other {
                    self.between
                        .push_back((now + APART, far, datagram.to_vec()));
                } else if let Some(frames) = self.frames.as_mut().filter(|_| is_frame)
                    && datagram.len() == frames.len
                {
                    frames.bytes.extend_from_slice(datagram);
                } else {
                    let datagram = core::iter::once(datagram);
                    self.end(side).socket.send(address, datagram);
                }
            }
        }
        self.scratch = bytes;
    }
}

impl End {
    fn new(
        clock: &Clock,
        identity: Identity,
        (roles, game): (Roles, Game),
        relay: (NodeId, SocketAddr),
    ) -> io::Result<Self> {
        let socket = Mass::new()?;
        let mut config = config();
        config.bootstrap = Bootstrap { nodes: vec![relay] };
        config.profile.roles = roles;
        config.profile.addresses = vec![socket.address()];
        config.games = vec![game];
        let node = Node::new(config, identity, Ring::new(), clock.now());
        Ok(Self {
            node: node.expect("entropy"),
            socket,
            next_socket: 1,
            port: None,
        })
    }

    /// Says of each socket that is asked for that it is there.
    fn obey(&mut self, now: Instant) {
        while let Some((id, command)) = self.node.poll_command() {
            let outcome = match command {
                Command::Close { .. } => Outcome::Closed,
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
}

/// Datagrams or bursts between two looks at what is due.
const STEP: usize = 64;
/// Bytes around a datagram on a sealed link.
const OVERHEAD: usize = 48;
/// One way between entry and exit, long enough for the relay to be worth it.
const APART: Duration = Duration::from_millis(40);
/// The game's port at the entry, and its server; neither is opened.
const PORT: SocketAddr = SocketAddr::new(
    core::net::IpAddr::V4(core::net::Ipv4Addr::new(198, 19, 0, 1)),
    4_000,
);
const SERVER: SocketAddr = SocketAddr::new(
    core::net::IpAddr::V4(core::net::Ipv4Addr::new(198, 19, 0, 2)),
    4_000,
);
