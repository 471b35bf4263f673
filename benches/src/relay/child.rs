//! The measured process: this program in another role.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crypto::{Identity, Ring};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use relay_mesh::hop::HopKind;
use relay_mesh::link_state::Roles;
use relay_mesh::{Config, ExitGame, Node};
use servicer::{
    Batching, Clock, Config as DriverConfig, Driver, SocketConfig, UdpSocket as DriverSocket,
};
use wire::NodeId;

use super::operator::Operator;
use super::{end, table};

/// A forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// One call per datagram.
    Plain,
    /// Up to 64 datagrams per call.
    Mmsg,
    /// A Tickwire node.
    Tickwire,
}

impl Stack {
    /// All forwarders.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Mmsg, Self::Tickwire];

    /// Its name in rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Mmsg => "mmsg",
            Self::Tickwire => "tickwire",
        }
    }
}

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A bare forwarder, one call per datagram.
    Plain,
    /// A bare forwarder, up to 64 datagrams per call.
    Mmsg,
    /// Like [`Plain`](Self::Plain), with a socket towards the server per sender.
    Upstreams,
    /// A Tickwire relay with this link protection.
    Relay(HopKind),
    /// The same without GSO, as if each frame were for another neighbour.
    Spread(HopKind),
    /// A Tickwire exit.
    Exit,
}

impl Role {
    /// All roles with their names.
    const NAMES: [(Self, &'static str); 8] = [
        (Self::Plain, "plain"),
        (Self::Mmsg, "mmsg"),
        (Self::Upstreams, "upstreams"),
        (Self::Relay(HopKind::Sealed), "relay"),
        (Self::Relay(HopKind::TagOnly), "relay-tag-only"),
        (Self::Spread(HopKind::Sealed), "spread"),
        (Self::Spread(HopKind::TagOnly), "spread-tag-only"),
        (Self::Exit, "exit"),
    ];

    fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(role, _)| *role == self);
        known.map_or("", |(_, name)| name)
    }

    fn named(name: &str) -> Option<Self> {
        let known = Self::NAMES.iter().find(|(_, known)| *known == name);
        known.map(|(role, _)| *role)
    }
}

/// A report of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildOutput {
    /// CPU time used.
    pub cpu: Duration,
    /// Number of allocations.
    pub allocations: u64,
    /// Number of threads, without the one that answers.
    pub threads: u64,
    /// Resident memory in bytes.
    pub resident: u64,
}

/// A forwarder process, which ends when this is dropped.
#[derive(Debug)]
pub struct Forwarder {
    child: Child,
    /// A line requests a report; the end of the pipe ends the process.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Its listening address.
    pub address: SocketAddr,
    /// Its node id, if it is a node.
    pub id: NodeId,
}

/// First argument of a child process.
const MARK: &str = "forwarder";

impl Forwarder {
    /// Starts this program as `role`. It forwards to `sink` whatever is not for a node.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn start(role: Role, sink: SocketAddr) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([MARK, role.name(), &sink.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let answers = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut answers = BufReader::new(answers);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        let (address, id) = read_door(&line).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            ask: child.stdin.take(),
            answers,
            child,
            address,
            id,
        })
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().map(Pid::from_raw)
    }

    /// Requests a report.
    ///
    /// # Panics
    ///
    /// If the process has ended.
    pub fn ask(&mut self) -> ChildOutput {
        let ask = self.ask.as_mut().expect("open until it is dropped");
        ask.write_all(b"\n").expect("it runs");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it runs");
        let mut numbers = line.split_whitespace().map_while(|word| word.parse().ok());
        let mut next = || numbers.next().expect("four numbers");
        ChildOutput {
            cpu: Duration::from_nanos(next()),
            allocations: next(),
            threads: next(),
            resident: next(),
        }
    }
}

/// Stops a process while `work` runs. Datagrams queue in its socket, so that it is busy until it
/// has forwarded them all.
pub fn while_paused<R>(process: Option<Pid>, work: impl FnOnce() -> R) -> R {
    let signal = |signal| process.is_some_and(|process| kill(process, signal).is_ok());
    let is_paused = signal(Signal::SIGSTOP);
    let done = work();
    if is_paused {
        signal(Signal::SIGCONT);
    }
    done
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.ask = None;
        self.child.wait().ok();
    }
}

