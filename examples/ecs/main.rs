//! The fixed loop for a game on an ECS without an engine: a server and two players in memory, over
//! a network with loss and delay, with rollback.
//!
//! ```text
//! ecs run                  ten seconds; all states are equal
//! ecs run --loss 20        the same, with longer rollbacks
//! ecs run --unsorted       the players visit entities as the ECS stores them: after a rollback a
//!                          player's state differs, and the server reports the first such tick; the
//!                          exit status is 1
//! ```
//!
//! `arena.rs` is the game. This file is the loop: it runs at 144 frames per second, the match at 60
//! ticks per second, and each frame runs the ticks that are due.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

mod arena;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use lockstep::{ClientConfig, ClientPeer, Config, MatchServer, PeerId, Rollback, ServerEvent};
use tickwire_examples::DelayedLink;
use wire::{Arrival, Generator, Instant, MatchId, Seat, Seed};

use arena::{Arena, Order};

const MATCH: MatchId = MatchId([7; 16]);
const SERVER: PeerId = PeerId(9_999);
/// Delay of the network, each direction.
const DELAY: Duration = Duration::from_millis(40);
/// Length of a frame at 144 per second. A program with a screen waits for vsync and reads a clock.
const FRAME: Duration = Duration::from_nanos(6_944_444);

/// Plays a small game on an ECS with rollback.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
enum Line {
    /// Plays a match in memory and compares all states.
    Run(Options),
}

#[derive(Args, Clone, Copy)]
struct Options {
    /// Ticks to play, 60 a second.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    ticks: u32,
    /// Loss in percent of datagrams, each direction.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=50))]
    loss: u32,
    /// The players visit entities in the order of the store.
    #[arg(long)]
    unsorted: bool,
}

fn main() -> ExitCode {
    let Line::Run(options) = Line::parse();
    tickwire_examples::end("ecs", run(options))
}

fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let mut now = Instant::ZERO;
    let mut server = Server::new(now)?;
    let mut players = [0, 1].map(|seat| Player::new(Seat(seat), options, now));
    for seat in [0, 1] {
        server
            .ticks
            .join(now, PeerId(seat), Seat(u16::try_from(seat)?))?;
    }
    let is_done = |player: &Player| player.game.steps().ticks_confirmed() >= options.ticks;
    // Three times the normal duration: a timeout for a match that hangs.
    let end = now + Duration::from_millis(50) * options.ticks + Duration::from_secs(5);
    while !players.iter().all(is_done) {
        if now > end {
            return Err("the match did not end".into());
        }
        now += FRAME;
        for player in &mut players {
            player.frame(now);
        }
        server.frame(now, &mut players)?;
    }
    // A confirmed tick was simulated in the frame in which its turn arrived.
    let last = options.ticks - 1;
    let server_hash = server.game.hash_after(last).ok_or("the server is behind")?;
    println!("tick {last}  server    hash {server_hash:016x}");
    for player in &mut players {
        player.frame(now + FRAME);
        let hash = player.game.game().hash_after(last);
        let hash = hash.ok_or("a player is behind")?;
        println!("tick {last}  player {}  hash {hash:016x}", player.seat.0);
        if hash != server_hash {
            return Err("states differ".into());
        }
    }
    let scores: Vec<_> = server.game.scores().iter().map(u32::to_string).collect();
    println!(
        "ecs: {} ticks, {}, all agree",
        options.ticks,
        scores.join(" : ")
    );
    Ok(())
}

/// Closes the ticks and simulates each one.
struct Server {
    ticks: MatchServer<u16>,
    game: Arena,
}

impl Server {
    fn new(now: Instant) -> Result<Self, Box<dyn Error>> {
        let mut config = Config::default();
        config.seats = 2;
        Ok(Self {
            ticks: MatchServer::new(config, MATCH, Seed::from_number(1), now)?,
            game: Arena::new(MATCH, Order::ById),
        })
    }

    fn frame(&mut self, now: Instant, players: &mut [Player; 2]) -> Result<(), Box<dyn Error>> {
        for (peer, player) in (0..).map(PeerId).zip(players.iter_mut()) {
            while let Some(mut datagram) = player.up.recv(now) {
                let arrival = Arrival::from(peer);
                self.ticks.handle_datagram(now, arrival, &mut datagram);
            }
        }
        self.ticks.handle_timeout(now);
        while let Some(turn) = self.ticks.poll_turn() {
            lockstep::Sim::step(&mut self.game, &turn);
            let tick = turn.tick();
            self.ticks.report_state(tick, &self.game.hashed())?;
        }
        let mut datagram = Vec::new();
        while let Some(transmit) = self.ticks.poll_transmit(now, &mut datagram) {
            let index = usize::try_from(transmit.destination.0)?;
            if let Some(player) = players.get_mut(index) {
                player.down.send(now, &datagram);
            }
            datagram.clear();
        }
        while let Some(event) = self.ticks.poll_event() {
            if let ServerEvent::Divergence {
                seat,
                tick,
                section,
                ..
            } = event
            {
                let section = section.map_or_else(
                    || "a section unknown".to_owned(),
                    |section| format!("section \"{}\"", section.name),
                );
                let (seat, tick) = (seat.0, tick.0);
                let reported = format!("player {seat} differs from tick {tick} on, in {section}");
                return Err(reported.into());
            }
        }
        Ok(())
    }
}

/// Predicts ahead of the server and rolls back when the prediction was wrong.
struct Player {
    seat: Seat,
    game: Rollback<Arena, ClientPeer<u16>>,
    /// Generates the inputs.
    bot: Generator,
    buttons: u16,
    up: DelayedLink,
    down: DelayedLink,
}

impl Player {
    fn new(seat: Seat, options: Options, now: Instant) -> Self {
        let mut seeds = Seed::from_number(2).generator(seat.0.into());
        let mut config = ClientConfig::default();
        // Local inputs take effect at once: the window exceeds the input delay of 6, which covers
        // the round trip.
        config.window = 8;
        let order = if options.unsorted {
            Order::AsStored
        } else {
            Order::ById
        };
        let client = ClientPeer::new(config, SERVER, seeds.seed(), now);
        let link = |seed: Seed| DelayedLink::new(DELAY, options.loss, seed.generator(0));
        Self {
            seat,
            game: Rollback::new(Arena::new(MATCH, order), client),
            bot: seeds.seed().generator(0),
            buttons: 0,
            up: link(seeds.seed()),
            down: link(seeds.seed()),
        }
    }

    /// Runs one frame, without drawing.
    fn frame(&mut self, now: Instant) {
        let steps = self.game.steps_mut();
        while let Some(mut datagram) = self.down.recv(now) {
            steps.handle_datagram(now, Arrival::from(SERVER), &mut datagram);
        }
        if self.bot.below(12) == 0 {
            self.buttons ^= 1 << self.bot.below(5);
        }
        // Fails until the server has admitted this player. If several inputs precede a tick, the
        // last counts.
        steps.submit(now, &self.buttons).ok();
        steps.handle_timeout(now);
        self.game.run(now);
        let steps = self.game.steps_mut();
        let mut datagram = Vec::new();
        while steps.poll_transmit(now, &mut datagram).is_some() {
            self.up.send(now, &datagram);
            datagram.clear();
        }
        while steps.poll_event().is_some() {}
    }
}
