//! The neighbours of a measured relay: a real entry and exit, with sockets that the benchmark
//! holds.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use crypto::{Identity, Ring};
use relay_mesh::hop::{HopHeader, HopKind};
use relay_mesh::link_state::Roles;
use relay_mesh::{ExitGame, PeerAddr, trunk};
use servicer::Clock;
use wire::{Arrival, Instant, NodeId};

use super::end::{self, End, Plan};
use super::frames::Frames;
use super::socket::{BATCH, Intake};

/// An entry and an exit. Their direct datagrams are delayed, so that packets take the relay.
#[derive(Debug)]
pub struct Ends {
    entry: End,
    exit: End,
    relay: (NodeId, SocketAddr),
    clock: Clock,
    /// Direct datagrams in flight: arrival time, direction and bytes.
    between: VecDeque<(Instant, Side, Vec<u8>)>,
    /// Bytes of overhead per datagram on these links.
    overhead: usize,
    /// Frames for the relay, stored to be sent together later.
    frames: Option<Frames>,
    /// Lengths of frames which are stored at the entry, and counted at the exit instead of
    /// processed.
    counted: Vec<usize>,
    /// Number of frames that reached the exit.
    came: u64,
    /// The player whose datagram opens the next flow.
    asked: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Entry,
    Exit,
}

/// How frames are sent to a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One frame per datagram.
    Single,
    /// As GSO bursts of datagrams.
    Bursts,
    /// As trunks.
    Trunks,
}

impl Ends {
    /// Creates both. They dial the relay.
    ///
    /// # Errors
    ///
    /// The system's error.
    ///
    /// # Panics
    ///
    /// If the system has no randomness.
    pub fn new(relay: (NodeId, SocketAddr), kind: HopKind, intake: Intake) -> io::Result<Self> {
        let identity = || Identity::generate(&mut Ring::new()).expect("entropy");
        let (entry, exit) = (identity(), identity());
        let games = [
            end::game(Some(end::port(exit.node_id())), None),
            end::game(
                None,
                Some(ExitGame {
                    server: SERVER,
                    entries: None,
                    header: None,
                }),
            ),
        ];
        let clock = Clock::new();
        let plan = |roles, game, intake| Plan {
            kind,
            roles,
            game,
            neighbour: relay,
            intake,
        };
        let [to_exit, to_server] = games;
        let at_entry = plan(Roles::ENTRY, to_exit, Intake::Single);
        let at_exit = plan(Roles::EXIT, to_server, intake);
        Ok(Self {
            entry: End::new(&clock, entry, at_entry)?,
            exit: End::new(&clock, exit, at_exit)?,
            relay,
            clock,
            between: VecDeque::new(),
            overhead: overhead(kind),
            frames: None,
            counted: Vec::new(),
            came: 0,
            asked: 0,
        })
    }

    /// Opens the flows and waits until all of them use the relay.
    ///
    /// # Panics
    ///
    /// If that takes longer than `limit`.
    pub fn settle(&mut self, flows: u32, limit: Duration) {
        let end = self.clock.now() + limit;
        while !self.settle_on(flows) {
            assert!(
                self.clock.now() < end,
                "after {limit:?} there is {:?}",
                self.entry.node.routes().collect::<Vec<_>>()
            );
            super::nap(Duration::from_millis(1));
        }
    }

    /// Opens more flows, up to this number. Returns whether all of them use the relay.
    pub fn settle_on(&mut self, flows: u32) -> bool {
        if self.is_settled(flows) {
            return true;
        }
        self.counted.clear();
        // Opens a few at a time, then refreshes all, so that none expires.
        for _ in 0..64 {
            if self.entry.port.is_some() {
                self.play(self.asked % flows, 32);
                self.asked = self.asked.wrapping_add(1);
            }
        }
        self.step();
        false
    }

    fn is_settled(&self, flows: u32) -> bool {
        let relay = self.relay.0;
        let wanted = usize::try_from(flows).unwrap_or(usize::MAX);
        self.entry.node.routes().any(|view| {
            let over = view.path.is_some_and(|path| path.relays == [relay]);
            over && view.flows == wanted
        })
    }

    /// Lets the entry seal `count` datagrams of `flows` players, with the lengths in turn. Until
    /// the next call, the exit only counts frames of these lengths.
    pub fn seal(&mut self, count: usize, (flows, lens): (u32, &[usize])) -> Frames {
        let lens_around = lens.iter().map(|len| len + self.overhead);
        self.counted = lens_around.collect();
        let longest = self.counted.iter().max().copied().unwrap_or(0);
        self.frames = Some(Frames::with_capacity(count, longest));
        let mut player = 0;
        for (number, len) in (0..count).zip(lens.iter().cycle()) {
            if number % STEP == 0 {
                self.step();
            }
            self.play(player, *len);
            player = (player + 1) % flows;
        }
        self.frames.take().unwrap_or_default()
    }

