//! A mesh of an entry, two relays and an exit carries a game that knows nothing of it.
//!
//! ```text
//! mesh demo                 starts four nodes as processes of their own, a game server and a
//!                           player; kills the relay in use, and shows that the game lives on
//! mesh node --config FILE   is one node, until its stdin ends
//! ```

#![expect(clippy::print_stdout, reason = "a program for people to watch")]
#![expect(clippy::disallowed_methods, reason = "it measures round trips")]

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{FileGame, FileMode, FileRole, News, NodeName};

/// Carries game traffic over relays.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
enum Role {
    /// Starts a mesh on this machine, kills a relay, and shows what a player notices.
    Demo,
    /// Is one node, until its stdin ends.
    Node {
        /// Its configuration, JSON.
        #[arg(long)]
        config: PathBuf,
    },
}

fn main() -> ExitCode {
    match Role::parse() {
        Role::Node { config } => daemon::relay::main(&config, daemon::relay::Ending::WithInput),
        Role::Demo => match Show::start().and_then(Show::run) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("mesh: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

/// The nodes, the player, and what is known of the way between them.
struct Show {
    /// Behind the nodes in life: it holds their files.
    nodes: Vec<NodeProcess>,
    sandbox: Sandbox,
    player: Player,
    /// The relays in use; `None` before the first route.
    route: Option<Vec<NodeName>>,
}

impl Show {
    /// Starts four processes and a game server.
    fn start() -> io::Result<Self> {
        let mut sandbox = Sandbox::new(&NODES)?;
        sandbox.link(ENTRY, EXIT, DIRECT_MS);
        for (relay, each_ms) in RELAYS {
            sandbox.link(ENTRY, relay, each_ms);
            sandbox.link(relay, EXIT, each_ms);
        }
        let server = echo(SocketAddr::new(sandbox.host(5), 0))?;
        let entry = SocketAddr::new(sandbox.host(1), GAME_PORT);
        carry(&mut sandbox, entry, server);
        let mut nodes = Vec::new();
        for (node, (name, _)) in NODES.iter().enumerate() {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["node", "--config"]);
            let process = sandbox.start(node, command)?;
            println!("started {name:7} as process {}", process.id());
            nodes.push(process);
        }
        let player = Player::new(SocketAddr::new(sandbox.host(6), 0), entry)?;
        Ok(Self {
            nodes,
            sandbox,
            player,
            route: None,
        })
    }

    /// Plays; says whether the game lived on as it should.
    fn run(mut self) -> io::Result<bool> {
        println!("the direct way takes {DIRECT_RTT:?} there and back");
        let began = Instant::now();
        while self.relay_in_use().is_none() && began.elapsed() < PATIENCE {
            self.play(SECOND)?;
        }
        let before = self.play_seconds(BEFORE_SECONDS)?;
        let Some(dead) = self.relay_in_use() else {
            println!("summary: BAD, there was no route over a relay");
            return Ok(false);
        };
        if let Some(process) = self.nodes.get_mut(dead) {
            process.kill()?;
        }
        println!("killed {}, the relay in use", name_of(dead));
        let after = self.play_seconds(AFTER_SECONDS)?;
        let is_rerouted = self.relay_in_use().is_some_and(|relay| relay != dead);
        let is_good = is_rerouted
            && [&before, &after]
                .iter()
                .all(|tally| tally.median().is_some_and(|rtt| rtt < DIRECT_RTT))
            && after.longest_silence <= SILENCE_MAX;
        println!(
            "summary: {}; over {}: RTT {}; killed; over {}: RTT {}; longest silence \
             {:.1?} (at most {SILENCE_MAX:?}), {} of {} answered",
            if is_good { "good" } else { "BAD" },
            name_of(dead),
            millis(before.median()),
            self.route_text(),
            millis(after.median()),
            after.longest_silence,
            after.round_trips.len(),
            after.asked,
        );
        Ok(is_good)
    }

    /// Plays for `seconds` and prints each of them.
    fn play_seconds(&mut self, seconds: u32) -> io::Result<Tally> {
        let mut whole = Tally::default();
        for _ in 0..seconds {
            whole.add(self.play(SECOND)?);
        }
        Ok(whole)
    }

    /// Plays for `span`, and prints how it went.
    fn play(&mut self, span: Duration) -> io::Result<Tally> {
        let tally = self.player.play(span)?;
        let news = self.nodes.iter().take(1).flat_map(NodeProcess::heard);
        let routes = news.filter_map(|news| {
            if let News::Route { relays, cause, .. } = news {
                Some((relays, cause))
            } else {
                None
            }
        });
        for (relays, cause) in routes.collect::<Vec<_>>() {
            self.route = Some(relays);
            println!("  route: {} ({cause:?})", self.route_text());
        }
        println!(
            "{:5.1} s  by {:22}  RTT {:>8}  {:3} of {:3} answered, longest silence {:.1?}",
            self.player.began.elapsed().as_secs_f32(),
            self.route_text(),
            millis(tally.median()),
            tally.round_trips.len(),
            tally.asked,
            tally.longest_silence,
        );
        Ok(tally)
    }

    /// The relay that packets pass, by its place in [`NODES`].
    fn relay_in_use(&self) -> Option<usize> {
        let relays = self.route.as_deref()?;
        let ids = RELAYS.map(|(relay, _)| relay);
        ids.into_iter().find(|relay| {
            let id = self.sandbox.id(*relay);
            relays.iter().any(|hop| Some(*hop) == id)
        })
    }

    fn route_text(&self) -> String {
        let Some(relays) = &self.route else {
            return "no way yet".to_owned();
        };
        if relays.is_empty() {
            return "the direct way".to_owned();
        }
        let names = relays.iter().filter_map(|relay| self.sandbox.name(*relay));
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Lets players in at `entry` and hands their packets to `server`.
fn carry(sandbox: &mut Sandbox, entry: SocketAddr, server: SocketAddr) {
    let game = FileGame {
        name: "echo".to_owned(),
        mode: FileMode::Shadow,
        listen: Vec::new(),
        exits: sandbox.id(EXIT).into_iter().collect(),
        server: None,
        entries: None,
        proxy_header: None,
    };
    if let Some(config) = sandbox.config_mut(ENTRY) {
        config.games.push(FileGame {
            listen: vec![entry],
            ..game.clone()
        });
    }
    if let Some(config) = sandbox.config_mut(EXIT) {
        config.games.push(FileGame {
            server: Some(server),
            exits: Vec::new(),
            ..game
        });
    }
}

/// Starts a game server that sends back what it hears.
fn echo(address: SocketAddr) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind(address)?;
    let address = socket.local_addr()?;
    thread::spawn(move || {
        let mut bytes = [0; 2_048];
        loop {
            // A player that has gone is no reason to stop.
            if let Ok((len, from)) = socket.recv_from(&mut bytes) {
                socket
                    .send_to(bytes.get(..len).unwrap_or_default(), from)
                    .ok();
            }
        }
    });
    Ok(address)
}

/// Sends 50 numbers a second, and measures how long each takes to come back.
struct Player {
    socket: UdpSocket,
    began: Instant,
    asked_at: BTreeMap<u64, Instant>,
    next: u64,
    next_at: Instant,
    heard_at: Instant,
}

impl Player {
    fn new(address: SocketAddr, entry: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.connect(entry)?;
        let now = Instant::now();
        Ok(Self {
            socket,
            began: now,
            asked_at: BTreeMap::new(),
            next: 0,
            next_at: now,
            heard_at: now,
        })
    }

    fn play(&mut self, span: Duration) -> io::Result<Tally> {
        let mut tally = Tally::default();
        let end = Instant::now() + span;
        while Instant::now() < end {
            if Instant::now() >= self.next_at {
                self.next_at += TICK;
                self.asked_at.insert(self.next, Instant::now());
                // Before the entry listens, the system refuses.
                self.socket.send(&self.next.to_be_bytes()).ok();
                self.next += 1;
                tally.asked += 1;
            }
            let left = self.next_at.saturating_duration_since(Instant::now());
            self.socket
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut number = [0; 8];
            if !matches!(self.socket.recv(&mut number), Ok(8)) {
                continue;
            }
            let now = Instant::now();
            if let Some(asked_at) = self.asked_at.remove(&u64::from_be_bytes(number)) {
                tally.round_trips.push(now - asked_at);
                tally.longest_silence = tally.longest_silence.max(now - self.heard_at);
                self.heard_at = now;
            }
        }
        tally.longest_silence = tally.longest_silence.max(self.heard_at.elapsed());
        Ok(tally)
    }
}

/// How it went.
#[derive(Default)]
struct Tally {
    asked: u64,
    round_trips: Vec<Duration>,
    longest_silence: Duration,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.round_trips.extend(other.round_trips);
        self.longest_silence = self.longest_silence.max(other.longest_silence);
    }

    /// The round trip that half of them stay under.
    fn median(&self) -> Option<Duration> {
        let mut sorted = self.round_trips.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

/// Milliseconds, as people read them.
fn millis(span: Option<Duration>) -> String {
    span.map_or_else(
        || "none".to_owned(),
        |span| format!("{:.1} ms", span.as_secs_f64() * 1e3),
    )
}

fn name_of(node: usize) -> &'static str {
    NODES.get(node).map_or("a node", |(name, _)| name)
}

/// All nodes; what follows are places in this.
const NODES: [(&str, FileRole); 4] = [
    ("entry", FileRole::Entry),
    ("relay-1", FileRole::Relay),
    ("relay-2", FileRole::Relay),
    ("exit", FileRole::Exit),
];
const ENTRY: usize = 0;
const EXIT: usize = 3;
/// The relays, and how far each is from entry and exit, milliseconds.
const RELAYS: [(usize, u64); 2] = [(1, 15), (2, 20)];
const DIRECT_MS: u64 = 80;
const DIRECT_RTT: Duration = Duration::from_millis(2 * DIRECT_MS);
/// Where players come in.
const GAME_PORT: u16 = 7_777;
/// 50 packets a second.
const TICK: Duration = Duration::from_millis(20);
const SECOND: Duration = Duration::from_secs(1);
/// How long the mesh may take to find a way over a relay.
const PATIENCE: Duration = Duration::from_secs(20);
const BEFORE_SECONDS: u32 = 5;
const AFTER_SECONDS: u32 = 6;
/// How long a player may hear nothing when a relay dies.
const SILENCE_MAX: Duration = Duration::from_secs(1);
