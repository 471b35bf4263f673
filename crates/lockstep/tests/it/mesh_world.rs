//! Equal peers over lossy links, in virtual time, from one seed.

use std::collections::BTreeMap;

use core::ops::Range;
use core::time::Duration;

use lockstep::{
    Input, MeshClose, MeshConfig, MeshEvent, MeshPeer, Origin, PeerId, StateHasher, Step, Tick,
    Turn,
};
use wire::{Arrival, Generator, Instant, Seat, Seed};

use crate::world::{Link, MATCH, seat};

/// A simulated mesh peer, and its history.
#[derive(Debug)]
pub(crate) struct MeshPlayer<I> {
    pub(crate) machine: MeshPeer<I>,
    /// Game state; it depends on all inputs and on their order.
    pub(crate) state: u64,
    saves: BTreeMap<Tick, u64>,
    /// State after each final tick.
    pub(crate) states: Vec<u64>,
    /// When each tick was first simulated.
    pub(crate) stepped_at: Vec<Instant>,
    /// Inputs of all seats in final ticks, with origin.
    pub(crate) turns: Vec<Vec<(I, Origin)>>,
    /// State and inputs of ticks simulated and not final, by tick.
    pending: BTreeMap<Tick, (u64, Vec<(I, Origin)>)>,
    /// The newest input submitted for each tick.
    pub(crate) submitted: BTreeMap<Tick, I>,
    pub(crate) events: Vec<MeshEvent>,
    /// Ticks for which its game reports no state hash.
    pub(crate) unreported: Range<u32>,
    /// Tick at which the game diverges, once.
    pub(crate) diverges_at: Option<Tick>,
    /// How much faster its clock runs than true time, in parts per million.
    pub(crate) drift_ppm: i64,
    /// If set, it neither receives datagrams nor handles timeouts.
    pub(crate) is_paused: bool,
    /// Steps simulated, and how many of them were repeated.
    pub(crate) steps: (u64, u64),
}

/// Start time of each world.
const BEGINNING: Instant = Instant::from_millis(1_000);

impl<I> MeshPlayer<I> {
    /// What its clock shows at `now`; all clocks agree at the start.
    fn local(&self, now: Instant) -> Instant {
        let nanos = i128::from(now.as_nanos());
        let age = nanos - i128::from(BEGINNING.as_nanos());
        let drift = age * i128::from(self.drift_ppm) / 1_000_000;
        Instant::from_nanos(u64::try_from(nanos + drift).unwrap())
    }

    /// The first time at which its clock shows `local`, approximately.
    fn global(&self, local: Instant) -> Instant {
        let beginning = i128::from(BEGINNING.as_nanos());
        let age = i128::from(local.as_nanos()) - beginning;
        let age = age * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm));
        let mut now = Instant::from_nanos(u64::try_from(beginning + age).unwrap());
        while self.local(now) < local {
            now += Duration::from_nanos(1);
        }
        now
    }

    pub(crate) fn closed(&self) -> Option<MeshClose> {
        self.events.iter().find_map(|event| {
            if let MeshEvent::Closed(why) = event {
                Some(*why)
            } else {
                None
            }
        })
    }

    /// Removed peers, each with its first absent tick.
    pub(crate) fn left(&self) -> Vec<(Seat, Tick)> {
        let left = self.events.iter().filter_map(|event| {
            if let MeshEvent::Left { seat, tick, .. } = event {
                Some((*seat, *tick))
            } else {
                None
            }
        });
        left.collect()
    }
}

impl<I: Input + Clone> MeshPlayer<I> {
    fn new(machine: MeshPeer<I>) -> Self {
        Self {
            machine,
            state: 0,
            saves: BTreeMap::new(),
            states: Vec::new(),
            stepped_at: Vec::new(),
            turns: Vec::new(),
            pending: BTreeMap::new(),
            submitted: BTreeMap::new(),
            events: Vec::new(),
            unreported: 0..0,
            diverges_at: None,
            drift_ppm: 0,
            is_paused: false,
            steps: (0, 0),
        }
    }