    /// Sends frames at full speed.
    pub fn send(&mut self, frames: &Frames, form: Form) {
        let to = self.relay.1;
        let socket = &mut self.entry.socket;
        let mut send_singly = |datagrams: &mut dyn Iterator<Item = &[u8]>| {
            loop {
                let some: Vec<&[u8]> = datagrams.take(BATCH).collect();
                if some.is_empty() {
                    return;
                }
                socket.send(to, some.into_iter());
            }
        };
        match form {
            Form::Single => send_singly(&mut frames.iter()),
            Form::Trunks => send_singly(&mut frames.trunks().iter().map(Vec::as_slice)),
            Form::Bursts => {
                for (burst, len) in frames.bursts() {
                    socket.send_burst(to, burst, len);
                }
            }
        }
    }

    /// Describes the entry's paths and its view of the mesh, to diagnose why a relay is not used.
    #[must_use]
    pub fn picture(&self) -> String {
        let routes: Vec<_> = self.entry.node.routes().collect();
        let links: Vec<_> = self.entry.node.links().collect();
        format!("{routes:?} {links:?} {:?}", self.entry.node.mesh())
    }

    /// Runs due work of both ends. Returns how many frames have reached the exit since the last
    /// call.
    pub fn count(&mut self) -> u64 {
        self.step();
        core::mem::take(&mut self.came)
    }

    /// Like [`count`](Self::count), but only polls the exit's socket.
    pub fn look(&mut self) -> u64 {
        self.hear(Side::Exit, self.clock.now());
        core::mem::take(&mut self.came)
    }

    /// Receives an end's datagrams. The exit only counts frames with a counted length and processes
    /// the rest.
    fn hear(&mut self, side: Side, now: Instant) {
        let End { node, socket, .. } = match side {
            Side::Entry => &mut self.entry,
            Side::Exit => &mut self.exit,
        };
        let counted = &self.counted;
        let mut came = 0;
        socket.receive(|from, datagram| {
            let is_counted = |frame: &[u8]| side == Side::Exit && counted.contains(&frame.len());
            match datagram.first() {
                Some(&trunk::KIND) if side == Side::Exit => {
                    for frame in trunk::Frames::new(datagram).into_iter().flatten().flatten() {
                        if is_counted(frame) {
                            came += 1;
                        } else {
                            node.handle_datagram(now, Arrival::from(PeerAddr::mesh(from)), frame);
                        }
                    }
                }
                Some(first) if HopHeader::claims(*first) && is_counted(datagram) => came += 1,
                _ => node.handle_datagram(now, Arrival::from(PeerAddr::mesh(from)), datagram),
            }
        });
        self.came += came;
    }

    /// Runs due work of both ends.
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
            let from = PeerAddr::mesh(other.socket.address());
            end.node
                .handle_datagram(now, Arrival::from(from), &mut datagram);
        }
        for side in [Side::Entry, Side::Exit] {
            self.hear(side, now);
            match side {
                Side::Entry => self.entry.tend(now),
                Side::Exit => self.exit.tend(now),
            }
            self.drain(side, now);
        }
    }

    /// Delivers a player's datagram to the entry's port.
    fn play(&mut self, player: u32, len: usize) {
        let now = self.clock.now();
        self.entry.play(now, player, &mut vec![0x5A; len]);
        self.drain(Side::Entry, now);
    }

    /// Sends an end's outgoing datagrams.
    fn drain(&mut self, side: Side, now: Instant) {
        let (end, other, far) = match side {
            Side::Entry => (&mut self.entry, self.exit.socket.address(), Side::Exit),
            Side::Exit => (&mut self.exit, self.entry.socket.address(), Side::Entry),
        };
        while let Some((address, datagram)) = end.take(now) {
            let is_frame = datagram.first().is_some_and(|it| HopHeader::claims(*it));
            let is_held = is_frame && self.counted.contains(&datagram.len());
            if address == other {
                self.between.push_back((now + APART, far, datagram));
            } else if let Some(frames) = self.frames.as_mut().filter(|_| is_held) {
                frames.push(&datagram);
            } else {
                let datagram = core::iter::once(datagram.as_slice());
                end.socket.send(address, datagram);
            }
        }
    }
}

/// Returns the bytes of overhead of a player's datagram on a link.
#[must_use]
pub const fn overhead(kind: HopKind) -> usize {
    match kind {
        HopKind::TagOnly => 40,
        HopKind::Sealed => 48,
    }
}

/// Datagrams between two checks for due work.
const STEP: usize = 64;
/// Direct one-way delay between entry and exit, long enough that the relay path is better.
const APART: Duration = Duration::from_millis(40);
/// The game server's address, which is unused.
const SERVER: SocketAddr = SocketAddr::new(
    core::net::IpAddr::V4(core::net::Ipv4Addr::new(198, 19, 0, 2)),
    4_000,
);
