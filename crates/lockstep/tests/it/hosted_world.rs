//! Players of a hosted match, over lossy links, in virtual time, from one seed.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use lockstep::{
    ClientEvent, HostedClose, HostedConfig, HostedEvent, HostedPeer, Input, InputDelay, Origin,
    Phase, ServerEvent, StateHasher, Step, Tick,
};
use wire::{Arrival, Generator, Instant, Seat, Seed};

use crate::mesh_world::{peer, peers};
use crate::world::{Link, MATCH, seat};

/// Inputs of all seats in one tick, with origin.
type Inputs<I> = Vec<(I, Origin)>;

/// A simulated player, and its history.
#[derive(Debug)]
pub(crate) struct HostedPlayer<I> {
    pub(crate) machine: HostedPeer<I>,
    /// Game state; it depends on all inputs and on their order.
    pub(crate) state: u64,
    saves: BTreeMap<Tick, u64>,
    /// State after each final tick.
    pub(crate) states: Vec<u64>,
    /// When each final tick was returned.
    pub(crate) turned_at: Vec<Instant>,
    /// Inputs of all seats in final ticks.
    pub(crate) turns: Vec<Inputs<I>>,
    /// State and inputs of ticks simulated and not final, by tick.
    pending: BTreeMap<Tick, (u64, Inputs<I>)>,
    /// The newest input submitted for each tick.
    pub(crate) submitted: BTreeMap<Tick, I>,
    /// The tick promised for the newest input, and the number of inputs stamped before.
    promised: Option<(Tick, u64)>,
    /// Promised ticks that another host revoked.
    taken_back: BTreeSet<Tick>,
    pub(crate) events: Vec<HostedEvent>,
    /// How much faster its clock runs than true time, in parts per million.
    pub(crate) drift_ppm: i64,
    /// If set, it neither receives datagrams nor handles timeouts.
    pub(crate) is_paused: bool,
}

/// Start time of each world.
const BEGINNING: Instant = Instant::from_millis(1_000);

impl<I> HostedPlayer<I> {
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

    pub(crate) fn closed(&self) -> Option<HostedClose> {
        self.events.iter().find_map(|event| {
            if let HostedEvent::Closed(why) = event {
                Some(*why)
            } else {
                None
            }
        })
    }

    /// Hosts, and their first ticks.
    pub(crate) fn hosts(&self) -> Vec<(Seat, Tick)> {
        let hosts = self.events.iter().filter_map(|event| {
            if let HostedEvent::Migrated { host, tick, .. } = event {
                Some((*host, *tick))
            } else {
                None
            }
        });
        hosts.collect()
    }

    /// Whether it detected a desync.
    pub(crate) fn has_desync(&self) -> bool {
        let is_desync =
            |event: &HostedEvent| matches!(event, HostedEvent::Server(ServerEvent::Desync { .. }));
        self.events.iter().any(is_desync)
    }
}

impl<I: Input + Clone> HostedPlayer<I> {
    fn new(machine: HostedPeer<I>) -> Self {
        Self {
            machine,
            state: 0,
            saves: BTreeMap::new(),
            states: Vec::new(),
            turned_at: Vec::new(),
            turns: Vec::new(),
            pending: BTreeMap::new(),
            submitted: BTreeMap::new(),
            promised: None,
            taken_back: BTreeSet::new(),
            events: Vec::new(),
            drift_ppm: 0,
            is_paused: false,
        }
    }

    /// Whether its match continues.
    pub(crate) fn is_on(&self) -> bool {
        !self.is_paused && self.machine.phase() != Phase::Closed && self.closed().is_none()
    }

