//! A matchmaker with servers, in memory, with a stepped clock.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::{
    AddressList, Audience, ClientGrant, ConnectToken, Identity, ServerKeys, TokenError, TokenKey,
};
use matchmaker_core::record::{
    Assign, Intake, Register, Reply, RunningMatch, Verdict, encode_heartbeat, encode_result,
};
use matchmaker_core::{
    Assignment, Command, Config, Event, Game, Matchmaker, Outcome, Rule, Seated, ServerLink,
    TeamSize, TicketId, TicketRequest, TicketState,
};
use netsim::provider::SimProvider;
use wire::{ClientId, CommandId, InstanceId, Instant, MatchId, Seed, UnixTime};

pub(crate) const APP: u64 = 0x5EED;
pub(crate) const UNIX: UnixTime = UnixTime::from_secs(1_800_000_000);

/// A matchmaker, its clock, and its output.
pub(crate) struct Harness {
    pub(crate) machine: Matchmaker<SimProvider>,
    pub(crate) now: Instant,
    pub(crate) events: Vec<Event>,
    pub(crate) commands: Vec<(CommandId, Command)>,
}

impl Harness {
    /// A matchmaker for `teams` of `players` that has recovered and knows the wall-clock time.
    pub(crate) fn new(config: Config, size: (u8, u8), servers: &[&Server]) -> Self {
        Self::with_slots(config, size, servers, &[])
    }

    pub(crate) fn with_slots(
        config: Config,
        (teams, players): (u8, u8),
        servers: &[&Server],
        slots: &[&Server],
    ) -> Self {
        let game = Game {
            app_id: APP,
            rule: Rule::TeamSize(TeamSize::new(teams, players).unwrap()),
            slots: slots.iter().map(|server| server.link.node).collect(),
            fleet: servers.iter().map(|server| server.link.node).collect(),
        };
        let mut harness = Self::start(config, game, Instant::ZERO, 1);
        harness.machine.set_unix_time(harness.now, UNIX);
        harness.pass(Duration::from_secs(2));
        harness
    }

    pub(crate) fn start(config: Config, game: Game, now: Instant, seed: u64) -> Self {
        let provider = SimProvider::new(Seed::from_number(seed));
        Self {
            machine: Matchmaker::new(config, game, provider, now).unwrap(),
            now,
            events: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// Polls all output.
    pub(crate) fn drain(&mut self) {
        self.commands
            .extend(core::iter::from_fn(|| self.machine.poll_command()));
        self.events
            .extend(core::iter::from_fn(|| self.machine.poll_event()));
    }

    /// Advances the time by `span`, and runs timers when they are due.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            assert!(self.machine.poll_timeout().is_none_or(|at| at > self.now));
            self.drain();
        }
        self.now = end;
    }

    /// Advances the time while these servers renew their leases.
    pub(crate) fn pass_alive(&mut self, span: Duration, servers: &[&Server]) {
        let end = self.now + span;
        while self.now < end {
            for server in servers {
                server.heartbeat(self);
            }
            let left = end.saturating_since(self.now);
            self.pass(left.min(Duration::from_secs(10)));
        }
    }

    /// Advances the time while the holders of these tickets poll them.
    pub(crate) fn pass_with_requests(&mut self, span: Duration, tickets: &[TicketId]) {
        let end = self.now + span;
        while self.now < end {
            for ticket in tickets {
                self.machine.keep_ticket(self.now, *ticket);
            }
            let left = end.saturating_since(self.now);
            self.pass(left.min(Duration::from_secs(10)));
        }
    }

    pub(crate) fn submit(&mut self, client: u64) -> TicketId {
        let request = TicketRequest::new(ClientId(client));
        let receipt = self.machine.submit(self.now, &request).unwrap();
        self.drain();
        receipt.ticket
    }

    pub(crate) fn state(&self, ticket: TicketId) -> &TicketState {
        self.machine.ticket(ticket).unwrap()
    }

    pub(crate) fn assignment(&self, ticket: TicketId) -> &Assignment {
        let state = self.state(ticket);
        let TicketState::Assigned(assignment) = state else {
            panic!("not assigned: {state:?}");
        };
        assignment
    }

    pub(crate) fn complete(&mut self, id: CommandId, outcome: Outcome) {
        self.machine.handle_completed(self.now, id, outcome);
        self.drain();
    }

    /// Takes the oldest pending command.
    pub(crate) fn command(&mut self) -> (CommandId, Command) {
        self.drain();
        assert!(!self.commands.is_empty(), "no command was given");
        self.commands.remove(0)
    }

    /// Lets servers answer their calls until none is left.
    pub(crate) fn serve(&mut self, servers: &mut [&mut Server]) {
        self.drain();
        while !self.commands.is_empty() {
            let (id, command) = self.command();
            let Command::Call { to, body, .. } = command else {
                panic!("only calls are answered here: {command:?}");
            };
            let server = servers.iter_mut().find(|server| server.link == to);
            let answer = server.unwrap().answer(&body);
            self.complete(id, Outcome::Answered(answer));
        }
    }

