//! The clients of a load test, on one thread, each with its own socket.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Instant;

use super::{MESSAGE_LEN, Plan, now, sleep_until};
use crate::lane::Lane;
use crate::stack::{Delivery, End, Stack};

/// Clients, with their turns spread over the tick.
pub(super) struct ClientPool<S: Stack> {
    plan: Plan,
    clients: Vec<Client<S::Client>>,
    connect_data: Vec<u8>,
    server: SocketAddr,
    lane: Lane,
    buffer: Vec<u8>,
    message: [u8; MESSAGE_LEN],
    began: Instant,
    /// Number of turns that clients have taken.
    turns: u32,
}

struct Client<E> {
    end: E,
    socket: UdpSocket,
    /// Time of its next turn.
    turn_at: Instant,
}

/// New connections per second, below any stack's handshake budget.
const NEWCOMERS_HZ: u32 = 400;

impl<S: Stack> ClientPool<S> {
    /// Creates a load without clients.
    pub(super) fn new(plan: Plan, connect_data: &[u8], server: SocketAddr) -> Self {
        Self {
            plan,
            clients: Vec::new(),
            connect_data: connect_data.to_vec(),
            server,
            lane: Lane::default(),
            buffer: vec![0; 65_536],
            message: [0x5A; MESSAGE_LEN],
            began: now(),
            turns: 0,
        }
    }

    /// Connects all clients, for at most `limit`.
    pub(super) fn run_until_connected(&mut self, limit: Duration) {
        let interval = Duration::from_secs(1) / NEWCOMERS_HZ;
        let end = now() + limit;
        let mut next = now();
        while now() < end {
            if self.clients.len() < self.plan.clients as usize {
                self.join();
                next += interval;
            } else if self.connected() == self.clients.len() {
                return;
            } else {
                next = now() + Duration::from_millis(20);
            }
            self.run_until(next);
        }
    }

    /// Runs all clients for `span`.
    pub(super) fn run_for(&mut self, span: Duration) {
        self.run_until(now() + span);
    }

    /// Returns the number of messages that clients have read.
    pub(super) fn received(&self) -> u64 {
        self.clients.iter().map(|it| it.end.received()).sum()
    }

    /// Returns the number of turns that clients have taken.
    pub(super) const fn turns(&self) -> u32 {
        self.turns
    }

    /// Returns the number of connected clients.
    pub(super) fn connected(&self) -> usize {
        let ends = self.clients.iter();
        ends.filter(|client| client.end.connections() > 0).count()
    }

    fn join(&mut self) {
        let number = u32::try_from(self.clients.len()).expect("few");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_nonblocking(true).expect("a socket");
        self.clients.push(Client {
            end: S::dial(&self.connect_data, self.server, number, now() - self.began),
            socket,
            turn_at: now(),
        });
    }

    /// Runs the due turns of each client until `end`. Late turns follow one another at once.
    fn run_until(&mut self, end: Instant) {
        let interval = Duration::from_secs(1) / self.plan.message_hz;
        while now() < end {
            let mut next = end;
            for at in 0..self.clients.len() {
                let is_due = self.clients[at].turn_at <= now();
                if is_due {
                    self.clients[at].turn_at += interval;
                    self.turn(at);
                }
                next = next.min(self.clients[at].turn_at);
            }
            sleep_until(next.max(now() + PAUSE).min(end));
        }
    }

    /// Runs a client's frame.
    fn turn(&mut self, at: usize) {
        let (client, now) = (&mut self.clients[at], now() - self.began);
        self.turns += 1;
        loop {
            match client.socket.recv_from(&mut self.buffer) {
                Ok((len, from)) => client.end.take(now, from, &mut self.buffer[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => break,
            }
        }
        client.end.settle(now);
        if client.end.connections() > 0 {
            client.end.send(now, Delivery::Unreliable, &self.message);
        }
        client.end.drain(now, &mut self.lane);
        self.lane.deliver(|to, datagram| {
            // A datagram that the system rejects is lost, as in a game.
            client.socket.send_to(datagram, to).ok();
        });
    }
}

/// Minimum sleep. Turns that become due in this time run together.
const PAUSE: Duration = Duration::from_micros(500);