    /// Executes the machine's steps until it waits; `local` is its own time.
    fn play(&mut self, now: Instant, local: Instant) {
        loop {
            self.take_events();
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
                    let (state, inputs) = self.pending.remove(&tick).unwrap();
                    self.on_final(now, tick, state, inputs);
                }
                Step::Advance { turn, is_last } => {
                    let tick = turn.tick();
                    let inputs: Inputs<I> = turn.inputs().map(|(_, i, o)| (i, o)).collect();
                    let mut hasher = StateHasher::new(MATCH);
                    hasher.u64(self.state);
                    for seat in (0..).map(Seat).take(turn.seat_count()) {
                        hasher.u8(turn.input(seat).unwrap().1.code());
                        hasher.bytes(turn.bits(seat));
                    }
                    self.state = hasher.finish();
                    if is_last {
                        self.pending.clear();
                        self.on_final(now, tick, self.state, inputs);
                    } else {
                        self.pending.insert(tick, (self.state, inputs));
                    }
                }
            }
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            if let HostedEvent::Migrated { tick, .. } = event {
                let taken_back = self.submitted.split_off(&tick);
                self.taken_back.extend(taken_back.into_keys());
                self.promised = None;
            }
            assert_eq!(self.closed(), None, "{event:?}");
            self.events.push(event);
        }
    }

    fn on_final(&mut self, now: Instant, tick: Tick, state: u64, inputs: Inputs<I>) {
        assert_eq!(usize::try_from(tick.0).unwrap(), self.states.len());
        self.states.push(state);
        self.turns.push(inputs);
        self.turned_at.push(now);
        self.machine.report(tick, state).unwrap();
    }

    /// Every own input in its tick is the newest one submitted for it. Any other was reported,
    /// except for revoked ones.
    pub(crate) fn assert_own_inputs(&self, own: usize)
    where
        I: PartialEq + core::fmt::Debug,
    {
        for event in &self.events {
            if let HostedEvent::Client(ClientEvent::Substituted { tick }) = event {
                assert!(!self.taken_back.contains(tick), "{tick}");
            }
        }
        for (tick, turn) in (0..).map(Tick).zip(&self.turns) {
            let (input, origin) = &turn[own];
            let is_reported = |event: &HostedEvent| {
                *event == HostedEvent::Client(ClientEvent::Substituted { tick })
            };
            match (origin, self.submitted.get(&tick)) {
                (Origin::Confirmed, Some(submitted)) => assert_eq!(input, submitted, "{tick}"),
                (Origin::Substituted, Some(_)) => assert!(self.events.iter().any(is_reported)),
                _ => {}
            }
        }
    }
}

pub(crate) struct HostedWorld<I> {
    pub(crate) now: Instant,
    pub(crate) players: Vec<HostedPlayer<I>>,
    pub(crate) links: Vec<Vec<Link>>,
    /// Periods in which nothing passes between two players.
    pub(crate) outages: Vec<(usize, usize, Instant, Instant)>,
    pub(crate) longest: usize,
    /// Datagrams to unknown peers.
    pub(crate) strays: Vec<Vec<u8>>,
    /// Next input of a seat, from the previous one.
    play: fn(&mut Generator, &I) -> I,
    /// Each player's random source, and its current input.
    inputs: Vec<(Generator, I)>,
    network: Generator,
    in_flight: BTreeMap<(Instant, u64), (usize, usize, Vec<u8>)>,
    sent: u64,
    /// When players next read their input device.
    next_frame: Instant,
}

