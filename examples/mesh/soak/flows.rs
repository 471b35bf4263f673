//! Players: each sends timestamps at a steady rate. An echo counts as service.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::test_mesh::{Game, TestMesh};
use crate::player;

/// All flows, with the state of each.
pub(super) struct Flows {
    began: Instant,
    flows: Vec<Arc<Flow>>,
}

/// State of one flow; times are microseconds since the start.
struct Flow {
    game: Game,
    entry: SocketAddr,
    /// When the newest reply arrived.
    heard_at: AtomicU64,
    /// Send time of the message that the newest reply echoes.
    served_at: AtomicU64,
    /// Round trip of that reply.
    took: AtomicU64,
    /// Longest time between two replies since the last reset.
    silence: AtomicU64,
    /// Set to make the player change its source port.
    rebinds: AtomicBool,
    ends: AtomicBool,
}

impl Flow {
    /// Handles the echo of a message sent at `sent_at`.
    fn on_echo(&self, now: u64, sent_at: u64) {
        if sent_at <= self.served_at.load(Ordering::Relaxed) || sent_at > now {
            return;
        }
        let silence = now.saturating_sub(self.heard_at.load(Ordering::Relaxed));
        self.silence.fetch_max(silence, Ordering::Relaxed);
        self.heard_at.store(now, Ordering::Relaxed);
        self.took.store(now - sent_at, Ordering::Relaxed);
        self.served_at.store(sent_at, Ordering::Release);
    }
}

impl Flows {
    /// Starts `count` players, each with `rate` messages per second.
    pub(super) fn start(test_mesh: &TestMesh, count: u16, rate: u16) -> io::Result<Self> {
        let began = Instant::now();
        let pause = Duration::from_secs(1) / u32::from(rate);
        let mut flows = Vec::new();
        for number in 0..count {
            let game = match number {
                tcp if tcp % 25 == 24 => Game::Stream,
                even if even % 2 == 0 => Game::Shadow,
                _ => Game::Single,
            };
            // Consecutive players differ in the game, consecutive pairs in the entry.
            let entry = test_mesh.entry(usize::from(number / 2) % 2, game);
            flows.push(Arc::new(Flow {
                game,
                entry,
                heard_at: AtomicU64::new(0),
                served_at: AtomicU64::new(0),
                took: AtomicU64::new(0),
                silence: AtomicU64::new(0),
                rebinds: AtomicBool::new(false),
                ends: AtomicBool::new(false),
            }));
        }
        let mut players = Vec::new();
        for (number, flow) in (0..).zip(&flows) {
            let host = test_mesh.player_host(number);
            if flow.game == Game::Stream {
                let flow = Arc::clone(flow);
                thread::spawn(move || stream(&flow, began, pause));
            } else {
                players.push(Player::new(Arc::clone(flow), host)?);
            }
        }
        // Each thread polls few sockets, so that it sees a reply soon after it arrives.
        while !players.is_empty() {
            let rest = players.split_off(players.len().min(PLAYERS_A_THREAD));
            let own = std::mem::replace(&mut players, rest);
            thread::spawn(move || play(own, began, pause));
        }
        Ok(Self { began, flows })
    }

