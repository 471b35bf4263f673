//! CPU cost of a server's driver when it sends datagrams one by one, several per system call, and
//! segmented by the system (GSO). Runs are interleaved in one process, over loopback sockets.
//!
//! `cargo bench --bench batching [-- ROUNDS]`, 3 by default. Times are CPU time of the server's
//! thread.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]
#![expect(
    clippy::expect_used,
    reason = "a bench whose sessions do not work must stop, not measure something else"
)]

use core::convert::Infallible;
use core::ops::ControlFlow;
use core::time::Duration;
use std::net::{SocketAddr, UdpSocket as PlainSocket};
use std::num::NonZeroUsize;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use benches::measure::cpu_time_of;
use benches::pair::{APP, INSTANCE, UNRELIABLE};
use crypto::{Identity, PublicKey, Ring};
use harness::usage::answer;
use servicer::{
    Application, Batching, Clock, Config as DriverConfig, Counters, Driver, SocketConfig, UdpSocket,
};
use udp_proto::{
    ChannelConfig, ChannelId, ChannelTable, Config, Credentials, Endpoint, Event, Listen,
    ServerIdentity, SessionId, Target,
};
use wire::{Arrival, CommandId, Instant};

const WAYS: [Batching; 3] = [Batching::One, Batching::Many, Batching::Segmented];
const BULK: ChannelId = ChannelId(2);
const MEGABYTE: usize = 1 << 20;

/// The `--help` text.
const USAGE: &str = "\
Times a server's driver that sends and receives one by one, several a system call, and segmented.

Usage: cargo bench --bench batching -- [ROUNDS]

ROUNDS: 3 by default.";

fn main() {
    answer(USAGE, &[]);
    let rounds = std::env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(3);
    println!(
        "{:<10} {:<10} {:>10} {:>12} {:>14} {:>12} {:>10}",
        "case", "way", "cpu_ms", "wall_ms", "ns_a_datagram", "out_per_call", "in_per_call"
    );
    for case in [TRANSFER, LOAD] {
        let mut runs = WAYS.map(|_| Vec::new());
        for _ in 0..rounds {
            for (way, runs) in WAYS.into_iter().zip(&mut runs) {
                runs.push(run(case, way));
            }
        }
        for (way, mut runs) in WAYS.into_iter().zip(runs) {
            runs.sort_by_key(Found::nanos_a_datagram);
            if let Some(found) = runs.get(runs.len() / 2) {
                found.print(case, way);
            }
        }
    }
}

/// The amount of data and the number of clients.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    clients: usize,
    /// Measured ticks at 60 Hz, or `None` for a transfer at full speed.
    ticks: u32,
    /// Megabytes sent to one client, one after the other.
    megabytes: u64,
}

const TRANSFER: Case = Case {
    name: "1 MB",
    clients: 1,
    ticks: 0,
    megabytes: 20,
};
const LOAD: Case = Case {
    name: "load1000",
    clients: 1_000,
    ticks: 180,
    megabytes: 0,
};

/// Results of one run.
struct Found {
    cpu: Duration,
    wall: Duration,
    counters: Counters,
}

