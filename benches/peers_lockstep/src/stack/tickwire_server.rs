//! Tickwire with a server, which closes each tick by its clock. Clients simulate turns as they
//! arrive.

use core::time::Duration;

use lockstep::{
    ClientConfig, ClientPeer, Config, InputDelay, MatchServer, Origin, PeerId, Playout,
    ServerEvent, ServerStats, Step, Tick,
};
use wire::{Arrival, Instant, MatchId, Seat, Seed};

use super::{Count, Post, Setup, Stack};
use crate::game::{Game, Saved};
use crate::play::Play;

/// A match of a server and its clients.
pub struct TickwireServer<P: Play> {
    server: MatchServer<P>,
    clients: Vec<Client<P>>,
    has_found_desync: bool,
}

struct Client<P: Play> {
    machine: ClientPeer<P>,
    game: Game,
    seat: Seat,
    /// Saved states at index `tick % 64`, and the number of final ticks, if the client predicts.
    saves: Vec<Saved>,
    settled: u64,
    /// Tick and time of the last input reading for it, at index `tick % 64`.
    read_at: [(u32, Duration); 64],
    count: Count,
}

/// The match id.
const MATCH: MatchId = MatchId([0x77; 16]);

/// Range of the adaptive input delay, in ticks.
const INPUT_DELAY: [u8; 2] = [1, 60];

/// Maximum of the adaptive playout delay.
const PLAYOUT_MAX: Duration = Duration::from_millis(200);

impl<P: Play> TickwireServer<P> {
    /// Returns the server's counters.
    pub const fn stats(&self) -> &ServerStats {
        self.server.stats()
    }

    fn serve(&mut self, now: Instant, post: &mut Post<'_>) {
        let server = &mut self.server;
        post.inbox.drain(|from, datagram| {
            server.handle_datagram(now, Arrival::from(PeerId(from)), datagram);
        });
        if server.poll_timeout().is_some_and(|at| at <= now) {
            server.handle_timeout(now);
        }
        while let Some(event) = server.poll_event() {
            self.has_found_desync |= matches!(event, ServerEvent::Desync { .. });
        }
        while let Some(to) = server.poll_transmit(now, &mut post.outbox.bytes) {
            post.outbox.close(to.destination.0);
        }
    }
}

impl<P: Play> Client<P> {
    fn submit(&mut self, now: Duration, input: P) {
        if let Ok(tick) = self.machine.submit(Instant::ZERO + now, &input)
            && let Some(read_at) = self.read_at.get_mut(place(tick.0))
        {
            *read_at = (tick.0, now);
        }
    }

    fn turn(&mut self, since: Duration, server: u32, post: &mut Post<'_>) {
        let now = Instant::ZERO + since;
        let machine = &mut self.machine;
        post.inbox.drain(|from, datagram| {
            machine.handle_datagram(now, Arrival::from(PeerId(from)), datagram);
        });
        if machine.poll_timeout().is_some_and(|at| at <= now) {
            machine.handle_timeout(now);
        }
        if self.saves.is_empty() {
            self.take_turns(since);
        } else {
            while self.go_on(since) {}
            self.count.late = self.machine.stats().substituted;
        }
        let machine = &mut self.machine;
        while machine.poll_event().is_some() {}
        while machine.poll_transmit(now, &mut post.outbox.bytes).is_some() {
            post.outbox.close(server);
        }
    }

    /// Simulates the turns that have arrived.
    fn take_turns(&mut self, since: Duration) {
        let machine = &mut self.machine;
        while let Some(turn) = machine.poll_turn(Instant::ZERO + since) {
            let tick = turn.tick();
            self.game.advance(turn.inputs().map(|(_, it, _)| it.word()));
            if let Some((_, origin)) = turn.input(self.seat) {
                match (origin, self.read_at.get(place(tick.0))) {
                    // A tick without an input reading repeats the last input.
                    (Origin::Confirmed, Some((read_for, read_at))) if *read_for == tick.0 => {
                        self.count.latency += since.saturating_sub(*read_at);
                        self.count.answered += 1;
                    }
                    (Origin::Substituted, _) => self.count.late += 1,
                    _ => {}
                }
            }
            let state = self.game.save().state;
            machine.report(tick, state).expect("the tick of this turn");
        }
    }

