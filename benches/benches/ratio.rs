//! CPU time of each case compared with its floor, from interleaved rounds in one process.
//!
//! `cargo bench --bench ratio [-- ROUNDS]`, 21 by default, at least 11.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use benches::flood::Flood;
use benches::floor::{BareCurve, BareDirection, BareHash};
use benches::handshake::Handshakes;
use benches::measure::{Case, Repeat, compare};
use benches::pair::{MESSAGE_LEN, Pair, RELIABLE, UNRELIABLE};
use harness::usage::answer;

/// One line of the table.
struct Line {
    name: &'static str,
    ours: Box<dyn Case>,
    floor: Box<dyn Case>,
}

/// The `--help` text.
const USAGE: &str = "\
Times each case beside its floor, in memory.

Usage: cargo bench --bench ratio -- [ROUNDS]

ROUNDS: 21 by default, at least 11.";

fn main() {
    answer(USAGE, &[]);
    let rounds = std::env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(21)
        .max(11);
    println!("{rounds} interleaved rounds; load average {}", load());
    for channel in [UNRELIABLE, RELIABLE] {
        let mut pair = Pair::new(channel);
        (0..1_000).for_each(|_| pair.tick());
        let (datagrams, bytes) = pair.per_tick();
        println!(
            "channel {}: {datagrams:.2} datagrams, {bytes:.0} bytes a tick, both ways together",
            channel.0
        );
    }
    println!(
        "{:<28} {:>10} {:>10} {:>7}  quartiles",
        "case", "ours_ns", "floor_ns", "ratio"
    );
    for mut line in lines() {
        let found = compare(&mut *line.ours, &mut *line.floor, rounds);
        let [low, high] = found.quartiles;
        println!(
            "{:<28} {:>10.0} {:>10.0} {:>7.2}  {low:.2} to {high:.2}",
            line.name, found.ours, found.floor, found.ratio
        );
    }
    println!("load average {}", load());
}

fn lines() -> Vec<Line> {
    let ticks = |name, channel| {
        let mut pair = Pair::new(channel);
        Line {
            name,
            ours: Box::new(Repeat(move || pair.tick())),
            floor: bare_packets(),
        }
    };
    let floods = |name, mut flood: Flood| {
        let hash = BareHash::new();
        Line {
            name,
            ours: Box::new(Repeat(move || flood.refuse())),
            floor: Box::new(Repeat(move || hash.hash())),
        }
    };
    let mut curve = BareCurve::new();
    vec![
        ticks("tick, unreliable", UNRELIABLE),
        ticks("tick, reliable", RELIABLE),
        Line {
            name: "handshake",
            ours: Box::new(Handshakes::new()),
            floor: Box::new(Repeat(move || curve.shake_hands())),
        },
        floods("hello without cookie", Flood::without_cookie()),
        floods("hello with stolen token", Flood::with_stolen_token()),
    ]
}

/// A message in each direction over bare packets.
fn bare_packets() -> Box<dyn Case> {
    let (mut up, mut down) = (BareDirection::new(), BareDirection::new());
    let message = [0x5A; MESSAGE_LEN];
    Box::new(Repeat(move || {
        up.pass(&message);
        down.pass(&message);
    }))
}

/// Returns the system's load over 1, 5 and 15 minutes, if available.
fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(
        |_| "unknown".to_owned(),
        |line| line.split(' ').take(3).collect::<Vec<_>>().join(" "),
    )
}
