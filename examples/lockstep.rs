//! A lockstep game over a simulated bad network: one process closes the ticks, one process per
//! player sends inputs, and all of them simulate.
//!
//! ```text
//! lockstep run                                   a server and two players, ten seconds
//! lockstep run --loss 10 --delay 80              10 % loss and 80 ms, each direction
//! lockstep run --desync-at 100                   player 1 diverges at tick 100 and is reported; the
//!                                                exit status is 1
//! lockstep server 127.0.0.1:7777 --players 2     by hand: prints its key
//! lockstep client 127.0.0.1:7777 KEY --seat 0    by hand
//! ```

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::process::{ChildStdout, Command, ExitCode, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::{Args, Parser};
use demo::game::{Bot, Buttons, Game};
use lockstep::{
    ClientConfig, ClientPeer, Config, LeaveReason, MatchServer, PeerId, ServerEvent, TickRate,
};
use tickwire::servicer::Clock;
use tickwire::{AppId, Client, Event, RELIABLE, Server, ServerKey, SessionId, UNRELIABLE};
use tickwire_examples::{ChildGuard, DelayedLink};
use wire::{Arrival, Instant, MatchId, Seat, Seed};

const APP: AppId = AppId(0x6c6f_636b);
const MATCH: MatchId = MatchId([1; 16]);
const SERVER: PeerId = PeerId(0);
/// Polls the network four times per tick.
const LOOKS_HZ: NonZeroU8 = NonZeroU8::MIN.saturating_add(119);

/// Plays a small game in lockstep over encrypted UDP.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
enum Line {
    /// Starts a server and two players as separate processes.
    Run(Options),
    /// Closes the ticks, simulates, and reports players whose state differs.
    Server {
        address: SocketAddr,
        #[command(flatten)]
        options: Options,
    },
    /// Plays one seat.
    Client {
        address: SocketAddr,
        key: ServerKey,
        #[arg(long, value_parser = clap::value_parser!(u16).range(..64))]
        seat: u16,
        #[command(flatten)]
        options: Options,
    },
}

#[derive(Args, Clone, Copy)]
struct Options {
    /// Number of players.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    players: u16,
    /// Ticks to play, 30 a second; at most nine hours.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    ticks: u32,
    /// Loss in percent of datagrams, each direction.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=50))]
    loss: u32,
    /// One-way delay in milliseconds.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(..=10_000))]
    delay: u64,
    /// The tick at which player 1 starts to simulate something else.
    #[arg(long)]
    desync_at: Option<u32>,
}

impl Options {
    const fn delay(self) -> Duration {
        Duration::from_millis(self.delay)
    }
}

fn main() -> ExitCode {
    let outcome = match Line::parse() {
        Line::Run(options) => run(options),
        Line::Server { address, options } => serve(address, options),
        Line::Client {
            address,
            key,
            seat,
            options,
        } => play(address, key, (Seat(seat), options)),
    };
    tickwire_examples::end("lockstep", outcome)
}

/// Starts all processes and shows their output.
fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let mut server = start(&["server", "127.0.0.1:0"], options)?;
    let stdout = server.0.stdout.take().ok_or("the server has no output")?;
    let mut lines = BufReader::new(stdout).lines();
    let first = lines.next().ok_or("the server said nothing")??;
    let (address, key) = first.split_once(' ').ok_or("the server said no key")?;
    let mut players = Vec::new();
    for seat in 0..options.players {
        let option = format!("--seat={seat}");
        let mut player = start(&["client", address, key, &option], options)?;
        let stdout = player.0.stdout.take().ok_or("a player has no output")?;
        players.push((player, show(format!("player {seat}: "), stdout)));
    }
    for line in lines {
        println!("{}", line?);
    }
    let mut are_well = true;
    for (mut player, shown) in players {
        are_well &= player.0.wait()?.success();
        shown
            .join()
            .map_err(|_| "a player's output was not shown")??;
    }
    if server.0.wait()?.success() && are_well {
        Ok(())
    } else {
        Err("the match did not end well".into())
    }
}

/// Shows a process's output. Reading it also keeps the pipe from filling.
fn show(who: String, output: ChildStdout) -> JoinHandle<io::Result<()>> {
    thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            println!("{who}{}", line?);
        }
        Ok(())
    })
}

