//! Simulations: players come and go, servers crash, calls are lost, the matchmaker restarts.

use core::cell::Cell;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::TokenId;
use matchmaker_core::record::{Assign, Reply, encode_left, encode_result};
use matchmaker_core::{
    Command, Config, Ending, Event, Game, GrantText, Outcome, Rule, Seated, ServerLink, Slot,
    TeamSize, TicketId, TicketRequest, TicketState,
};
use netsim::{for_each_seed, test_site};
use wire::{ClientId, CommandId, Generator, Instant, MatchId, Seed, UnixTime};

use crate::rig::{APP, Rig, Server, UNIX, secs};

const TEAMS: u8 = 2;
const PLAYERS: u8 = 2;
const CLIENTS: u64 = 40;
const SLOTS: u64 = 4;
const FLEET: u64 = 2;
const STEP: Duration = Duration::from_millis(100);
/// Steps with faults, then steps in which everything must come to its end.
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
    // The runs have seen what they are for.
    let seen = total.get();
    assert!(seen.matches > 20 && seen.restarts > 0, "{seen:?}");
    assert!(seen.crashes > 0 && seen.cancels > 20, "{seen:?}");
    assert!(seen.adopted > 0, "{seen:?}");
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

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    matches: u64,
    restarts: u64,
    crashes: u64,
    cancels: u64,
    adopted: u64,
}

impl Seen {
    const fn plus(self, other: Self) -> Self {
        Self {
            matches: self.matches + other.matches,
            restarts: self.restarts + other.restarts,
            crashes: self.crashes + other.crashes,
            cancels: self.cancels + other.cancels,
            adopted: self.adopted + other.adopted,
        }
    }
}

/// A process that runs a game server.
struct Process {
    server: Server,
    slot: Option<Slot>,
    /// The command that started it, and in which life of the matchmaker.
    run: Option<(CommandId, u64)>,
    /// It ends itself then: its lease was not renewed.
    lease_until: Instant,
    call_at: Instant,
    must_register: bool,
    /// Nothing it says arrives until then.
    cut_until: Instant,
    /// When each match ends.
    ends: BTreeMap<MatchId, Instant>,
}

impl Process {
    /// Whether a token of `client` for the match would be taken.
    fn lets_in(&self, client: ClientId, match_id: MatchId) -> bool {
        let seats = self.server.matches.get(&match_id);
        seats.is_some_and(|seats| seats.iter().any(|seat| seat.client_id == client))
    }
}

struct World {
    rig: Rig,
    generator: Generator,
    /// Life of the matchmaker, counted; outcomes of an earlier one reach nobody.
    life: u64,
    unix_offset_ms: u64,
    processes: Vec<Process>,
    /// How often each node has run.
    runs: BTreeMap<u64, u64>,
    /// Outcomes on their way.
    outcomes: Vec<(Instant, u64, CommandId, Outcome)>,
    /// Calls to servers on their way.
    calls: Vec<(Instant, u64, CommandId, ServerLink, Vec<u8>)>,
    tickets: BTreeMap<ClientId, TicketId>,
    /// All tokens seen: whose, where, in which match.
    tokens: BTreeMap<TokenId, (ClientId, ServerLink, MatchId, UnixTime)>,
    psks: BTreeSet<[u8; 32]>,
    /// The last grant that each player was seen to have.
    grants: BTreeMap<ClientId, GrantText>,
    /// Instances that the present matchmaker gave up.
    down: BTreeSet<ServerLink>,
    seen: Seen,
    log: Vec<String>,
}

