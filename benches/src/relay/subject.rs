//! A forwarder, its senders and its sink.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use relay_mesh::hop::HopKind;
use servicer::Clock;

use super::child::{Forwarder, Role};
use super::ends::{Ends, Form};
use super::frames::Frames;
use super::socket::{BATCH, Intake, Mass, burst};

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name in rows.
    pub name: &'static str,
    /// Lengths of players' datagrams, in turn.
    pub lens: &'static [usize],
    /// How they are sent to the forwarder.
    pub form: Form,
}

impl Case {
    /// Creates a case with the lengths `lens`.
    #[must_use]
    pub const fn new(name: &'static str, lens: &'static [usize], form: Form) -> Self {
        Self { name, lens, form }
    }
}

/// Results of one round, per packet that arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// CPU time of the forwarder's process.
    pub cpu_ns: f64,
    /// Number of allocations.
    pub allocations: f64,
    /// Share of sent packets that arrived.
    pub delivered: f64,
}

/// A forwarder with its senders and sink.
#[expect(
    clippy::large_enum_variant,
    reason = "there are a handful, and none is moved while it is measured"
)]
#[derive(Debug)]
pub enum Subject {
    /// A bare forwarder, and sockets that send to it.
    Bare(Bare),
    /// A Tickwire relay between an entry and an exit.
    Relayed(Relayed),
}

/// See [`Subject::Bare`].
#[derive(Debug)]
pub struct Bare {
    forwarder: Forwarder,
    players: Vec<Mass>,
    sink: Mass,
    /// Index of the next sender.
    turn: usize,
}

/// See [`Subject::Relayed`].
#[derive(Debug)]
pub struct Relayed {
    forwarder: Forwarder,
    ends: Ends,
    /// Sealed frames that have not been sent.
    frames: Frames,
}

impl Subject {
    /// Starts a forwarder. Its sink receives according to `intake`.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn start(role: Role, intake: Intake) -> io::Result<Self> {
        let kind = match role {
            Role::Relay(kind) | Role::Spread(kind) => kind,
            Role::Plain | Role::Mmsg | Role::Upstreams | Role::Exit => {
                return Ok(Self::Bare(Bare::new(role, intake)?));
            }
        };
        Ok(Self::Relayed(Relayed::new(role, kind, intake)?))
    }

    /// Returns the forwarder process.
    pub const fn forwarder(&mut self) -> &mut Forwarder {
        match self {
            Self::Bare(Bare { forwarder, .. }) | Self::Relayed(Relayed { forwarder, .. }) => {
                forwarder
            }
        }
    }

    /// Waits until the flows use the relay, if it has one. The subjects in `beside` are kept
    /// running.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn settle(&mut self, beside: &mut [&mut Self]) {
        let Self::Relayed(Relayed { ends, .. }) = self else {
            return;
        };
        let clock = Clock::new();
        let end = clock.now() + PATIENCE;
        while !ends.settle_on(FLOWS) {
            assert!(clock.now() < end, "no relay is taken: {}", ends.picture());
            for other in &mut *beside {
                other.count();
            }
            super::nap(GLANCE);
        }
    }

    /// Prepares `packets` packets. The subjects in `beside` are kept running.
    ///
    /// # Panics
    ///
    /// If flows repeatedly leave the relay for 90 s.
    pub fn prepare(&mut self, case: Case, packets: usize, beside: &mut [&mut Self]) {
        for other in &mut *beside {
            other.count();
        }
        let clock = Clock::new();
        let end = clock.now() + PATIENCE;
        loop {
            self.settle(beside);
            let Self::Relayed(relayed) = self else {
                return;
            };
            relayed.frames = relayed.ends.seal(packets, (FLOWS, case.lens));
            // Frames of flows that left the relay are missing. If that is half of them, try again.
            let missing = packets.saturating_sub(relayed.frames.count());
            if missing * 2 < packets || packets == 0 {
                return;
            }
            assert!(clock.now() < end, "{missing} of {packets} frames missing");
        }
    }

    /// Sends up to `packets` of the prepared packets. Returns how many.
    pub fn send(&mut self, case: Case, packets: usize) -> usize {
        match self {
            Self::Bare(bare) => {
                bare.send(case, packets);
                packets
            }
            Self::Relayed(Relayed { ends, frames, .. }) => {
                let some = frames.take_front(packets);
                ends.send(&some, case.form);
                some.count()
            }
        }
    }

    /// Runs due work. Returns how many packets have arrived since the last call.
    pub fn count(&mut self) -> u64 {
        match self {
            Self::Bare(bare) => bare.look(),
            Self::Relayed(relayed) => relayed.ends.count(),
        }
    }

    /// Returns how many packets have arrived since the last call, and does nothing else.
    pub fn look(&mut self) -> u64 {
        match self {
            Self::Bare(bare) => bare.look(),
            Self::Relayed(relayed) => relayed.ends.look(),
        }
    }

    /// Sends `packets` packets so that the forwarder is always busy. The subjects in `beside` are
    /// kept running.
    pub fn round(&mut self, case: Case, packets: usize, beside: &mut [&mut Self]) -> Found {
        // A warm-up, after which the forwarder knows all senders.
        self.fill(case, FILL, beside);
        let before = self.forwarder().ask();
        let (mut came, mut sent) = (0, 0);
        while sent < packets {
            let some = FILL.min(packets - sent);
            let [arrived, offered] = self.fill(case, some, beside);
            came += arrived;
            sent += usize::try_from(offered).unwrap_or(some).max(1);
        }
        let after = self.forwarder().ask();
        let arrived = as_f64(came.max(1));
        let allocations = after.allocations.saturating_sub(before.allocations);
        Found {
            cpu_ns: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e9 / arrived,
            allocations: as_f64(allocations) / arrived,
            delivered: as_f64(came) / as_f64(u64::try_from(sent).unwrap_or(u64::MAX)),
        }
    }

    /// Sends packets while the forwarder is stopped, then lets it run until they have arrived.
    /// Returns how many arrived and how many were sent.
    fn fill(&mut self, case: Case, packets: usize, beside: &mut [&mut Self]) -> [u64; 2] {
        self.prepare(case, packets, beside);
        self.count();
        let pid = self.forwarder().pid();
        let sent = super::child::while_paused(pid, || self.send(case, packets));
        let clock = Clock::new();
        let wanted = u64::try_from(sent).unwrap_or(u64::MAX);
        let (mut came, mut last) = (0, clock.now());
        while came < wanted && clock.now().saturating_since(last) < QUIET {
            super::nap(GLANCE);
            let more = self.count();
            if more > 0 {
                last = clock.now();
            }
            came += more;
        }
        [came, wanted]
    }
}

