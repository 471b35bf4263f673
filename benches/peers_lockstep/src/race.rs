//! One match in virtual time, and the CPU time of its turns.

use core::time::Duration;

use nix::time::{ClockId, clock_gettime};
use wire::{Generator, Seed};

use crate::network::{Mailbox, Network};
use crate::play::Play;
use crate::stack::{FRAME, Post, Setup, Stack};

/// Poll interval of the sockets, if they are polled more often than once per frame.
pub const POLL: Duration = Duration::from_millis(4);
/// Virtual start time of each match, so that earlier times can be represented.
pub const ORIGIN: Duration = Duration::from_secs(10);

/// How often an end has a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// Once per frame, as in a game which renders at its tick rate.
    EachFrame,
    /// Every 4 ms, and at each frame.
    Each4Ms,
}

impl Turns {
    /// Returns the maximum time between two turns.
    #[must_use]
    pub const fn span(self) -> Duration {
        match self {
            Self::EachFrame => FRAME,
            Self::Each4Ms => POLL,
        }
    }
}

/// Takes a reading before and after the turns of all players, and after that of the server. Work
/// between turns belongs to the harness.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    /// The reading, such as CPU time, or `None`.
    pub read: Option<fn() -> u64>,
    /// Increase during players' turns.
    pub players: u64,
    /// Increase during the server's turns.
    pub server: u64,
    /// Number of readings of each.
    pub spans: [u32; 2],
}

impl Meter {
    /// Creates a meter of this thread's CPU time, in nanoseconds.
    #[must_use]
    pub fn of_cpu_time() -> Self {
        Self {
            read: Some(cpu_nanos),
            ..Self::default()
        }
    }

    fn rise(&self, work: impl FnOnce()) -> Option<u64> {
        let Some(read) = self.read else {
            work();
            return None;
        };
        let before = read();
        work();
        Some(read().saturating_sub(before))
    }

    pub(crate) fn of_players(&mut self, work: impl FnOnce()) {
        if let Some(rise) = self.rise(work) {
            self.players += rise;
            self.spans[0] += 1;
        }
    }

    fn of_server(&mut self, work: impl FnOnce()) {
        if let Some(rise) = self.rise(work) {
            self.server += rise;
            self.spans[1] += 1;
        }
    }
}

fn cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has one");
    u64::try_from(Duration::from(time).as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the nanoseconds that a reading of the CPU time adds to a span: the median of many empty
/// spans.
#[must_use]
pub fn reading_nanos() -> u64 {
    let meter = Meter::of_cpu_time();
    let mut spans: Vec<_> = (0..10_001).filter_map(|_| meter.rise(|| {})).collect();
    spans.sort_unstable();
    spans.get(spans.len() / 2).copied().unwrap_or(0)
}

/// A match, its network, and its players' inputs.
pub struct Race<P: Play, S: Stack<P>> {
    /// The ends.
    pub stack: S,
    /// The network between them.
    pub network: Network,
    setup: Setup,
    turns: Turns,
    now: Duration,
    /// Time of the next frame.
    next_frame: Duration,
    /// Time of the next turn other than a frame.
    next_poll: Duration,
    inboxes: Vec<Mailbox>,
    outboxes: Vec<Mailbox>,
    players: Vec<(Generator, P)>,
}

impl<P: Play, S: Stack<P>> Race<P, S> {
    /// Creates a match which starts now.
    #[must_use]
    pub fn new(setup: Setup, turns: Turns) -> Self {
        instant::advance_to(ORIGIN);
        let nodes = setup.players + usize::from(S::HAS_SERVER);
        let seed = Seed::from_number(setup.seed);
        let player = |number| (seed.generator(1 << 32 | number as u64), P::default());
        let mailboxes = || {
            (0..nodes)
                .map(|_| Mailbox {
                    bytes: Vec::with_capacity(1 << 16),
                    ends: Vec::with_capacity(1 << 10),
                })
                .collect()
        };
        Self {
            stack: S::new(&setup),
            network: Network::new(nodes, setup.players, setup.conditions, seed),
            setup,
            turns,
            now: ORIGIN,
            next_frame: ORIGIN,
            next_poll: ORIGIN,
            inboxes: mailboxes(),
            outboxes: mailboxes(),
            players: (0..setup.players).map(player).collect(),
        }
    }

    /// Returns its settings.
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the virtual time.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// Advances to the next time at which ends have turns, and runs these.
    pub fn step(&mut self, meter: &mut Meter) {
        let (now, is_frame) = self.next_moment();
        self.now = now;
        instant::advance_to(now);
        self.network.deliver(now, &mut self.inboxes);
        if is_frame {
            for (generator, input) in &mut self.players {
                *input = input.next(generator);
            }
        }
        let Self {
            stack,
            inboxes,
            outboxes,
            players,
            ..
        } = self;
        let mut ends = inboxes.iter_mut().zip(outboxes);
        meter.of_players(|| {
            for (number, (_, input)) in players.iter().enumerate() {
                if let Some((inbox, outbox)) = ends.next() {
                    let post = &mut Post { inbox, outbox };
                    if is_frame {
                        stack.frame(number, now, *input, post);
                    } else {
                        stack.poll(number, now, post);
                    }
                }
            }
        });
        if let Some((inbox, outbox)) = ends.next() {
            let post = &mut Post { inbox, outbox };
            meter.of_server(|| stack.poll(players.len(), now, post));
        }
        for (from, outbox) in (0..).zip(&mut self.outboxes) {
            self.network.send(now, from, outbox);
        }
    }

    /// Runs for a span of virtual time.
    pub fn run(&mut self, span: Duration, meter: &mut Meter) {
        let end = self.now + span;
        while self.now < end {
            self.step(meter);
        }
    }

    /// Checks that all players have simulated the same game, as far as it is confirmed.
    pub fn check_agreement(&self) {
        let players = 0..self.setup.players;
        let confirmed = players.clone().map(|it| self.stack.confirmed(it));
        // Confirmed steps may not have been resimulated yet.
        let common = confirmed.min().unwrap_or(0).saturating_sub(16);
        let mut states = players.map(|it| self.stack.game(it).state_after(common));
        let first = states.next().flatten();
        assert!(
            common > 100 && first.is_some() && states.all(|state| state == first),
            "{} players of {} do not agree after {common} steps",
            self.setup.players,
            S::NAME
        );
    }

    fn next_moment(&mut self) -> (Duration, bool) {
        let is_frame = self.turns == Turns::EachFrame || self.next_frame <= self.next_poll;
        if is_frame {
            let now = self.next_frame;
            self.next_frame += FRAME;
            if self.next_poll == now {
                self.next_poll += POLL;
            }
            (now, true)
        } else {
            let now = self.next_poll;
            self.next_poll += POLL;
            (now, false)
        }
    }
}
