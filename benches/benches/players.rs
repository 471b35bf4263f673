//! CPU time per player and tick of a server, end to end: real loopback sockets, encryption, a
//! driver, and a match server per eight players. It is compared with bare loops which receive and
//! send as many datagrams of equal lengths, in interleaved rounds of one run. Goal G5 of lockstep.
//! Linux only.
//!
//! A player and tick is one datagram in and one out, except for losses and delays. The loops are
//! measured per pair of datagrams, so the server's CPU time per pair is printed too.
//!
//! `cargo bench --bench players [-- PLAYERS RATE ROUNDS]`; by default 600 players at 60 Hz, then
//! the goal's numbers, 2,504 at 60 Hz and 4,000 at 30 Hz, three rounds each.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]
#![expect(
    clippy::expect_used,
    reason = "a bench whose sessions do not work must stop, not measure something else"
)]

use core::num::NonZeroU32;
use core::time::Duration;

use benches::players::child::{ChildOutput, Process, Role, play_role};
use benches::players::floor::{Floor, Lengths, Work};
use benches::players::host::{Count, Host};
use benches::players::{Plan, SEATS};
use harness::statistics::median;
use harness::usage::answer;
use servicer::Clock;

/// Time between the last connection and the measurement.
const SETTLING: Duration = Duration::from_secs(2);
/// Duration of a measurement with players, per round.
const SERVED: Duration = Duration::from_secs(10);
/// Duration of a loop's measurement, per round.
const LOOPED: Duration = Duration::from_secs(4);
/// Time limit for all players to connect.
const GATHERING: Duration = Duration::from_secs(60);

const LOOPS: [(Work, &str); 3] = [
    (Work::Batches, "loop, 32 and 64 a call"),
    (Work::SealedBatches, "the same with AEAD"),
    (Work::Single, "loop, one a call"),
];

/// The `--help` text.
const USAGE: &str = "\
Times what a player costs a server in a tick, over sockets.

Usage: cargo bench --bench players -- [PLAYERS RATE [ROUNDS]]

Without arguments 600 players at 60 Hz, then 2,504 at 60 Hz and 4,000 at 30 Hz. ROUNDS: 3 by default.";

fn main() {
    play_role();
    answer(USAGE, &[]);
    println!(
        "descriptors: {:?}; load average {}",
        servicer::raise_descriptor_limit(),
        load()
    );
    let numbers: Vec<u32> = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    if let [players, rate, rest @ ..] = numbers.as_slice() {
        let rounds = rest.first().copied().unwrap_or(3);
        measure(plan(*players, *rate), rounds);
    } else {
        measure(plan(600, 60), 3);
        measure(plan(2_504, 60), 3);
        measure(plan(4_000, 30), 3);
    }
    println!("load average {}", load());
}

fn plan(players: u32, rate: u32) -> Plan {
    Plan {
        matches: players.div_ceil(SEATS.into()).max(1),
        rate: NonZeroU32::new(rate).expect("some ticks a second"),
    }
}

/// Results of one round with players.
struct Served {
    /// CPU time per player and tick, in nanoseconds.
    nanos: f64,
    /// CPU time per datagram in and datagram out, in nanoseconds.
    pair_nanos: f64,
    /// Share of one core.
    share: f64,
    /// Datagrams in and out per player and tick.
    datagrams: [f64; 2],
    lengths: Lengths,
    /// Share of due ticks that were closed.
    closed: f64,
    /// Share of closed ticks that players received.
    incoming: f64,
    /// Share of inputs that were substituted.
    substituted: f64,
    /// Share of due turns that players took.
    turns: f64,
    /// The players' share of a core.
    clients_share: f64,
    pauses: u64,
    lost: u32,
    /// Sorted delays of tick closings.
    lateness: Vec<Duration>,
}

