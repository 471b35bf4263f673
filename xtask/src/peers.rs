//! Comparison with other stacks: builds and runs the benchmark programs and evaluates their
//! results.
//!
//! Packages with other stacks are outside the workspace, since those stacks are no dependencies of
//! Tickwire. The bare forwarder that a relay is compared with is in `benches`. Goals and tables are
//! in `benches/harness`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::comparison::{Comparison, Machine};
use harness::goal::Verdict;
use harness::row::{Row, Rows};
use harness::{hub, lockstep, relay, udp};

use crate::failure::Failure;
use crate::member::Metadata;
use crate::need::Absent;
use crate::process;
use crate::servers;

/// The page with the summaries.
const PAGE: &str = "docs/benchmarks.md";

/// What to measure, and where to write the results.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The protocol to compare.
    protocol: Protocol,
    /// Writes all rows to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Rounds of the in-memory cases.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Rounds of the cases over sockets, about 12 s for each stack and case.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    load_rounds: u32,
}

/// A protocol with comparisons.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Protocol {
    /// Encrypted sessions over datagrams.
    Udp,
    /// Matches of lockstep and rollback, in virtual time.
    Lockstep,
    /// A relay of a mesh, compared with bare forwarders.
    Relay,
    /// The hub, compared with NATS and Redis.
    Hub,
}

/// Measures, writes the report and the tables, and prints which goals are met.
///
/// A missed goal is not a failure, since the speed of a shared machine varies.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let before = load();
    let mut rows = Rows::default();
    let mut failures = Vec::new();
    let (comparison, lock) = match options.protocol {
        Protocol::Udp => {
            measure_udp(options, &mut rows)?;
            (udp::COMPARISON, Some("benches/peers/Cargo.lock"))
        }
        Protocol::Lockstep => {
            measure_lockstep(options, &mut rows)?;
            let lock = "benches/peers_lockstep/Cargo.lock";
            (lockstep::COMPARISON, Some(lock))
        }
        Protocol::Relay => {
            measure_relay(options, &mut rows)?;
            // A failing test has already printed its figures.
            failures.extend(TESTS.iter().filter_map(|tests| tests.add(&mut rows).err()));
            (relay::COMPARISON, None)
        }
        Protocol::Hub => {
            measure_hub(options, &mut rows)?;
            (hub::COMPARISON, Some("benches/peers_hub/Cargo.lock"))
        }
    };
    let machine = Machine {
        processor: processor(),
        load: [before, load()],
        rounds: [options.rounds, options.load_rounds],
    };
    let lock = lock.map(|path| read(Path::new(path))).transpose()?;
    let versions = comparison.versions(&lock.unwrap_or_default());
    publish(&comparison, &rows, options, (&machine, &versions))?;
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// Measures `udp_proto` and comparable stacks.
fn measure_udp(options: &Options, rows: &mut Rows) -> Result<(), Failure> {
    let programs = build(&["--manifest-path", "benches/peers/Cargo.toml"])?;
    let [rounds, load_rounds] = [options.rounds, options.load_rounds].map(|it| it.to_string());
    let arguments = ["--rounds", &rounds, "--load-rounds", &load_rounds];
    collect(&programs.join("peers"), &arguments, rows)?;
    collect(&programs.join("peers-count"), &[], rows)
}

/// Measures `lockstep` and comparable stacks.
fn measure_lockstep(options: &Options, rows: &mut Rows) -> Result<(), Failure> {
    let programs = build(&["--manifest-path", "benches/peers_lockstep/Cargo.toml"])?;
    let arguments = ["--rounds", &options.rounds.to_string()];
    collect(&programs.join("peers-lockstep"), &arguments, rows)?;
    collect(&programs.join("peers-lockstep-count"), &[], rows)
}

/// Measures a relay and bare forwarders.
fn measure_relay(options: &Options, rows: &mut Rows) -> Result<(), Failure> {
    let programs = build(&["-p", "tickwire-benches", "--bin", "peers-relay"])?;
    let program = programs.join("peers-relay").display().to_string();
    // With raised priority if the system allows it: a node without CPU time appears dead to the
    // others.
    let arguments = ["-n", "-10", &program, &options.rounds.to_string()];
    collect(Path::new("nice"), &arguments, rows)
}

/// Measures the hub, NATS and Redis. It fetches the servers that are missing.
fn measure_hub(options: &Options, rows: &mut Rows) -> Result<(), Failure> {
    let mut arguments = Vec::new();
    for name in ["nats-server", "redis-server"] {
        let server = servers::named(name)
            .ok_or_else(|| Failure::Check(format!("{name}: not a server of the tests")))?;
        let found = server.ensure(Absent::Install)?;
        println!("peers: {}", found.line(name));
        arguments.push(found.path.display().to_string());
    }
    arguments.push(options.load_rounds.to_string());
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let programs = build(&["--manifest-path", "benches/peers_hub/Cargo.toml"])?;
    collect(&programs.join("peers-hub"), &arguments, rows)
}

