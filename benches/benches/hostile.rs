//! Server cost of hostile sessions with valid keys, which send as many packets as the server
//! accepts, each full of empty unreliable messages.
//!
//! `cargo bench --bench hostile [-- SESSIONS]`, 32 by default. It measures the CPU time of the
//! server's calls during ten seconds of virtual time, and prints it as a share of a core. Packets
//! have at most 30 messages, because more end the session.

#![expect(clippy::print_stdout, reason = "the figure is what it is for")]
#![expect(
    clippy::expect_used,
    reason = "a bench whose sessions do not open must stop, not measure something else"
)]

use core::num::NonZeroU32;
use core::time::Duration;

use benches::measure::cpu_time_of;
use benches::pair::{Lane, Side, UNRELIABLE};
use udp_proto::{Config, Credentials, Target};
use wire::Instant;

/// Seconds of virtual time.
const SECONDS: u32 = 10;
/// Steps per second. In each, every session sends two full packets.
const STEPS: u32 = 500;
/// Messages per step: two packets with the maximum of 30.
const MESSAGES: usize = 60;

fn main() {
    let sessions = std::env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(32);
    let mut room = Room::new(sessions);
    let mut now = Instant::from_millis(100);
    for _ in 0..STEPS * SECONDS {
        now += Duration::from_secs(1) / STEPS;
        room.step(now);
    }
    let stats = room.server.endpoint.stats();
    let share = room.spent.as_secs_f64() / f64::from(SECONDS) * 100.0;
    println!(
        "{sessions} sessions, {SECONDS} s: {} packets opened, {} dropped unopened, {} messages taken: \
         {share:.1} % of a core",
        stats.packets, stats.dropped_over_limit, room.server.received,
    );
}

/// A server and its hostile clients.
struct Room {
    server: Side,
    clients: Vec<Side>,
    /// CPU time of the server's calls.
    spent: Duration,
}

impl Room {
    fn new(sessions: u8) -> Self {
        let (server, pinned) = Side::listening("192.0.2.1:7777", Config::for_server());
        let mut config = Config::default();
        config.realtime_rate = NonZeroU32::MAX;
        config.realtime_burst = u32::MAX;
        let clients = (0..sessions)
            .map(|number| {
                let mut client = Side::new(&format!("198.51.{number}.1:4000"), config.clone());
                let target = Target {
                    addresses: vec![server.address],
                    server: pinned.clone(),
                    credentials: Credentials::Open,
                };
                client
                    .endpoint
                    .connect(Instant::ZERO, target)
                    .expect("a target");
                client
            })
            .collect();
        let mut room = Self {
            server,
            clients,
            spent: Duration::ZERO,
        };
        for milli in 0..100 {
            room.exchange(Instant::from_millis(milli));
        }
        room.spent = Duration::ZERO;
        assert!(room.clients.iter().all(|client| client.session.is_some()));
        room
    }

    /// Every client sends as much as it may.
    fn step(&mut self, now: Instant) {
        for client in &mut self.clients {
            let session = client.session.expect("open");
            for _ in 0..MESSAGES {
                client
                    .endpoint
                    .send(now, session, UNRELIABLE, &[])
                    .expect("an open session");
            }
        }
        self.exchange(now);
    }

    /// Exchanges datagrams between the clients and the server.
    fn exchange(&mut self, now: Instant) {
        let mut lane = Lane::default();
        for client in &mut self.clients {
            lane.drain(now, &mut client.endpoint);
            self.spent += cpu_time_of(|| {
                lane.deliver(now, client.address, &mut self.server.endpoint);
            });
        }
        let mut buf = Vec::new();
        let mut answers = Vec::new();
        self.spent += cpu_time_of(|| {
            self.server.settle(now);
            while let Some(transmit) = self.server.endpoint.poll_transmit(now, &mut buf) {
                answers.push((transmit, core::mem::take(&mut buf)));
            }
        });
        for (transmit, bytes) in answers {
            let client = self
                .clients
                .iter_mut()
                .find(|client| client.address == transmit.destination);
            let client = client.expect("one of ours");
            for datagram in transmit.datagrams(&bytes) {
                let mut datagram = datagram.to_vec();
                let arrival = wire::Arrival::from(self.server.address);
                client.endpoint.handle_datagram(now, arrival, &mut datagram);
            }
        }
        for client in &mut self.clients {
            client.settle(now);
        }
    }
}