fn measure(plan: Plan, rounds: u32) {
    println!(
        "\n{} players in matches of {SEATS}, {} ticks a second, {rounds} rounds of {SERVED:?}",
        plan.players(),
        plan.rate
    );
    // Determines datagram lengths for the loops of the first round.
    let trial = Plan {
        matches: 10,
        ..plan
    };
    let mut lengths = serve(trial, Duration::from_secs(2)).lengths;
    let mut loops = LOOPS.map(|_| Vec::new());
    let mut served = Vec::new();
    for round in 0..rounds {
        let is_first = round % 2 == 0;
        if is_first {
            served.push(serve(plan, SERVED));
        }
        for ((work, _), found) in LOOPS.into_iter().zip(&mut loops) {
            found.push(run_loop(plan, work, lengths));
        }
        if !is_first {
            served.push(serve(plan, SERVED));
        }
        if let Some(last) = served.last() {
            lengths = last.lengths;
        }
    }
    for round in &served {
        round.print();
    }
    let ours = median(served.iter().map(|round| round.nanos).collect());
    let pairs = median(served.iter().map(|round| round.pair_nanos).collect());
    let mut bare = f64::NAN;
    println!(
        "{:<28} {:>10} {:>14} {:>14} {:>10}",
        "medians", "ns_a_pair", "ticks / it", "pairs / it", "cores"
    );
    println!("{:<28} {ours:>10.0}", "players, for each tick");
    println!("{:<28} {pairs:>10.0}", "players, for each pair");
    for ((_, name), found) in LOOPS.into_iter().zip(loops) {
        let nanos = median(found.iter().map(|[nanos, _]| *nanos).collect());
        let share = median(found.iter().map(|[_, share]| *share).collect());
        println!(
            "{name:<28} {nanos:>10.0} {:>14.2} {:>14.2} {share:>10.2}",
            ours / nanos,
            pairs / nanos
        );
        bare = bare.min(nanos);
    }
    println!("{}", verdict(&served, [ours / bare, pairs / bare]));
}

/// Returns whether the goal was reached with these players.
fn verdict(served: &[Served], [ratio, of_pairs]: [f64; 2]) -> String {
    let least = |of: fn(&Served) -> f64| served.iter().map(of).fold(f64::INFINITY, f64::min);
    let (closed, turns) = (least(|round| round.closed), least(|round| round.turns));
    if turns < TURNS_LEAST {
        return format!(
            "undecided: clients had no time for more than {turns:.2} of their turns, and a server that hears \
             less works less"
        );
    }
    let is_whole = closed > CLOSED_LEAST && served.iter().all(|round| round.lost == 0);
    let said = |is_met| if is_met { "met" } else { "missed" };
    format!(
        "every tick closed: {}; at most {RATIO_MOST} times the cheapest loop: {ratio:.2}, {}; by pairs of \
         datagrams {of_pairs:.2}, {}",
        said(is_whole),
        said(ratio <= RATIO_MOST),
        said(of_pairs <= RATIO_MOST)
    )
}

/// Minimum share of the clients' turns. With fewer, the server's cost per player and tick is
/// meaningless.
const TURNS_LEAST: f64 = 0.98;

/// Minimum share of due ticks that close. In ten seconds, half a tick is in progress at either end.
const CLOSED_LEAST: f64 = 0.999;

/// The goal: maximum ratio of CPU time per player and tick to that of a datagram in and one out.
const RATIO_MOST: f64 = 1.25;

/// Serves players for `span`.
fn serve(plan: Plan, span: Duration) -> Served {
    let mut host = Host::new(plan);
    let (address, key) = host.door;
    let mut players = Process::start(plan, address, Role::Players(key)).expect("a process");
    host.gather(GATHERING);
    host.serve(SETTLING);
    host.take_lateness();
    let clock = Clock::new();
    let before = (host.count(), players.ask(), clock.now());
    let cpu = host.serve(span);
    let wall = clock.now().saturating_since(before.2);
    let after = (host.count(), players.ask());
    let mut found = Served::new((plan, wall), cpu, [before.0, after.0], [before.1, after.1]);
    found.lateness = host.take_lateness();
    found
}

