//! A server and its clients over a lossy simulated network, in virtual time, from one seed.

use std::collections::BTreeMap;

use core::ops::Range;
use core::time::Duration;

use lockstep::{
    ClientConfig, ClientEvent, ClientPeer, Config, Input, InputDelay, MatchServer, PeerId, Playout,
    ServerEvent, StateHasher, Tick,
};
use wire::{Arrival, Generator, Instant, MatchId, Seat, Seed};

/// The id of every match here.
pub(crate) const MATCH: MatchId = MatchId([0x5a; 16]);

/// What a link does to datagrams, in each direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) latency: Duration,
    /// Maximum random extra latency; it reorders datagrams.
    pub(crate) jitter: Duration,
    /// Lost datagrams per million.
    pub(crate) loss: u32,
    /// Duplicated datagrams per million.
    pub(crate) duplicate: u32,
    /// Datagrams with a flipped byte, per million.
    pub(crate) corrupt: u32,
}

impl Link {
    /// 50 ms, 10 ms jitter, and `percent` % loss.
    pub(crate) fn lossy(percent: u32) -> Self {
        Self {
            latency: Duration::from_millis(50),
            jitter: Duration::from_millis(10),
            loss: percent * 10_000,
            duplicate: 5_000,
            corrupt: 0,
        }
    }

    pub(crate) fn perfect() -> Self {
        Self {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0,
            duplicate: 0,
            corrupt: 0,
        }
    }
}

/// A simulated player, and its history.
#[derive(Debug)]
pub(crate) struct Player<I> {
    pub(crate) machine: ClientPeer<I>,
    /// Game state; it depends on all inputs and on their order.
    pub(crate) state: u64,
    /// State after each tick.
    pub(crate) states: Vec<u64>,
    /// Hash over the log after each tick.
    pub(crate) logs: Vec<u64>,
    /// When each turn was returned.
    pub(crate) turned_at: Vec<Instant>,
    /// Inputs of its own seat by tick, with origin, as the turns had them.
    pub(crate) own: Vec<(I, lockstep::Origin)>,
    /// The newest input submitted for each tick.
    pub(crate) submitted: BTreeMap<Tick, I>,
    /// The tick promised for the newest input, and the number of inputs stamped before.
    pub(crate) promised: Option<(Tick, u64)>,
    /// When the input of each tick was stamped, for ticks with a submitted input.
    pub(crate) stamped_at: BTreeMap<Tick, Instant>,
    pub(crate) events: Vec<ClientEvent>,
    /// Ticks for which its game reports no state hash.
    pub(crate) unreported: Range<u32>,
    /// Tick at which the game diverges, once.
    pub(crate) diverges_at: Option<Tick>,
    /// How much faster its clock runs than the server's, in parts per million.
    pub(crate) drift_ppm: i64,
    /// Duration of one step of its game, and when the current step ends.
    pub(crate) step: (Duration, Instant),
    /// If set, its game takes no turns; its machine still runs.
    pub(crate) is_frozen: bool,
    /// If set, it neither receives datagrams nor handles timeouts.
    pub(crate) is_paused: bool,
}

impl<I> Player<I> {
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
}

/// Start time of each world.
const BEGINNING: Instant = Instant::from_millis(1_000);

pub(crate) struct World<I> {
    pub(crate) now: Instant,
    pub(crate) server: MatchServer<I>,
    pub(crate) players: Vec<Player<I>>,
    pub(crate) server_events: Vec<ServerEvent>,
    pub(crate) links: Vec<Link>,
    /// Periods in which a player's link drops everything.
    pub(crate) outages: Vec<(usize, Instant, Instant)>,
    pub(crate) longest: usize,
    /// Largest datagram sent by a player.
    pub(crate) longest_reports: usize,
    /// Longest datagram that links carry; longer ones are dropped.
    pub(crate) mtu: usize,
    /// Next input of a seat, from the previous one.
    pub(crate) play: fn(&mut Generator, &I) -> I,
    /// Each player's random source, and its current input.
    inputs: Vec<(Generator, I)>,
    network: Generator,
    in_flight: BTreeMap<(Instant, u64), (End, Vec<u8>)>,
    sent: u64,
    /// When players next read their input device.
    next_frame: Instant,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Server(PeerId),
    Player(usize),
}

impl<I: Input + Clone + PartialEq + core::fmt::Debug> World<I> {
    pub(crate) fn new(
        seed: u64,
        config: Config,
        link: Link,
        play: fn(&mut Generator, &I) -> I,
    ) -> Self {
        Self::seeded(Seed::from_number(seed), config, link, play)
    }

