//! Comparison with other stacks: builds and runs the packages that measure, and judges their figures.
//!
//! Packages with peers are outside the workspace, since the peers are no dependencies of Tickwire. The
//! bare forwarder that a relay is compared with is in `benches`. Goals and tables are here, so that
//! the workspace's tests cover them.

mod goal;
mod lockstep;
mod relay;
mod row;
mod table;
mod udp;

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::member::Metadata;
use crate::process;
use row::{Row, Rows};
use table::Tables;

/// The page with the summaries. All values are in a file of `benches/results` for each protocol.
const PAGE: &str = "docs/benchmarks.md";

/// What to measure, and where to write it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Which protocol.
    protocol: Protocol,
    /// Writes all rows to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Rounds of the cases in memory.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Rounds of the cases over sockets, about 12 s for each stack and case.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    load_rounds: u32,
}

/// A protocol that has peers.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Protocol {
    /// Encrypted sessions over datagrams.
    Udp,
    /// Matches of lockstep and rollback, in virtual time.
    Lockstep,
    /// A relay of a mesh, beside bare forwarders.
    Relay,
}

/// Measures, writes the report and the tables, and prints which goals are met.
///
/// A missed goal is no failure, since the speed of a shared machine varies.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match options.protocol {
        Protocol::Udp => udp::run(options),
        Protocol::Lockstep => lockstep::run(options),
        Protocol::Relay => relay::run(options),
    }
}

/// Builds the package of `manifest`; returns where its programs are.
fn build(manifest: &str) -> Result<PathBuf, Failure> {
    let target = Metadata::load()?.target_directory;
    let mut build = process::cargo([
        "build",
        "--release",
        "--locked",
        "--manifest-path",
        manifest,
    ]);
    process::run(build.arg("--target-dir").arg(&target))?;
    Ok(target.join("release"))
}

/// Runs a program that prints rows, and adds them.
fn collect(program: &Path, arguments: &[&str], rows: &mut Rows) -> Result<(), Failure> {
    let mut program = process::program(program);
    process::run_lines(program.args(arguments), |line| {
        rows.extend(serde_json::from_str::<Row>(line).ok());
    })
}

/// Writes the rows to the file of `--report`, if one is given.
fn report(rows: &Rows, options: &Options) -> Result<(), Failure> {
    if let Some(path) = &options.report {
        write(path, &rows.to_json())?;
        println!("peers: {} rows in {}", rows.len(), path.display());
    }
    Ok(())
}

/// Puts the summary between the marks of the page, and writes the file with all goals and values.
fn publish(tables: &Tables<'_>) -> Result<(), Failure> {
    let page = read(Path::new(PAGE))?;
    let page = table::replace(&page, tables.marks, &tables.summary)
        .ok_or_else(|| Failure::Check(format!("{PAGE} has lost the marks of its table")))?;
    write(Path::new(PAGE), &page)?;
    write(Path::new(tables.results), &tables.all)?;
    println!(
        "peers: the summary is in {PAGE}, all values are in {}",
        tables.results
    );
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

/// The system's load average over a minute, if it is known.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

/// The processor's name, if the system has one.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    name.unwrap_or_else(|| "an unknown processor".to_owned())
}
