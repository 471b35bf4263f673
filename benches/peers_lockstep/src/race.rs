//! One match in virtual time, and the CPU time of its turns.

use core::time::Duration;

use nix::time::{ClockId, clock_gettime};
use wire::{Generator, Seed};

use crate::network::{Mailbox, Network};
use crate::play::Play;
use crate::stack::{FRAME, Post, Setup, Stack};

/// Between two looks at the sockets, where these come more often than frames.
pub const POLL: Duration = Duration::from_millis(4);
/// When each match begins: late enough for what counts back from now.
pub const ORIGIN: Duration = Duration::from_secs(10);

/// How often an end gets its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// Once a frame, as in a game that draws as often as it steps.
    EachFrame,
    /// Each 4 ms, and at each frame.
    Each4Ms,
}

impl Turns {
    /// Between two of them, at most.
    #[must_use]
    pub const fn span(self) -> Duration {
        match self {
            Self::EachFrame => FRAME,
            Self::Each4Ms => POLL,
        }
    }
}

/// Takes a reading before and after the turns of all players and after that of the server; what
/// happens between turns is the harness's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    /// What to read, such as CPU time; nothing where none.
    pub read: Option<fn() -> u64>,
    /// By how much it rose in players' turns.
    pub players: u64,
    /// By how much it rose in the server's.
    pub server: u64,
    /// How often each was read.
    pub spans: [u32; 2],
}

impl Meter {
    /// Makes one that reads this thread's CPU time, in nanoseconds.
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

/// Nanoseconds that a reading of CPU time takes of the span that it ends or begins: the median
/// of many spans of nothing.
#[must_use]
pub fn reading_nanos() -> u64 {
    let meter = Meter::of_cpu_time();
    let mut spans: Vec<_> = (0..10_001).filter_map(|_| meter.rise(|| {})).collect();
    spans.sort_unstable();
    spans.get(spans.len() / 2).copied().unwrap_or(0)
}

/// A match, its network, and what its players do.
pub struct Race<P: Play, S: Stack<P>> {
    /// The ends.
    pub stack: S,
    /// Between them.
    pub network: Network,
    setup: Setup,
    turns: Turns,
    now: Duration,
    /// When the next frame is.
    next_frame: Duration,
    /// When the next turn is, but for frames.
    next_poll: Duration,
    inboxes: Vec<Mailbox>,
    outboxes: Vec<Mailbox>,
    players: Vec<(Generator, P)>,
}

impl<P: Play, S: Stack<P>> Race<P, S> {
    /// Makes a match that begins now.
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
            network: Network::new(nodes, setup.players, setup.weather, seed),
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

    /// What it was made of.
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Virtual time.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// Goes to the next moment at which ends have their turns, and lets them have them.
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

    /// Checks that all players have played the same game, as far as it is confirmed.
    pub fn check_agreement(&self) {
        let players = 0..self.setup.players;
        let confirmed = players.clone().map(|it| self.stack.confirmed(it));
        // What is confirmed may not have been stepped again yet.
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