    pub(crate) fn seeded(
        seed: Seed,
        config: Config,
        link: Link,
        play: fn(&mut Generator, &I) -> I,
    ) -> Self {
        let mut seeds = seed.generator(1);
        let now = BEGINNING;
        let seats = config.seats;
        let mut server = MatchServer::new(config, MATCH, seeds.seed(), now).unwrap();
        let mut players = Vec::new();
        for index in 0..seats {
            server.join(now, PeerId(index.into()), Seat(index)).unwrap();
            players.push(Player {
                machine: ClientPeer::new(ClientConfig::default(), PeerId(9_999), seeds.seed(), now),
                state: 0,
                states: Vec::new(),
                logs: Vec::new(),
                turned_at: Vec::new(),
                own: Vec::new(),
                submitted: BTreeMap::new(),
                promised: None,
                stamped_at: BTreeMap::new(),
                events: Vec::new(),
                unreported: 0..0,
                diverges_at: None,
                drift_ppm: 0,
                step: (Duration::ZERO, now),
                is_frozen: false,
                is_paused: false,
            });
        }
        Self {
            now,
            server,
            links: vec![link; players.len()],
            inputs: players
                .iter()
                .map(|_| (seeds.seed().generator(0), I::default()))
                .collect(),
            players,
            server_events: Vec::new(),
            outages: Vec::new(),
            longest: 0,
            longest_reports: 0,
            mtu: usize::MAX,
            play,
            network: seed.generator(2),
            in_flight: BTreeMap::new(),
            sent: 0,
            next_frame: now,
        }
    }

    /// Sets the playout mode of all players; call before the first step.
    pub(crate) fn set_playout(&mut self, playout: Playout) {
        let mut config = ClientConfig::default();
        config.playout = playout;
        self.set_client_config(&config);
    }

    /// Recreates every player's machine with `config`; call before the first step.
    pub(crate) fn set_client_config(&mut self, config: &ClientConfig) {
        for (player, seed) in self.players.iter_mut().zip(1_000..) {
            let seed = Seed::from_number(seed);
            player.machine = ClientPeer::new(config.clone(), PeerId(9_999), seed, self.now);
        }
    }

    /// Keeps the seat of `index` empty; call before the first step.
    pub(crate) fn keep_out(&mut self, index: usize) {
        self.server.leave(self.now, peer(index));
        self.players[index].is_paused = true;
    }

    /// Has a new client join the seat of `index`.
    pub(crate) fn rejoin(&mut self, index: usize) {
        self.server
            .join(self.now, peer(index), seat(index))
            .unwrap();
        let seed = Seed::from_number(self.sent);
        let player = &mut self.players[index];
        let now = player.local(self.now);
        player.machine = ClientPeer::new(ClientConfig::default(), PeerId(9_999), seed, now);
        player.is_paused = false;
        player.state = 0;
        player.states.clear();
        player.logs.clear();
        player.turned_at.clear();
        player.own.clear();
        player.submitted.clear();
        player.promised = None;
    }

    /// Reconnects the player of `index` with its state kept, after its session was lost.
    pub(crate) fn reconnect(&mut self, index: usize) {
        self.server.leave(self.now, peer(index));
        self.server
            .join(self.now, peer(index), seat(index))
            .unwrap();
        let player = &mut self.players[index];
        let now = player.local(self.now);
        player.machine.reconnect(now, PeerId(9_999));
    }

    /// Runs until the server has closed `ticks`, then for one more second.
    pub(crate) fn run(&mut self, ticks: u32) {
        while self.server.ticks_closed() < ticks {
            self.step();
        }
        let end = self.now + Duration::from_secs(1);
        while self.now < end {
            self.step();
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }

    /// Advances to the next event, and executes it.
    pub(crate) fn step(&mut self) {
        let timers = self
            .players
            .iter()
            .filter(|player| !player.is_paused)
            .filter_map(|player| Some(player.global(player.machine.poll_timeout()?)))
            .chain(self.server.poll_timeout())
            .chain(self.in_flight.keys().next().map(|(at, _)| *at))
            .chain(self.players.iter().filter_map(|player| {
                let due = player.machine.next_turn_at()?;
                (!player.is_paused && due > player.local(self.now)).then(|| player.global(due))
            }))
            .chain(self.players.iter().filter_map(|player| {
                let until = player.step.1;
                (until > self.now).then_some(until)
            }))
            .chain([self.next_frame]);
        self.now = timers.min().unwrap().max(self.now);
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (end, mut datagram) = entry.remove();
            self.arrive(end, &mut datagram);
        }
        if self.now >= self.next_frame {
            self.next_frame = self.now + Duration::from_nanos(16_666_667);
            self.read_pads();
        }
        self.timers();
        self.drain();
        self.turns();
    }

    fn arrive(&mut self, end: End, datagram: &mut [u8]) {
        match end {
            End::Server(peer) => {
                self.server
                    .handle_datagram(self.now, Arrival::from(peer), datagram);
            }
            End::Player(index) if self.players[index].is_paused => {}
            End::Player(index) => {
                let arrival = Arrival::from(PeerId(9_999));
                let player = &mut self.players[index];
                let now = player.local(self.now);
                player.machine.handle_datagram(now, arrival, datagram);
            }
        }
    }

