//! The players: each has a client of `lockstep`, one of `udp_proto`, and its own socket.

use core::net::SocketAddr;
use core::time::Duration;
use std::net::UdpSocket;

use crypto::{PublicKey, Ring};
use lockstep::{ClientConfig, ClientPeer, PeerId};
use servicer::Clock;
use udp_proto::{Config, Credentials, Endpoint, Event, ServerIdentity, SessionId, Target};
use wire::{Arrival, Generator, Instant, Seed};

use super::Plan;
use super::child::Tally;
use super::ticker::{Ticker, sleep};
use crate::pair::{APP, UNRELIABLE};

/// New connections per second, below the server's handshake budget.
const NEWCOMERS: u32 = 400;

/// Runs the players until the process ends. Each has one turn per tick, and the turns are spread
/// over the tick.
///
/// # Panics
///
/// If the system lacks a socket for a player.
pub fn play(plan: Plan, (address, key): (SocketAddr, PublicKey), tally: &Tally) {
    let mut players: Vec<Player> = Vec::new();
    let mut pace = Ticker::new(plan.period());
    let count = usize::try_from(plan.players()).unwrap_or(usize::MAX);
    let mut newcomers = 0.0;
    loop {
        let begun = pace.wait();
        newcomers += f64::from(NEWCOMERS) * plan.period().as_secs_f64();
        while newcomers >= 1.0 && players.len() < count {
            newcomers -= 1.0;
            let number = u32::try_from(players.len()).unwrap_or(u32::MAX);
            players.push(Player::dial((address, key), number));
        }
        spread(
            &pace,
            (begun, plan.period()),
            &mut players,
            |player, now| {
                tally.add_turns(player.turn(now));
                tally.turn_taken();
            },
        );
    }
}

/// Runs each turn at its offset in the tick. A late turn runs next.
pub(super) fn spread<T>(
    pace: &Ticker,
    (begun, period): (Instant, Duration),
    all: &mut [T],
    mut turn: impl FnMut(&mut T, Instant),
) {
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX).max(1);
    for (place, one) in (0_u32..).zip(all) {
        let at = begun + period * place / count;
        let mut now = pace.now();
        // For a shorter wait, a wake-up costs too much; turns that become due in this time run
        // together.
        if at.saturating_since(now) > LEAST_SLEEP {
            sleep(at.saturating_since(now));
            now = pace.now();
        }
        turn(one, now);
    }
}

/// Minimum sleep.
const LEAST_SLEEP: Duration = Duration::from_micros(500);

struct Player {
    endpoint: Endpoint<Ring>,
    session: Option<SessionId>,
    server: SocketAddr,
    socket: UdpSocket,
    machine: ClientPeer<u16>,
    whims: Generator,
    pad: u16,
    /// The game's state.
    state: u64,
    buffer: Vec<u8>,
    /// Number of its turns. Only some of them poll for a second datagram, because each poll is a
    /// system call.
    turns: u32,
}

/// The server's peer id at the clients.
const SERVER: PeerId = PeerId(9_999);

impl Player {
    fn dial((address, key): (SocketAddr, PublicKey), number: u32) -> Self {
        let now = Clock::new().now();
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.connect(address).expect("a route");
        socket.set_nonblocking(true).expect("a socket");
        let config = Config::default();
        let mut endpoint = Endpoint::new(config, APP, Ring::new(), now).expect("entropy");
        let target = Target {
            addresses: vec![address],
            server: ServerIdentity::Keys(vec![key]),
            credentials: Credentials::Open,
        };
        endpoint.connect(now, target).expect("a target");
        let seed = Seed::from_number(number.into());
        Self {
            endpoint,
            session: None,
            server: address,
            socket,
            machine: ClientPeer::new(ClientConfig::default(), SERVER, seed, now),
            whims: seed.generator(1),
            pad: 0,
            state: 0,
            buffer: vec![0; BUFFER_LEN],
            turns: number,
        }
    }

    /// Runs a frame. Returns how many new ticks it has received.
    fn turn(&mut self, now: Instant) -> u32 {
        self.turns = self.turns.wrapping_add(1);
        self.receive(now);
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Connected { session, .. } => self.session = Some(session),
                Event::Readable { session } => self.hear(now, session),
                // The server counts these.
                Event::Closed { .. } | Event::ConnectFailed { .. } => self.session = None,
                Event::MtuChecked { .. } | Event::Settled { .. } | _ => {}
            }
        }
        let incoming = self.step(now);
        self.send(now);
        incoming
    }

    fn receive(&mut self, now: Instant) {
        self.buffer.resize(BUFFER_LEN, 0);
        while let Ok(len) = self.socket.recv(&mut self.buffer) {
            let datagram = self.buffer.get_mut(..len).unwrap_or_default();
            self.endpoint
                .handle_datagram(now, Arrival::from(self.server), datagram);
            if self.session.is_some() && !self.turns.is_multiple_of(LOOK_EACH) {
                break;
            }
        }
    }

    fn hear(&mut self, now: Instant, session: SessionId) {
        let datagram = &mut self.buffer;
        while self.endpoint.receive(now, session, datagram).is_some() {
            self.machine
                .handle_datagram(now, Arrival::from(SERVER), datagram);
        }
    }

    fn step(&mut self, now: Instant) -> u32 {
        if self.whims.chance(100_000) {
            self.pad ^= 1 << self.whims.below(12);
        }
        self.machine.submit(now, &self.pad).ok();
        if self.machine.poll_timeout().is_some_and(|at| at <= now) {
            self.machine.handle_timeout(now);
        }
        let mut incoming = 0;
        while let Some(turn) = self.machine.poll_turn(now) {
            for (_, pad, _) in turn.inputs() {
                self.state = (self.state ^ u64::from(pad)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            let tick = turn.tick();
            self.machine
                .report(tick, self.state)
                .expect("the tick of this turn");
            incoming += 1;
        }
        while self.machine.poll_event().is_some() {}
        incoming
    }

    fn send(&mut self, now: Instant) {
        let datagram = &mut self.buffer;
        datagram.clear();
        while self.machine.poll_transmit(now, datagram).is_some() {
            if let Some(session) = self.session {
                self.endpoint.send(now, session, UNRELIABLE, datagram).ok();
            }
            datagram.clear();
        }
        while self.endpoint.poll_transmit(now, datagram).is_some() {
            // A datagram that the system rejects is lost, as in a game.
            self.socket.send(datagram).ok();
            datagram.clear();
        }
    }
}

/// Maximum length of a datagram.
const BUFFER_LEN: usize = 2_048;

/// In one of this many turns, a player polls for more than one datagram.
const LOOK_EACH: u32 = 8;