fn start(role: &[&str], options: Options) -> Result<ChildGuard, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(role).stdout(Stdio::piped());
    command.arg(format!("--players={}", options.players));
    command.arg(format!("--ticks={}", options.ticks));
    command.arg(format!("--loss={}", options.loss));
    command.arg(format!("--delay={}", options.delay));
    if let Some(tick) = options.desync_at {
        command.arg(format!("--desync-at={tick}"));
    }
    Ok(ChildGuard(command.spawn()?))
}

fn serve(address: SocketAddr, options: Options) -> Result<(), Box<dyn Error>> {
    let mut server = Server::bind(address, APP)?;
    println!("{} {}", server.address(), server.key());
    let clock = Clock::new();
    let mut table = Table::new(options, clock.now())?;
    let mut over_at: Option<Instant> = None;
    let mut left_at: Option<Instant> = None;
    while left_at.is_none_or(|at| clock.now() < at) {
        for event in server.wait_tick(LOOKS_HZ)? {
            table.hear(clock.now(), event, &mut server);
        }
        table.advance(clock.now(), &mut server)?;
        if over_at.is_none() && table.ticks.ticks_closed() >= options.ticks + SPARE_TICKS {
            over_at = Some(clock.now());
        }
        // Players receive the last ticks after the server has closed them.
        let is_over = |at| table.is_empty() || clock.now() >= at + FAREWELL + options.delay() * 4;
        if left_at.is_none() && over_at.is_some_and(is_over) {
            server.shutdown();
            left_at = Some(clock.now() + Duration::from_millis(500));
        }
    }
    let scores: Vec<String> = table.game.scores().map(|score| score.to_string()).collect();
    println!(
        "lockstep: {} ticks, coins {}",
        options.ticks,
        scores.join(" : ")
    );
    if table.has_desync {
        return Err("players' states differ".into());
    }
    Ok(())
}

/// The server's match and its sessions.
struct Table {
    ticks: MatchServer<Buttons>,
    game: Game,
    players: BTreeMap<SessionId, Seat>,
    /// Seats which have left the match and may still have a session.
    left: BTreeSet<Seat>,
    has_desync: bool,
}

impl Table {
    fn new(options: Options, now: Instant) -> Result<Self, Box<dyn Error>> {
        let mut config = Config::default();
        config.seats = options.players;
        config.tick_rate = TickRate::new(30).unwrap_or(TickRate::DEFAULT);
        Ok(Self {
            ticks: MatchServer::new(config, MATCH, Seed::from_number(2), now)?,
            game: Game::new(Seed::from_number(1), options.players),
            players: BTreeMap::new(),
            left: BTreeSet::new(),
            has_desync: false,
        })
    }

    fn hear(&mut self, now: Instant, event: Event, server: &mut Server) {
        match event {
            // The first message names the seat. A real game would prove it by a token.
            Event::Message {
                session,
                channel: RELIABLE,
                bytes,
            } => {
                if !self.seat(now, session, &bytes) {
                    // Without a seat the session ends, not the match. If it has already ended,
                    // there is nothing to do.
                    server.disconnect(session).ok();
                    self.empty(now, session);
                }
            }
            Event::Message {
                session, mut bytes, ..
            } => {
                if let Some(seat) = self.players.get(&session) {
                    let from = Arrival::from(PeerId(seat.0.into()));
                    self.ticks.handle_datagram(now, from, &mut bytes);
                }
            }
            Event::Disconnected { session, .. } => self.empty(now, session),
            Event::Connected { .. } | Event::Unreachable { .. } | Event::Settled { .. } | _ => {}
        }
    }

    /// Returns whether no player is left.
    fn is_empty(&self) -> bool {
        self.players.values().all(|seat| self.left.contains(seat))
    }

    /// Frees the seat of a session, if it has one.
    fn empty(&mut self, now: Instant, session: SessionId) {
        if let Some(seat) = self.players.remove(&session) {
            self.ticks.leave(now, PeerId(seat.0.into()));
        }
    }

    /// Assigns the requested seat to a session. Returns false if it is not available.
    fn seat(&mut self, now: Instant, session: SessionId, message: &[u8]) -> bool {
        let &[seat] = message else {
            return false;
        };
        let seat = Seat(seat.into());
        let is_seated = !self.players.contains_key(&session)
            && self.ticks.join(now, PeerId(seat.0.into()), seat).is_ok();
        if is_seated {
            self.players.insert(session, seat);
        }
        is_seated
    }