    /// Executes the machine's steps until it waits; `local` is its own time.
    fn play(&mut self, now: Instant, local: Instant) {
        loop {
            match self.machine.next_step(local) {
                Step::Wait { .. } => break,
                Step::Save(tick) => {
                    self.saves.insert(tick, self.state);
                }
                Step::Load(tick) => {
                    let is_final = usize::try_from(tick.0).unwrap() < self.states.len();
                    assert!(!is_final, "no load goes back before what is final");
                    self.state = self.saves[&tick];
                    self.saves.retain(|saved, _| *saved <= tick);
                    self.pending.retain(|pending, _| *pending < tick);
                }
                Step::Settled(tick) => {
                    let (state, turn) = self.pending.remove(&tick).unwrap();
                    self.on_final(tick, state, turn);
                }
                Step::Advance { turn, is_last } => {
                    let (tick, inputs) = (turn.tick(), inputs(&turn));
                    self.state = after(self.state, &turn);
                    if self.diverges_at == Some(tick) {
                        self.state ^= 1;
                    }
                    self.steps.0 += 1;
                    if usize::try_from(tick.0).unwrap() < self.stepped_at.len() {
                        self.steps.1 += 1;
                    } else {
                        self.stepped_at.push(now);
                    }
                    if is_last {
                        self.pending.clear();
                        self.on_final(tick, self.state, inputs);
                    } else {
                        self.pending.insert(tick, (self.state, inputs));
                    }
                }
            }
        }
        while let Some(event) = self.machine.poll_event() {
            self.events.push(event);
        }
    }

    fn on_final(&mut self, tick: Tick, state: u64, turn: Vec<(I, Origin)>) {
        assert_eq!(usize::try_from(tick.0).unwrap(), self.states.len());
        self.states.push(state);
        self.turns.push(turn);
        if !self.unreported.contains(&tick.0) {
            self.machine.report(tick, state).unwrap();
        }
    }
}

fn after<I: Input>(state: u64, turn: &Turn<'_, I>) -> u64 {
    let mut hasher = StateHasher::new(MATCH);
    hasher.u64(state);
    for seat in (0..).map(Seat).take(turn.seat_count()) {
        hasher.u8(turn.input(seat).unwrap().1.code());
        hasher.bytes(turn.bits(seat));
    }
    hasher.finish()
}

fn inputs<I: Input>(turn: &Turn<'_, I>) -> Vec<(I, Origin)> {
    turn.inputs()
        .map(|(_, input, origin)| (input, origin))
        .collect()
}

/// What woke a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    ByOthers,
    ByTime,
}

pub(crate) struct MeshWorld<I> {
    pub(crate) now: Instant,
    pub(crate) players: Vec<MeshPlayer<I>>,
    pub(crate) links: Vec<Vec<Link>>,
    /// Periods in which nothing passes between two peers.
    pub(crate) outages: Vec<(usize, usize, Instant, Instant)>,
    /// Datagrams sent, with sender and receiver, if recorded.
    pub(crate) record: Option<Vec<(usize, usize, Vec<u8>)>>,
    pub(crate) longest: usize,
    /// Next input of a seat, from the previous one.
    pub(crate) play: fn(&mut Generator, &I) -> I,
    /// Each player's random source, and its current input.
    inputs: Vec<(Generator, I)>,
    network: Generator,
    in_flight: BTreeMap<(Instant, u64), (usize, usize, Vec<u8>)>,
    sent: u64,
    /// When players next read their input device.
    next_frame: Instant,
}

impl<I: Input + Clone> MeshWorld<I> {
    pub(crate) fn new(
        seed: Seed,
        config: &MeshConfig,
        link: Link,
        play: fn(&mut Generator, &I) -> I,
    ) -> Self {
        let mut seeds = seed.generator(1);
        let now = BEGINNING;
        let count = usize::from(config.seats);
        let player = |index: usize| {
            let peers = peers(index, count);
            let own = (MATCH, seat(index));
            MeshPlayer::new(MeshPeer::new(config.clone(), own, &peers, seeds.seed(), now).unwrap())
        };
        let players: Vec<_> = (0..count).map(player).collect();
        let mut seeds = seed.generator(3);
        Self {
            now,
            links: vec![vec![link; count]; count],
            inputs: (0..count)
                .map(|_| (seeds.seed().generator(0), I::default()))
                .collect(),
            players,
            outages: Vec::new(),
            record: None,
            longest: 0,
            play,
            network: seed.generator(2),
            in_flight: BTreeMap::new(),
            sent: 0,
            next_frame: now,
        }
    }

    pub(crate) fn local(&self, index: usize) -> Instant {
        self.players[index].local(self.now)
    }

    /// Recreates a player with `config`; call before the first step.
    pub(crate) fn replace(&mut self, index: usize, config: &MeshConfig) {
        let own = (MATCH, seat(index));
        let peers = peers(index, self.players.len());
        let machine = MeshPeer::new(config.clone(), own, &peers, Seed::from_number(1), self.now);
        self.players[index] = MeshPlayer::new(machine.unwrap());
    }

    /// Cuts every link between the two sides in both directions for `span`, from now on.
    pub(crate) fn part(&mut self, one: &[usize], other: &[usize], span: Duration) {
        let (from, to) = (self.now, self.now + span);
        for &a in one {
            for &b in other {
                self.outages.push((a, b, from, to));
                self.outages.push((b, a, from, to));
            }
        }
    }

