//! `relay_mesh` beside bare forwarders: the program `peers-relay` of `benches`, and what the crate's
//! own tests print.

mod goal;
mod said;
mod table;

use std::path::Path;

use super::row::Rows;
use super::{Options, collect, load, processor, publish, report};
use crate::failure::Failure;
use crate::member::Metadata;
use crate::process;
use table::Machine;

/// Measures and judges; what has no row yet is told as not measured, and never as met.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let before = load();
    let rows = measure(options)?;
    let machine = Machine {
        processor: processor(),
        load: [before, load()],
        rounds: options.rounds,
    };
    report(&rows, options)?;
    let judged = goal::judge(&rows);
    let text = table::markdown(&rows, &judged, &machine);
    for judgement in &judged {
        println!("peers: {}", judgement.line());
    }
    publish(table::MARKS, &text)
}

/// Builds the program and runs it, then has the tests say their figures.
fn measure(options: &Options) -> Result<Rows, Failure> {
    let mut build = process::cargo(["build", "--release", "--locked", "-p", "tickwire-benches"]);
    process::run(build.args(["--bin", "peers-relay"]))?;
    let programs = Metadata::load()?.target_directory.join("release");
    let program = programs.join("peers-relay").display().to_string();
    let rounds = options.rounds.to_string();
    let mut rows = Rows::default();
    // Before others, where the system lets it: nodes that have no time take each other for dead.
    let arguments = ["-n", "-10", &program, &rounds];
    collect(Path::new("nice"), &arguments, &mut rows)?;
    for [kind, test] in TESTS {
        let mut tests = process::cargo(["test", "-p", "tickwire-relay-mesh"]);
        tests
            .args(kind.split(' '))
            .args([test, "--", "--nocapture"]);
        let text = process::output(tests.env("SEEDS", KILLS))?;
        rows.extend(text.lines().flat_map(said::rows));
    }
    Ok(rows)
}

/// Tests that print what is not timed.
const TESTS: [[&str; 2]; 2] = [
    ["--lib", "mesh_s1_all_three_goals"],
    ["--test it", "sim_mesh_m3"],
];
/// Relays killed, each with a seed of its own.
const KILLS: &str = "200";
