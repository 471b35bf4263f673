//! Simulations: players join and leave, servers crash, calls are lost, the matchmaker restarts.

mod fleet;
mod process;
mod promises;

use core::cell::Cell;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::TokenId;
use matchmaker_core::{
    Command, Config, Ending, Event, Game, GrantText, MatchEnd, Outcome, Rule, ServerLink, Slot,
    TeamSize, TicketId, TicketRequest, TicketState,
};
use netsim::{for_each_seed, test_site};
use wire::{ClientId, CommandId, Generator, Instant, Seed, UnixTime};

use process::{Process, Token};

use crate::harness::{APP, Harness, Server, UNIX, secs};

const TEAMS: u8 = 2;
const PLAYERS: u8 = 2;
const CLIENTS: u64 = 40;
const SLOTS: u64 = 4;
const FLEET: u64 = 2;
const STEP: Duration = Duration::from_millis(100);
/// Steps with faults, then steps without, in which everything must finish.
const ROUGH: u32 = 6_000;
const CALM: u32 = 4_000;

#[test]
fn sim_mm_1_mm_4_players_servers_and_restarts() {
    let total = Cell::new(Seen::default());
    for_each_seed(&test_site!(), 12, |seed| {
        let mut world = World::new(seed);
        for _ in 0..ROUGH / 2 {
            world.step(Faults::On);
        }
        world.restart();
        for _ in 0..ROUGH / 2 {
            world.step(Faults::On);
        }
        for _ in 0..CALM {
            world.step(Faults::Off);
        }
        world.check_rest();
        total.set(total.get().plus(world.seen));
    });
    // The runs covered the intended cases.
    let seen = total.get();
    assert!(seen.matches > 20 && seen.restarts > 0, "{seen:?}");
    assert!(seen.crashes > 0 && seen.cancels > 20, "{seen:?}");
    assert!(seen.adopted > 0, "{seen:?}");
    assert!(seen.not_entered > 5 && seen.abandoned > 0, "{seen:?}");
    assert!(seen.outages > 0 && seen.missed_restarts > 0, "{seen:?}");
    // The gap that the README describes occurs, and is no larger.
    assert!(seen.in_two > 0, "{seen:?}");
}

