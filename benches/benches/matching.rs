//! CPU time of a pass over a full queue, compared with a scan of the queue for each ticket.
//!
//! `cargo bench -p tickwire-benches --bench matching [-- ROUNDS]`, 5 by default.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use benches::matching::{Pass, Population};
use harness::usage::answer;

/// The `--help` text.
const USAGE: &str = "\
Times a pass of the matchmaker over a full queue.

Usage: cargo bench --bench matching -- [ROUNDS]

ROUNDS: 5 by default.";

fn main() {
    answer(USAGE, &[]);
    let rounds = std::env::args().find_map(|argument| argument.parse().ok());
    let rounds: u32 = rounds.unwrap_or(5);
    println!("| queue | tickets | M tickets/s | ms | longest call ms | matched | spread | goal |");
    println!("|---|---|---|---|---|---|---|---|");
    let parties = Population::FIVE_ON_FIVE;
    row("5v5, scan", parties.scan(5_000), "");
    for (tickets, goal) in [
        (5_000, ""),
        (20_000, ""),
        (100_000, "1.5 M/s"),
        (1_000_000, "1,500 ms"),
    ] {
        row("5v5", parties.pass(tickets, rounds), goal);
    }
    let duel = Population {
        teams: 2,
        team: 1,
        party_max: 1,
    };
    row("1v1", duel.pass(100_000, rounds), "");
    let alone = Population {
        teams: 1,
        team: 1,
        party_max: 1,
    };
    row("1 player", alone.pass(100_000, rounds), "1 M/s");
}

fn row(name: &str, pass: Pass, goal: &str) {
    println!(
        "| {name} | {} | {:.2} | {:.1} | {:.2} | {} | {:.1} | {goal} |",
        pass.tickets,
        pass.per_s / 1e6,
        pass.ms,
        pass.longest_ms,
        pass.matched,
        pass.spread
    );
}
