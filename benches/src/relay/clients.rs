//! A thousand players of one server, each at a game's packet rate.

use std::io;
use std::time::Duration;

use crypto::{Identity, Ring};
use relay_mesh::PeerAddr;
use relay_mesh::hop::{HopHeader, HopKind};
use relay_mesh::link_state::Roles;
use servicer::Clock;
use wire::Arrival;

use super::child::{Forwarder, Role, Stack};
use super::end::{self, End, Plan};
use super::ends::overhead;
use super::frames::Frames;
use super::rounds::row;
use super::socket::{BATCH, Intake, Mass};
use super::subject::{PATIENCE, as_f64};
use harness::row::Row;
use harness::statistics::median;

/// Results of one round.
#[derive(Clone, Copy, Debug)]
struct Found {
    cpu_ns: f64,
    delivered: f64,
    /// Share of its core that the process used.
    core: f64,
}

/// Measures a bare forwarder with a socket towards the server per player, and a Tickwire exit,
/// which also has one per player, alternately.
pub(super) fn measure(rounds: u32, tell: &mut dyn FnMut(Row)) -> io::Result<()> {
    let mut bare = Bare::new()?;
    let mut exit = Exit::new()?;
    let mut found: [Vec<Found>; 2] = Default::default();
    let [of_bare, of_exit] = &mut found;
    for _ in 0..rounds {
        of_bare.push(bare.round(|| exit.tend()));
        of_exit.push(exit.round());
    }
    let stacks = [Stack::Plain, Stack::Tickwire];
    let threads = [&mut bare.forwarder, &mut exit.forwarder].map(|it| it.ask().threads);
    for ((stack, found), threads) in stacks.into_iter().zip(found).zip(threads) {
        type Metric = (&'static str, fn(&Found) -> f64);
        let metrics: [Metric; 3] = [
            ("cpu_ns_per_packet", |found| found.cpu_ns),
            ("delivered_share", |found| found.delivered),
            ("core_share", |found| found.core),
        ];
        for (metric, of) in metrics {
            tell(row(
                stack,
                CASE,
                metric,
                median(found.iter().map(of).collect()),
            ));
        }
        tell(row(stack, CASE, "threads", as_f64(threads)));
    }
    Ok(())
}

/// The players' sockets, which send to a bare forwarder.
#[derive(Debug)]
struct Bare {
    forwarder: Forwarder,
    players: Vec<Mass>,
    server: Mass,
}

impl Bare {
    fn new() -> io::Result<Self> {
        let server = Mass::new(Intake::Single)?;
        let players: io::Result<_> = (0..PLAYERS).map(|_| Mass::new(Intake::Single)).collect();
        Ok(Self {
            forwarder: Forwarder::start(Role::Upstreams, server.address())?,
            players: players?,
            server,
        })
    }

    fn round(&mut self, mut beside: impl FnMut()) -> Found {
        let Self {
            forwarder,
            players,
            server,
        } = self;
        let to = forwarder.address;
        let datagram = [0x5A; LEN];
        // Each player sends once before the measurement, so that the forwarder knows all.
        let mut everyone = players.iter_mut();
        pace(TURNS_WARM, server, || {
            for player in everyone.by_ref().take(EACH_TURN) {
                player.send(to, core::iter::once(&datagram[..]));
            }
        });
        let mut turn = 0;
        measured(forwarder, server, || {
            for _ in 0..EACH_TURN {
                if let Some(player) = players.get_mut(turn) {
                    player.send(to, core::iter::once(&datagram[..]));
                }
                turn = (turn + 1) % players.len().max(1);
            }
            beside();
        })
    }
}

/// An entry which sends its players' frames to a Tickwire exit.
#[derive(Debug)]
struct Exit {
    forwarder: Forwarder,
    entry: End,
    server: Mass,
    clock: Clock,
    frames: Option<Frames>,
    asked: u32,
}

impl Exit {
    fn new() -> io::Result<Self> {
        let server = Mass::new(Intake::Single)?;
        let forwarder = Forwarder::start(Role::Exit, server.address())?;
        let clock = Clock::new();
        let identity = Identity::generate(&mut Ring::new()).expect("entropy");
        let plan = Plan {
            kind: HopKind::Sealed,
            roles: Roles::ENTRY,
            game: end::game(Some(end::port(forwarder.id)), None),
            neighbour: (forwarder.id, forwarder.address),
            intake: Intake::Single,
        };
        let mut exit = Self {
            entry: End::new(&clock, identity, plan)?,
            forwarder,
            server,
            clock,
            frames: None,
            asked: 0,
        };
        exit.settle();
        Ok(exit)
    }

    /// Opens the players' flows and waits until a datagram of each has arrived.
    fn settle(&mut self) {
        let end = self.clock.now() + PATIENCE;
        let wanted = u64::from(PLAYERS);
        let mut came = 0;
        while came < wanted {
            assert!(self.clock.now() < end, "{came} of {wanted} arrived");
            came = 0;
            for _ in 0..TURNS_WARM {
                for _ in 0..EACH_TURN {
                    self.play();
                }
                self.tend();
                super::nap(TURN);
                self.server.receive(|_, _| came += 1);
            }
        }
    }

    fn round(&mut self) -> Found {
        self.settle();
        let mut frames = self.seal(EACH_TURN * TURNS);
        let Self {
            forwarder,
            entry,
            server,
            clock,
            ..
        } = self;
        let to = forwarder.address;
        measured(forwarder, server, || {
            let some = frames.take_front(EACH_TURN);
            entry.socket.send(to, some.iter());
            tend(entry, clock, &mut None);
        })
    }

    fn seal(&mut self, count: usize) -> Frames {
        self.frames = Some(Frames::with_capacity(count, FRAME));
        for number in 0..count {
            self.play();
            if number % BATCH == 0 {
                self.tend();
            }
        }
        self.frames.take().unwrap_or_default()
    }

    /// Delivers a datagram of the next player to the entry.
    fn play(&mut self) {
        let now = self.clock.now();
        self.entry.play(now, self.asked % PLAYERS, &mut [0x5A; LEN]);
        self.asked = self.asked.wrapping_add(1);
        drain(&mut self.entry, &self.clock, &mut self.frames);
    }

    fn tend(&mut self) {
        tend(&mut self.entry, &self.clock, &mut self.frames);
    }
}

/// Runs the entry's due work.
fn tend(entry: &mut End, clock: &Clock, frames: &mut Option<Frames>) {
    let now = clock.now();
    let End { node, socket, .. } = entry;
    socket.receive(|from, datagram| {
        node.handle_datagram(now, Arrival::from(PeerAddr::mesh(from)), datagram);
    });
    entry.tend(now);
    drain(entry, clock, frames);
}

/// Sends the entry's datagrams. If `frames` is set, players' frames are stored there instead.
fn drain(entry: &mut End, clock: &Clock, frames: &mut Option<Frames>) {
    while let Some((address, datagram)) = entry.take(clock.now()) {
        let is_frame = datagram.first().is_some_and(|it| HopHeader::claims(*it));
        let is_held = is_frame && datagram.len() == FRAME;
        match frames.as_mut().filter(|_| is_held) {
            Some(frames) => frames.push(&datagram),
            None => entry
                .socket
                .send(address, core::iter::once(datagram.as_slice())),
        }
    }
}

/// Sends at the players' rate. Returns the cost to the forwarder.
fn measured(forwarder: &mut Forwarder, server: &mut Mass, send: impl FnMut()) -> Found {
    let clock = Clock::new();
    let (before, began) = (forwarder.ask(), clock.now());
    let came = as_f64(pace(TURNS, server, send));
    let span = clock.now().saturating_since(began);
    let after = forwarder.ask();
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    let sent = as_f64(u64::try_from(EACH_TURN * TURNS).unwrap_or(u64::MAX));
    Found {
        cpu_ns: cpu * 1e9 / came.max(1.0),
        delivered: came / sent,
        core: cpu / span.as_secs_f64(),
    }
}

/// Calls `send` this many times at the turn interval. Returns how many datagrams reached the server
/// until none arrived any more.
fn pace(turns: usize, server: &mut Mass, mut send: impl FnMut()) -> u64 {
    let clock = Clock::new();
    let mut came = 0;
    let mut due = clock.now();
    for _ in 0..turns {
        due += TURN;
        send();
        server.receive(|_, _| came += 1);
        super::nap(due.saturating_since(clock.now()));
    }
    let mut last = clock.now();
    while clock.now().saturating_since(last) < QUIET {
        super::nap(TURN);
        server.receive(|_, _| {
            came += 1;
            last = clock.now();
        });
    }
    came
}

/// Name in rows.
pub(super) const CASE: &str = "clients1000";
/// Number of players.
const PLAYERS: u32 = 1_000;
/// Bytes of their datagrams, and of the frames which contain them.
const LEN: usize = 100;
const FRAME: usize = LEN + overhead(HopKind::Sealed);
/// Interval between two turns.
const TURN: Duration = Duration::from_millis(1);
/// Datagrams per turn, so that each player sends 60 per second.
const EACH_TURN: usize = 60;
/// Turns of a round, and turns in which each player sends once.
const TURNS: usize = 2_000;
const TURNS_WARM: usize = 17;
/// Time without datagrams after which a round ends.
const QUIET: Duration = Duration::from_millis(500);
