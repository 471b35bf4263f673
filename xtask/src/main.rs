//! `cargo xtask`: tests, CI gates, simulations and wire vectors of the workspace.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "a command line tells on stdout what it does"
)]

mod book;
mod changed;
mod ci;
mod crate_graph;
mod docs;
mod failure;
mod fuzz;
mod locks;
mod member;
mod mutants;
mod need;
mod peers;
mod picture;
mod process;
mod reference;
mod servers;
mod sim;
mod soak;
mod source;
mod targets;
mod test;
mod trace_hash;
mod tree;
mod tree_check;
mod vectors;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::need::Absent;
use crate::tree::Workspace;

/// Commands of the Tickwire workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every test, including those which need real servers.
    Test {
        /// Install nothing; report which tests were skipped because a server is missing.
        #[arg(long)]
        offline: bool,
        /// Test only packages with files that differ from this commit, and packages that depend on
        /// them.
        #[arg(long, value_name = "COMMIT", num_args = 0..=1, default_missing_value = "HEAD")]
        changed: Option<String>,
    },
    /// Find the servers that some tests and comparisons need, and print paths and versions.
    ///
    /// Missing ones are unpacked from Debian packages under `target/servers`. Nothing is installed.
    Servers {
        /// Fetch nothing.
        #[arg(long)]
        offline: bool,
    },
    /// Run every CI gate, as `.ci/run` does.
    Ci,
    /// Check rules of the source tree: sizes, imports, purity, limits, licences.
    TreeCheck,
    /// Check the lock files of the packages outside the workspace.
    Locks,
    /// Count the crates that a UDP client compiles.
    Footprint {
        /// Also build the stack from scratch, and print the CPU seconds.
        #[arg(long)]
        build: bool,
    },
    /// Run the shell blocks of the documents.
    DocsRun,
    /// Check the links, chapters and tables of the documents; render the book if mdbook is installed.
    Book {
        /// First regenerate the tables that are made from the source.
        #[arg(long)]
        write: bool,
    },
    /// Run a crate's seeded simulations over a range of seeds.
    Sim(sim::Range),
    /// Run many real processes for minutes on the loopback address, and check the results.
    #[command(subcommand)]
    Soak(soak::Soak),
    /// Run the fuzz functions under libFuzzer for some minutes each.
    Fuzz(fuzz::Options),
    /// Run mutation tests: change the source and check that a test fails; needs cargo-mutants.
    Mutants(mutants::Options),
    /// Compare with other network stacks on the same workload, and write the results.
    Peers(peers::Options),
    /// Draw the picture of a run of the stack from its report.
    Picture(picture::Options),
    /// Check the build for other platforms; installs missing targets by rustup.
    Targets(targets::Options),
    /// Run one simulation on every platform available here, and compare the traces.
    TraceHash,
    /// Check that tests name the wire vectors and that the vectors have not changed.
    Vectors {
        /// Accept the current vectors.
        #[arg(long)]
        bless: bool,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    process::enter_workspace()?;
    match command {
        Command::Test { offline, changed } => {
            let absent = if *offline {
                Absent::LeaveOut
            } else {
                Absent::Install
            };
            match changed {
                Some(base) => test::run_changed(absent, base),
                None => test::run(absent),
            }
        }
        Command::Servers { offline: true } => servers::run(Absent::LeaveOut),
        Command::Servers { offline: false } => servers::run(Absent::Install),
        Command::Ci => ci::run(),
        Command::TreeCheck => tree_check::run(&Workspace::load()?),
        Command::Locks => locks::check(&Workspace::load()?),
        Command::Footprint { build: true } => ci::footprint(ci::Build::FromNothing),
        Command::Footprint { build: false } => ci::footprint(ci::Build::Not),
        Command::DocsRun => docs::run(&Workspace::load()?),
        Command::Book { write } => {
            if *write {
                reference::write(&Workspace::load()?)?;
            }
            book::run(&Workspace::load()?)
        }
        Command::Sim(range) => sim::run(range, &Workspace::load()?),
        Command::Soak(soak) => soak::run(soak),
        Command::Fuzz(options) => fuzz::run(options),
        Command::Mutants(options) => mutants::run(options),
        Command::Peers(options) => peers::run(options),
        Command::Picture(options) => picture::run(options),
        Command::Targets(options) => targets::run(options),
        Command::TraceHash => trace_hash::run(),
        Command::Vectors { bless: true } => vectors::bless(&Workspace::load()?),
        Command::Vectors { bless: false } => vectors::check(&Workspace::load()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    #[test]
    fn each_command_prints_help_and_does_nothing() {
        for command in Arguments::command().get_subcommands() {
            let line = ["cargo xtask", command.get_name(), "--help"];
            let answer = Arguments::try_parse_from(line).err();
            let kind = answer.map(|answer| answer.kind());
            assert_eq!(kind, Some(ErrorKind::DisplayHelp), "{line:?}");
        }
    }
}
