//! A match of bots in memory, recorded by its server and by a player.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use demo::game::{Bot, Buttons, Game};
use lockstep::replay::{ReplayConfig, ReplayWriter};
use lockstep::{ClientConfig, ClientPeer, Config, MatchServer, PeerId, TickRate};
use tickwire::crypto::{Identity, Provider, Ring};
use tickwire_examples::DelayedLink;
use wire::{Arrival, Instant, MatchId, Seat, Seed};

use crate::GAME;

const MATCH: MatchId = MatchId([1; 16]);
const SERVER: PeerId = PeerId(9_999);
/// Ticks between signatures: ten seconds.
const SIGN_INTERVAL: u32 = 300;

#[derive(Args)]
pub(crate) struct Options {
    /// Number of players.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=16))]
    players: u16,
    /// Ticks to play, 30 a second; at most nine hours.
    #[arg(long, default_value_t = 1_800, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    ticks: u32,
    /// Loss in percent of datagrams, each direction.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=50))]
    loss: u32,
    /// Seed of the coins and the bots.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ticks between keyframes.
    #[arg(long, default_value_t = 300)]
    keyframes: u32,
    /// The tick at which the server's state is corrupted, as by faulty hardware.
    #[arg(long)]
    disturb_at: Option<u32>,
}

/// Plays a match and writes the server's recording.
pub(crate) fn run(path: &Path, options: &Options) -> Result<(), Box<dyn Error>> {
    let mut table = Table::new(options)?;
    while table.server.next < options.ticks || table.guest.next < options.ticks {
        table.advance(options)?;
    }
    let (server, guest) = (table.server, table.guest);
    let mut file = server.file;
    let head = server.writer.finish(&mut file);
    // A player's recording has the same hash chain as the server's.
    if guest.writer.head() != head {
        return Err("a player recorded another match".into());
    }
    fs::write(path, &file).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("key {}", table.identity.public_key());
    println!(
        "recorded: {} ticks, {} bytes, coins {}",
        head.ticks,
        file.len(),
        crate::scores(&server.game)
    );
    Ok(())
}

/// The match: a server, its players, and the network.
struct Table {
    now: Instant,
    ticks: MatchServer<Buttons>,
    players: Vec<Player>,
    /// The server's recording.
    server: Recording,
    /// The recording of the player in seat 0.
    guest: Recording,
    identity: Identity,
    provider: Ring,
    signing: <Ring as Provider>::SigningKey,
}

struct Player {
    client: ClientPeer<Buttons>,
    bot: Bot,
    game: Game,
    up: DelayedLink,
    down: DelayedLink,
}

impl Table {
    fn new(options: &Options) -> Result<Self, Box<dyn Error>> {
        let now = Instant::ZERO;
        let seed = Seed::from_number(options.seed);
        let mut config = Config::default();
        config.seats = options.players;
        config.tick_rate = TickRate::new(30).unwrap_or(TickRate::DEFAULT);
        let mut ticks = MatchServer::new(config, MATCH, seed.generator(1).seed(), now)?;
        let mut players = Vec::new();
        for seat in (0..options.players).map(Seat) {
            ticks.join(now, PeerId(seat.0.into()), seat)?;
            let mut seeds = seed.generator(2 + u64::from(seat.0));
            let link = |seed: Seed| DelayedLink::new(DELAY, options.loss, seed.generator(0));
            players.push(Player {
                client: ClientPeer::new(ClientConfig::default(), SERVER, seeds.seed(), now),
                bot: Bot::new(seed, seat),
                game: Game::new(seed, options.players),
                up: link(seeds.seed()),
                down: link(seeds.seed()),
            });
        }
        let mut provider = Ring::new();
        let identity = Identity::generate(&mut provider)?;
        Ok(Self {
            now,
            ticks,
            players,
            server: Recording::new(options)?,
            guest: Recording::new(options)?,
            signing: provider.signing_key(&identity)?,
            identity,
            provider,
        })
    }

