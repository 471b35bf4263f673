//! CPU time of one node's route computation in a full mesh of 1,000 nodes, compared with the goals.
//!
//! `cargo bench -p tickwire-benches --bench routes [-- ROUNDS]`, 21 by default.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use benches::relay::routing::{Routing, times};
use harness::usage::answer;

/// The `--help` text.
const USAGE: &str = "\
Times the routes of one node in a mesh of 1,000 nodes.

Usage: cargo bench --bench routes -- [ROUNDS]

ROUNDS: 21 by default.";

fn main() {
    answer(USAGE, &[]);
    let rounds = std::env::args().find_map(|argument| argument.parse().ok());
    let rounds: u32 = rounds.unwrap_or(21);
    let mut mesh = Routing::new(1, 1_000);
    println!("| 1,000 nodes | median ms | largest ms | goal ms |");
    println!("|---|---|---|---|");
    row("costs to all", times(rounds, || mesh.costs()), None);
    row(
        "costs and best routes to all",
        times(rounds, || mesh.own()),
        Some(1.0),
    );
    let alternatives = times(rounds, || mesh.alternatives());
    row(
        "three disjoint routes to 16 exits",
        alternatives,
        Some(20.0),
    );
    let change = times(rounds * 50, || mesh.link_change());
    row("one link changed", change, Some(0.2));
    let change = times(rounds * 50, || mesh.own_link_change());
    row("one link of its own changed", change, Some(0.2));
    let pairs = times(rounds.min(5), || mesh.all_pairs());
    row("all pairs over one relay", pairs, Some(250.0));
    let mut larger = Routing::new(2, 1_024);
    let (median, largest) = times(rounds, || larger.own());
    row(
        "1,024 nodes: costs and best routes to all",
        (median, largest),
        Some(2.22),
    );
    println!("\n222 ms / {median:.3} ms = {:.0} times", 222.0 / median);
}

fn row(name: &str, (median, largest): (f64, f64), goal: Option<f64>) {
    let goal = goal.map_or_else(String::new, |goal| goal.to_string());
    println!("| {name} | {median:.3} | {largest:.3} | {goal} |");
}
