//! The server of a load test, written as a user of each stack would. Most poll their sockets once
//! per tick; quinn's tasks wake for each datagram. Tickwire and quinn support both, and both are
//! measured.

mod enet;
mod quinn;
mod renet;
mod tickwire;

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io::{self, BufRead, Write};
use std::net::UdpSocket;
use std::time::Instant;

use super::{BUFFER, MESSAGE_LEN, Plan, hex, now, sleep_until};

/// First argument of a server process.
pub const ROLE: &str = "serve";

/// Number of messages read.
static RECEIVED: AtomicU64 = AtomicU64::new(0);

/// The message.
const MESSAGE: [u8; MESSAGE_LEN] = [0x5A; MESSAGE_LEN];

/// Serves until stdin ends.
///
/// # Panics
///
/// If there is no such stack.
pub fn serve(stack: &str, plan: Plan) {
    match stack {
        "tickwire" => tickwire::serve(plan),
        "renet" => renet::serve(plan),
        "quinn" => quinn::serve(plan),
        "quinn-ticked" => quinn::serve_ticked(plan),
        "tickwire-woken" => tickwire::serve_woken(plan),
        "enet" => enet::serve(plan),
        _ => panic!("no stack is called {stack}"),
    }
}

/// Prints the server's address and connection data, and answers requests from then on.
#[expect(clippy::print_stdout, reason = "a pipe to whoever started it")]
fn listen(address: SocketAddr, connect_data: &[u8]) {
    println!("{address} {}", hex(connect_data));
    std::thread::spawn(|| {
        for line in io::stdin().lock().lines() {
            if line.is_err() || writeln!(io::stdout(), "{}", received()).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
}

/// Adds to the number of messages read.
fn count(messages: u64) {
    RECEIVED.fetch_add(messages, Ordering::Relaxed);
}

/// Returns the number of messages read.
fn received() -> u64 {
    RECEIVED.load(Ordering::Relaxed)
}

/// A loopback socket with large buffers, for stacks that accept a socket.
fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let reference = socket2::SockRef::from(&socket);
    reference.set_recv_buffer_size(BUFFER).expect("a socket");
    reference.set_send_buffer_size(BUFFER).expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    socket
}

/// Ticks at a fixed rate; some of them send.
struct Ticks {
    began: Instant,
    plan: Plan,
    /// Number of ticks so far.
    count: u32,
    /// Number of messages sent to each client.
    sent: u32,
}

/// One tick.
struct Tick {
    /// Time since the last tick.
    passed: Duration,
    /// Whether each client gets a message.
    sends: bool,
}

impl Ticks {
    fn new(plan: Plan) -> Self {
        Self {
            began: now(),
            plan,
            count: 0,
            sent: 0,
        }
    }

    /// Returns the time of the next tick.
    fn next_at(&self) -> Instant {
        self.began + Duration::from_secs(1) * self.count / self.plan.tick_hz
    }

    /// Waits for the next tick.
    fn wait(&mut self) -> Tick {
        sleep_until(self.next_at());
        self.take()
    }

    /// Starts the next tick, which is due.
    fn take(&mut self) -> Tick {
        let before =
            self.began + Duration::from_secs(1) * self.count.saturating_sub(1) / self.plan.tick_hz;
        let at = self.next_at();
        self.count += 1;
        let due =
            u64::from(self.count) * u64::from(self.plan.message_hz) / u64::from(self.plan.tick_hz);
        let sends = u64::from(self.sent) < due;
        self.sent += u32::from(sends);
        Tick {
            passed: at - before,
            sends,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_ticks_send_thirty_two_times() {
        let mut ticks = Ticks::new(Plan::named("mpgs_goal").unwrap());
        let taken: Vec<Tick> = (0..600).map(|_| ticks.take()).collect();
        assert_eq!(taken.iter().filter(|tick| tick.sends).count(), 320);
        assert!(taken[1].passed > Duration::from_millis(16));
    }
}
