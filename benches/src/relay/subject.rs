//! What forwards, and who sends to it and counts what arrives.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use relay_mesh::hop::HopKind;
use servicer::Clock;

use super::child::{Forwarder, Role};
use super::ends::{Ends, Form};
use super::frames::Frames;
use super::socket::{BATCH, Intake, Mass, burst};

/// A kind of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name in rows.
    pub name: &'static str,
    /// Bytes of players' datagrams, in turn.
    pub lens: &'static [usize],
    /// How they are sent to the forwarder.
    pub form: Form,
}

impl Case {
    /// One of the length `len` alone.
    #[must_use]
    pub const fn new(name: &'static str, lens: &'static [usize], form: Form) -> Self {
        Self { name, lens, form }
    }
}

/// What one round found, for a packet that arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// CPU time of the whole forwarding process.
    pub cpu_ns: f64,
    /// How often it asked for memory.
    pub allocations: f64,
    /// How many arrived of those that were sent.
    pub delivered: f64,
}

/// A forwarder with those around it.
#[expect(
    clippy::large_enum_variant,
    reason = "there are a handful, and none is moved while it is measured"
)]
#[derive(Debug)]
pub enum Subject {
    /// A bare forwarder, and sockets that send to it.
    Bare(Bare),
    /// A relay of ours between an entry and an exit.
    Relayed(Relayed),
}

/// See [`Subject::Bare`].
#[derive(Debug)]
pub struct Bare {
    forwarder: Forwarder,
    players: Vec<Mass>,
    sink: Mass,
    /// Whose turn it is to send.
    turn: usize,
}

/// See [`Subject::Relayed`].
#[derive(Debug)]
pub struct Relayed {
    forwarder: Forwarder,
    ends: Ends,
    /// Sealed, and not yet sent.
    frames: Frames,
}

impl Subject {
    /// Starts a forwarder, whose sink is handed what comes as `intake` says.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn start(role: Role, intake: Intake) -> io::Result<Self> {
        let kind = match role {
            Role::Relay(kind) | Role::Spread(kind) => kind,
            Role::Plain | Role::Mmsg | Role::Upstreams | Role::Exit => {
                return Ok(Self::Bare(Bare::new(role, intake)?));
            }
        };
        Ok(Self::Relayed(Relayed::new(role, kind, intake)?))
    }

    /// The process that forwards.
    pub const fn forwarder(&mut self) -> &mut Forwarder {
        match self {
            Self::Bare(Bare { forwarder, .. }) | Self::Relayed(Relayed { forwarder, .. }) => {
                forwarder
            }
        }
    }

    /// Waits until its flows go over the relay, where it has one; those `beside` it live on meanwhile.
    ///
    /// # Panics
    ///
    /// Where that takes too long.
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

    /// Prepares so many packets; those `beside` it live on meanwhile.
    ///
    /// # Panics
    ///
    /// If flows leave the relay again and again for 90 s.
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
            // If flows left the relay meanwhile, their frames are missing.
            let missing = packets.saturating_sub(relayed.frames.count());
            if missing * 2 < packets || packets == 0 {
                return;
            }
            assert!(clock.now() < end, "{missing} of {packets} frames missing");
        }
    }

    /// Sends so many of the packets that were prepared, or what there is; returns how many.
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

    /// Does what is due; returns how many packets arrived since it was last asked.
    pub fn count(&mut self) -> u64 {
        match self {
            Self::Bare(bare) => bare.look(),
            Self::Relayed(relayed) => relayed.ends.count(),
        }
    }

    /// Returns how many packets arrived since it was last asked, and does nothing else.
    pub fn look(&mut self) -> u64 {
        match self {
            Self::Bare(bare) => bare.look(),
            Self::Relayed(relayed) => relayed.ends.look(),
        }
    }

    /// Has so many packets forwarded that the forwarder has work all the time; those `beside` it live
    /// on meanwhile.
    pub fn round(&mut self, case: Case, packets: usize, beside: &mut [&mut Self]) -> Found {
        // Once before, so that all is warm and known.
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

    /// Sends so many while the forwarder stands still, then has it go on until they have arrived;
    /// returns how many did, and how many were sent.
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

    /// Each player in turn sends 64, or what leaves in one go. What stands for a trunk comes from one.
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

/// A count as a number to divide by.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
#[must_use]
pub const fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Flows whose packets are measured.
pub const FLOWS: u32 = 8;
/// How long a mesh may take to come together, also where a relay that had no time is kept out for a
/// minute.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Whom a node that leads to no server forwards to.
pub const NOBODY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);
/// Packets that wait for a forwarder at once: fewer than its socket has room for.
const FILL: usize = 2_048;
/// Silence after which nothing more comes.
const QUIET: Duration = Duration::from_millis(200);
/// Time between two looks at what arrived.
const GLANCE: Duration = Duration::from_micros(500);