    /// Advances the time by five milliseconds.
    fn advance(&mut self, options: &Options) -> Result<(), Box<dyn Error>> {
        self.now += Duration::from_millis(5);
        let now = self.now;
        self.ticks.handle_timeout(now);
        let mut datagram = Vec::new();
        while let Some(transmit) = self.ticks.poll_transmit(now, &mut datagram) {
            let index = usize::try_from(transmit.destination.0)?;
            if let Some(player) = self.players.get_mut(index) {
                player.down.send(now, &datagram);
            }
            datagram.clear();
        }
        for (peer, player) in (0..).map(PeerId).zip(&mut self.players) {
            let guest = (peer == PeerId(0)).then_some(&mut self.guest);
            player.advance(now, guest, options)?;
            while let Some(mut datagram) = player.up.recv(now) {
                self.ticks
                    .handle_datagram(now, Arrival::from(peer), &mut datagram);
            }
        }
        while let Some(turn) = self.ticks.poll_turn() {
            let tick = turn.tick().0;
            if tick >= options.ticks {
                continue;
            }
            self.server.take(&turn, options.disturb_at)?;
            let is_last = tick + 1 == options.ticks;
            if is_last || (tick + 1).is_multiple_of(SIGN_INTERVAL) {
                let head = self.server.writer.head();
                let signature = self.provider.sign(&self.signing, &head.to_bytes())?;
                self.server.writer.seal(&signature, &mut self.server.file)?;
            }
        }
        while self.ticks.poll_event().is_some() {}
        Ok(())
    }
}

impl Player {
    fn advance(
        &mut self,
        now: Instant,
        mut recording: Option<&mut Recording>,
        options: &Options,
    ) -> Result<(), Box<dyn Error>> {
        while let Some(mut datagram) = self.down.recv(now) {
            self.client
                .handle_datagram(now, Arrival::from(SERVER), &mut datagram);
        }
        self.client.handle_timeout(now);
        while let Some(turn) = self.client.poll_turn(now) {
            lockstep::Sim::step(&mut self.game, &turn);
            match &mut recording {
                Some(recording) if turn.tick().0 < options.ticks => recording.take(&turn, None)?,
                Some(_) | None => {}
            }
            // Fails only if the match is over.
            self.client.submit(now, &self.bot.press(&self.game)).ok();
        }
        let mut datagram = Vec::new();
        while self.client.poll_transmit(now, &mut datagram).is_some() {
            self.up.send(now, &datagram);
            datagram.clear();
        }
        while self.client.poll_event().is_some() {}
        Ok(())
    }
}

/// A growing replay file, and the game that computes its hashes.
struct Recording {
    writer: ReplayWriter<Buttons>,
    file: Vec<u8>,
    game: Game,
    next: u32,
}

impl Recording {
    fn new(options: &Options) -> Result<Self, Box<dyn Error>> {
        let mut config = ReplayConfig::new(MATCH, options.players);
        config.tick_rate = TickRate::new(30).unwrap_or(TickRate::DEFAULT);
        config.game = GAME.to_vec();
        config.seed = options.seed.to_be_bytes().to_vec();
        config.keyframe_interval = options.keyframes;
        let mut file = Vec::new();
        Ok(Self {
            writer: ReplayWriter::new(config, &mut file)?,
            file,
            game: Game::new(Seed::from_number(options.seed), options.players),
            next: 0,
        })
    }

    fn take(
        &mut self,
        turn: &lockstep::Turn<'_, Buttons>,
        disturb_at: Option<u32>,
    ) -> Result<(), Box<dyn Error>> {
        if self.writer.needs_keyframe() {
            self.writer.keyframe(&self.game, &mut self.file)?;
        }
        lockstep::Sim::step(&mut self.game, turn);
        if disturb_at == Some(turn.tick().0) {
            self.game.disturb(Seat(0));
        }
        let hash = || self.game.hash(MATCH);
        self.writer.turn(turn, hash, &mut self.file)?;
        self.next = turn.tick().0 + 1;
        Ok(())
    }
}

/// Delay of the network, each direction.
const DELAY: Duration = Duration::from_millis(40);
