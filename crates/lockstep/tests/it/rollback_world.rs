//! A server and games with rollback over lossy links, in virtual time, from one seed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use core::time::Duration;

use lockstep::{
    ClientConfig, ClientEvent, ClientPeer, Config, MatchServer, PeerId, ReportError, Rollback,
    ServerEvent, Sim, StateHasher, Step, Steps, Tick, Turn,
};
use wire::{Arrival, Generator, Instant, MatchId, Seat, Seed};

use crate::world::{Link, MATCH, pad};

/// A game that depends on every input and origin, and on their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Game {
    /// The result of all its steps.
    pub(crate) state: u64,
    /// Ticks simulated.
    pub(crate) at: u32,
    /// Diverges in the step of this tick, each time it is simulated.
    pub(crate) diverges_at: Option<u32>,
    /// Duration of a save and of a step, if measured, and the total spent.
    pub(crate) costs: Option<(Duration, Duration)>,
    pub(crate) spent: Rc<Cell<Duration>>,
}

impl Game {
    fn spend(&self, of: fn((Duration, Duration)) -> Duration) {
        let cost = self.costs.map(of).unwrap_or_default();
        self.spent.set(self.spent.get() + cost);
    }
}

impl Sim for Game {
    type Input = u16;
    type Snapshot = (u64, u32);

    fn step(&mut self, turn: &Turn<'_, u16>) {
        assert_eq!(turn.tick(), Tick(self.at), "a step follows the one before");
        let mut hasher = StateHasher::new(MATCH);
        hasher.u64(self.state);
        for (seat, input, origin) in turn.inputs() {
            hasher.u32(seat.0.into());
            hasher.u32(input.into());
            hasher.u8(origin.code());
        }
        self.state = hasher.finish() ^ u64::from(self.diverges_at == Some(self.at));
        self.at += 1;
        self.spend(|(_, step)| step);
    }

    fn save(&self, into: &mut (u64, u32)) {
        *into = (self.state, self.at);
        self.spend(|(save, _)| save);
    }

    fn load(&mut self, from: &(u64, u32)) {
        (self.state, self.at) = *from;
    }

    fn hash(&self, hasher: &mut StateHasher) {
        hasher.section("clock");
        hasher.u32(self.at);
        hasher.section("units");
        hasher.u64(self.state);
    }
}

/// A client machine. Each step is checked on its way to the runner.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) machine: ClientPeer<u16>,
    /// First tick that is not final.
    pub(crate) settled: Tick,
    /// First tick that it simulated; earlier ones were loaded.
    pub(crate) begun: usize,
    /// Hash of each final tick from `begun` on.
    pub(crate) finals: Vec<u64>,
    /// Ticks rolled back to.
    pub(crate) loads: Vec<Tick>,
}

impl Steps for Watched {
    type Input = u16;

    fn next_step(&mut self, now: Instant) -> Step<'_, u16> {
        let step = self.machine.next_step(now);
        let settled = match &step {
            Step::Advance { turn, is_last } => is_last.then(|| turn.tick()),
            Step::Settled(tick) => Some(*tick),
            Step::Load(tick) => {
                assert!(*tick >= self.settled, "{tick} is final");
                self.loads.push(*tick);
                None
            }
            Step::Save(_) | Step::Wait { .. } => None,
        };
        if let Some(tick) = settled {
            assert_eq!(tick, self.settled, "ticks become final in order, each once");
            self.settled = tick.plus(1);
        }
        step
    }

    fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        assert_eq!(tick.plus(1), self.settled);
        self.finals.push(state.finish());
        self.machine.report_state(tick, state)
    }

    fn wants_hash(&self, tick: Tick) -> bool {
        self.machine.wants_hash(tick)
    }

    fn match_id(&self) -> Option<MatchId> {
        self.machine.match_id()
    }

    fn window(&self) -> u8 {
        self.machine.window()
    }

    fn set_costs(&mut self, save: Duration, step: Duration) {
        self.machine.set_costs(save, step);
    }
}

/// A player, and its history.
pub(crate) struct Player {
    pub(crate) rollback: Rollback<Game, Watched>,
    pub(crate) events: Vec<ClientEvent>,
    /// Number of events handled.
    events_seen: usize,
    pub(crate) link: Link,
    /// Whether its uplink drops everything.
    pub(crate) sends_nothing: bool,
    /// Whether it receives nothing.
    receives_nothing: bool,
    /// Its random source, and its current input.
    choices: (Generator, u16),
    /// By how many ticks the game was behind the newest input stamped, at each boundary.
    pub(crate) behind: Vec<u32>,
    /// The tick that the next boundary stamps.
    promised: Option<Tick>,
}