impl<I: Input + Clone> HostedWorld<I> {
    pub(crate) fn new(
        seed: Seed,
        config: &HostedConfig,
        link: Link,
        play: fn(&mut Generator, &I) -> I,
    ) -> Self {
        let mut seeds = seed.generator(1);
        let now = BEGINNING;
        let count = usize::from(config.server.seats);
        let player = |index: usize| {
            let own = (MATCH, seat(index));
            let peers = peers(index, count);
            let machine = HostedPeer::new(config.clone(), own, &peers, seeds.seed(), now);
            HostedPlayer::new(machine.unwrap())
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
            longest: 0,
            strays: Vec::new(),
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

    /// The host that the first running player follows.
    pub(crate) fn host(&self) -> usize {
        let on = self.players.iter().find(|player| player.is_on());
        usize::from(on.unwrap().machine.host().0)
    }

    /// The indices of the players with a running match.
    pub(crate) fn on(&self) -> Vec<usize> {
        let players = self.players.iter().enumerate();
        players
            .filter(|(_, player)| player.is_on())
            .map(|(index, _)| index)
            .collect()
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }

    /// Runs until all of `who` have `ticks` final ticks, for at most `most`.
    pub(crate) fn run_until(&mut self, who: &[usize], ticks: usize, most: Duration) {
        let end = self.now + most;
        while self.now < end && who.iter().any(|of| self.players[*of].states.len() < ticks) {
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
            let player = &self.players[index];
            let now = player.local(self.now);
            let is_due = player.machine.poll_timeout().is_some_and(|at| at <= now);
            if !player.is_paused && (is_due || touched) {
                self.pump(index);
            }
        }
    }

    fn read_pads(&mut self) {
        for (player, (generator, held)) in self.players.iter_mut().zip(&mut self.inputs) {
            *held = (self.play)(generator, held);
            let now = player.local(self.now);
            if !player.is_paused
                && let Ok(tick) = player.machine.submit(now, held)
            {
                // An input not yet stamped is replaced, whatever tick it was for.
                let stamped = player.machine.client().stats().inputs;
                if let Some((before, _)) = player.promised.filter(|(_, at)| *at == stamped) {
                    player.submitted.remove(&before);
                }
                // Ticks skipped by a rising delay are filled with the held input.
                let first = player.promised.map_or(tick, |(before, _)| before);
                player.taken_back.retain(|at| *at < first || *at > tick);
                player.promised = Some((tick, stamped));
                player.submitted.insert(tick, held.clone());
            }
        }
    }

    fn pump(&mut self, index: usize) {
        let player = &mut self.players[index];
        let now = player.local(self.now);
        if player.machine.poll_timeout().is_some_and(|at| at <= now) {
            player.machine.handle_timeout(now);
        }
        let mut buf = Vec::new();
        while let Some(to) = self.players[index].machine.poll_transmit(now, &mut buf) {
            self.longest = self.longest.max(buf.len());
            let to = usize::try_from(to.destination.0).unwrap() - 100;
            if to < self.players.len() {
                self.send(index, to, &buf);
            } else {
                self.strays.push(buf.clone());
            }
            buf.clear();
        }
        let player = &mut self.players[index];
        player.play(self.now, now);
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, datagram: &[u8]) {
        let now = self.now;
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

impl<I: Input + Clone + PartialEq + core::fmt::Debug> HostedWorld<I> {
    /// All running players have the same history and host, and saw no desync. Excluded players
    /// share the history up to the tick at which they were excluded. Returns the number of running
    /// players.
    pub(crate) fn assert_one_match(&self) -> usize {
        for (index, player) in self.players.iter().enumerate() {
            assert!(!player.has_desync(), "{:?}", player.events);
            player.assert_own_inputs(index);
        }
        let on = self.on();
        let len = |index: &&usize| self.players[**index].states.len();
        let Some(first) = on.iter().max_by_key(len) else {
            return 0;
        };
        let first = &self.players[*first];
        for index in &on {
            let player = &self.players[*index];
            let len = player.states.len();
            assert!(player.turns == first.turns[..len], "one history");
            assert!(player.states == first.states[..len]);
            assert_eq!(player.machine.host(), first.machine.host());
            assert_eq!(player.hosts(), first.hosts());
        }
        for player in &self.players {
            if let Some(HostedClose::Excluded { tick }) = player.closed() {
                let shared = usize::try_from(tick.0).unwrap().min(player.states.len());
                assert!(player.turns[..shared] == first.turns[..shared]);
            }
        }
        on.len()
    }

    /// All of `who` continue. Each makes about 60 ticks in the next second, plus what a window
    /// makes final at once.
    pub(crate) fn assert_progress(&mut self, who: &[usize]) {
        let of = |world: &Self| -> Vec<_> {
            let len = |index: &usize| world.players[*index].states.len();
            who.iter().map(len).collect()
        };
        let ends: Vec<_> = self.players.iter().map(HostedPlayer::closed).collect();
        assert_eq!(self.on(), who, "{ends:?}");
        let before = of(self);
        self.run_for(Duration::from_secs(1));
        for (before, after) in before.iter().zip(of(self)) {
            assert!(after >= before + 40, "{before} {after}");
        }
        self.assert_one_match();
    }
}

/// A match of `seats` that `host` starts, with a delay that covers 100 ms and jitter.
pub(crate) fn hosted(seats: u16, host: u16) -> HostedConfig {
    let mut config = HostedConfig::default();
    config.server.seats = seats;
    config.server.input_delay = InputDelay::fixed(8).unwrap();
    config.host = Seat(host);
    config
}

pub(crate) fn others(count: usize, index: usize) -> Vec<usize> {
    (0..count).filter(|other| *other != index).collect()
}