impl World {
    fn new(seed: Seed) -> Self {
        let mut generator = seed.generator(0);
        let game = game();
        let mut world = Self {
            rig: Rig::start(config(), game, Instant::ZERO, generator.next_u64()),
            generator,
            life: 0,
            unix_offset_ms: 0,
            processes: Vec::new(),
            runs: BTreeMap::new(),
            outcomes: Vec::new(),
            calls: Vec::new(),
            tickets: BTreeMap::new(),
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
        self.rig.now += STEP;
        let now = self.rig.now;
        if faults == Faults::On {
            self.break_something();
        }
        let unix = self.unix();
        self.rig.machine.set_unix_time(now, unix);
        self.players(faults);
        self.enter();
        self.servers(faults);
        self.deliver(faults);
        if self.rig.machine.poll_timeout().is_some_and(|at| at <= now) {
            self.rig.machine.handle_timeout(now);
        }
        self.drain(faults);
        self.check();
    }

    fn unix(&self) -> UnixTime {
        UNIX + Duration::from_millis(self.rig.now.as_millis() + self.unix_offset_ms)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.generator.below(bound as u64)).unwrap()
    }

    /// Starts a process for the node `number`.
    fn boot(&mut self, number: u64, slot: Option<Slot>, run: Option<(CommandId, u64)>) {
        let count = self.runs.entry(number).or_default();
        *count += 1;
        let now = self.rig.now;
        self.processes.push(Process {
            server: Server::run(number, 8, *count),
            slot,
            run,
            lease_until: now + secs(30),
            call_at: now,
            must_register: true,
            cut_until: now,
            ends: BTreeMap::new(),
        });
    }

    fn break_something(&mut self) {
        let now = self.rig.now;
        if self.generator.chance(3_000) && !self.processes.is_empty() {
            let index = self.below(self.processes.len());
            self.seen.crashes += 1;
            self.kill(index);
        }
        if self.generator.chance(2_000) && !self.processes.is_empty() {
            let index = self.below(self.processes.len());
            let span = secs(self.generator.between(1, 45));
            self.processes[index].cut_until = now + span;
        }
        if self.generator.chance(1_500) {
            // Forwards only: a server that has seen the later time would refuse nothing less.
            self.unix_offset_ms += self.generator.between(0, 3_600_000);
        }
        if self.generator.chance(700) {
            self.restart();
        }
    }

    /// Ends a process; its parent sees it at once, if it is the present matchmaker.
    fn kill(&mut self, index: usize) {
        let process = self.processes.remove(index);
        if let Some((run, life)) = process.run
            && life == self.life
        {
            self.rig.machine.handle_exited(self.rig.now, run);
        }
        if process.slot.is_none() {
            let number = process.server.link.instance.0 >> 32;
            self.boot(number, None, None);
        }
    }

    /// Another matchmaker takes over, which knows nothing; servers learn of it from its presence.
    fn restart(&mut self) {
        self.seen.restarts += 1;
        self.seen.adopted += self.rig.machine.stats().adopted;
        self.life += 1;
        let seed = self.generator.next_u64();
        self.rig = Rig::start(config(), game(), self.rig.now, seed);
        let unix = self.unix();
        self.rig.machine.set_unix_time(self.rig.now, unix);
        self.down.clear();
        self.tickets.clear();
        for process in &mut self.processes {
            process.must_register = true;
            process.call_at = self.rig.now;
            // Who is cut off longer than the recovery is not covered: see the README.
            process.cut_until = self.rig.now;
        }
    }

    fn players(&mut self, faults: Faults) {
        let now = self.rig.now;
        for _ in 0..2 {
            let client = ClientId(self.generator.below(CLIENTS));
            let ticket = self.tickets.get(&client).copied();
            let state = ticket.and_then(|id| self.rig.machine.ticket(id));
            let is_open = state.is_some_and(|state| !state.is_ended());
            if faults == Faults::On && !is_open && self.generator.chance(300_000) {
                let request = TicketRequest::new(client);
                if let Ok(receipt) = self.rig.machine.submit(now, &request) {
                    self.tickets.insert(client, receipt.ticket);
                }
            } else if is_open && faults == Faults::On && self.generator.chance(60_000) {
                self.seen.cancels += 1;
                self.rig.machine.cancel(now, ticket.unwrap()).ok();
            } else if is_open && self.generator.chance(10_000) {
                self.rig.machine.reissue(now, ticket.unwrap()).ok();
            } else if faults == Faults::On && self.generator.chance(5_000) {
                // Asks anew, whatever it has.
                if let Ok(receipt) = self.rig.machine.submit(now, &TicketRequest::new(client)) {
                    self.tickets.insert(client, receipt.ticket);
                }
            }
        }
    }