impl Player {
    /// Offers a snapshot if one is wanted, and loads received ones.
    fn exchange_snapshots(&mut self, now: Instant) {
        let events_seen = core::mem::replace(&mut self.events_seen, self.events.len());
        for event in &self.events[events_seen..] {
            if *event == ClientEvent::SnapshotWanted {
                let (tick, (state, at)) = self.rollback.final_save().unwrap();
                assert_eq!(tick, Tick(*at));
                let bytes = [&state.to_be_bytes()[..], &at.to_be_bytes()[..]].concat();
                let machine = &mut self.rollback.steps_mut().machine;
                machine.offer_save(now, tick, &bytes).unwrap();
            } else if let ClientEvent::Snapshot { next } = event {
                let watched = self.rollback.steps_mut();
                let bytes = watched.machine.take_snapshot().unwrap();
                watched.settled = *next;
                watched.begun = usize::try_from(next.0).unwrap() - 1;
                watched.finals.clear();
                let (state, at) = bytes.split_first_chunk().unwrap();
                let at = u32::from_be_bytes(at.try_into().unwrap());
                assert_eq!(Tick(at), *next);
                let game = self.rollback.game_mut();
                game.load(&(u64::from_be_bytes(*state), at));
                let mut hasher = StateHasher::new(MATCH);
                game.hash(&mut hasher);
                let before = next.minus(1);
                let watched = self.rollback.steps_mut();
                watched.report_state(before, &hasher).unwrap();
            }
        }
    }

    pub(crate) fn machine(&self) -> &ClientPeer<u16> {
        &self.rollback.steps().machine
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Server,
    Player,
}

/// A datagram in flight.
struct InFlight {
    /// The player that sends or receives it.
    player: usize,
    to: End,
    datagram: Vec<u8>,
}

pub(crate) struct RollbackWorld {
    pub(crate) now: Instant,
    pub(crate) server: MatchServer<u16>,
    pub(crate) players: Vec<Player>,
    pub(crate) server_events: Vec<ServerEvent>,
    /// The server's own game, which never rolls back, and its hash after each tick.
    pub(crate) own: Game,
    pub(crate) own_hashes: Vec<u64>,
    pub(crate) longest: usize,
    network: Generator,
    in_flight: BTreeMap<(Instant, u64), InFlight>,
    sent: u64,
    next_frame: Instant,
}

impl RollbackWorld {
    /// One player for each of `clients`.
    pub(crate) fn new(
        seed: Seed,
        mut config: Config,
        clients: &[ClientConfig],
        link: Link,
    ) -> Self {
        let mut seeds = seed.generator(1);
        let now = Instant::from_millis(1_000);
        config.seats = u16::try_from(clients.len()).unwrap();
        let mut server = MatchServer::new(config, MATCH, seeds.seed(), now).unwrap();
        let player = |(index, client): (u16, &ClientConfig)| {
            let peer = PeerId(index.into());
            server.join(now, peer, Seat(index)).unwrap();
            let machine = ClientPeer::new(client.clone(), PeerId(9_999), seeds.seed(), now);
            let watched = Watched {
                machine,
                settled: Tick(0),
                begun: 0,
                finals: Vec::new(),
                loads: Vec::new(),
            };
            Player {
                rollback: Rollback::new(Game::default(), watched),
                events: Vec::new(),
                events_seen: 0,
                link,
                sends_nothing: false,
                receives_nothing: false,
                choices: (seeds.seed().generator(0), 0),
                behind: Vec::new(),
                promised: None,
            }
        };
        Self {
            now,
            players: (0..).zip(clients).map(player).collect(),
            server,
            server_events: Vec::new(),
            own: Game::default(),
            own_hashes: Vec::new(),
            longest: 0,
            network: seed.generator(2),
            in_flight: BTreeMap::new(),
            sent: 0,
            next_frame: now,
        }
    }

