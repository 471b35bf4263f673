//! A game over UDP: its server, a player, and what the player measures.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Starts a game server which echoes each datagram.
pub(crate) fn echo(address: SocketAddr) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind(address)?;
    let address = socket.local_addr()?;
    thread::spawn(move || {
        let mut bytes = [0; 2_048];
        loop {
            // A player that has left does not stop the server.
            if let Ok((len, from)) = socket.recv_from(&mut bytes) {
                socket
                    .send_to(bytes.get(..len).unwrap_or_default(), from)
                    .ok();
            }
        }
    });
    Ok(address)
}

/// Sends 50 numbered messages per second and measures the round trip of each.
pub(crate) struct Player {
    socket: UdpSocket,
    pub(crate) began: Instant,
    asked_at: BTreeMap<u64, Instant>,
    next: u64,
    next_at: Instant,
    heard_at: Instant,
}

impl Player {
    pub(crate) fn new(address: SocketAddr, entry: SocketAddr) -> io::Result<Self> {
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

    pub(crate) fn play(&mut self, span: Duration) -> io::Result<Tally> {
        let mut tally = Tally::default();
        let end = Instant::now() + span;
        while Instant::now() < end {
            if Instant::now() >= self.next_at {
                self.next_at += TICK;
                self.asked_at.insert(self.next, Instant::now());
                // Until the entry listens, the send fails.
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

/// Results of a span.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) asked: u64,
    pub(crate) round_trips: Vec<Duration>,
    pub(crate) longest_silence: Duration,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.round_trips.extend(other.round_trips);
        self.longest_silence = self.longest_silence.max(other.longest_silence);
    }

    /// Returns the median round trip.
    pub(crate) fn median(&self) -> Option<Duration> {
        let mut sorted = self.round_trips.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

/// Formats a duration in milliseconds.
pub(crate) fn millis(span: Option<Duration>) -> String {
    span.map_or_else(
        || "none".to_owned(),
        |span| format!("{:.1} ms", span.as_secs_f64() * 1e3),
    )
}

/// The send interval, for 50 packets per second.
const TICK: Duration = Duration::from_millis(20);
