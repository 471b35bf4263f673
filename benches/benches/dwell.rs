//! Waits and spreads of a stream of tickets: matches by a fixed tick, and with a price of waiting.
//!
//! `cargo bench -p tickwire-benches --bench dwell`, about 60 s. Virtual time: the figures do not depend on the
//! machine.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use std::time::Duration;

use benches::matching::{Policy, Population};
use harness::usage::answer;

/// The `--help` text.
const USAGE: &str = "\
Simulates queues with fixed ticks and with an adaptive dwell.

Usage: cargo bench --bench dwell";

fn main() {
    answer(USAGE, &[]);
    println!(
        "| tickets/s | matches | wait p50 / p95 / p99 s | spread p50 / p95 | team gap p50 / p95 |"
    );
    println!("|---|---|---|---|---|");
    for (per_second, seconds) in [(20, 300), (200, 300), (2_000, 90), (20_000, 40)] {
        let ticks = [100, 1_000, 5_000, 15_000].map(|ms| Policy::Tick(Duration::from_millis(ms)));
        let prices = [20, 10, 5, 2, 1].map(Policy::Price);
        for policy in ticks.into_iter().chain(prices) {
            let span = Duration::from_secs(seconds);
            let stream = Population::FIVE_ON_FIVE.stream(per_second, span, policy);
            let [p50, p95, p99] = stream.wait_s;
            let ([spread, spread_p95], [gap, gap_p95]) = (stream.spread, stream.team_gap);
            println!(
                "| {per_second} | {policy} | {p50:.2} / {p95:.2} / {p99:.2} | {spread} / {spread_p95} | {gap} / {gap_p95} |"
            );
        }
    }
}
