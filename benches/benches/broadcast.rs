//! CPU time to send one message of 100 B to 1,000 clients over TCP and TLS, compared with bare
//! write loops in interleaved rounds of one process. Then the cost of the idle server and the time
//! of its shutdown.
//!
//! `cargo bench --bench broadcast [-- ROUNDS [THREADS]]`: 41 rounds by default, at least 11. The
//! server chooses the number of its threads by default. Linux only, because it reads per-thread CPU
//! times from the scheduler.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use benches::broadcast::{
    Clients, Guests, MESSAGE_LEN, PlainLoop, TlsLoop, count_threads, cpu_time_of_threads,
};
use benches::measure::cpu_time_of;
use bytes::Bytes;
use crypto::{Identity, Ring};
use harness::statistics::median;
use harness::usage::answer;
use nix::time::{ClockId, clock_gettime};
use servicer::{
    Admission, Clock, Dest, Dial, ReliableConfig, ReliableServer, ServerEvent, StreamListener,
    StreamServicer, TcpServicers, TlsIdentity, raise_descriptor_limit,
};

/// Number of clients.
const COUNT: usize = 1_000;

/// Messages per round, sent one after the other.
const MESSAGES: u32 = 5;

/// Duration of the idle measurement.
const REST: Duration = Duration::from_secs(20);

/// The `--help` text.
const USAGE: &str = "\
Times a message of 100 B to 1,000 clients over TCP and TLS, beside bare loops.

Usage: cargo bench --bench broadcast -- [ROUNDS [THREADS]]

ROUNDS: 41 by default, at least 11. THREADS: as many as the server chooses by default.";

fn main() -> Result<(), Box<dyn Error>> {
    answer(USAGE, &[]);
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<usize>().ok());
    let rounds = numbers.next().unwrap_or(41).max(11);
    let threads = numbers.next().and_then(NonZeroUsize::new);
    let descriptors = raise_descriptor_limit();
    println!("descriptors: {descriptors:?}");
    let mut ours = Ours::new(threads)?;
    let mut plain = PlainLoop::new(COUNT)?;
    let mut tls = TlsLoop::new(COUNT)?;
    let threads = count_threads(SERVER);
    let before = ours.orders();
    let mut times = [const { Vec::new() }; 4];
    for round in 0..rounds {
        let mut wall = Duration::ZERO;
        let mut found = [Duration::ZERO; 3];
        for place in 0..3 {
            let case = (place + round) % 3;
            for _ in 0..MESSAGES {
                let time = match case {
                    0 => ours.broadcast(&mut wall),
                    1 => plain.broadcast(),
                    _ => tls.broadcast(),
                };
                if let Some(sum) = found.get_mut(case) {
                    *sum += time;
                }
            }
        }
        for (times, time) in times.iter_mut().zip(found.into_iter().chain([wall])) {
            times.push(time.as_secs_f64() * 1e6 / f64::from(MESSAGES));
        }
    }
    let slots = ours.orders() - before;
    let messages = u64::try_from(rounds)? * u64::from(MESSAGES);
    let [ours_us, plain_us, tls_us, wall_us] = times.map(median);
    println!("{COUNT} clients, {MESSAGE_LEN} B, {rounds} rounds of {MESSAGES}, medians");
    println!("{:<44} {:>10} {:>16}", "case", "cpu_us", "server / case");
    for (name, time) in [
        ("reliable server, all its threads", ours_us),
        ("bare loop of writes, no TLS", plain_us),
        ("bare loop of TLS and writes", tls_us),
    ] {
        println!("{name:<44} {time:>10.0} {:>16.2}", ours_us / time);
    }
    println!("until the last client has it                 {wall_us:>10.0} us");
    println!("threads of the server                        {threads:>10}");
    println!(
        "orders, a message and a thread that serves   {:>10.2}",
        ratio(slots, messages) / ratio(u64::try_from(threads - 1)?, 1)
    );
    let (cpu, turns) = (cpu_time_of_threads(SERVER), ours.turns());
    let process = process_time();
    std::thread::park_timeout(REST);
    let percent = |time: Duration| 100.0 * time.as_secs_f64() / REST.as_secs_f64();
    println!(
        "at rest for {REST:?}: server {:.4} %, process {:.4} % of a core, {} turns",
        percent(cpu_time_of_threads(SERVER).saturating_sub(cpu)),
        percent(process_time().saturating_sub(process)),
        ours.turns() - turns
    );
    let clock = Clock::new();
    let (began, process) = (clock.now(), process_time());
    let report = ours.server.shutdown(Duration::from_secs(5), Bytes::new());
    let took = clock.now().saturating_since(began);
    let process = process_time().saturating_sub(process);
    println!(
        "shutdown with {COUNT} clients: {took:?}, {process:?} of CPU time, theirs included; {report}"
    );
    Ok(())
}

