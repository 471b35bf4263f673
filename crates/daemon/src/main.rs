//! The program `tickwire`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use daemon::command::Command;

/// Netcode for multiplayer games: the processes an operator runs.
#[derive(Parser)]
#[command(name = "tickwire", version, arg_required_else_help = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    daemon::command::parse::<Line>().command.run()
}
