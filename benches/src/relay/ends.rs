//! The neighbours of a relay that is measured: an entry and an exit, as real as any, whose sockets
//! the one who measures holds.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use crypto::{Identity, Ring};
use relay_mesh::hop::{HopHeader, HopKind};
use relay_mesh::link_state::Roles;
use relay_mesh::{ExitGame, Leg, trunk};
use servicer::Clock;
use wire::{Arrival, Instant, NodeId};

use super::end::{self, End, Plan};
use super::frames::Frames;
use super::socket::{BATCH, Intake};

/// An entry and an exit. What they send each other is held back, so that packets take the relay.
#[derive(Debug)]
pub struct Ends {
    entry: End,
    exit: End,
    relay: (NodeId, SocketAddr),
    clock: Clock,
    /// What is on the way between the two: when it comes, whether to the exit, and the bytes.
    between: VecDeque<(Instant, Side, Vec<u8>)>,
    /// Bytes around a datagram on these links.
    overhead: usize,
    /// Frames for the relay that are held back to be sent all at once.
    frames: Option<Frames>,
    /// Lengths of frames that are held back at the entry, and counted at the exit instead of heard.
    counted: Vec<usize>,
    /// How many came to the exit.
    came: u64,
    /// Whose datagram opens a flow next.
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
    /// Each as a datagram of its own.
    Single,
    /// As many as leave in one go, for the system to cut up.
    Bursts,
    /// As trunks.
    Trunks,
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

    /// Opens as many flows, and waits until all of them go over the relay.
    ///
    /// # Panics
    ///
    /// Where that takes longer than `limit`.
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

    /// Opens some more flows, up to as many; returns whether all of them go over the relay.
    pub fn settle_on(&mut self, flows: u32) -> bool {
        if self.is_settled(flows) {
            return true;
        }
        self.counted.clear();
        // A few at a time, then all again, which keeps them from ending.
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

    /// Has the entry seal `count` datagrams of `flows` players in turn, of these lengths in turn. Until
    /// the next time, frames of these lengths are counted where they arrive.
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

    /// Sends frames as fast as may be.
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

    /// What the entry knows of its ways and of the mesh, for who looks why a relay is not taken.
    #[must_use]
    pub fn picture(&self) -> String {
        let routes: Vec<_> = self.entry.node.routes().collect();
        let links: Vec<_> = self.entry.node.links().collect();
        format!("{routes:?} {links:?} {:?}", self.entry.node.mesh())
    }

    /// Lets both ends do what is due; returns how many frames came to the exit since it was last
    /// asked.
    pub fn count(&mut self) -> u64 {
        self.step();
        core::mem::take(&mut self.came)
    }

    /// As [`count`](Self::count), with nothing done but to look at the exit's socket.
    pub fn look(&mut self) -> u64 {
        self.hear(Side::Exit, self.clock.now());
        core::mem::take(&mut self.came)
    }

    /// Takes what came for an end. Frames of a length that is counted are counted at the exit, which
    /// hears all else.
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
                            node.handle_datagram(now, Arrival::from(Leg::mesh(from)), frame);
                        }
                    }
                }
                Some(first) if HopHeader::claims(*first) && is_counted(datagram) => came += 1,
                _ => node.handle_datagram(now, Arrival::from(Leg::mesh(from)), datagram),
            }
        });
        self.came += came;
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
            match side {
                Side::Entry => self.entry.tend(now),
                Side::Exit => self.exit.tend(now),
            }
            self.drain(side, now);
        }
    }

    /// A datagram of a player comes to the entry's port.
    fn play(&mut self, player: u32, len: usize) {
        let now = self.clock.now();
        self.entry.play(now, player, &mut vec![0x5A; len]);
        self.drain(Side::Entry, now);
    }

    /// Sends what an end has to send.
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

/// Bytes around a player's datagram on a link.
#[must_use]
pub const fn overhead(kind: HopKind) -> usize {
    match kind {
        HopKind::TagOnly => 40,
        HopKind::Sealed => 48,
    }
}

/// Datagrams between two looks at what is due.
const STEP: usize = 64;
/// One way between entry and exit, long enough for the relay to be worth it.
const APART: Duration = Duration::from_millis(40);
/// The game's server, which nobody is.
const SERVER: SocketAddr = SocketAddr::new(
    core::net::IpAddr::V4(core::net::Ipv4Addr::new(198, 19, 0, 2)),
    4_000,
);
