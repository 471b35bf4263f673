//! The server: a driver of `servicer` with an endpoint of `udp_proto`, and a `MatchServer` per
//! match.

use core::convert::Infallible;
use core::net::SocketAddr;
use core::num::NonZeroUsize;
use core::ops::ControlFlow;
use core::time::Duration;

use crypto::{Identity, PublicKey, Ring};
use lockstep::{Config, MatchServer, PeerId, ServerEvent, ServerStats, StartPolicy, TickRate};
use servicer::{
    Application, Clock, Config as DriverConfig, Counters, Driver, Requests, SocketConfig, UdpSocket,
};
use udp_proto::{Endpoint, EndpointStats, Event, Listen, SessionId};
use wire::lookup::Lookup;
use wire::{Arrival, CommandId, Instant, MatchId, Seat, Seed};

use super::ticker::Ticker;
use super::{Plan, SEATS, TURNS};
use crate::measure::cpu_time_of;
use crate::pair::{APP, INSTANCE, UNRELIABLE};

/// A running server.
pub struct Host {
    driver: Driver<Endpoint<Ring>, Lobby>,
    requests: Requests<Infallible>,
    pace: Ticker,
    /// Its address and public key.
    pub door: (SocketAddr, PublicKey),
}

/// Counters at a point in time.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Ticks closed, in all matches.
    pub ticks: u64,
    /// Substituted inputs.
    pub substituted: u64,
    /// Number of times a match's clock was set back, because the process got no CPU time.
    pub pauses: u64,
    /// Players with an ended session.
    pub lost: u32,
    /// The driver's counters.
    pub driver: Counters,
    /// The endpoint's counters.
    pub endpoint: EndpointStats,
}

impl Host {
    /// Opens a loopback socket.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let now = Clock::new().now();
        let identity = Identity::generate(&mut Ring::new()).expect("entropy");
        let key = *identity.public_key();
        let config = udp_proto::Config::for_server();
        let mut endpoint = Endpoint::new(config, APP, Ring::new(), now).expect("entropy");
        let open = Listen::new(identity, INSTANCE).with_open_mode();
        endpoint.listen(now, open).expect("entropy");
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = UdpSocket::bind(address, &SocketConfig::default()).expect("a port");
        let door = (socket.local_address(), key);
        let mut config = DriverConfig::default();
        // All datagrams since the last turn.
        config.datagrams_per_turn = NonZeroUsize::new(65_536).expect("not 0");
        let lobby = Lobby::new(plan, now);
        let made = Driver::new(vec![socket], endpoint, lobby, config);
        let (driver, requests) = made.expect("descriptors");
        Self {
            driver,
            requests,
            pace: Ticker::new(plan.turn()),
            door,
        }
    }

    /// Serves until every seat is taken and its player ready, then starts the matches.
    ///
    /// # Panics
    ///
    /// If that takes longer than `limit`.
    pub fn gather(&mut self, limit: Duration) {
        let end = self.pace.now() + limit;
        while !self.driver.application().is_full() {
            self.turn();
            let lobby = self.driver.application();
            assert!(
                self.pace.now() < end,
                "{} players are there and {} are ready after {limit:?}",
                lobby.seated,
                lobby.ready,
            );
        }
    }

    /// Serves for `span`. Returns the CPU time.
    pub fn serve(&mut self, span: Duration) -> Duration {
        let end = self.pace.now() + span;
        cpu_time_of(|| {
            while self.pace.now() < end {
                self.turn();
            }
        })
    }

    /// Returns the current counters.
    #[must_use]
    pub fn count(&self) -> Count {
        let lobby = self.driver.application();
        let sum = |of: fn(&ServerStats) -> u64| {
            let matches = lobby.matches.iter();
            matches.map(|it| of(it.server.stats())).sum()
        };
        Count {
            ticks: sum(|stats| stats.ticks_closed),
            substituted: sum(|stats| stats.inputs_substituted),
            pauses: sum(|stats| stats.pauses),
            lost: lobby.lost,
            driver: self.requests.counters(),
            endpoint: *self.driver.machine().stats(),
        }
    }

    /// Returns the sorted delays of tick closings since the last call.
    pub fn take_lateness(&mut self) -> Vec<Duration> {
        let mut found = self
            .driver
            .act(|_, _, lobby| core::mem::take(&mut lobby.lateness));
        found.sort_unstable();
        found
    }

    fn turn(&mut self) {
        self.pace.wait();
        assert!(self.driver.turn().is_continue(), "nobody ends it");
    }
}

impl core::fmt::Debug for Host {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Host")
            .field("door", &self.door)
            .finish_non_exhaustive()
    }
}

/// The matches and their players.
struct Lobby {
    matches: Vec<Match>,
    seats: Lookup<SessionId, Place>,
    /// Number of seats taken. The next player gets the next seat.
    seated: u32,
    /// Number of ready players.
    ready: u32,
    /// Number of players with an ended session.
    lost: u32,
    /// Number of server turns.
    turns: u32,
    /// No earlier turn.
    turn_at: Instant,
    clock: Clock,
    message: Vec<u8>,
    lateness: Vec<Duration>,
}

/// A player's match and seat.
#[derive(Clone, Copy)]
struct Place {
    game: usize,
    seat: Seat,
}

struct Match {
    server: MatchServer<u16>,
    /// Sessions by seat.
    sessions: Vec<SessionId>,
    has_started: bool,
    /// The match server's last reported deadline. Nothing is due for its players before it.
    due: Option<Instant>,
}