    /// Runs until the server has closed `ticks`, then for one more second.
    pub(crate) fn run(&mut self, ticks: u32) {
        while self.server.ticks_closed() < ticks {
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

    /// Keeps a player out until [`reconnect`](Self::come); call before the first step.
    pub(crate) fn keep_out(&mut self, index: usize) {
        let peer = PeerId(u32::try_from(index).unwrap());
        self.server.leave(self.now, peer);
        self.players[index].receives_nothing = true;
    }

    /// Has a player join that was kept out.
    pub(crate) fn reconnect(&mut self, index: usize) {
        let peer = PeerId(u32::try_from(index).unwrap());
        let seat = Seat(u16::try_from(index).unwrap());
        self.server.join(self.now, peer, seat).unwrap();
        self.players[index].receives_nothing = false;
    }

    /// Makes the game of a player diverge in `tick`.
    pub(crate) fn diverge(&mut self, index: usize, tick: u32) {
        self.players[index].rollback.game_mut().diverges_at = Some(tick);
    }

    fn step(&mut self) {
        let timers = self
            .players
            .iter()
            .filter_map(|player| player.machine().poll_timeout());
        let next = timers
            .chain(self.server.poll_timeout())
            .chain(self.in_flight.keys().next().map(|(at, _)| *at))
            .chain([self.next_frame]);
        self.now = next.min().unwrap().max(self.now);
        let now = self.now;
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let arrival = entry.remove();
            self.arrive(arrival);
        }
        if now >= self.next_frame {
            self.next_frame = now + Duration::from_nanos(16_666_667);
            self.read_pads();
        }
        self.serve();
        for index in 0..self.players.len() {
            self.play(index);
        }
    }

    fn arrive(&mut self, mut arrival: InFlight) {
        if arrival.to == End::Server {
            let peer = PeerId(u32::try_from(arrival.player).unwrap());
            self.server
                .handle_datagram(self.now, Arrival::from(peer), &mut arrival.datagram);
        } else if !self.players[arrival.player].receives_nothing {
            let rollback = &mut self.players[arrival.player].rollback;
            let machine = &mut rollback.steps_mut().machine;
            let from = Arrival::from(PeerId(9_999));
            machine.handle_datagram(self.now, from, &mut arrival.datagram);
        }
    }

    fn read_pads(&mut self) {
        for player in &mut self.players {
            let (generator, held) = &mut player.choices;
            *held = pad(generator, held);
            let machine = &mut player.rollback.steps_mut().machine;
            player.promised = machine.submit(self.now, held).ok();
        }
    }

    fn serve(&mut self) {
        if self.server.poll_timeout().is_some_and(|at| at <= self.now) {
            self.server.handle_timeout(self.now);
        }
        while let Some(turn) = self.server.poll_turn() {
            let tick = turn.tick();
            self.own.step(&turn);
            let mut hasher = StateHasher::new(MATCH);
            self.own.hash(&mut hasher);
            self.own_hashes.push(hasher.finish());
            self.server.report_state(tick, &hasher).unwrap();
        }
        let mut buf = Vec::new();
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut buf) {
            let index = usize::try_from(transmit.destination.0).unwrap();
            self.send(index, End::Player, &buf);
            buf.clear();
        }
        while let Some(event) = self.server.poll_event() {
            self.server_events.push(event);
        }
    }

    fn play(&mut self, index: usize) {
        let now = self.now;
        let player = &mut self.players[index];
        let machine = &mut player.rollback.steps_mut().machine;
        let is_boundary = machine.poll_timeout().is_some_and(|at| at <= now);
        if is_boundary {
            machine.handle_timeout(now);
        }
        let game = player.rollback.game();
        if game.costs.is_some() {
            let spent = Rc::clone(&game.spent);
            player.rollback.run_measured(now, || spent.get());
        } else {
            player.rollback.run(now);
        }
        if is_boundary && let Some(tick) = player.promised.take() {
            let behind = tick.plus(1).since(Tick(player.rollback.game().at));
            player.behind.push(behind);
        }
        let machine = &mut player.rollback.steps_mut().machine;
        while let Some(event) = machine.poll_event() {
            player.events.push(event);
        }
        player.exchange_snapshots(now);
        let machine = &mut player.rollback.steps_mut().machine;
        let mut buf = Vec::new();
        let mut out = Vec::new();
        while machine.poll_transmit(now, &mut buf).is_some() {
            out.push(core::mem::take(&mut buf));
        }
        for datagram in out {
            self.send(index, End::Server, &datagram);
        }
    }

    fn send(&mut self, player: usize, to: End, datagram: &[u8]) {
        self.longest = self.longest.max(datagram.len());
        let Player {
            link,
            sends_nothing,
            ..
        } = self.players[player];
        let is_lost = self.network.chance(link.loss) || (sends_nothing && to == End::Server);
        let jitter = u64::try_from(link.jitter.as_nanos()).unwrap().max(1);
        let delay = link.latency + Duration::from_nanos(self.network.below(jitter));
        self.sent += 1;
        if !is_lost {
            let key = (self.now + delay, self.sent);
            let datagram = datagram.to_vec();
            let in_flight = InFlight {
                player,
                to,
                datagram,
            };
            self.in_flight.insert(key, in_flight);
        }
    }

    /// Every final state of every player equals that of the server's own game.
    pub(crate) fn assert_final(&self, ticks: usize) {
        for player in &self.players {
            let Watched { finals, begun, .. } = player.rollback.steps();
            let end = begun + finals.len();
            assert!(end >= ticks, "{end} of {ticks}");
            assert_eq!(finals[..], self.own_hashes[*begun..end]);
        }
        let is_alarm = |event: &&ServerEvent| matches!(event, ServerEvent::Desync { .. });
        assert_eq!(self.server_events.iter().find(is_alarm), None);
    }

    /// No player was reported as silent: ticks that were predicted right are hashed too.
    pub(crate) fn assert_none_silent(&self) {
        let is_silent = |event: &&ServerEvent| matches!(event, ServerEvent::Silent { .. });
        assert_eq!(self.server_events.iter().find(is_silent), None);
        let stats = self.server.stats();
        let all = (stats.ticks_closed - 120) * u64::try_from(self.players.len()).unwrap();
        assert!(stats.hashes_compared >= all, "{stats:?}");
        assert_eq!(stats.hashes_missing, 0);
    }
}
