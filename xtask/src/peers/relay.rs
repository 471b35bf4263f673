//! `relay_mesh` beside bare forwarders: the program `peers-relay` of `benches`, and what the crate's
//! own tests print.

mod goal;
mod said;
mod shown;
mod table;

use std::path::Path;
use std::process::Command;

use super::row::Rows;
use super::{Options, collect, load, processor, publish, report};
use crate::failure::Failure;
use crate::member::Metadata;
use crate::process;
use shown::SHOWN;
use table::Machine;

/// Measures and judges; what has no row yet is told as not measured, and never as met.
///
/// Tests that fail have said their figures before: these are told first.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let before = load();
    let mut rows = measure(options)?;
    let failures: Vec<_> = TESTS
        .iter()
        .filter_map(|tests| tests.add(&mut rows).err())
        .collect();
    let machine = Machine {
        processor: processor(),
        load: [before, load()],
        rounds: options.rounds,
    };
    report(&rows, options)?;
    let judged = goal::judge(&rows);
    let tables = table::tables(&rows, &judged, &machine);
    for judgement in &judged {
        println!("peers: {}", judgement.line());
    }
    for shown in SHOWN {
        println!("peers: {}", shown.line());
    }
    publish(&tables)?;
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// Builds the program and runs it.
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
    Ok(rows)
}

/// Tests that print what is not timed.
#[derive(Clone, Copy, Debug)]
struct Tests {
    /// Which of the crate's test programs.
    target: &'static [&'static str],
    /// What their names hold.
    names: &'static [&'static str],
    /// How many, of those that run under seeds.
    seeds: &'static str,
}

const UNIT: &[&str] = &["--lib"];
const WHOLE: &[&str] = &["--test", "it"];

/// All of them.
const TESTS: [Tests; 4] = [
    Tests {
        target: UNIT,
        names: &[
            "mesh_s1_all",
            "mesh_s2_",
            "mesh_s3_",
            "mesh_r4_three",
            "mesh_m5_",
        ],
        seeds: "1",
    },
    // A relay is killed under each.
    Tests {
        target: WHOLE,
        names: &["sim_mesh_m2_", "sim_mesh_m3_", "sim_mesh_m4_"],
        seeds: "1000",
    },
    // Nine planned moves and more under each.
    Tests {
        target: WHOLE,
        names: &["sim_mesh_m1_moves_"],
        seeds: "120",
    },
    Tests {
        target: WHOLE,
        names: &[
            "mesh_f8_a_packet_",
            "sim_mesh_m6_a_thousand_",
            "sim_mesh_g1_",
            "sim_pgx13_whole_nodes_",
        ],
        seeds: "1",
    },
];

impl Tests {
    /// Runs them, and adds what they print.
    fn add(&self, rows: &mut Rows) -> Result<(), Failure> {
        process::run_lines(&mut self.command(), |line| rows.extend(said::row(line)))
    }

    fn command(&self) -> Command {
        let mut command = process::cargo(["test", "--locked", "-p", "tickwire-relay-mesh"]);
        command
            .args(self.target)
            .args(["--", "--nocapture"])
            .args(self.names)
            .env("SEEDS", self.seeds);
        // They would win, or name others.
        command.env_remove("SEED").env_remove("FROM");
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named_behind_the_dashes() {
        let [.., moves, _] = TESTS;
        let line = process::line(&moves.command());
        let expected = "cargo test --locked -p tickwire-relay-mesh --test it -- --nocapture \
                        sim_mesh_m1_moves_";
        assert_eq!(line, expected);
    }
}