impl Bare {
    fn new(role: Role, intake: Intake) -> io::Result<Self> {
        let sink = Mass::new(intake)?;
        let players: io::Result<_> = (0..FLOWS).map(|_| Mass::new(Intake::Single)).collect();
        Ok(Self {
            forwarder: Forwarder::start(role, sink.address())?,
            players: players?,
            sink,
            turn: 0,
        })
    }

    /// Sends 64 packets per player in turn. GSO bursts and trunks are sent by one player only.
    fn send(&mut self, Case { lens, form, .. }: Case, packets: usize) {
        let to = self.forwarder.address;
        let datagrams: Vec<Vec<u8>> = lens.iter().map(|len| vec![0x5A; *len]).collect();
        let longest = lens.iter().max().copied().unwrap_or(0);
        let mut left = packets;
        while left > 0 {
            let some = left.min(match form {
                Form::Single | Form::Trunks => BATCH,
                Form::Bursts => burst(longest),
            });
            left -= some;
            let turn = match form {
                Form::Single => self.turn % self.players.len().max(1),
                Form::Bursts | Form::Trunks => 0,
            };
            self.turn = turn + 1;
            let Some(player) = self.players.get_mut(turn) else {
                return;
            };
            match form {
                Form::Bursts => player.send_burst(to, &vec![0x5A; some * longest], longest),
                Form::Single | Form::Trunks => {
                    let datagrams = datagrams.iter().map(Vec::as_slice).cycle();
                    player.send(to, datagrams.take(some));
                }
            }
        }
    }

    fn look(&mut self) -> u64 {
        let mut count = 0;
        self.sink.receive(|_, _| count += 1);
        count
    }
}

impl Relayed {
    fn new(role: Role, kind: HopKind, intake: Intake) -> io::Result<Self> {
        let forwarder = Forwarder::start(role, NOBODY)?;
        let ends = Ends::new((forwarder.id, forwarder.address), kind, intake)?;
        Ok(Self {
            forwarder,
            ends,
            frames: Frames::default(),
        })
    }
}

/// Converts a count to a divisor.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
#[must_use]
pub const fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Number of measured flows.
pub const FLOWS: u32 = 8;
/// Time limit for a mesh to converge, even if a relay without CPU time is excluded for a minute.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Sink of a node which leads to no server.
pub const NOBODY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);
/// Maximum packets queued at a forwarder, below its socket buffer's capacity.
const FILL: usize = 2_048;
/// Time without datagrams after which a round ends.
const QUIET: Duration = Duration::from_millis(200);
/// Interval between polls for arrived packets.
const GLANCE: Duration = Duration::from_micros(500);