    pub(super) const fn count(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns how many flows have no reply to a message sent after `since`, and the time from
    /// `since` until the last of the other flows had one.
    pub(super) fn served_since(&self, since: Instant) -> (usize, Duration) {
        let since = micros(since.saturating_duration_since(self.began));
        let mut last = 0;
        let mut unserved = 0;
        for flow in &self.flows {
            if flow.served_at.load(Ordering::Acquire) < since {
                unserved += 1;
            } else {
                last = last.max(flow.heard_at.load(Ordering::Relaxed).saturating_sub(since));
            }
        }
        (unserved, Duration::from_micros(last))
    }

    /// Lists those flows.
    pub(super) fn unserved_text(&self, since: Instant) -> String {
        let since = micros(since.saturating_duration_since(self.began));
        let unserved = self
            .flows
            .iter()
            .filter(|flow| flow.served_at.load(Ordering::Acquire) < since);
        let mut groups = std::collections::BTreeMap::new();
        for flow in unserved {
            let count: &mut usize = groups
                .entry(format!("{:?} at {}", flow.game, flow.entry))
                .or_default();
            *count += 1;
        }
        let groups = groups
            .iter()
            .map(|(group, count)| format!("{count} of {group}"));
        groups.collect::<Vec<_>>().join(", ")
    }

    /// Restarts the measurement of silences.
    pub(super) fn reset_silence(&self) {
        for flow in &self.flows {
            flow.silence.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the longest silence of any flow since the last reset, including one in progress.
    pub(super) fn longest_silence(&self) -> Duration {
        let now = micros(self.began.elapsed());
        let longest = self.flows.iter().map(|flow| {
            let lasts = now.saturating_sub(flow.heard_at.load(Ordering::Relaxed));
            flow.silence.load(Ordering::Relaxed).max(lasts)
        });
        Duration::from_micros(longest.max().unwrap_or(0))
    }

    /// Makes every `step`th UDP player change its source port.
    pub(super) fn rebind(&self, step: usize) {
        for flow in self.flows.iter().step_by(step.max(1)) {
            flow.rebinds.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        for flow in &self.flows {
            flow.ends.store(true, Ordering::Relaxed);
        }
    }
}

/// A player over UDP.
struct Player {
    flow: Arc<Flow>,
    host: std::net::IpAddr,
    socket: UdpSocket,
    next_at: Instant,
}

impl Player {
    fn new(flow: Arc<Flow>, host: std::net::IpAddr) -> io::Result<Self> {
        Ok(Self {
            socket: open(host, flow.entry)?,
            flow,
            host,
            next_at: Instant::now(),
        })
    }

    /// Sends a message if it is due, and receives replies.
    fn step(&mut self, began: Instant, pause: Duration, buffer: &mut [u8]) {
        if self.flow.rebinds.swap(false, Ordering::Relaxed)
            && let Ok(socket) = open(self.host, self.flow.entry)
        {
            self.socket = socket;
        }
        if Instant::now() >= self.next_at {
            self.next_at = Instant::now() + pause;
            // If a node is down, the send fails; the next one may succeed.
            self.socket
                .send(&micros(began.elapsed()).to_be_bytes())
                .ok();
        }
        // An error left by an earlier send also ends the loop; the next step continues.
        while let Ok(len) = self.socket.recv(buffer) {
            if let Some(sent_at) = buffer.get(..len).and_then(<[u8]>::first_chunk) {
                let now = micros(began.elapsed());
                self.flow.on_echo(now, u64::from_be_bytes(*sent_at));
            }
        }
    }
}

fn open(host: std::net::IpAddr, entry: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(host, 0))?;
    socket.connect(entry)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Runs some players until their flows end.
fn play(mut players: Vec<Player>, began: Instant, pause: Duration) {
    // Staggers the start over the pause, so that the load is even.
    let count = u32::try_from(players.len()).unwrap_or(u32::MAX);
    for (number, player) in (0..).zip(&mut players) {
        player.next_at += pause * number / count.max(1);
    }
    let mut buffer = [0; 64];
    while players
        .iter()
        .any(|player| !player.flow.ends.load(Ordering::Relaxed))
    {
        for player in &mut players {
            player.step(began, pause, &mut buffer);
        }
        thread::sleep(STEP);
    }
}

/// A player over TCP. It reconnects when its connection ends.
fn stream(flow: &Flow, began: Instant, pause: Duration) {
    while !flow.ends.load(Ordering::Relaxed) {
        if let Ok(stream) = TcpStream::connect_timeout(&flow.entry, CONNECT_MAX) {
            // A broken connection is replaced.
            talk(&stream, flow, began, pause).ok();
        }
        thread::sleep(AGAIN);
    }
}

fn talk(mut stream: &TcpStream, flow: &Flow, began: Instant, pause: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    let mut answer = [0; 8];
    while !flow.ends.load(Ordering::Relaxed) {
        let sent_at = micros(began.elapsed());
        stream.write_all(&sent_at.to_be_bytes())?;
        stream.read_exact(&mut answer)?;
        flow.on_echo(micros(began.elapsed()), u64::from_be_bytes(answer));
        thread::sleep(pause);
    }
    Ok(())
}

/// Starts the game servers, which echo what they receive.
pub(super) fn serve(udp: SocketAddr, tcp: SocketAddr) -> io::Result<(SocketAddr, SocketAddr)> {
    let listener = TcpListener::bind(tcp)?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            thread::spawn(move || echo(&stream).ok());
        }
    });
    Ok((player::echo(udp)?, address))
}

fn echo(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 64];
    loop {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        stream.write_all(buffer.get(..len).unwrap_or_default())?;
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

const PLAYERS_A_THREAD: usize = 64;
/// Interval between polls of a socket.
const STEP: Duration = Duration::from_millis(10);
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// A TCP player replaces a connection which is silent for this long, as a game would.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(100);
