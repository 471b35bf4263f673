//! The same work done by other stacks: builds and runs `benches/peers`, judges what it measured.
//!
//! That package lies outside the workspace, since what it compares with is no dependency of ours.
//! The goals and the table are here, where every change's tests reach them.

mod goal;
mod row;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::member::Metadata;
use crate::process;
use row::{Row, Rows};
use table::Machine;

/// The page that the table stands in.
const PAGE: &str = "docs/benchmarks.md";
/// The package that measures.
const MANIFEST: &str = "benches/peers/Cargo.toml";
/// What it was built with.
const LOCK: &str = "benches/peers/Cargo.lock";

/// What to measure, and where to tell.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Which protocol.
    protocol: Protocol,
    /// Writes all rows to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Rounds of what is done in memory.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Rounds of what is done over sockets, some 12 s for each stack and case.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    load_rounds: u32,
}

/// A protocol that has peers.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Protocol {
    /// Encrypted sessions over datagrams.
    Udp,
}

/// Measures, writes the report and the table, and prints which goals are met.
///
/// A goal that is missed is no failure: how fast is not for a shared machine to decide. One that
/// was not measured is.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let Protocol::Udp = options.protocol;
    let before = load();
    let rows = measure(options)?;
    let machine = Machine {
        processor: processor(),
        load: [before, load()],
        versions: table::versions(&read(Path::new(LOCK))?),
        rounds: [options.rounds, options.load_rounds],
    };
    if let Some(path) = &options.report {
        write(path, &rows.to_json())?;
        println!("peers: {} rows in {}", rows.len(), path.display());
    }
    let judged = goal::judge(&rows)?;
    let text = table::markdown(&rows, &judged, &machine);
    let page = read(Path::new(PAGE))?;
    let page = table::replace(&page, &text)
        .ok_or_else(|| Failure::Check(format!("{PAGE} has lost the marks of its table")))?;
    write(Path::new(PAGE), &page)?;
    for judgement in &judged {
        println!("peers: {}", judgement.line());
    }
    println!("peers: {PAGE} has the tables");
    Ok(())
}

/// Builds the package, and has its programs time and count.
fn measure(options: &Options) -> Result<Rows, Failure> {
    let target = Metadata::load()?.target_directory;
    let mut build = process::cargo([
        "build",
        "--release",
        "--locked",
        "--manifest-path",
        MANIFEST,
    ]);
    process::run(build.arg("--target-dir").arg(&target))?;
    let programs = target.join("release");
    let mut times = process::program(programs.join("peers"));
    times.args(["--rounds", &options.rounds.to_string()]);
    times.args(["--load-rounds", &options.load_rounds.to_string()]);
    let mut rows = Rows::default();
    for mut program in [times, process::program(programs.join("peers-count"))] {
        process::run_lines(&mut program, |line| {
            rows.extend(serde_json::from_str::<Row>(line).ok());
        })?;
    }
    Ok(rows)
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

/// The system's load over a minute, where it tells.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

/// The processor's name, where the system tells.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    name.unwrap_or_else(|| "an unknown processor".to_owned())
}
