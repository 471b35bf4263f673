//! The program `tickwire`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Netcode for multiplayer games: the processes an operator runs.
#[derive(Parser)]
#[command(name = "tickwire", version, arg_required_else_help = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Operator(daemon::command::Command),
    /// Runs the whole stack on this machine, breaks it, and shows that players notice little.
    #[cfg(feature = "demo")]
    Demo(demo::Options),
    /// One process of the demonstration.
    #[cfg(feature = "demo")]
    #[command(subcommand, hide = true)]
    Role(demo::role::Role),
}

fn main() -> ExitCode {
    match daemon::command::parse::<Line>().command {
        Command::Operator(command) => command.run(),
        #[cfg(feature = "demo")]
        Command::Demo(options) => demo::run(&options),
        #[cfg(feature = "demo")]
        Command::Role(role) => role.run(),
    }
}