    /// Players use their tokens, some late, some never.
    fn enter(&mut self) {
        for (client, link, match_id, _) in self.tokens.values() {
            let process = self
                .processes
                .iter_mut()
                .find(|process| process.server.link == *link);
            if let Some(process) = process
                && process.lets_in(*client, *match_id)
                && self.generator.chance(20_000)
            {
                process.server.unentered.remove(match_id);
            }
        }
    }

    /// Each server calls when it is time, ends matches, and ends itself without a lease.
    fn servers(&mut self, faults: Faults) {
        let now = self.rig.now;
        let mut index = 0;
        while index < self.processes.len() {
            if self.processes[index].lease_until <= now || !self.work(index, faults) {
                self.kill(index);
            } else {
                index += 1;
            }
        }
    }

    /// Returns whether the process goes on.
    fn work(&mut self, index: usize, faults: Faults) -> bool {
        let now = self.rig.now;
        let loss = if faults == Faults::On { 100_000 } else { 0 };
        let process = &mut self.processes[index];
        let over = process.ends.iter().find(|(_, at)| **at <= now);
        if let Some(match_id) = over.map(|(id, _)| *id) {
            process.ends.remove(&match_id);
            process.server.matches.remove(&match_id);
            let mut body = Vec::new();
            encode_result(match_id, b"won", &mut body);
            // Said once; where it is lost, the next heartbeat tells.
            if !self.generator.chance(loss) && process.cut_until <= now {
                process.server.call(&mut self.rig, &body);
            }
        }
        let process = &mut self.processes[index];
        if self.generator.chance(1_000)
            && process.cut_until <= now
            && let Some((match_id, seats)) = process.server.matches.iter_mut().next()
            && let Some(seated) = seats.pop()
        {
            let mut body = Vec::new();
            encode_left(*match_id, seated.client_id, &mut body);
            process.server.call(&mut self.rig, &body);
        }
        let process = &mut self.processes[index];
        if process.call_at > now {
            return true;
        }
        process.call_at = now + Duration::from_millis(300);
        if process.cut_until > now || self.generator.chance(loss) {
            return true;
        }
        let reply = if process.must_register {
            process.server.register(&mut self.rig)
        } else {
            process.server.heartbeat(&mut self.rig)
        };
        if self.generator.chance(loss) {
            return true;
        }
        let process = &mut self.processes[index];
        match reply {
            Reply::Renewed {
                lease,
                heartbeat,
                release,
            } => {
                process.must_register = false;
                process.lease_until = now + lease;
                process.call_at = now + heartbeat;
                for id in release {
                    process.server.matches.remove(&id);
                    process.ends.remove(&id);
                }
            }
            Reply::Register => process.must_register = true,
            Reply::Retired => return false,
            reply @ (Reply::Noted | Reply::Refused(_) | _) => panic!("{reply:?}"),
        }
        true
    }

