//! A mesh of an entry, two relays and an exit which carries unmodified games.
//!
//! ```text
//! mesh demo                 starts five nodes as separate processes, of which four know only the
//! fifth; an admin signs the list of games, one over UDP and one over TCP (HTTP); a player plays
//! and a client downloads; the relay in use is killed, and both continue mesh demo --own-entry
//! the same with the entry inside the game's own process mesh bulk --mib 1024      sends this much
//! in each direction through one TCP connection, and measures; `--relays 3` uses three relays,
//! `--relays 0` the direct path; `--delay-ms 6` sets the delay between entry and exit mesh mass
//! --flows 10000   has this many players join at once when entry and exit reach each other only
//! over a relay, and measures until all are served mesh soak                 random faults under
//! load: how long players wait for service mesh node --config FILE   runs one node until its stdin
//! ends
//! ```

#![expect(clippy::print_stdout, reason = "a program for people to watch")]
#![expect(clippy::disallowed_methods, reason = "it measures round trips")]

mod admin;
mod bulk;
mod download;
mod mass;
mod own_entry;
mod player;
mod soak;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{self, Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{FileRole, NodeName, ProcessEvent};

use download::Download;
use own_entry::OwnEntry;
use player::{Player, Tally, millis};

/// Carries game traffic over relays.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
enum Role {
    /// Starts a mesh on this machine, kills a relay, and shows the effect on a player.
    Demo {
        /// Runs the entry inside the game's process.
        #[arg(long)]
        own_entry: bool,
    },
    /// Sends data through one TCP connection in both directions, and measures.
    Bulk(bulk::Options),
    /// Has many players join at once over a relay, and measures until all are served.
    Mass(mass::Options),
    /// Injects random faults under load, and measures how long players wait for service.
    Soak(soak::Options),
    /// Runs the program `tickwire`: the admin's key and documents.
    #[command(hide = true)]
    Tickwire {
        #[command(subcommand)]
        command: daemon::command::Command,
    },
    /// Runs one node until its stdin ends.
    Node {
        /// The node's configuration, JSON.
        #[arg(long)]
        config: PathBuf,
    },
}

fn main() -> ExitCode {
    match Role::parse() {
        Role::Node { config } => daemon::relay::main(&config, daemon::relay::StopOn::StdinClosed),
        Role::Tickwire { command } => command.run(),
        Role::Demo { own_entry } => {
            let entry = if own_entry {
                Entry::Within
            } else {
                Entry::Beside
            };
            code(Show::start(entry).and_then(Show::run))
        }
        Role::Mass(options) => code(mass::run(&options)),
        Role::Soak(options) => code(soak::run(&options)),
        Role::Bulk(options) => code(bulk::run(&options)),
    }
}

fn code(outcome: io::Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mesh: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Where the entry runs.
#[derive(Clone, Copy)]
enum Entry {
    /// In a separate process.
    Beside,
    /// In the game's process.
    Within,
}

/// The nodes, the player, and the known path between them.
struct Show {
    /// Processes by index in [`NODES`].
    nodes: BTreeMap<usize, NodeProcess>,
    /// The entry, if it runs in this process.
    own: Option<OwnEntry>,
    /// Declared after `nodes`, so that it is dropped later: it holds their files.
    sandbox: Sandbox,
    player: Player,
    /// Entry address for the web server's clients.
    web: SocketAddr,
    download: Option<Download>,
    /// The relays in use; `None` before the first route.
    route: Option<Vec<NodeName>>,
}

impl Show {
    /// Starts the processes and game servers, and publishes the signed list of games.
    fn start(entry: Entry) -> io::Result<Self> {
        let mut sandbox = Sandbox::new(&NODES)?;
        sandbox.link(ENTRY, EXIT, DIRECT_MS);
        for (relay, each_ms) in RELAYS {
            sandbox.link(ENTRY, relay, each_ms);
            sandbox.link(relay, EXIT, each_ms);
        }
        let [(one, _), (other, _)] = RELAYS;
        sandbox.link(one, other, BETWEEN_MS);
        for node in 0..BOOTSTRAP {
            sandbox.link(node, BOOTSTRAP, DIRECT_MS);
        }
        let echo = player::echo(SocketAddr::new(sandbox.host(6), 0))?;
        let map = download::serve(SocketAddr::new(sandbox.host(6), 0))?;
        let admins = admin::found(&mut sandbox, NODES.len(), Some(BOOTSTRAP))?;
        let mut nodes = BTreeMap::new();
        let own = match entry {
            Entry::Beside => None,
            Entry::Within => Some(OwnEntry::start(&sandbox, ENTRY)?),
        };
        for (node, (name, _)) in NODES.iter().enumerate() {
            if node == ENTRY && own.is_some() {
                println!(
                    "started {name:9} in the game's own process, {}",
                    process::id()
                );
                continue;
            }
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["node", "--config"]);
            let process = sandbox.start(node, command)?;
            println!("started {name:9} as process {}", process.id());
            nodes.insert(node, process);
        }
        let games = [
            admin::game("echo", "udp", (GAME_PORT, echo)),
            admin::game("map", "tcp", (WEB_PORT, map)),
        ];
        let is_ready = |news| matches!(news, ProcessEvent::AdminReady { .. }).then_some(());
        let ready = nodes
            .get(&BOOTSTRAP)
            .and_then(|node| node.wait_for(PATIENCE, is_ready));
        ready.ok_or(io::ErrorKind::TimedOut)?;
        let put = admin::publish(&sandbox, BOOTSTRAP, 1, (&admins, &games))?;
        println!(
            "the admin has signed two games, and told the bootstrap node: {}",
            put.trim_end()
        );
        let entry = SocketAddr::new(sandbox.host(1), GAME_PORT);
        let web = SocketAddr::new(sandbox.host(1), WEB_PORT);
        let player = Player::new(SocketAddr::new(sandbox.host(7), 0), entry)?;
        Ok(Self {
            nodes,
            own,
            sandbox,
            player,
            web,
            download: None,
            route: None,
        })
    }

    /// Runs the demonstration. Returns whether the game continued as required.
    fn run(mut self) -> io::Result<bool> {
        println!("the direct way takes {DIRECT_RTT:?} there and back");
        let began = Instant::now();
        while self.relay_in_use().is_none() && began.elapsed() < PATIENCE {
            self.play(SECOND)?;
        }
        self.download = Some(Download::start(self.web)?);
        println!("a download has begun");
        let before = self.play_seconds(BEFORE_SECONDS)?;
        let Some(dead) = self.relay_in_use() else {
            println!("summary: BAD, there was no route over a relay");
            return Ok(false);
        };
        if let Some(process) = self.nodes.get_mut(&dead) {
            process.kill()?;
        }
        println!("killed {}, the relay in use", name_of(dead));
        let after = self.play_seconds(AFTER_SECONDS)?;
        let is_rerouted = self.relay_in_use().is_some_and(|relay| relay != dead);
        let is_whole = self.download.take().map(Download::end).transpose()? == Some(true);
        let is_good = is_rerouted
            && is_whole
            && [&before, &after]
                .iter()
                .all(|tally| tally.median().is_some_and(|rtt| rtt < DIRECT_RTT))
            && after.longest_silence <= SILENCE_MAX;
        println!(
            "summary: {}; over {}: RTT {}; killed; over {}: RTT {}; longest silence \
             {:.1?} (at most {SILENCE_MAX:?}), {} of {} answered; the download is {}",
            if is_good { "good" } else { "BAD" },
            name_of(dead),
            millis(before.median()),
            self.route_text(),
            millis(after.median()),
            after.longest_silence,
            after.round_trips.len(),
            after.asked,
            if is_whole { "whole" } else { "BROKEN" },
        );
        if let Some(sealed) = self.own.as_ref().and_then(OwnEntry::sealed) {
            println!("the game's own entry has sealed {sealed} packets");
        }
        Ok(is_good)
    }

    /// Plays for `seconds` and prints a line for each.
    fn play_seconds(&mut self, seconds: u32) -> io::Result<Tally> {
        let mut whole = Tally::default();
        for _ in 0..seconds {
            whole.add(self.play(SECOND)?);
        }
        Ok(whole)
    }

    /// Plays for `span` and prints the results.
    fn play(&mut self, span: Duration) -> io::Result<Tally> {
        let tally = self.player.play(span)?;
        let beside = self.nodes.get(&ENTRY).into_iter();
        let within = self.own.iter().flat_map(OwnEntry::incoming);
        let news = beside.flat_map(NodeProcess::events).chain(within);
        let routes = news.filter_map(|news| {
            if let ProcessEvent::Route { relays, cause, .. } = news {
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
            "{:5.1} s  by {:14}  RTT {:>8}  {:3} of {:3} answered, longest silence {:7.1?}{}",
            self.player.began.elapsed().as_secs_f32(),
            self.route_text(),
            millis(tally.median()),
            tally.round_trips.len(),
            tally.asked,
            tally.longest_silence,
            self.download.as_ref().map_or_else(String::new, |download| {
                format!("; download {:3} %", download.percent())
            }),
        );
        Ok(tally)
    }

    /// Returns the index in [`NODES`] of the relay in use.
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

fn name_of(node: usize) -> &'static str {
    NODES.get(node).map_or("a node", |(name, _)| name)
}

/// All nodes. The constants below are indices into it.
const NODES: [(&str, FileRole); 5] = [
    ("entry", FileRole::Entry),
    ("relay-1", FileRole::Relay),
    ("relay-2", FileRole::Relay),
    ("exit", FileRole::Exit),
    ("bootstrap", FileRole::Relay),
];
const ENTRY: usize = 0;
const EXIT: usize = 3;
/// The only node that the others know at first. It is too far away to be useful as a relay.
const BOOTSTRAP: usize = 4;
/// The relays, with the delay of each to entry and exit in milliseconds.
const RELAYS: [(usize, u64); 2] = [(1, 15), (2, 20)];
/// Delay between the relays. A path over both is never the best, even before all links are
/// measured.
const BETWEEN_MS: u64 = 25;
const DIRECT_MS: u64 = 80;
const DIRECT_RTT: Duration = Duration::from_millis(2 * DIRECT_MS);
/// The port for players at the entry.
const GAME_PORT: u16 = 7_777;
const WEB_PORT: u16 = 8_080;
const SECOND: Duration = Duration::from_secs(1);
/// Time limit for the mesh to find a path over a relay.
const PATIENCE: Duration = Duration::from_secs(20);
const BEFORE_SECONDS: u32 = 5;
const AFTER_SECONDS: u32 = 6;
/// Maximum time without a reply for a player when a relay dies.
const SILENCE_MAX: Duration = Duration::from_secs(1);
