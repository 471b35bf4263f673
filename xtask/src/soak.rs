//! Long runs with real processes on the loopback address. Each has an end and checks its results.

mod hub;
mod lockstep;
mod mesh;

use std::process::Command;

use crate::failure::Failure;
use crate::process;

/// The kind of run.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Soak {
    /// Kill a hub, a sender and a receiver of mail at random, and check all mail.
    Hub(hub::Options),
    /// Have many processes play one lockstep match, and compare their states.
    Lockstep(lockstep::Options),
    /// Stop, kill, cut off and drain nodes of a mesh at random, and measure how long players wait.
    Mesh(mesh::Options),
}

/// Runs it.
pub(crate) fn run(soak: &Soak) -> Result<(), Failure> {
    match soak {
        Soak::Hub(options) => hub::run(options),
        Soak::Lockstep(options) => lockstep::run(options),
        Soak::Mesh(options) => mesh::run(options),
    }
}

/// Builds an example and returns the command that runs it; its arguments can be appended.
fn example(name: &str) -> Result<Command, Failure> {
    let example = [
        "--release",
        "--package",
        "tickwire-examples",
        "--example",
        name,
    ];
    process::run(process::cargo(["build"]).args(example))?;
    let mut command = process::cargo(["run", "--quiet"]);
    command.args(example).arg("--");
    Ok(command)
}