/// Builds a package; returns the folder of its programs.
fn build(package: &[&str]) -> Result<PathBuf, Failure> {
    let target = Metadata::load()?.target_directory;
    let mut build = process::cargo(["build", "--release", "--locked"]);
    process::run(build.args(package).arg("--target-dir").arg(&target))?;
    Ok(target.join("release"))
}

/// Runs a program that prints rows, and adds them.
fn collect(program: &Path, arguments: &[&str], rows: &mut Rows) -> Result<(), Failure> {
    let mut program = process::program(program);
    process::run_lines(program.args(arguments), |line| {
        rows.extend(Row::parse(line));
    })
}

/// Evaluates the rows, prints the verdicts, and writes the report, the summary and all values.
///
/// A goal of `udp` without a measurement is a failure.
fn publish(
    comparison: &Comparison,
    rows: &Rows,
    options: &Options,
    machine: (&Machine, &[String]),
) -> Result<(), Failure> {
    if let Some(path) = &options.report {
        write(path, &rows.to_json())?;
        println!("peers: {} rows in {}", rows.len(), path.display());
    }
    let judged = comparison.judge(rows);
    let is_open =
        |verdict| matches!(options.protocol, Protocol::Udp) && verdict == Verdict::NotMeasured;
    if let Some(judgement) = judged.iter().find(|it| is_open(it.verdict)) {
        return Err(Failure::Check(format!("{}: not measured", judgement.what)));
    }
    for judgement in &judged {
        println!("peers: {}", judgement.line());
    }
    for shown in comparison.shown {
        println!("peers: {}", shown.line());
    }
    let tables = comparison.tables(rows, &judged, machine);
    let page = comparison
        .insert(&read(Path::new(PAGE))?, &tables.summary)
        .ok_or_else(|| Failure::Check(format!("{PAGE} has lost the marks of its table")))?;
    write(Path::new(PAGE), &page)?;
    let results = format!("benches/results/{}.md", comparison.name);
    write(Path::new(&results), &tables.all)?;
    println!("peers: the summary is in {PAGE}, all values are in {results}");
    Ok(())
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|source| Failure::File {
        path: path.to_path_buf(),
        source,
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|source| Failure::File {
        path: path.to_path_buf(),
        source,
    })
}

/// Returns the system's one-minute load average, if it is known.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Returns the processor's name, if the system reports it.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    name.unwrap_or_else(|| "an unknown processor".to_owned())
}

/// Tests which print figures other than times.
#[derive(Clone, Copy, Debug)]
struct Tests {
    /// The crate's test program, as arguments for cargo.
    target: &'static [&'static str],
    /// Filters for test names.
    names: &'static [&'static str],
    /// Number of seeds, for seeded tests.
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
    // Each kills a relay.
    Tests {
        target: WHOLE,
        names: &["sim_mesh_m2_", "sim_mesh_m3_", "sim_mesh_m4_"],
        seeds: "1000",
    },
    // Each has at least nine planned moves.
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
    /// Runs the tests and adds the figures that they print.
    fn add(&self, rows: &mut Rows) -> Result<(), Failure> {
        process::run_lines(&mut self.command(), |line| {
            rows.extend(Row::parse_figure(relay::OURS, line));
        })
    }

    fn command(&self) -> Command {
        let mut command = process::cargo(["test", "--locked", "-p", "tickwire-relay-mesh"]);
        command
            .args(self.target)
            .args(["--", "--nocapture"])
            .args(self.names)
            .env("SEEDS", self.seeds);
        // These variables would override the seeds.
        command.env_remove("SEED").env_remove("FROM");
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_names_follow_the_dashes() {
        let [.., moves, _] = TESTS;
        let line = process::line(&moves.command());
        let expected = "cargo test --locked -p tickwire-relay-mesh --test it -- --nocapture \
                        sim_mesh_m1_moves_";
        assert_eq!(line, expected);
    }

    #[test]
    fn the_page_has_the_marks_of_every_comparison() {
        let page = include_str!("../../docs/benchmarks.md");
        let all = [
            udp::COMPARISON,
            lockstep::COMPARISON,
            relay::COMPARISON,
            hub::COMPARISON,
        ];
        for comparison in all {
            assert!(comparison.insert(page, "").is_some(), "{}", comparison.name);
        }
    }
}
