//! Simulations: players come and go, servers crash, calls are lost, the matchmaker restarts.

use core::cell::Cell;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::TokenId;
use matchmaker_core::record::{Assign, Reply, encode_left, encode_result};
use matchmaker_core::{
    Command, Config, Ending, Event, Game, GrantText, MatchEnd, Outcome, Rule, Seated, ServerLink,
    Slot, TeamSize, TicketId, TicketRequest, TicketState,
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
    assert!(seen.not_entered > 5 && seen.abandoned > 0, "{seen:?}");
    assert!(seen.outages > 0 && seen.missed_restarts > 0, "{seen:?}");
    // The hole that the README describes is there, and is no larger.
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

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    matches: u64,
    restarts: u64,
    crashes: u64,
    cancels: u64,
    adopted: u64,
    /// Matches that nobody entered in time.
    not_entered: u64,
    /// Tickets whose holders had gone.
    abandoned: u64,
    /// Times in which no server could call.
    outages: u64,
    /// Servers that were cut off while the matchmaker restarted.
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
    /// Matches that it had when it was cut off before it could tell a new matchmaker of them: their
    /// players may be elsewhere by now.
    unheard: BTreeSet<MatchId>,
    /// When each match ends that somebody has entered; the others never do by themselves.
    ends: BTreeMap<MatchId, Instant>,
    /// When each match was taken, or a token for it was last seen.
    wanted_at: BTreeMap<MatchId, Instant>,
}

impl Process {
    /// Whether a token of `client` for the match would be taken.
    fn lets_in(&self, client: ClientId, match_id: MatchId) -> bool {
        let seats = self.server.matches.get(&match_id);
        seats.is_some_and(|seats| seats.iter().any(|seat| seat.client_id == client))
    }
}