#[test]
fn sim_mm_8_equal_seeds_give_equal_runs() {
    for_each_seed(&test_site!(), 2, |seed| {
        let run = || {
            let mut world = World::new(seed);
            for _ in 0..1_500 {
                world.step(Faults::On);
            }
            world.log
        };
        assert_eq!(run(), run());
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Faults {
    On,
    Off,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    matches: u64,
    restarts: u64,
    crashes: u64,
    cancels: u64,
    adopted: u64,
    /// Matches that no player entered in time.
    not_entered: u64,
    /// Tickets whose holders left.
    abandoned: u64,
    /// Periods in which no server could call.
    outages: u64,
    /// Servers that were partitioned while the matchmaker restarted.
    missed_restarts: u64,
    /// Steps in which a player could use tokens of two matches.
    in_two: u64,
}

impl Seen {
    const fn plus(self, other: Self) -> Self {
        Self {
            matches: self.matches + other.matches,
            restarts: self.restarts + other.restarts,
            crashes: self.crashes + other.crashes,
            cancels: self.cancels + other.cancels,
            adopted: self.adopted + other.adopted,
            not_entered: self.not_entered + other.not_entered,
            abandoned: self.abandoned + other.abandoned,
            outages: self.outages + other.outages,
            missed_restarts: self.missed_restarts + other.missed_restarts,
            in_two: self.in_two + other.in_two,
        }
    }
}

struct World {
    harness: Harness,
    generator: Generator,
    /// Number of the matchmaker's current life. Outcomes for an earlier one are dropped.
    life: u64,
    unix_offset_ms: u64,
    processes: Vec<Process>,
    /// Number of runs per node.
    runs: BTreeMap<u64, u64>,
    /// Outcomes in flight.
    outcomes: Vec<(Instant, u64, CommandId, Outcome)>,
    /// Calls to servers in flight.
    calls: Vec<(Instant, u64, CommandId, ServerLink, Vec<u8>)>,
    tickets: BTreeMap<ClientId, TicketId>,
    /// Players that left without notice and do not poll their tickets.
    left: BTreeSet<ClientId>,
    /// When the hub returns.
    outage_until: Option<Instant>,
    /// All tokens seen: player, server and match.
    tokens: BTreeMap<TokenId, Token>,
    psks: BTreeSet<[u8; 32]>,
    /// The last grant seen for each player.
    grants: BTreeMap<ClientId, GrantText>,
    /// Instances that the current matchmaker retired.
    down: BTreeSet<ServerLink>,
    seen: Seen,
    log: Vec<String>,
}

impl World {
    fn new(seed: Seed) -> Self {
        let mut generator = seed.generator(0);
        let game = game();
        let mut world = Self {
            harness: Harness::start(config(), game, Instant::ZERO, generator.next_u64()),
            generator,
            life: 0,
            unix_offset_ms: 0,
            processes: Vec::new(),
            runs: BTreeMap::new(),
            outcomes: Vec::new(),
            calls: Vec::new(),
            tickets: BTreeMap::new(),
            left: BTreeSet::new(),
            outage_until: None,
            tokens: BTreeMap::new(),
            psks: BTreeSet::new(),
            grants: BTreeMap::new(),
            down: BTreeSet::new(),
            seen: Seen::default(),
            log: Vec::new(),
        };
        for number in SLOTS..SLOTS + FLEET {
            world.boot(number, None, None);
        }
        world
    }

    fn step(&mut self, faults: Faults) {
        self.harness.now += STEP;
        let now = self.harness.now;
        if faults == Faults::On {
            self.inject_fault();
        }
        if self.outage_until.is_some_and(|until| until <= now) {
            self.outage_until = None;
            self.harness.machine.handle_link_up(now);
        }
        let unix = self.unix();
        self.harness.machine.set_unix_time(now, unix);
        self.players(faults);
        self.enter();
        self.servers(faults);
        self.deliver(faults);
        if self
            .harness
            .machine
            .poll_timeout()
            .is_some_and(|at| at <= now)
        {
            self.harness.machine.handle_timeout(now);
        }
        self.drain(faults);
        self.check();
    }

    fn unix(&self) -> UnixTime {
        UNIX + Duration::from_millis(self.harness.now.as_millis() + self.unix_offset_ms)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.generator.below(bound as u64)).unwrap()
    }

    /// Starts a process on the node `number`.
    fn boot(&mut self, number: u64, slot: Option<Slot>, run: Option<(CommandId, u64)>) {
        let count = self.runs.entry(number).or_default();
        *count += 1;
        let now = self.harness.now;
        self.processes.push(Process {
            server: Server::run(number, 8, *count),
            slot,
            run,
            lease_until: now + secs(30),
            call_at: now,
            must_register: true,
            cut_until: now,
            unreported: BTreeSet::new(),
            ends: BTreeMap::new(),
            wanted_at: BTreeMap::new(),
        });
    }

    fn inject_fault(&mut self) {
        let now = self.harness.now;
        if self.generator.chance(3_000) && !self.processes.is_empty() {
            let index = self.below(self.processes.len());
            self.seen.crashes += 1;
            self.kill(index);
        }
        if self.generator.chance(2_000) && !self.processes.is_empty() {
            let index = self.below(self.processes.len());
            let span = secs(self.generator.between(1, 45));
            let process = &mut self.processes[index];
            process.cut_until = now + span;
            // The current matchmaker may not know of it.
            if process.must_register {
                process.unreported.extend(process.server.matches.keys());
            }
        }
        if self.generator.chance(1_500) {
            // Forward only: after a step back, servers would still use the latest time they have seen.
            self.unix_offset_ms += self.generator.between(0, 3_600_000);
        }
        if self.generator.chance(700) {
            self.restart();
        }
        if self.outage_until.is_none() && self.generator.chance(1_000) {
            let span = secs(self.generator.between(1, 45));
            self.outage_until = Some(now + span);
            self.seen.outages += 1;
            self.harness.machine.handle_link_down(now);
        }
    }

    /// Whether messages from and to this process are lost.
    fn is_cut_off(&self, process: &Process) -> bool {
        self.outage_until.is_some() || process.cut_until > self.harness.now
    }

    /// Ends a process. Its parent notices at once, if that is the current matchmaker.
    fn kill(&mut self, index: usize) {
        let process = self.processes.remove(index);
        if let Some((run, life)) = process.run
            && life == self.life
        {
            self.harness.machine.handle_exited(self.harness.now, run);
        }
        if process.slot.is_none() {
            let number = process.server.link.instance.0 >> 32;
            self.boot(number, None, None);
        }
    }

    /// Starts a new matchmaker without state. Servers learn of it from its presence.
    fn restart(&mut self) {
        self.seen.restarts += 1;
        self.seen.adopted += self.harness.machine.stats().adopted;
        self.life += 1;
        let seed = self.generator.next_u64();
        self.harness = Harness::start(config(), game(), self.harness.now, seed);
        let unix = self.unix();
        self.harness.machine.set_unix_time(self.harness.now, unix);
        self.down.clear();
        self.tickets.clear();
        if self.outage_until.is_some() {
            self.harness.machine.handle_link_down(self.harness.now);
        }
        for process in &mut self.processes {
            process.must_register = true;
            process.call_at = self.harness.now;
            if process.cut_until > self.harness.now {
                process.unreported.extend(process.server.matches.keys());
                self.seen.missed_restarts += 1;
            }
        }
    }

    fn players(&mut self, faults: Faults) {
        let now = self.harness.now;
        for (client, ticket) in &self.tickets {
            if !self.left.contains(client) {
                self.harness.machine.keep_ticket(now, *ticket);
            }
        }
        if faults == Faults::On && self.generator.chance(20_000) {
            let client = ClientId(self.generator.below(CLIENTS));
            // Players that left return.
            if !self.left.remove(&client) {
                self.left.insert(client);
            }
        }
        for _ in 0..2 {
            let client = ClientId(self.generator.below(CLIENTS));
            if self.left.contains(&client) {
                continue;
            }
            let ticket = self.tickets.get(&client).copied();
            let state = ticket.and_then(|id| self.harness.machine.ticket(id));
            let is_open = state.is_some_and(|state| !state.is_ended());
            if faults == Faults::On && !is_open && self.generator.chance(300_000) {
                let request = TicketRequest::new(client);
                if let Ok(receipt) = self.harness.machine.submit(now, &request) {
                    self.tickets.insert(client, receipt.ticket);
                }
            } else if is_open && faults == Faults::On && self.generator.chance(60_000) {
                self.seen.cancels += 1;
                self.harness.machine.cancel(now, ticket.unwrap()).ok();
            } else if is_open && faults == Faults::On && self.generator.chance(10_000) {
                self.harness.machine.reissue(now, ticket.unwrap()).ok();
            } else if faults == Faults::On && self.generator.chance(5_000) {
                // Submits again, whatever ticket it has.
                if let Ok(receipt) = self
                    .harness
                    .machine
                    .submit(now, &TicketRequest::new(client))
                {
                    self.tickets.insert(client, receipt.ticket);
                }
            }
        }
    }

    /// Players use their tokens, some late, some never.
    fn enter(&mut self) {
        let unix = self.unix();
        for token in self.tokens.values() {
            let process = self
                .processes
                .iter_mut()
                .find(|process| process.server.link == token.server);
            if let Some(process) = process
                && process.lets_in(token.client, token.match_id)
                && token.expires_at > unix
                && !self.left.contains(&token.client)
                // Some matches are never entered.
                && token.match_id.0[0] >= 64
                && self.generator.chance(20_000)
                && process.server.unentered.remove(&token.match_id)
            {
                let length = secs(self.generator.between(5, 120));
                process
                    .ends
                    .insert(token.match_id, self.harness.now + length);
            }
        }
    }

    fn drain(&mut self, faults: Faults) {
        self.harness.drain();
        for (id, command) in core::mem::take(&mut self.harness.commands) {
            self.log
                .push(format!("{:?} {id:?} {command:?}", self.harness.now));
            let life = self.life;
            match command {
                Command::Spawn { slot, node } => {
                    if faults == Faults::On && self.generator.chance(200_000) {
                        self.answer(id, life, &Outcome::Failed, faults);
                        continue;
                    }
                    let number = u64::from(slot.0);
                    assert_eq!(Server::new(number, 1).link.node, node);
                    // No two processes share a key: the old one, if any, is removed.
                    self.processes.retain(|process| process.slot != Some(slot));
                    self.boot(number, Some(slot), Some((id, life)));
                    self.answer(id, life, &Outcome::Started, faults);
                }
                Command::Stop { slot, .. } => {
                    self.processes.retain(|process| process.slot != Some(slot));
                    self.answer(id, life, &Outcome::Stopped, faults);
                }
                Command::Call { to, body, .. } => {
                    if faults == Faults::On && self.generator.chance(50_000) {
                        continue;
                    }
                    let delay = Duration::from_millis(self.generator.between(0, 800));
                    self.calls
                        .push((self.harness.now + delay, life, id, to, body));
                }
                other => panic!("{other:?}"),
            }
        }
        for event in core::mem::take(&mut self.harness.events) {
            self.log.push(format!("{:?} {event:?}", self.harness.now));
            match event {
                Event::ServerDown { server, .. } => {
                    self.down.insert(server);
                }
                Event::MatchLive { server, .. } => {
                    assert!(!self.down.contains(&server), "a match on a dead instance");
                    self.seen.matches += 1;
                }
                Event::Missed(count) => panic!("{count} events were lost"),
                Event::MatchEnded { end, .. } => {
                    self.seen.not_entered += u64::from(end == MatchEnd::NotEntered);
                }
                Event::Ticket(ticket) => {
                    let abandoned = TicketState::Ended(Ending::Abandoned);
                    let is_abandoned = self.harness.machine.ticket(ticket) == Some(&abandoned);
                    self.seen.abandoned += u64::from(is_abandoned);
                }
                Event::ServerUp(_) | Event::SpawnFailed { .. } | _ => {}
            }
        }
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.ended_max = 50;
    config.warm = 1;
    config
}

fn game() -> Game {
    let node = |number| Server::new(number, 1).link.node;
    Game {
        app_id: APP,
        rule: Rule::TeamSize(TeamSize::new(TEAMS, PLAYERS).unwrap()),
        slots: (0..SLOTS).map(node).collect(),
        fleet: (SLOTS..SLOTS + FLEET).map(node).collect(),
    }
}