    /// Runs until player 0 has `ticks` final ticks, then for one more second.
    pub(crate) fn run(&mut self, ticks: usize) {
        while self.players[0].states.len() < ticks {
            self.step();
        }
        self.run_for(Duration::from_secs(1));
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }

    /// Advances to the next event.
    pub(crate) fn step(&mut self) {
        let timers = self
            .players
            .iter()
            .filter(|player| !player.is_paused)
            .filter_map(|player| Some(player.global(player.machine.poll_timeout()?)))
            .chain(self.in_flight.keys().next().map(|(at, _)| *at))
            .chain([self.next_frame]);
        self.now = timers.min().unwrap().max(self.now);
        let mut touched = vec![false; self.players.len()];
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (from, to, mut datagram) = entry.remove();
            let player = &mut self.players[to];
            if !player.is_paused {
                let now = player.local(self.now);
                let arrival = Arrival::from(peer(from));
                player.machine.handle_datagram(now, arrival, &mut datagram);
                touched[to] = true;
            }
        }
        if self.now >= self.next_frame {
            self.next_frame = self.now + Duration::from_nanos(16_666_667);
            self.read_pads();
            touched.fill(true);
        }
        for (index, touched) in touched.into_iter().enumerate() {
            self.pump(
                index,
                if touched {
                    Woken::ByOthers
                } else {
                    Woken::ByTime
                },
            );
        }
    }

    fn read_pads(&mut self) {
        for (player, (generator, held)) in self.players.iter_mut().zip(&mut self.inputs) {
            *held = (self.play)(generator, held);
            let now = player.local(self.now);
            if !player.is_paused
                && let Ok(tick) = player.machine.submit(now, held)
            {
                player.submitted.insert(tick, held.clone());
            }
        }
    }

    fn pump(&mut self, index: usize, woken: Woken) {
        let player = &mut self.players[index];
        if player.is_paused {
            return;
        }
        let now = player.local(self.now);
        let is_due = player.machine.poll_timeout().is_some_and(|at| at <= now);
        if !is_due && woken == Woken::ByTime {
            return;
        }
        if is_due {
            player.machine.handle_timeout(now);
        }
        player.play(self.now, now);
        let mut buf = Vec::new();
        while let Some(to) = self.players[index].machine.poll_transmit(now, &mut buf) {
            self.longest = self.longest.max(buf.len());
            self.send(
                index,
                usize::try_from(to.destination.0).unwrap() - 100,
                &buf,
            );
            buf.clear();
        }
    }

    fn send(&mut self, from: usize, to: usize, datagram: &[u8]) {
        let now = self.now;
        if let Some(record) = &mut self.record {
            record.push((from, to, datagram.to_vec()));
        }
        let link = self.links[from][to];
        let is_out = self
            .outages
            .iter()
            .any(|(a, b, start, end)| (*a, *b) == (from, to) && *start <= now && now < *end);
        let is_lost = self.network.chance(link.loss) || is_out;
        let copies = 1 + u32::from(self.network.chance(link.duplicate));
        let jitter = u64::try_from(link.jitter.as_nanos()).unwrap();
        for _ in 0..copies {
            let delay = link.latency + Duration::from_nanos(self.network.below(jitter.max(1)));
            let mut datagram = datagram.to_vec();
            if self.network.chance(link.corrupt) {
                let at = self.network.below(u64::try_from(datagram.len()).unwrap());
                datagram[usize::try_from(at).unwrap()] ^= 1 << self.network.below(8);
            }
            self.sent += 1;
            if !is_lost {
                let key = (now + delay, self.sent);
                self.in_flight.insert(key, (from, to, datagram));
            }
        }
    }
}

pub(crate) fn peers(index: usize, count: usize) -> Vec<(Seat, PeerId)> {
    (0..count)
        .filter(|other| *other != index)
        .map(|other| (seat(other), peer(other)))
        .collect()
}

pub(crate) fn all<I>(world: &MeshWorld<I>) -> Vec<&MeshPlayer<I>> {
    world.players.iter().collect()
}

/// All turns that any two of `players` returned are equal and led to the same states.
pub(crate) fn assert_agreement<I: PartialEq>(players: &[&MeshPlayer<I>]) {
    let longest = |player: &&&MeshPlayer<I>| player.states.len();
    let first = players.iter().max_by_key(longest).unwrap();
    for player in players {
        let len = player.states.len();
        assert!(player.turns == first.turns[..len], "one history");
        assert!(player.states == first.states[..len]);
    }
}

/// The id that all peers use for the peer on seat `index`.
pub(crate) fn peer(index: usize) -> PeerId {
    PeerId(u32::try_from(index).unwrap() + 100)
}

/// A lockstep mesh of `seats`, with a delay that covers 50 ms and jitter.
pub(crate) fn mesh(seats: u16) -> MeshConfig {
    let mut config = MeshConfig::default();
    config.seats = seats;
    config
}