    /// Handles the machine's next request, if the client predicts. Returns whether there was one.
    fn go_on(&mut self, since: Duration) -> bool {
        match self.machine.next_step(Instant::ZERO + since) {
            Step::Wait { .. } => return false,
            Step::Save(tick) => {
                if let Some(save) = self.saves.get_mut(place(tick.0)) {
                    *save = self.game.save();
                }
            }
            Step::Load(tick) => {
                let saved = self.saves.get(place(tick.0)).copied();
                self.game.load(saved.expect("a state that was saved"));
            }
            Step::Advance { turn, is_last } => {
                let tick = turn.tick();
                let before = self.game.steps.fresh;
                self.game.advance(turn.inputs().map(|(_, it, _)| it.word()));
                // An input takes effect in the first simulation of its tick.
                if self.game.steps.fresh > before
                    && let Some((read_for, read_at)) = self.read_at.get(place(tick.0))
                    && *read_for == tick.0
                {
                    self.count.latency += since.saturating_sub(*read_at);
                    self.count.answered += 1;
                }
                if is_last {
                    self.settle(tick);
                }
            }
            Step::Settled(tick) => self.settle(tick),
        }
        true
    }

    fn settle(&mut self, tick: Tick) {
        self.settled = u64::from(tick.0) + 1;
        let state = self.game.state_after(self.settled);
        let state = state.expect("a step of late");
        self.machine
            .report(tick, state)
            .expect("the tick that became final");
    }
}

fn place(tick: u32) -> usize {
    tick as usize % 64
}

impl<P: Play> Stack<P> for TickwireServer<P> {
    const NAME: &'static str = "tickwire-server";
    const SEAL: [u64; 2] = super::SEAL;
    const HAS_SERVER: bool = true;

    fn new(setup: &Setup) -> Self {
        let now = Instant::ZERO + instant::now();
        let players = u16::try_from(setup.players).expect("as many as seats");
        let server_node = u32::from(players);
        let mut config = Config::default();
        config.seats = players;
        let [shortest, longest] = INPUT_DELAY;
        config.input_delay = InputDelay::adaptive(shortest, longest).expect("a range");
        let seed = |number| Seed::from_number(setup.seed * 1_024 + number);
        let mut server =
            MatchServer::new(config, MATCH, seed(0), now).expect("a match that can be played");
        let client = |number: u16| {
            let mut config = ClientConfig::default();
            config.playout = Playout::Adaptive { max: PLAYOUT_MAX };
            config.window = setup.ahead;
            // More than a prediction window needs.
            let saves = if setup.ahead > 0 { 64 } else { 0 };
            let seed = seed(u64::from(number) + 1);
            let diverges_at = setup
                .diverges
                .and_then(|(who, at)| (who == usize::from(number)).then_some(at));
            Client {
                machine: ClientPeer::new(config, PeerId(server_node), seed, now),
                game: Game::new(diverges_at),
                seat: Seat(number),
                saves: vec![Saved::default(); saves],
                settled: 0,
                read_at: [(0, Duration::ZERO); 64],
                count: Count::default(),
            }
        };
        let clients = (0..players).map(client).collect();
        for number in 0..players {
            server
                .join(now, PeerId(number.into()), Seat(number))
                .expect("a seat for each");
        }
        Self {
            server,
            clients,
            has_found_desync: false,
        }
    }

    fn poll(&mut self, node: usize, now: Duration, post: &mut Post<'_>) {
        let server = self.clients.len();
        if node == server {
            self.serve(Instant::ZERO + now, post);
        } else {
            self.clients[node].turn(now, u32::try_from(server).expect("few"), post);
        }
    }

    fn frame(&mut self, player: usize, now: Duration, input: P, post: &mut Post<'_>) {
        self.clients[player].submit(now, input);
        self.poll(player, now, post);
    }

    fn game(&self, player: usize) -> &Game {
        &self.clients[player].game
    }

    fn confirmed(&self, player: usize) -> u64 {
        let client = &self.clients[player];
        if client.saves.is_empty() {
            client.game.steps.fresh
        } else {
            client.settled
        }
    }

    fn count(&self, player: usize) -> Count {
        self.clients[player].count
    }

    fn has_found_desync(&self) -> bool {
        self.has_found_desync
    }
}
