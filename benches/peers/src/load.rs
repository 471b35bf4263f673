//! Many clients over loopback sockets, and the server's CPU time.
//!
//! The server is a separate process, so that its CPU time can be separated. Clients are the
//! machines of [`crate::stack`], which run alike for all stacks. The server is each stack's public
//! server API.

mod client_pool;
pub mod server;

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::stack::Stack;
use client_pool::ClientPool;

/// Number of clients and message rate. Each message has 100 bytes and is unreliable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Name in rows.
    pub name: &'static str,
    /// Number of clients.
    pub clients: u32,
    /// Server ticks per second. In each, it receives, and sends due messages.
    pub tick_hz: u32,
    /// Messages per second that each client sends and receives.
    pub message_hz: u32,
}

/// All plans.
pub const PLANS: [Plan; 3] = [
    Plan {
        name: "load1000",
        clients: 1_000,
        tick_hz: 60,
        message_hz: 60,
    },
    Plan {
        name: "load3000",
        clients: 3_000,
        tick_hz: 20,
        message_hz: 20,
    },
    // The goal in MpGameServer's documentation.
    Plan {
        name: "mpgs_goal",
        clients: 128,
        tick_hz: 60,
        message_hz: 32,
    },
];

/// Bytes per message.
pub const MESSAGE_LEN: usize = 100;
/// Socket buffer size that every server requests: enough for a tick of 3,000 clients.
pub const BUFFER: usize = 4 << 20;

/// Time limit for clients to connect. Those not connected count as silent.
const CONNECTING: Duration = Duration::from_secs(12);
/// Time between the last connection and the measurement.
const SETTLING: Duration = Duration::from_secs(1);
/// Duration of the measurement.
const MEASURED: Duration = Duration::from_secs(4);

/// Results of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// CPU time of the server per message that it or a client read.
    pub ns_per_message: f64,
    /// Share of the plan's messages that were read.
    pub delivered: f64,
    /// The server's share of one core.
    pub server_share: f64,
    /// Share of the plan's turns that clients took. If they had no time for more, missing messages
    /// say nothing about the server.
    pub client_turns: f64,
}

impl Plan {
    /// Returns the plan with this name.
    pub fn named(name: &str) -> Option<Self> {
        PLANS.into_iter().find(|plan| plan.name == name)
    }

    /// Returns how many messages both sides read in `span` without losses.
    fn messages(&self, span: Duration) -> f64 {
        f64::from(self.clients * self.message_hz) * 2.0 * span.as_secs_f64()
    }
}

/// Runs `plan` once, with the named server and clients of `S`.
///
/// # Panics
///
/// If no client connects, because an idle server would look efficient.
pub fn run<S: Stack>(name: &'static str, plan: Plan) -> Found {
    let mut server = Server::start(name, plan);
    let mut client_pool = ClientPool::<S>::new(plan, &server.connect_data, server.address);
    client_pool.run_until_connected(CONNECTING);
    client_pool.run_for(SETTLING);
    let clients = (own_cpu_time(), client_pool.turns());
    let before = (
        server.reported(),
        server.cpu_time(),
        client_pool.received(),
        now(),
    );
    client_pool.run_for(MEASURED);
    let after = (
        server.reported(),
        server.cpu_time(),
        client_pool.received(),
        now(),
    );
    let clients = (
        own_cpu_time().saturating_sub(clients.0),
        client_pool.turns() - clients.1,
    );
    let cpu = after.1.saturating_sub(before.1);
    let span = after.3.saturating_duration_since(before.3);
    eprintln!(
        "{name} {}: {} of {} clients connected, {:.2} of a core is theirs",
        plan.name,
        client_pool.connected(),
        plan.clients,
        clients.0.as_secs_f64() / span.as_secs_f64(),
    );
    assert!(client_pool.connected() > 0, "{name} lets nobody in");
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let messages = (after.0 - before.0 + after.2 - before.2) as f64;
    Found {
        ns_per_message: cpu.as_secs_f64() * 1e9 / messages,
        // Messages in flight at the start may add to it.
        delivered: (messages / plan.messages(span)).min(1.0),
        server_share: cpu.as_secs_f64() / span.as_secs_f64(),
        client_turns: (f64::from(clients.1) / plan.messages(span) * 2.0).min(1.0),
    }
}

/// A server in a separate process, which ends when this is dropped.
struct Server {
    child: Child,
    /// A line requests the number of read messages; the end of the pipe ends the process.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    address: SocketAddr,
    /// Data that clients need to connect.
    connect_data: Vec<u8>,
}

impl Server {
    fn start(stack: &str, plan: Plan) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut child = Command::new(program)
            .args([server::ROLE, stack, plan.name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let ask = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().expect("piped"));
        let line = line(&mut answers).expect("a server tells where it is");
        let (address, connect_data) = line.split_once(' ').expect("address and door");
        Self {
            ask,
            answers,
            address: address.parse().expect("an address"),
            connect_data: unhex(connect_data),
            child,
        }
    }

    /// Returns the number of messages that the server has read.
    fn reported(&mut self) -> u64 {
        let ask = self.ask.as_mut().expect("open until it is dropped");
        ask.write_all(b"\n").expect("it runs");
        let line = line(&mut self.answers).expect("it runs");
        line.parse().expect("a number")
    }

    /// Returns the server's CPU time.
    fn cpu_time(&self) -> Duration {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        let clock = clock_getcpuclockid(Pid::from_raw(pid)).expect("it runs");
        let time: TimeSpec = clock_gettime(clock).expect("it runs");
        time.into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ask = None;
        self.child.wait().ok();
    }
}

/// Returns the CPU time of this process, which runs the clients.
fn own_cpu_time() -> Duration {
    let time: TimeSpec =
        clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("every process has one");
    time.into()
}

fn line(answers: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    answers.read_line(&mut line)?;
    Ok(line.trim_end_matches('\n').to_owned())
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    digits.collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    let bytes = digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]);
    bytes
        .map(|byte| u8::try_from(byte).expect("two digits"))
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "sockets live by the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "ticks come by the clock")]
pub(crate) fn sleep_until(at: Instant) {
    thread::sleep(at.saturating_duration_since(now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acceptor_is_encoded_for_a_pipe() {
        let connect_data: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&connect_data)), connect_data);
        assert_eq!(unhex(""), Vec::<u8>::new());
    }

    #[test]
    fn the_plan_contains_both_directions() {
        let plan = Plan::named("load1000").unwrap();
        assert!((plan.messages(Duration::from_secs(2)) - 240_000.0).abs() < 0.5);
    }
}