/// Prefix of the names of the server's threads.
const SERVER: &str = "bench-tcp";

/// A reliable server, with its clients on one thread.
struct Ours {
    server: ReliableServer,
    incoming: Arc<AtomicU64>,
    /// Total messages that the clients should have received by now.
    expected: u64,
    _crowd: servicer::tcp::StreamHandle<()>,
}

impl Ours {
    fn new(threads: Option<NonZeroUsize>) -> Result<Self, Box<dyn Error>> {
        let identity = TlsIdentity::new(&Identity::generate(&mut Ring::new())?)?;
        let any = "127.0.0.1:0".parse()?;
        let listener = StreamListener::bind(any, &identity, Admission::Anyone)?;
        let address = listener.local_address();
        let mut config = ReliableConfig::default();
        config.servicers = threads.map(|threads| TcpServicers::Pool { threads });
        let mut server = ReliableServer::start(SERVER, vec![listener], &config)?;
        let incoming = Arc::<AtomicU64>::default();
        let peer = identity.node_id().into();
        let count = u64::try_from(COUNT)?;
        let clients = Clients::new(Dial { address, peer }, count, Arc::clone(&incoming));
        let clients = StreamServicer::named("crowd").spawn(Vec::new(), clients, Guests)?;
        while server.members().count() < COUNT {
            match server.wait_event(Duration::from_secs(30)) {
                Some(ServerEvent::Join(request)) => {
                    server.accept(request, Bytes::new())?;
                }
                other => return Err(format!("{other:?}").into()),
            }
        }
        let ours = Self {
            server,
            incoming,
            expected: count,
            _crowd: clients,
        };
        ours.wait();
        Ok(ours)
    }

    /// Sends one message to all. Returns the CPU time of the application and the server until all
    /// have received it, and adds the elapsed time to `wall`.
    fn broadcast(&mut self, wall: &mut Duration) -> Duration {
        let clock = Clock::new();
        let (before, began) = (cpu_time_of_threads(SERVER), clock.now());
        let payload = Bytes::from(vec![0x5A; MESSAGE_LEN]);
        let sending = cpu_time_of(|| {
            let sent = self.server.send(Dest::All, payload);
            assert_eq!(sent, Ok(COUNT));
        });
        self.expected += u64::try_from(COUNT).unwrap_or(0);
        self.wait();
        *wall += clock.now().saturating_since(began);
        // Includes the work that the server does after its last write.
        std::thread::park_timeout(Duration::from_millis(2));
        sending + cpu_time_of_threads(SERVER).saturating_sub(before)
    }

    /// Waits until the clients have received all messages.
    fn wait(&self) {
        while self.incoming.load(Ordering::Relaxed) < self.expected {
            std::thread::park_timeout(Duration::from_micros(200));
        }
    }

    fn orders(&self) -> u64 {
        let counters = self.server.counters();
        counters.iter().map(|counters| counters.requests).sum()
    }

    fn turns(&self) -> u64 {
        let counters = self.server.counters();
        counters.iter().map(|counters| counters.turns).sum()
    }
}

fn process_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
