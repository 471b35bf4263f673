//! The same work done by other stacks: builds and runs the packages that measure, judges what they
//! found.
//!
//! Packages with peers lie outside the workspace, since what they compare with is no dependency of
//! ours; what a relay is compared with is a bare forwarder, which `benches` has.
//! The goals and the tables are here, where every change's tests reach them.

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

/// The page that the tables stand in.
const PAGE: &str = "docs/benchmarks.md";

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
    /// Matches of lockstep and rollback, in virtual time.
    Lockstep,
    /// A relay of a mesh, beside bare forwarders.
    Relay,
}

/// Measures, writes the report and the table, and prints which goals are met.
///
/// A goal that is missed is no failure: how fast is not for a shared machine to decide.
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

/// Writes the rows where that was asked for.
fn report(rows: &Rows, options: &Options) -> Result<(), Failure> {
    if let Some(path) = &options.report {
        write(path, &rows.to_json())?;
        println!("peers: {} rows in {}", rows.len(), path.display());
    }
    Ok(())
}

/// Puts `text` between `marks` of the page.
fn publish(marks: [&str; 2], text: &str) -> Result<(), Failure> {
    let page = read(Path::new(PAGE))?;
    let page = table::replace(&page, marks, text)
        .ok_or_else(|| Failure::Check(format!("{PAGE} has lost the marks of its table")))?;
    write(Path::new(PAGE), &page)?;
    println!("peers: {PAGE} has the tables");
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
