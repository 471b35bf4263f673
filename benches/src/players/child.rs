//! The child process: the same program in another role.

use core::fmt::Write as _;
use core::net::SocketAddr;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use crypto::PublicKey;
use nix::time::{ClockId, clock_gettime};

use super::{Plan, clients, echo};

/// The role of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs players at a server with this key.
    Players(PublicKey),
    /// Sends datagrams of this length.
    Datagrams(usize),
}

/// Counters of the process, which only increase.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of turns taken.
    taken: AtomicU64,
    /// Ticks that players have received, or datagrams received.
    incoming: AtomicU64,
}

impl Tally {
    pub(super) fn turn_taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_turns(&self, count: u32) {
        if count > 0 {
            self.incoming.fetch_add(count.into(), Ordering::Relaxed);
        }
    }
}

/// A report of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildOutput {
    /// Turns that its players took.
    pub taken: u64,
    /// Ticks that they have received, or datagrams received.
    pub incoming: u64,
    /// CPU time used.
    pub cpu: Duration,
}

/// A child process, which ends when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// A line requests a report; the end of the pipe ends the process.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// First argument of a child process.
const MARK: &str = "other-process";

impl Process {
    /// Starts this program as `role`, with `address` as its server.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn start(plan: Plan, address: SocketAddr, role: Role) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([MARK, &line_of(plan, address, role)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let answers = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            ask: child.stdin.take(),
            answers: BufReader::new(answers),
            child,
        })
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
        let mut next = || numbers.next().expect("three numbers");
        ChildOutput {
            taken: next(),
            incoming: next(),
            cpu: Duration::from_nanos(next()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.ask = None;
        self.child.wait().ok();
    }
}

/// Runs the role if this is a child process; otherwise returns.
///
/// # Panics
///
/// If the role cannot be parsed.
pub fn play_role() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(MARK) {
        return;
    }
    let line = arguments.next().unwrap_or_default();
    let (plan, address, role) = read(&line).expect("a role");
    let tally = Arc::<Tally>::default();
    answer(Arc::clone(&tally));
    match role {
        Role::Players(key) => clients::play(plan, (address, key), &tally),
        Role::Datagrams(len) => echo::send(plan, (address, len), &tally),
    }
}

/// Answers requests until stdin ends, then ends the process.
fn answer(tally: Arc<Tally>) {
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let cpu = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
            let cpu = cpu.map_or(Duration::ZERO, Duration::from).as_nanos();
            let taken = tally.taken.load(Ordering::Relaxed);
            let incoming = tally.incoming.load(Ordering::Relaxed);
            if line.is_err() || writeln!(io::stdout(), "{taken} {incoming} {cpu}").is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
}

/// Encodes a role as one line.
fn line_of(plan: Plan, address: SocketAddr, role: Role) -> String {
    let mut line = format!("{} {} {address} ", plan.matches, plan.rate);
    match role {
        Role::Players(key) => {
            for byte in key.0 {
                write!(line, "{byte:02x}").expect("a string takes all");
            }
        }
        Role::Datagrams(len) => write!(line, "={len}").expect("a string takes all"),
    }
    line
}

fn read(line: &str) -> Option<(Plan, SocketAddr, Role)> {
    let mut words = line.split(' ');
    let plan = Plan {
        matches: words.next()?.parse().ok()?,
        rate: words.next()?.parse::<NonZeroU32>().ok()?,
    };
    let address = words.next()?.parse().ok()?;
    let last = words.next()?;
    let role = match last.strip_prefix('=') {
        Some(len) => Role::Datagrams(len.parse().ok()?),
        None => Role::Players(key(last)?),
    };
    Some((plan, address, role))
}

fn key(digits: &str) -> Option<PublicKey> {
    let mut key = [0; PublicKey::LEN];
    for (place, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(place * 2..place * 2 + 2)?, 16).ok()?;
    }
    (digits.len() == PublicKey::LEN * 2).then_some(PublicKey(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_encoded_as_a_line() {
        let plan = Plan {
            matches: 313,
            rate: NonZeroU32::new(60).unwrap(),
        };
        let address = "127.0.0.1:4000".parse().unwrap();
        let mut bytes = [0; PublicKey::LEN];
        (0..)
            .zip(&mut bytes)
            .for_each(|(it, byte)| *byte = u8::wrapping_mul(it, 7));
        for role in [Role::Players(PublicKey(bytes)), Role::Datagrams(59)] {
            let line = line_of(plan, address, role);
            assert_eq!(read(&line), Some((plan, address, role)), "{line}");
        }
        assert_eq!(read("313 60 127.0.0.1:4000 00"), None, "a key is longer");
        assert_eq!(read("313 0 127.0.0.1:4000 =5"), None, "a rate is not 0");
    }
}