    /// Submits tickets for these players and serves the match.
    pub(crate) fn play(
        &mut self,
        clients: core::ops::Range<u64>,
        server: &mut Server,
    ) -> Vec<TicketId> {
        let tickets: Vec<_> = clients.map(|client| self.submit(client)).collect();
        self.serve(&mut [server]);
        tickets
    }
}

/// A game server, as seen by the matchmaker.
pub(crate) struct Server {
    pub(crate) link: ServerLink,
    pub(crate) identity_keys: ServerKeys,
    pub(crate) key: TokenKey,
    pub(crate) provider: SimProvider,
    pub(crate) capacity: u16,
    pub(crate) intake: Intake,
    pub(crate) matches: BTreeMap<MatchId, Vec<Seated>>,
    /// Matches that no player has entered, which the server reports one by one here.
    pub(crate) unentered: BTreeSet<MatchId>,
}

impl Server {
    /// The server with this number, in its first run.
    pub(crate) fn new(number: u64, capacity: u16) -> Self {
        Self::run(number, capacity, 0)
    }

    /// The same node in another run: a new instance with a new key.
    pub(crate) fn run(number: u64, capacity: u16, run: u64) -> Self {
        let mut identity_seed = SimProvider::new(Seed::from_number(1_000 + number));
        let identity = Identity::generate(&mut identity_seed).unwrap();
        let instance = InstanceId((number << 32) | (run + 1));
        let mut provider = SimProvider::new(Seed::from_number(0xA000_0000 + instance.0));
        Self {
            link: ServerLink {
                node: identity.node_id(),
                instance,
            },
            identity_keys: ServerKeys::new(&[*identity.public_key()]).unwrap(),
            key: TokenKey::generate(&mut provider, 1).unwrap(),
            provider,
            capacity,
            intake: Intake::Open,
            matches: BTreeMap::new(),
            unentered: BTreeSet::new(),
        }
    }

    pub(crate) fn record(&self) -> Register {
        Register {
            app_id: APP,
            token_key: self.key.clone(),
            capacity: self.capacity,
            intake: self.intake,
            identity_keys: self.identity_keys.clone(),
            addresses: AddressList::new(&["192.0.2.1:4433".parse().unwrap()]).unwrap(),
            matches: self
                .matches
                .iter()
                .map(|(match_id, players)| RunningMatch {
                    match_id: *match_id,
                    is_entered: !self.unentered.contains(match_id),
                    players: players.clone(),
                })
                .collect(),
        }
    }

    pub(crate) fn call(&self, harness: &mut Harness, body: &[u8]) -> Reply {
        let mut reply = Vec::new();
        harness
            .machine
            .handle_call(harness.now, self.link, body, &mut reply);
        harness.drain();
        Reply::decode(&reply).unwrap()
    }

    pub(crate) fn register(&self, harness: &mut Harness) -> Reply {
        self.call(harness, &self.record().encode().unwrap())
    }

    /// Registers, and panics if the matchmaker refuses.
    pub(crate) fn join(&self, harness: &mut Harness) {
        let reply = self.register(harness);
        assert!(matches!(reply, Reply::Renewed { .. }), "{reply:?}");
    }

    pub(crate) fn heartbeat(&self, harness: &mut Harness) -> Reply {
        let mut body = Vec::new();
        let is_entered = |id: &MatchId| (*id, !self.unentered.contains(id));
        encode_heartbeat(self.intake, self.matches.keys().map(is_entered), &mut body);
        self.call(harness, &body)
    }

    /// Ends a match and reports it.
    pub(crate) fn end(&mut self, harness: &mut Harness, match_id: MatchId) -> Reply {
        self.matches.remove(&match_id);
        let mut body = Vec::new();
        encode_result(match_id, b"3:1", &mut body);
        self.call(harness, &body)
    }

    pub(crate) fn answer(&mut self, body: &[u8]) -> Vec<u8> {
        let assign = Assign::decode(body).unwrap();
        let used: usize = self.matches.values().map(Vec::len).sum();
        let verdict = if assign.instance != self.link.instance {
            Verdict::OtherInstance
        } else if self.matches.contains_key(&assign.match_id) {
            Verdict::Taken
        } else if used + assign.players.len() > self.capacity.into() || self.intake != Intake::Open
        {
            Verdict::Full
        } else {
            self.matches.insert(assign.match_id, assign.players);
            Verdict::Taken
        };
        let mut answer = Vec::new();
        verdict.encode(&mut answer);
        answer
    }

    /// Opens the token of a grant, as the server would at `now`.
    pub(crate) fn open(&self, grant: &str, now: UnixTime) -> Result<ConnectToken, TokenError> {
        let grant = ClientGrant::from_text(grant).unwrap();
        let audience = Audience {
            app_id: APP,
            server_id: self.link.instance,
        };
        self.key
            .open(&self.provider, audience, now, grant.token.as_bytes())
    }

    /// Players with a seat in one of its matches.
    pub(crate) fn players(&self) -> BTreeSet<ClientId> {
        let seated = self.matches.values().flatten();
        seated.map(|seated| seated.client_id).collect()
    }
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
