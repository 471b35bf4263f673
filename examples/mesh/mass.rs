//! Thousands of players join at once, between an entry and an exit which reach each other only over
//! a relay.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{FileGame, FileRole, Mode, ProcessEvent, Protocol};

use crate::player;

/// Options of the run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Players that join within 2 s.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=14_000))]
    flows: u32,
    /// Players that already play. The process's file limit bounds the sum of both.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=4_000))]
    playing: u32,
}

/// Returns whether all were served within [`GOAL`] and existing players lost nothing.
pub(crate) fn run(options: &Options) -> io::Result<bool> {
    let (_sandbox, nodes, entry) = start()?;
    let refusals = Refusals::watch(nodes)?;
    let began = Instant::now();
    let mut first = Group::new(entry, 0..1, SECOND)?;
    first.play(began + PATIENCE, &mut []);
    if first.served() == 0 {
        println!("mass: BAD, no route over the relay after {PATIENCE:?}");
        return Ok(false);
    }
    let mut playing = Group::new(entry, 1..1 + options.playing, SECOND)?;
    playing.play(Instant::now() + PATIENCE, &mut []);
    // Until each has a label and its path is validated.
    playing.play_all(Instant::now() + SETTLE);
    println!("mass: {} of {} play", playing.served(), options.playing);
    let from = 1 + options.playing;
    let mut joining = Group::new(entry, from..from + options.flows, 2 * SECOND)?;
    let joined_at = Instant::now();
    joining.play(joined_at + PATIENCE, std::slice::from_mut(&mut playing));
    let (took, served) = (joined_at.elapsed(), joining.served());
    let mut both = [playing, joining];
    let end = Instant::now() + 3 * SECOND;
    while Instant::now() < end {
        step(&mut both);
    }
    let [playing, joining] = both;
    // Replies to messages sent before this time have had time to arrive.
    let until = Instant::now().checked_sub(SECOND).unwrap_or(joined_at);
    let (asked, lost) = playing.lost(joined_at, until);
    let (joining_asked, joining_lost) = joining.lost(joined_at, until);
    let first_lost = joining.first_lost();
    let all = usize::try_from(options.flows).unwrap_or(usize::MAX);
    let is_good = served == all && took <= GOAL && lost == 0;
    println!(
        "mass: {}; {served} of {all} served after {:.1} s (goal {GOAL:?}); of their first messages \
         {first_lost} unanswered, of all {joining_lost} of {joining_asked}; those who played lost \
         {lost} of {asked}",
        if is_good { "good" } else { "BAD" },
        took.as_secs_f64(),
    );
    for ((node, reason), count) in refusals.stop() {
        println!("mass: {node} turned away {count} times: {reason}");
    }
    Ok(is_good)
}

/// Counts the nodes' rejections. It reads all node output, so that no line is lost.
struct Refusals {
    stop: Sender<()>,
    counting: JoinHandle<Counts>,
}