impl Found {
    /// CPU time per datagram sent or received. On a busy machine, a tick has more messages of each
    /// player.
    fn nanos_a_datagram(&self) -> u128 {
        let datagrams = self.counters.datagrams_in + self.counters.datagrams_out;
        self.cpu.as_nanos() / u128::from(datagrams.max(1))
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn print(&self, case: Case, way: Batching) {
        let counters = &self.counters;
        let of = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        println!(
            "{:<10} {:<10} {:>10.1} {:>12.1} {:>14} {:>12.2} {:>10.2}",
            case.name,
            format!("{way:?}"),
            self.cpu.as_secs_f64() * 1e3,
            self.wall.as_secs_f64() * 1e3,
            self.nanos_a_datagram(),
            of(counters.datagrams_out, counters.send_calls),
            of(counters.datagrams_in, counters.receive_calls),
        );
    }
}

fn run(case: Case, batching: Batching) -> Found {
    let (reported, door) = channel();
    let server: JoinHandle<Found> = thread::spawn(move || serve(case, batching, &reported));
    let (address, key): (SocketAddr, PublicKey) = door.recv().expect("a server");
    let mut pool: Vec<Client> = Vec::new();
    let clock = Clock::new();
    let span = Duration::from_secs(1) / 60;
    let mut next = clock.now();
    while !server.is_finished() {
        // New clients connect more slowly than the endpoint's handshake budget.
        for _ in 0..6 {
            if pool.len() < case.clients {
                pool.push(Client::dial(address, key));
            }
        }
        for client in &mut pool {
            client.turn(case);
        }
        if case.ticks > 0 {
            next += span;
            sleep(next.saturating_since(clock.now()));
        } else {
            sleep(Duration::from_micros(200));
        }
    }
    server.join().expect("it ends")
}

#[expect(clippy::disallowed_methods, reason = "ticks come by the clock")]
fn sleep(span: Duration) {
    thread::sleep(span);
}

/// Serves until the measurement is complete.
fn serve(case: Case, batching: Batching, reported: &Sender<(SocketAddr, PublicKey)>) -> Found {
    let clock = Clock::new();
    let identity = Identity::generate(&mut Ring::new()).expect("entropy");
    let key = *identity.public_key();
    let mut endpoint = Endpoint::new(config(Config::for_server()), APP, Ring::new(), clock.now())
        .expect("entropy");
    let listen = Listen::new(identity, INSTANCE).with_open_mode();
    endpoint.listen(clock.now(), listen).expect("entropy");
    let mut limits = DriverConfig::default();
    limits.datagrams_per_turn = NonZeroUsize::new(65_536).expect("not 0");
    limits.batching = batching;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = UdpSocket::bind(address, &SocketConfig::default()).expect("a port");
    reported
        .send((socket.local_address(), key))
        .expect("a listener");
    let (mut driver, requests) =
        Driver::new(vec![socket], endpoint, Game::default(), limits).expect("descriptors");
    if case.ticks > 0 {
        tick(&mut driver, |game| game.sessions.len() == case.clients);
        let mut left = 60 + case.ticks;
        tick(&mut driver, |_| {
            left -= 1;
            left == case.ticks
        });
        measure(&requests, || {
            tick(&mut driver, |_| {
                left -= 1;
                left == 0
            });
        })
    } else {
        transfer(&mut driver, 1);
        measure(&requests, || transfer(&mut driver, case.megabytes))
    }
}

fn measure(requests: &servicer::Requests<Infallible>, mut work: impl FnMut()) -> Found {
    let (before, began) = (requests.counters(), Clock::new().now());
    let cpu = cpu_time_of(&mut work);
    let mut counters = requests.counters();
    counters.datagrams_in -= before.datagrams_in;
    counters.datagrams_out -= before.datagrams_out;
    counters.receive_calls -= before.receive_calls;
    counters.send_calls -= before.send_calls;
    Found {
        cpu,
        wall: Clock::new().now().saturating_since(began),
        counters,
    }
}

type Server = Driver<Endpoint<Ring>, Game>;

/// Runs 60 ticks per second, with a message to each player, until `is_over`.
fn tick(driver: &mut Server, mut is_over: impl FnMut(&Game) -> bool) {
    let clock = Clock::new();
    let mut next = clock.now();
    while !is_over(driver.application()) {
        next += Duration::from_secs(1) / 60;
        sleep(next.saturating_since(clock.now()));
        driver.act(|now, endpoint, game| {
            for session in &game.sessions {
                endpoint.send(now, *session, UNRELIABLE, &MESSAGE).ok();
            }
        });
        assert!(driver.turn().is_continue());
    }
}

/// Sends the megabytes to the only player. Each starts when the client has confirmed the last.
fn transfer(driver: &mut Server, megabytes: u64) {
    let wanted = driver.application().acknowledged + megabytes;
    let mut sent = driver.application().acknowledged;
    while driver.application().acknowledged < wanted {
        let acknowledged = driver.application().acknowledged;
        if sent == acknowledged && sent < wanted {
            let message = vec![0x5A; MEGABYTE];
            driver.act(|now, endpoint, game| {
                // The client's confirmation may arrive before the last acknowledgements, which free
                // the queue.
                let is_sent = game
                    .sessions
                    .first()
                    .is_some_and(|it| endpoint.send(now, *it, BULK, &message).is_ok());
                sent += u64::from(is_sent);
            });
        }
        assert!(driver.turn().is_continue());
        driver.wait().expect("descriptors");
    }
}

fn config(mut config: Config) -> Config {
    let mut bulk = ChannelConfig::bulk();
    bulk.message_bytes_max = MEGABYTE;
    config.channels = ChannelTable::new(&[
        ChannelConfig::unreliable(),
        ChannelConfig::reliable_ordered(),
        bulk,
    ])
    .expect("a table");
    config
}

/// The sessions, and how many megabytes the clients have confirmed.
#[derive(Default)]
struct Game {
    sessions: Vec<SessionId>,
    message: Vec<u8>,
    acknowledged: u64,
}

impl Application<Endpoint<Ring>> for Game {
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
            Event::Connected { session, .. } => self.sessions.push(session),
            Event::Closed { session, .. } => self.sessions.retain(|open| *open != session),
            Event::Readable { session } => {
                let message = &mut self.message;
                while let Some(channel) = endpoint.receive(now, session, message) {
                    self.acknowledged += u64::from(channel != UNRELIABLE);
                }
            }
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
}

/// A player with its own socket.
struct Client {
    endpoint: Endpoint<Ring>,
    session: SessionId,
    is_open: bool,
    socket: PlainSocket,
    buffer: Vec<u8>,
    message: Vec<u8>,
}

impl Client {
    fn dial(server: SocketAddr, key: PublicKey) -> Self {
        let now = Clock::new().now();
        let socket = PlainSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_nonblocking(true).expect("a socket");
        let mut endpoint =
            Endpoint::new(config(Config::default()), APP, Ring::new(), now).expect("entropy");
        let target = Target {
            addresses: vec![server],
            server: ServerIdentity::Keys(vec![key]),
            credentials: Credentials::Open,
        };
        let session = endpoint.connect(now, target).expect("a target");
        Self {
            endpoint,
            session,
            is_open: false,
            socket,
            buffer: vec![0; 2_048],
            message: Vec::new(),
        }
    }