impl Lobby {
    fn new(plan: Plan, now: Instant) -> Self {
        let rate = u16::try_from(plan.rate.get()).ok().and_then(TickRate::new);
        let mut config = Config::default();
        config.seats = SEATS;
        config.tick_rate = rate.expect("at most 1,000 ticks a second");
        config.start = StartPolicy::ByHand;
        let open = |number: u32| {
            let mut id = [0; 16];
            id.iter_mut()
                .zip(number.to_be_bytes())
                .for_each(|(byte, digit)| *byte = digit);
            let seed = Seed::from_number(number.into());
            let server = MatchServer::new(config.clone(), MatchId(id), seed, now);
            Match {
                server: server.expect("a match of eight pads is one"),
                sessions: Vec::new(),
                has_started: false,
                due: None,
            }
        };
        Self {
            matches: (0..plan.matches).map(open).collect(),
            seats: Lookup::new(&mut Seed::from_number(3).generator(0)),
            seated: 0,
            ready: 0,
            lost: 0,
            turns: 0,
            turn_at: now,
            clock: Clock::new(),
            message: Vec::new(),
            lateness: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.matches.iter().all(|game| game.has_started)
    }

    /// Assigns the next free seat to a new player.
    fn seat(&mut self, now: Instant, session: SessionId) {
        let game = usize::try_from(self.seated / u32::from(SEATS)).unwrap_or(usize::MAX);
        let seat = Seat(u16::try_from(self.seated % u32::from(SEATS)).unwrap_or(u16::MAX));
        let found = self.matches.get_mut(game).expect("no more come than fit");
        let joined = found.server.join(now, PeerId(seat.0.into()), seat);
        joined.expect("each seat is given once");
        found.sessions.push(session);
        self.seats.insert(session, Place { game, seat });
        self.seated += 1;
    }

    /// Passes a player's messages to its match.
    fn read(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, session: SessionId) {
        let Some(place) = self.seats.get(&session) else {
            return;
        };
        let Some(game) = self.matches.get_mut(place.game) else {
            return;
        };
        let from = PeerId(place.seat.0.into());
        while endpoint.receive(now, session, &mut self.message).is_some() {
            game.server
                .handle_datagram(now, Arrival::from(from), &mut self.message);
        }
    }
}

impl Match {
    /// Closes due ticks, and records the delay of the first one.
    fn close(&mut self, now: Instant, clock: Clock, lateness: &mut Vec<Duration>) {
        let Some(due) = self.server.poll_timeout().filter(|at| *at <= now) else {
            return;
        };
        let before = self.server.ticks_closed();
        self.server.handle_timeout(now);
        if self.server.ticks_closed() > before {
            lateness.push(clock.now().saturating_since(due));
        }
    }

    fn send(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, datagram: &mut Vec<u8>) {
        datagram.clear();
        while let Some(transmit) = self.server.poll_transmit(now, datagram) {
            let seat = usize::try_from(transmit.destination.0).unwrap_or(usize::MAX);
            if let Some(session) = self.sessions.get(seat) {
                endpoint.send(now, *session, UNRELIABLE, datagram).ok();
            }
            datagram.clear();
        }
    }

    /// Returns how many players have become ready.
    fn hear(&mut self) -> u32 {
        let mut ready = 0;
        while let Some(event) = self.server.poll_event() {
            ready += u32::from(matches!(event, ServerEvent::Ready { .. }));
        }
        ready
    }
}

impl Application<Endpoint<Ring>> for Lobby {
    type Request = Infallible;

    fn apply_request(
        &mut self,
        _: Instant,
        _: &mut Endpoint<Ring>,
        request: Infallible,
    ) -> ControlFlow<()> {
        match request {}
    }

    fn on_event(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, event: Event) {
        match event {
            Event::Connected { session, .. } => self.seat(now, session),
            Event::Readable { session } => self.read(now, endpoint, session),
            Event::Closed { .. } => self.lost += 1,
            Event::MtuChecked { .. } | Event::Settled { .. } | _ => {}
        }
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Endpoint<Ring>,
        _: CommandId,
        command: Infallible,
    ) {
        match command {}
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.turn_at)
    }

    /// Runs a game server's turn: received inputs, due ticks, bundles.
    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        self.turn_at = now + Duration::from_nanos(1);
        // Inputs received in this turn count for the ticks that it closes.
        while let Some(event) = endpoint.poll_event() {
            self.on_event(now, endpoint, event);
        }
        let group = self.turns % TURNS;
        self.turns = self.turns.wrapping_add(1);
        let everyone = u32::try_from(self.matches.len()).unwrap_or(u32::MAX) * u32::from(SEATS);
        let is_time = self.ready == everyone;
        for (game, number) in self.matches.iter_mut().zip(0_u32..) {
            if is_time && !game.has_started && number % TURNS == group {
                game.server.start(now).expect("it waits for this");
                game.has_started = true;
            }
            // A match that has started has no work in other turns, unless its inputs arrived just
            // before their deadline.
            let is_due = game.due.is_some_and(|due| due <= now);
            if game.has_started && number % TURNS != group && !is_due {
                continue;
            }
            game.close(now, self.clock, &mut self.lateness);
            game.send(now, endpoint, &mut self.message);
            self.ready += game.hear();
            game.due = game.server.poll_timeout();
        }
    }
}