/// By node and reason.
type Counts = BTreeMap<(&'static str, String), u64>;

impl Refusals {
    /// Takes over the nodes, which run until [`stop`](Self::stop).
    fn watch(nodes: Vec<NodeProcess>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let builder = thread::Builder::new().name("news".to_owned());
        let counting = builder.spawn(move || {
            let mut counts = Counts::new();
            let mut is_last = false;
            while !is_last {
                is_last = stopped.recv_timeout(NEWS) != Err(RecvTimeoutError::Timeout);
                for (node, (name, _)) in nodes.iter().zip(NODES) {
                    for news in node.events() {
                        if let ProcessEvent::TurnedAway { reason, count, .. } = news {
                            *counts.entry((name, format!("{reason:?}"))).or_default() += count;
                        }
                    }
                }
            }
            counts
        })?;
        Ok(Self { stop, counting })
    }

    /// Stops the nodes and returns the counts. Nodes print a count after 1 s and then once per
    /// minute.
    fn stop(self) -> Counts {
        self.stop.send(()).ok();
        self.counting.join().unwrap_or_default()
    }
}

/// Starts the nodes and the game server. Returns the address that players join.
fn start() -> io::Result<(Sandbox, Vec<NodeProcess>, SocketAddr)> {
    let mut sandbox = Sandbox::new(&NODES)?;
    sandbox.link(ENTRY, RELAY, DELAY_MS);
    sandbox.link(RELAY, EXIT, DELAY_MS);
    sandbox.link(ENTRY, EXIT, DELAY_MS);
    for end in [ENTRY, EXIT] {
        let links = sandbox.config_mut(end).map(|config| &mut config.links);
        if let Some(link) = links.and_then(|links| links.last_mut()) {
            link.loss_per_million = 1_000_000;
        }
    }
    let server = player::echo(SocketAddr::new(sandbox.host(SERVER), 0))?;
    let entry = SocketAddr::new(sandbox.host(1), PORT);
    let game = FileGame {
        name: "mass".to_owned(),
        protocol: Protocol::Udp,
        mode: Mode::Shadow,
        listen: vec![entry],
        exits: sandbox.id(EXIT).into_iter().collect(),
        server: None,
        entries: None,
        proxy_header: None,
    };
    if let Some(config) = sandbox.config_mut(ENTRY) {
        config.games.push(game.clone());
    }
    if let Some(config) = sandbox.config_mut(EXIT) {
        config.games.push(FileGame {
            listen: Vec::new(),
            exits: Vec::new(),
            server: Some(server),
            ..game
        });
    }
    let mut nodes = Vec::new();
    for node in 0..NODES.len() {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", "--config"]);
        nodes.push(sandbox.start(node, command)?);
    }
    Ok((sandbox, nodes, entry))
}

/// Players which send at one rate, one after the other.
struct Group {
    players: Vec<Player>,
    /// Interval between two messages of one player.
    pause: Duration,
    began: Instant,
    /// Messages sent by all players.
    sent: usize,
}

struct Player {
    socket: UdpSocket,
    /// Messages without a reply, by number.
    unanswered: BTreeMap<u64, Instant>,
    /// When each message was sent.
    sent_at: Vec<Instant>,
    is_served: bool,
}

impl Group {
    fn new(entry: SocketAddr, numbers: std::ops::Range<u32>, pause: Duration) -> io::Result<Self> {
        let players = numbers.map(|number| {
            let socket = UdpSocket::bind(SocketAddr::new(host(number), 0))?;
            socket.connect(entry)?;
            socket.set_nonblocking(true)?;
            Ok(Player {
                socket,
                unanswered: BTreeMap::new(),
                sent_at: Vec::new(),
                is_served: false,
            })
        });
        Ok(Self {
            players: players.collect::<io::Result<_>>()?,
            pause,
            began: Instant::now(),
            sent: 0,
        })
    }

    /// Plays until each player was served or until `end`, with `others` in parallel.
    fn play(&mut self, end: Instant, others: &mut [Self]) {
        let mut shown = 0;
        self.began = Instant::now();
        while self.served() < self.players.len() && Instant::now() < end {
            step(others);
            step(std::slice::from_mut(self));
            let seconds = self.began.elapsed().as_secs();
            if seconds > shown && self.players.len() > 1 {
                shown = seconds;
                println!("{seconds:3} s  {:6} served", self.served());
            }
        }
    }

    /// Plays until `end`.
    fn play_all(&mut self, end: Instant) {
        while Instant::now() < end {
            step(std::slice::from_mut(self));
        }
    }

    /// Sends what is due.
    fn send(&mut self) {
        let count = self.players.len().max(1);
        let elapsed = self.began.elapsed().as_nanos();
        let due = elapsed * count as u128 / self.pause.as_nanos();
        let due = usize::try_from(due).unwrap_or(usize::MAX);
        while self.sent < due {
            if let Some(player) = self.players.get_mut(self.sent % count) {
                player.send();
            }
            self.sent += 1;
        }
    }

    fn served(&self) -> usize {
        let served = self.players.iter().filter(|player| player.is_served);
        served.count()
    }

    /// Returns how many messages were sent in the interval, and how many of them have no reply.
    fn lost(&self, from: Instant, until: Instant) -> (usize, usize) {
        let is_counted = |at: &&Instant| **at >= from && **at < until;
        let sent = self.players.iter().flat_map(|player| &player.sent_at);
        let lost = self.players.iter();
        let lost = lost.flat_map(|player| player.unanswered.values());
        (
            sent.filter(is_counted).count(),
            lost.filter(is_counted).count(),
        )
    }

    /// Returns how many players have no reply to their first message.
    fn first_lost(&self) -> usize {
        let players = self.players.iter();
        players
            .filter(|player| player.unanswered.contains_key(&0))
            .count()
    }
}

impl Player {
    fn send(&mut self) {
        let number = self.sent_at.len() as u64;
        let mut message = number.to_be_bytes().to_vec();
        message.resize(60, 3);
        // A send that the system rejects counts as lost.
        self.socket.send(&message).ok();
        let now = Instant::now();
        self.sent_at.push(now);
        self.unanswered.insert(number, now);
    }

    fn receive(&mut self) {
        let mut message = [0; 64];
        while !self.unanswered.is_empty()
            && let Ok(len) = self.socket.recv(&mut message)
        {
            let number = message.get(..len).and_then(<[u8]>::first_chunk);
            let number = number.map(|number| u64::from_be_bytes(*number));
            if number.is_some_and(|number| self.unanswered.remove(&number).is_some()) {
                self.is_served = true;
            }
        }
    }
}

/// Sends due messages and receives replies.
fn step(groups: &mut [Group]) {
    for group in groups {
        group.send();
        for player in &mut group.players {
            player.receive();
        }
    }
    thread::sleep(STEP);
}

/// Returns a player's address: 100 players share a /24.
fn host(number: u32) -> IpAddr {
    let [_, _, high, low] = (number / 100).to_be_bytes();
    let last = u8::try_from(1 + number % 100).unwrap_or(1);
    Ipv4Addr::new(127, 240 + high % 8, low, last).into()
}

const NODES: [(&str, FileRole); 3] = [
    ("entry", FileRole::Entry),
    ("relay", FileRole::Relay),
    ("exit", FileRole::Exit),
];
const ENTRY: usize = 0;
const RELAY: usize = 1;
const EXIT: usize = 2;
/// One-way delay between the relay and each end.
const DELAY_MS: u64 = 15;
/// Last byte of the game server's address.
const SERVER: u8 = 6;
const PORT: u16 = 7_779;
/// Time limit for all players to be served.
const GOAL: Duration = Duration::from_secs(10);
/// How long the run waits for them.
const PATIENCE: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);
/// Interval between polls of the nodes' output.
const NEWS: Duration = Duration::from_millis(20);
/// Interval between polls of the sockets.
const STEP: Duration = Duration::from_millis(5);