    /// Runs a frame. In a case with ticks, the player sends a message.
    fn turn(&mut self, case: Case) {
        let now = Clock::new().now();
        while let Ok((len, from)) = self.socket.recv_from(&mut self.buffer) {
            let datagram = self.buffer.get_mut(..len).unwrap_or_default();
            self.endpoint
                .handle_datagram(now, Arrival::from(from), datagram);
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Connected { .. } => self.is_open = true,
                Event::Readable { session } => {
                    let message = &mut self.message;
                    while let Some(channel) = self.endpoint.receive(now, session, message) {
                        if channel == BULK {
                            let answer = ChannelId(1);
                            self.endpoint
                                .send(now, session, answer, b"it came")
                                .expect("room");
                        }
                    }
                }
                Event::MtuChecked { .. } | Event::Settled { .. } | _ => {}
            }
        }
        if self.is_open && case.ticks > 0 {
            self.endpoint
                .send(now, self.session, UNRELIABLE, &MESSAGE)
                .ok();
        }
        self.buffer.clear();
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.buffer) {
            self.socket.send_to(&self.buffer, transmit.destination).ok();
            self.buffer.clear();
        }
        self.buffer.resize(2_048, 0);
    }
}

const MESSAGE: [u8; 100] = [0x5A; 100];