    fn advance(&mut self, now: Instant, server: &mut Server) -> Result<(), Box<dyn Error>> {
        self.ticks.handle_timeout(now);
        while let Some(turn) = self.ticks.poll_turn() {
            let tick = turn.tick();
            let inputs = turn.inputs().map(|(seat, buttons, _)| (seat, buttons));
            self.game.step(inputs);
            let hash = self.game.hash(MATCH);
            self.ticks.report(tick, hash)?;
            if tick.0.is_multiple_of(30) {
                println!("tick {:>4}  hash {hash:016x}", tick.0);
            }
        }
        let mut datagram = Vec::new();
        while let Some(transmit) = self.ticks.poll_transmit(now, &mut datagram) {
            let mut players = self.players.iter();
            let to = players.find(|(_, seat)| u32::from(seat.0) == transmit.destination.0);
            if let Some((session, _)) = to {
                // If the session has ended, an event reports that.
                server.send(*session, UNRELIABLE, &datagram).ok();
            }
            datagram.clear();
        }
        while let Some(event) = self.ticks.poll_event() {
            match event {
                ServerEvent::Desync { tick, seats, .. } => {
                    self.has_desync = true;
                    let names: Vec<String> = seats.iter().map(ToString::to_string).collect();
                    let names = names.join(" and ");
                    println!("desync: player {names} differs from tick {tick} on");
                }
                ServerEvent::Left { seat, .. } => {
                    self.left.insert(seat);
                }
                ServerEvent::Ready { .. }
                | ServerEvent::Started
                | ServerEvent::Silent { .. }
                | _ => {}
            }
        }
        Ok(())
    }
}

fn play(
    address: SocketAddr,
    key: ServerKey,
    (seat, options): (Seat, Options),
) -> Result<(), Box<dyn Error>> {
    let clock = Clock::new();
    let mut connection = Client::connect(address, APP, key)?;
    let seed = Seed::from_number(3).generator(seat.0.into()).seed();
    let mut client = ClientPeer::<Buttons>::new(ClientConfig::default(), SERVER, seed, clock.now());
    let mut game = Game::new(Seed::from_number(1), options.players);
    let mut bot = Bot::new(Seed::from_number(1), seat);
    let link = |number| DelayedLink::new(options.delay(), options.loss, seed.generator(number));
    let (mut up, mut down) = (link(1), link(2));
    let mut ticks_played = 0;
    loop {
        for event in connection.wait_tick(LOOKS_HZ)? {
            match event {
                Event::Connected { .. } => {
                    let [.., low] = seat.0.to_be_bytes();
                    connection.send(RELIABLE, &[low])?;
                }
                Event::Message { bytes, .. } => down.send(clock.now(), &bytes),
                Event::Unreachable { failure } => return Err(failure.to_string().into()),
                Event::Disconnected { .. } if ticks_played >= options.ticks => return Ok(()),
                Event::Disconnected { reason, .. } => {
                    let last = options.ticks;
                    return Err(
                        format!("player {seat} was let go before tick {last}: {reason}").into(),
                    );
                }
                Event::Settled { .. } | _ => {}
            }
        }
        let now = clock.now();
        while let Some(mut datagram) = down.recv(now) {
            client.handle_datagram(now, Arrival::from(SERVER), &mut datagram);
        }
        client.handle_timeout(now);
        while let Some(turn) = client.poll_turn(now) {
            let tick = turn.tick();
            game.step(turn.inputs().map(|(seat, buttons, _)| (seat, buttons)));
            if options.desync_at == Some(tick.0) && seat == Seat(1) {
                game.disturb(seat);
            }
            let hash = game.hash(MATCH);
            client.report(tick, hash)?;
            if tick.0.is_multiple_of(30) {
                println!("tick {:>4}  hash {hash:016x}", tick.0);
            }
            // Fails only if the match is over.
            client.submit(now, &bot.press(&game)).ok();
            ticks_played = tick.0 + 1;
            if ticks_played == options.ticks + SPARE_TICKS {
                client.leave(now, LeaveReason::Finished);
            }
        }
        let mut datagram = Vec::new();
        while client.poll_transmit(now, &mut datagram).is_some() {
            up.send(now, &datagram);
            datagram.clear();
        }
        while let Some(datagram) = up.recv(now) {
            // Fails until the session is open.
            connection.send(UNRELIABLE, &datagram).ok();
        }
    }
}

/// Extra ticks after the last, in which its state hashes are compared.
const SPARE_TICKS: u32 = 30;
/// How long the server waits for players to finish, in addition to the network delay.
const FAREWELL: Duration = Duration::from_secs(5);