    fn read_pads(&mut self) {
        for (index, player) in self.players.iter_mut().enumerate() {
            let (generator, held) = &mut self.inputs[index];
            *held = (self.play)(generator, held);
            let input = held.clone();
            if !player.is_paused
                && let Ok(tick) = player.machine.submit(player.local(self.now), &input)
            {
                // An input not yet stamped is replaced, even if the delay has changed since.
                let stamped = player.machine.stats().inputs;
                if let Some((before, _)) = player.promised.filter(|(_, at)| *at == stamped) {
                    player.submitted.remove(&before);
                }
                player.promised = Some((tick, stamped));
                player.submitted.insert(tick, input);
            }
        }
    }

    fn timers(&mut self) {
        let now = self.now;
        if self.server.poll_timeout().is_some_and(|at| at <= now) {
            self.server.handle_timeout(now);
        }
        for player in self.players.iter_mut().filter(|player| !player.is_paused) {
            let now = player.local(now);
            if player.machine.poll_timeout().is_some_and(|at| at <= now) {
                player.machine.handle_timeout(now);
                let stamped = player.machine.stats().inputs;
                if let Some((tick, _)) = player.promised.filter(|(_, before)| *before < stamped) {
                    player.stamped_at.entry(tick).or_insert(self.now);
                }
            }
        }
    }

    fn drain(&mut self) {
        let mut buf = Vec::new();
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut buf) {
            self.longest = self.longest.max(buf.len());
            let index = usize::try_from(transmit.destination.0).unwrap();
            self.send(index, End::Player(index), &buf);
            buf.clear();
        }
        while let Some(event) = self.server.poll_event() {
            self.server_events.push(event);
        }
        for index in 0..self.players.len() {
            let now = self.players[index].local(self.now);
            if self.players[index].is_paused {
                continue;
            }
            while self.players[index]
                .machine
                .poll_transmit(now, &mut buf)
                .is_some()
            {
                self.longest = self.longest.max(buf.len());
                self.longest_reports = self.longest_reports.max(buf.len());
                self.send(index, End::Server(peer(index)), &buf);
                buf.clear();
            }
        }
    }

    fn send(&mut self, index: usize, end: End, datagram: &[u8]) {
        let now = self.now;
        let is_out = |(who, from, to): &(usize, Instant, Instant)| {
            *who == index && *from <= now && now < *to
        };
        let link = self.links[index];
        let is_lost = self.network.chance(link.loss)
            || self.outages.iter().any(is_out)
            || datagram.len() > self.mtu;
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
                self.in_flight
                    .insert((now + delay, self.sent), (end, datagram));
            }
        }
    }

    fn turns(&mut self) {
        for (index, player) in self.players.iter_mut().enumerate() {
            if player.is_paused || player.is_frozen {
                continue;
            }
            let now = player.local(self.now);
            while player.step.1 <= self.now
                && let Some(turn) = player.machine.poll_turn(now)
            {
                player.step.1 = self.now + player.step.0;
                let tick = turn.tick();
                assert_eq!(usize::try_from(tick.0).unwrap(), player.states.len());
                let mut hasher = StateHasher::new(MATCH);
                hasher.u64(player.state);
                assert!(
                    turn.inputs()
                        .map(|(seat, ..)| seat)
                        .eq((0..).map(Seat).take(turn.seat_count()))
                );
                for seat in (0..).map(Seat).take(turn.seat_count()) {
                    hasher.u8(turn.input(seat).unwrap().1.code());
                    hasher.bytes(turn.bits(seat));
                }
                player.own.push(turn.input(seat(index)).unwrap());
                player.state = hasher.finish();
                if player.diverges_at == Some(tick) {
                    player.state ^= 1;
                }
                player.states.push(player.state);
                player.turned_at.push(self.now);
                if !player.unreported.contains(&tick.0) {
                    player.machine.report(tick, player.state).unwrap();
                }
                player.logs.push(player.machine.log_hash().unwrap());
            }
            while let Some(event) = player.machine.poll_event() {
                player.events.push(event);
            }
        }
    }
}

/// The server's id for the player of `index`.
pub(crate) fn peer(index: usize) -> PeerId {
    PeerId(u32::try_from(index).unwrap())
}

pub(crate) fn seat(index: usize) -> Seat {
    Seat(u16::try_from(index).unwrap())
}

/// A gamepad: in one frame of ten, one of 12 buttons toggles.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "inputs of every size are passed alike"
)]
pub(crate) fn pad(generator: &mut Generator, held: &u16) -> u16 {
    if generator.chance(100_000) {
        held ^ (1 << generator.below(12))
    } else {
        *held
    }
}

/// A gamepad with two axes that move in every frame.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "inputs of every size are passed alike"
)]
pub(crate) fn stick(generator: &mut Generator, held: &u32) -> u32 {
    let buttons = pad(generator, &u16::try_from(held >> 16).unwrap());
    (u32::from(buttons) << 16) | (generator.next_u32() & 0xffff)
}

/// The common configuration: `seats` seats, and a delay that covers 100 ms and jitter.
pub(crate) fn config(seats: u16) -> Config {
    let mut config = Config::default();
    config.seats = seats;
    config.input_delay = InputDelay::fixed(8).unwrap();
    config
}