/// Runs the role if this is a child process; otherwise returns. `allocations` returns the number of
/// the process's allocations.
///
/// # Panics
///
/// If the role cannot be parsed, or its sockets fail.
pub fn play_role(allocations: fn() -> u64) {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(MARK) {
        return;
    }
    let role = arguments.next().and_then(|name| Role::named(&name));
    let sink = arguments.next().and_then(|sink| sink.parse().ok());
    let (role, sink): (Role, SocketAddr) = role.zip(sink).expect("a role");
    pin(0);
    std::thread::spawn(move || answer(allocations));
    match role {
        Role::Plain => bare(sink, table::plain),
        Role::Mmsg => bare(sink, table::mmsg),
        Role::Upstreams => bare(sink, table::upstreams),
        Role::Relay(kind) => relay(kind, Batching::default()),
        Role::Spread(kind) => relay(kind, Batching::Many),
        Role::Exit => exit(sink),
    }
    std::process::exit(1);
}

fn bare(sink: SocketAddr, forward: fn(&UdpSocket, SocketAddr) -> io::Result<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    tell_door(socket.local_addr().expect("it is bound"), &NodeId([0; 32]));
    forward(&socket, sink).expect("a socket");
}

/// Runs a node which only relays.
fn relay(kind: HopKind, batching: Batching) {
    let mut config = end::config(kind);
    config.profile.roles = Roles::RELAY;
    let mut driver = DriverConfig::default();
    driver.batching = batching;
    run(config, driver);
}

/// Runs an exit node with a socket per player.
fn exit(server: SocketAddr) {
    let mut config = end::config(HopKind::Sealed);
    config.profile.roles = Roles::EXIT;
    let exit = ExitGame {
        server,
        entries: None,
        header: None,
    };
    config.games = vec![end::game(None, Some(exit))];
    let mut driver = DriverConfig::default();
    driver.opened_max = 8_192;
    run(config, driver);
}

/// Runs a node on a driver with its default implementation.
fn run(mut config: Config, driver: DriverConfig) {
    let identity = Identity::generate(&mut Ring::new()).expect("entropy");
    let id = identity.node_id();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = DriverSocket::bind(any, &SocketConfig::default()).expect("a port");
    let address = socket.local_address();
    config.profile.addresses = vec![address];
    let node = Node::new(config, identity, Ring::new(), Clock::new().now()).expect("entropy");
    let made = Driver::new(vec![socket], node, Operator, driver);
    let (driver, requests) = made.expect("descriptors");
    tell_door(address, &id);
    let end = driver.run();
    drop(requests);
    eprintln!("the node ended: {end:?}");
}

/// Pins this process to a core, if the system allows it.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    if set.set(core).is_ok() {
        sched_setaffinity(Pid::from_raw(0), &set).ok();
    }
}

/// Answers requests until stdin ends, then ends the process.
fn answer(allocations: fn() -> u64) {
    for line in io::stdin().lock().lines() {
        let cpu = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let cpu = cpu.map_or(Duration::ZERO, Duration::from).as_nanos();
        let threads = from_status("Threads:").saturating_sub(1);
        let resident = from_status("VmRSS:") * 1_024;
        let count = allocations();
        if line.is_err() || writeln!(io::stdout(), "{cpu} {count} {threads} {resident}").is_err() {
            break;
        }
    }
    std::process::exit(0);
}

/// Returns a number from this process's status file.
fn from_status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[expect(clippy::print_stdout, reason = "the parent process reads it")]
fn tell_door(address: SocketAddr, NodeId(id): &NodeId) {
    let id: Vec<String> = id.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{address} {}", id.concat());
}

fn read_door(line: &str) -> Option<(SocketAddr, NodeId)> {
    let (address, digits) = line.trim().split_once(' ')?;
    let mut id = [0; 32];
    for (place, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(place * 2..place * 2 + 2)?, 16).ok()?;
    }
    Some((address.parse().ok()?, NodeId(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acceptor_is_encoded_as_a_line() {
        let digits = "0123456789abcdef".repeat(4);
        let (address, id) = read_door(&format!("127.0.0.1:4000 {digits}\n")).unwrap();
        assert_eq!(address, "127.0.0.1:4000".parse().unwrap());
        assert_eq!(id.0[31], 0xef);
        assert_eq!(read_door("127.0.0.1:4000 00"), None);
    }

    #[test]
    fn roles_are_known_by_their_names() {
        for (role, name) in Role::NAMES {
            assert_eq!(Role::named(role.name()), Some(role));
            assert_eq!(role.name(), name);
        }
        assert_eq!(Role::named("other"), None);
    }
}