    /// Calls reach their servers, outcomes the matchmaker.
    fn deliver(&mut self, faults: Faults) {
        let now = self.rig.now;
        let (due, later) = self.calls.drain(..).partition(|call| call.0 <= now);
        self.calls = later;
        let due: Vec<(Instant, u64, CommandId, ServerLink, Vec<u8>)> = due;
        for (_, life, id, to, body) in due {
            let length = secs(self.generator.between(5, 120));
            let found = self.processes.iter_mut().find(|process| {
                // A call reaches whatever runs on the node.
                process.server.link.node == to.node && process.cut_until <= now
            });
            let outcome = match found {
                Some(process) => {
                    let before = process.server.matches.len();
                    let answer = process.server.answer(&body);
                    if process.server.matches.len() > before {
                        let assign = Assign::decode(&body).unwrap();
                        check_match(&assign.players);
                        process.server.unentered.insert(assign.match_id);
                        process.ends.insert(assign.match_id, now + length);
                    }
                    Outcome::Answered(answer)
                }
                None => Outcome::Failed,
            };
            self.answer(id, life, &outcome, faults);
        }
        let (due, later) = self.outcomes.drain(..).partition(|entry| entry.0 <= now);
        self.outcomes = later;
        let due: Vec<(Instant, u64, CommandId, Outcome)> = due;
        for (_, life, id, outcome) in due {
            if life == self.life {
                self.rig.machine.handle_completed(now, id, outcome);
            }
        }
    }