/// A token that a player has.
struct Token {
    client: ClientId,
    server: ServerLink,
    match_id: MatchId,
    expires_at: UnixTime,
    /// The life of the matchmaker that made it.
    life: u64,
    /// It was good while another one for another match was.
    is_stray: bool,
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
    /// Players who have gone without a word, and do not ask for their tickets.
    gone: BTreeSet<ClientId>,
    /// When the hub comes back.
    outage_until: Option<Instant>,
    /// All tokens seen: whose, where, in which match.
    tokens: BTreeMap<TokenId, Token>,
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
            gone: BTreeSet::new(),
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
        self.rig.now += STEP;
        let now = self.rig.now;
        if faults == Faults::On {
            self.break_something();
        }
        if self.outage_until.is_some_and(|until| until <= now) {
            self.outage_until = None;
            self.rig.machine.handle_link_up(now);
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
            unheard: BTreeSet::new(),
            ends: BTreeMap::new(),
            wanted_at: BTreeMap::new(),
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
            let process = &mut self.processes[index];
            process.cut_until = now + span;
            // The present matchmaker may not have heard of it.
            if process.must_register {
                process.unheard.extend(process.server.matches.keys());
            }
        }
        if self.generator.chance(1_500) {
            // Forwards only: a server that has seen the later time would refuse nothing less.
            self.unix_offset_ms += self.generator.between(0, 3_600_000);
        }
        if self.generator.chance(700) {
            self.restart();
        }
        if self.outage_until.is_none() && self.generator.chance(1_000) {
            let span = secs(self.generator.between(1, 45));
            self.outage_until = Some(now + span);
            self.seen.outages += 1;
            self.rig.machine.handle_link_down(now);
        }
    }

    /// Whether what this process says arrives, and what is said to it.
    fn is_cut_off(&self, process: &Process) -> bool {
        self.outage_until.is_some() || process.cut_until > self.rig.now
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
        if self.outage_until.is_some() {
            self.rig.machine.handle_link_down(self.rig.now);
        }
        for process in &mut self.processes {
            process.must_register = true;
            process.call_at = self.rig.now;
            if process.cut_until > self.rig.now {
                process.unheard.extend(process.server.matches.keys());
                self.seen.missed_restarts += 1;
            }
        }
    }

    fn players(&mut self, faults: Faults) {
        let now = self.rig.now;
        for (client, ticket) in &self.tickets {
            if !self.gone.contains(client) {
                self.rig.machine.keep_ticket(now, *ticket);
            }
        }
        if faults == Faults::On && self.generator.chance(20_000) {
            let client = ClientId(self.generator.below(CLIENTS));
            // Whoever was away is back.
            if !self.gone.remove(&client) {
                self.gone.insert(client);
            }
        }
        for _ in 0..2 {
            let client = ClientId(self.generator.below(CLIENTS));
            if self.gone.contains(&client) {
                continue;
            }
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
            } else if is_open && faults == Faults::On && self.generator.chance(10_000) {
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
        let unix = self.unix();
        for token in self.tokens.values() {
            let process = self
                .processes
                .iter_mut()
                .find(|process| process.server.link == token.server);
            if let Some(process) = process
                && process.lets_in(token.client, token.match_id)
                && token.expires_at > unix
                && !self.gone.contains(&token.client)
                // Some matches nobody has a mind to enter.
                && token.match_id.0[0] >= 64
                && self.generator.chance(20_000)
                && process.server.unentered.remove(&token.match_id)
            {
                let length = secs(self.generator.between(5, 120));
                process.ends.insert(token.match_id, self.rig.now + length);
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
        let is_cut_off = self.is_cut_off(&self.processes[index]);
        let process = &mut self.processes[index];
        let over = process.ends.iter().find(|(_, at)| **at <= now);
        if let Some(match_id) = over.map(|(id, _)| *id) {
            process.ends.remove(&match_id);
            process.server.matches.remove(&match_id);
            let mut body = Vec::new();
            encode_result(match_id, b"won", &mut body);
            // Said once; where it is lost, the next heartbeat tells.
            if !self.generator.chance(loss) && !is_cut_off {
                process.server.call(&mut self.rig, &body);
            }
        }
        let process = &mut self.processes[index];
        if self.generator.chance(1_000)
            && !is_cut_off
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
        if is_cut_off || self.generator.chance(loss) {
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
                    process.server.unentered.remove(&id);
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
            let is_down = self.outage_until.is_some();
            let found = self.processes.iter_mut().find(|process| {
                // A call reaches whatever runs on the node.
                process.server.link.node == to.node && process.cut_until <= now && !is_down
            });
            let outcome = match found {
                Some(process) => {
                    let before = process.server.matches.len();
                    let answer = process.server.answer(&body);
                    if process.server.matches.len() > before {
                        let assign = Assign::decode(&body).unwrap();
                        check_match(&assign.players);
                        process.server.unentered.insert(assign.match_id);
                        process.wanted_at.insert(assign.match_id, now);
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
                Event::MatchEnded { end, .. } => {
                    self.seen.not_entered += u64::from(end == MatchEnd::NotEntered);
                }
                Event::Ticket(ticket) => {
                    let abandoned = TicketState::Ended(Ending::Abandoned);
                    let is_abandoned = self.rig.machine.ticket(ticket) == Some(&abandoned);
                    self.seen.abandoned += u64::from(is_abandoned);
                }
                Event::ServerUp(_) | Event::SpawnFailed { .. } | _ => {}
            }
        }
    }

    fn check(&mut self) {
        self.collect_tokens();
        self.check_one_match_each();
        self.check_seats();
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
            for process in &mut self.processes {
                if let Ok(token) = process.server.open(grant, issued) {
                    assert_eq!(token.grant.client_id, client);
                    assert_eq!(token.grant.match_id, seat.match_id);
                    assert_eq!(token.grant.server_id, process.server.link.instance);
                    opened_by.push(process.server.link);
                    process.wanted_at.insert(seat.match_id, self.rig.now);
                    let entry = Token {
                        client,
                        server: seat.server,
                        match_id: seat.match_id,
                        expires_at: seat.expires_at,
                        life: self.life,
                        is_stray: false,
                    };
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
    ///
    /// One exception: of a server that was cut off before it registered with a new matchmaker, that
    /// one knows nothing, and may place its players elsewhere. There a token made before is good
    /// until it ends, whatever becomes of either match. Of the tokens that one matchmaker made, never
    /// two are good.
    fn check_one_match_each(&mut self) {
        let unix = self.unix();
        self.tokens.retain(|_, token| token.expires_at > unix);
        let mut good: BTreeMap<ClientId, Vec<(TokenId, bool)>> = BTreeMap::new();
        for (id, token) in &self.tokens {
            let process = self.processes.iter().find(|process| {
                process.server.link == token.server && process.lets_in(token.client, token.match_id)
            });
            if let Some(process) = process {
                let is_excused = token.is_stray || process.unheard.contains(&token.match_id);
                let tokens = good.entry(token.client).or_default();
                tokens.push((*id, is_excused));
            }
        }
        for (client, tokens) in good {
            for (at, (one, is_excused)) in tokens.iter().enumerate() {
                for (other, is_other_excused) in &tokens[..at] {
                    let [a, b] = [one, other].map(|id| &self.tokens[id]);
                    if a.match_id == b.match_id {
                        continue;
                    }
                    assert_ne!(
                        a.life, b.life,
                        "{client} is in two matches of one matchmaker"
                    );
                    assert!(is_excused | is_other_excused, "{client} is in two matches");
                    self.seen.in_two += 1;
                    for id in [one, other] {
                        self.tokens.get_mut(id).unwrap().is_stray = true;
                    }
                }
            }
        }
    }

    /// A server that can be heard holds no seats for long that nobody takes: the life of a token,
    /// what clocks and calls add to it, a cut of 45 s or an outage, and lost heartbeats.
    fn check_seats(&self) {
        let held_max = secs(60 + 15 + 2 * 45 + 45);
        for process in &self.processes {
            for match_id in &process.server.unentered {
                let held = process.wanted_at[match_id];
                let held = self.rig.now.saturating_since(held);
                assert!(held < held_max, "{match_id} is held for {held:?}");
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