impl Served {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    fn new(
        (plan, wall): (Plan, Duration),
        cpu: Duration,
        [before, after]: [Count; 2],
        [said_before, said]: [ChildOutput; 2],
    ) -> Self {
        let ticks = (after.ticks - before.ticks) as f64;
        let player_ticks = ticks * f64::from(SEATS);
        let due = plan.player_ticks(wall);
        let (old, new) = (before.driver, after.driver);
        let count = [
            new.datagrams_in - old.datagrams_in,
            new.datagrams_out - old.datagrams_out,
        ];
        let bytes = [
            after.endpoint.bytes_received - before.endpoint.bytes_received,
            after.endpoint.bytes_sent - before.endpoint.bytes_sent,
        ];
        let len = |at: usize| {
            let (bytes, count) = (bytes.get(at), count.get(at));
            let (bytes, count) = (bytes.copied().unwrap_or(0), count.copied().unwrap_or(0));
            usize::try_from(bytes.div_ceil(count.max(1))).unwrap_or(usize::MAX)
        };
        Self {
            nanos: cpu.as_secs_f64() * 1e9 / player_ticks,
            pair_nanos: cpu.as_secs_f64() * 2e9 / count.iter().sum::<u64>() as f64,
            share: cpu.as_secs_f64() / wall.as_secs_f64(),
            datagrams: count.map(|count| count as f64 / player_ticks),
            lengths: Lengths {
                up: len(0),
                down: len(1),
            },
            closed: player_ticks / due,
            incoming: (said.incoming - said_before.incoming) as f64 / player_ticks,
            substituted: (after.substituted - before.substituted) as f64 / player_ticks,
            turns: (said.taken - said_before.taken) as f64 / due,
            clients_share: said.cpu.saturating_sub(said_before.cpu).as_secs_f64()
                / wall.as_secs_f64(),
            pauses: after.pauses - before.pauses,
            lost: after.lost,
            lateness: Vec::new(),
        }
    }

    fn print(&self) {
        let [up, down] = self.datagrams;
        println!(
            "players: {:.0} ns a player and tick, {:.0} a pair of datagrams, {:.2} of a core; {up:.3} \
             datagrams of {} B in, {down:.3} of {} B out",
            self.nanos, self.pair_nanos, self.share, self.lengths.up, self.lengths.down
        );
        println!(
            "  ticks closed {:.4} of those due, {} clocks set back, {} players lost; heard by \
             players {:.4}; inputs filled in {:.4}",
            self.closed, self.pauses, self.lost, self.incoming, self.substituted
        );
        println!(
            "  clients took {:.4} of their turns with {:.2} of a core; ticks closed late by \
             {:?} (median), {:?} (99 %), {:?} (99.9 %), {:?} at most",
            self.turns,
            self.clients_share,
            part(&self.lateness, 500),
            part(&self.lateness, 990),
            part(&self.lateness, 999),
            part(&self.lateness, 1_000),
        );
    }
}

/// Runs a loop. Returns the CPU time per datagram in and datagram out in nanoseconds, and the share
/// of a core.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn run_loop(plan: Plan, work: Work, lengths: Lengths) -> [f64; 2] {
    let mut floor = Floor::new(plan, work, lengths);
    let role = Role::Datagrams(lengths.up);
    let _others = Process::start(plan, floor.address(), role).expect("a process");
    floor.gather(plan, GATHERING);
    floor.run(Duration::from_secs(1));
    let before = floor.datagrams();
    let cpu = floor.run(LOOPED).as_secs_f64();
    let [up, down] = floor.datagrams();
    let datagrams = up + down - before.iter().sum::<u64>();
    [cpu * 2e9 / datagrams as f64, cpu / LOOPED.as_secs_f64()]
}

/// Returns the quantile of `sorted`, in thousandths.
fn part(sorted: &[Duration], thousandths: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(last * thousandths / 1_000)
        .copied()
        .unwrap_or_default()
}

/// Returns the system's load over 1, 5 and 15 minutes, if available.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