    /// Sends an outcome on its way: late, twice or never.
    fn answer(&mut self, id: CommandId, life: u64, outcome: &Outcome, faults: Faults) {
        let now = self.rig.now;
        if faults == Faults::On && self.generator.chance(30_000) {
            return;
        }
        let copies = if self.generator.chance(30_000) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = Duration::from_millis(self.generator.between(0, 800));
            self.outcomes.push((now + delay, life, id, outcome.clone()));
        }
    }

    fn drain(&mut self, faults: Faults) {
        self.rig.drain();
        for (id, command) in core::mem::take(&mut self.rig.commands) {
            self.log
                .push(format!("{:?} {id:?} {command:?}", self.rig.now));
            let life = self.life;
            match command {
                Command::Spawn { slot, node } => {
                    if faults == Faults::On && self.generator.chance(200_000) {
                        self.answer(id, life, &Outcome::Failed, faults);
                        continue;
                    }
                    let number = u64::from(slot.0);
                    assert_eq!(Server::new(number, 1).link.node, node);
                    // Nobody runs two processes with one key: the old one, if any, is gone.
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
                    self.calls.push((self.rig.now + delay, life, id, to, body));
                }
                other => panic!("{other:?}"),
            }
        }
        for event in core::mem::take(&mut self.rig.events) {
            self.log.push(format!("{:?} {event:?}", self.rig.now));
            match event {
                Event::ServerDown { server, .. } => {
                    self.down.insert(server);
                }
                Event::MatchLive { server, .. } => {
                    assert!(!self.down.contains(&server), "a match on a dead instance");
                    self.seen.matches += 1;
                }
                Event::Missed(count) => panic!("{count} events were lost"),
                Event::Ticket(_)
                | Event::MatchEnded { .. }
                | Event::ServerUp(_)
                | Event::SpawnFailed { .. }
                | _ => {}
            }
        }
    }

    fn check(&mut self) {
        self.collect_tokens();
        self.check_one_match_each();
        let load = self.rig.machine.load();
        let limit = usize::try_from(CLIENTS).unwrap();
        assert!(
            load.tickets_waiting <= limit && load.players <= limit,
            "{load:?}"
        );
        assert!(load.tickets_known <= limit + config().ended_max, "{load:?}");
        assert!(load.matches <= limit, "{load:?}");
        assert!(
            load.servers <= usize::try_from(SLOTS + FLEET).unwrap(),
            "{load:?}"
        );
        let bytes = self.rig.machine.memory_bytes();
        assert!(bytes < 1 << 20, "{bytes} bytes for {load:?}");
    }

    /// Reads the grant of each assigned ticket: it opens at its server, there only, and is new.
    fn collect_tokens(&mut self) {
        let unix = self.unix();
        for client in 0..CLIENTS {
            let client = ClientId(client);
            let Some(id) = self.rig.machine.ticket_of(client) else {
                continue;
            };
            let Some(TicketState::Assigned(seat)) = self.rig.machine.ticket(id) else {
                continue;
            };
            assert!(
                !self.down.contains(&seat.server),
                "a seat on a dead instance"
            );
            if self.grants.get(&client) == Some(&seat.grant) {
                continue;
            }
            self.grants.insert(client, seat.grant.clone());
            assert!(seat.expires_at > unix);
            let issued = UnixTime::from_millis(seat.expires_at.as_millis() - 60_000);
            let grant = seat.grant.expose();
            let mut opened_by = Vec::new();
            for process in &self.processes {
                if let Ok(token) = process.server.open(grant, issued) {
                    assert_eq!(token.grant.client_id, client);
                    assert_eq!(token.grant.match_id, seat.match_id);
                    assert_eq!(token.grant.server_id, process.server.link.instance);
                    opened_by.push(process.server.link);
                    let entry = (client, seat.server, seat.match_id, seat.expires_at);
                    assert!(self.tokens.insert(token.header.token_id, entry).is_none());
                    assert!(self.psks.insert(*token.grant.psk.expose()));
                }
            }
            // None where the server has crashed, and the matchmaker does not know it yet.
            assert!(
                opened_by.iter().all(|link| *link == seat.server),
                "{opened_by:?}"
            );
            assert!(opened_by.len() <= 1);
        }
    }

    /// No player could use two tokens for two matches at the same time: servers let in who has a
    /// seat in a match that they run.
    fn check_one_match_each(&mut self) {
        let unix = self.unix();
        self.tokens
            .retain(|_, (_, _, _, expires_at)| *expires_at > unix);
        let mut in_match: BTreeMap<ClientId, MatchId> = BTreeMap::new();
        for (client, link, match_id, _) in self.tokens.values() {
            let is_let_in = self
                .processes
                .iter()
                .any(|process| process.server.link == *link && process.lets_in(*client, *match_id));
            if is_let_in {
                let other = in_match.insert(*client, *match_id);
                assert!(
                    other.is_none_or(|other| other == *match_id),
                    "{client} is in two matches"
                );
            }
        }
    }

    /// When nothing is asked and nothing breaks, nothing waits.
    fn check_rest(&mut self) {
        let load = self.rig.machine.load();
        let size = usize::from(TEAMS) * usize::from(PLAYERS);
        assert!(load.tickets_waiting < size, "{load:?}");
        assert_eq!(
            (load.matches, load.matches_waiting, load.players),
            (0, 0, 0),
            "{load:?}"
        );
        for ticket in self.tickets.values() {
            match self.rig.machine.ticket(*ticket) {
                None | Some(TicketState::Ended(_) | TicketState::Queued) => {}
                other => panic!("{other:?}"),
            }
        }
        let waiting: Vec<_> = (0..CLIENTS)
            .filter_map(|client| self.rig.machine.ticket_of(ClientId(client)))
            .collect();
        for ticket in waiting {
            self.rig.machine.cancel(self.rig.now, ticket).unwrap();
            let cancelled = TicketState::Ended(Ending::Cancelled);
            assert_eq!(self.rig.machine.ticket(ticket), Some(&cancelled));
        }
    }
}

/// Exactly as many players as there are seats, all different, in teams of one size.
fn check_match(players: &[Seated]) {
    let size = usize::from(TEAMS) * usize::from(PLAYERS);
    let distinct: BTreeSet<_> = players.iter().map(|seated| seated.client_id).collect();
    let seats: Vec<_> = players.iter().map(|seated| seated.seat.0).collect();
    assert_eq!(distinct.len(), size, "{players:?}");
    assert_eq!(seats, (0..).take(size).collect::<Vec<u16>>());
    for team in 0..TEAMS {
        let count = players.iter().filter(|seated| seated.team.0 == team);
        assert_eq!(count.count(), usize::from(PLAYERS), "{players:?}");
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
