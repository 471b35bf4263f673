//! The processes of a run.
//!
//! The demonstration starts itself again with one of these roles, since cargo builds no other
//! program with an example.

mod event_writer;
mod game_server;
mod hub;
mod mail;
mod matchmaker;
pub(crate) mod players;
mod relay;
mod sweeper;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::plan::{Block, Plan, PlanOptions};
use daemon::exit::print_error;

pub(crate) use crate::BoxError as Failure;
pub(crate) use event_writer::EventWriter;

/// The role of this process.
#[derive(Clone, Debug, Subcommand)]
pub enum Role {
    /// The hub with its store.
    Hub(RunOptions),
    /// Assigns seats, and starts the game server.
    Matchmaker(RunOptions),
    /// One match on one UDP socket.
    GameServer(RunOptions),
    /// All players.
    Players(RunOptions),
    /// One mesh node.
    Relay {
        /// Its number.
        #[arg(long)]
        number: u8,
        /// The run.
        #[command(flatten)]
        run: RunOptions,
    },
    /// Removes the keys after the process that started it has ended.
    Sweeper {
        /// The folder with the run's join file and keys.
        #[arg(long)]
        directory: PathBuf,
    },
}

impl Role {
    /// Runs until the parent closes the pipe, or nothing is left to do.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        let (name, result) = match self {
            Self::Hub(options) => ("hub", hub::run(&options.directory)),
            Self::Matchmaker(options) => ("matchmaker", matchmaker::run(options)),
            Self::GameServer(options) => (
                "game server",
                game_server::run(&options.plan(), &options.directory),
            ),
            Self::Players(options) => {
                ("players", players::run(&options.plan(), &options.directory))
            }
            Self::Relay { number, run } => {
                ("relay", relay::run(&run.plan(), *number, &run.directory))
            }
            Self::Sweeper { directory } => ("sweeper", sweeper::run(directory)),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                print_error(name, &error);
                ExitCode::FAILURE
            }
        }
    }

    /// Returns the arguments that start a process in this role.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let (name, options) = match self {
            Self::Hub(options) => ("hub", options),
            Self::Matchmaker(options) => ("matchmaker", options),
            Self::GameServer(options) => ("game-server", options),
            Self::Players(options) => ("players", options),
            Self::Relay { run, .. } => ("relay", run),
            Self::Sweeper { directory } => {
                let directory = format!("--directory={}", directory.display());
                return vec!["role".to_owned(), "sweeper".to_owned(), directory];
            }
        };
        let PlanOptions {
            seed,
            seconds,
            players,
            sabotage,
            any_map,
        } = options.plan;
        let mut arguments = vec![
            "role".to_owned(),
            name.to_owned(),
            format!("--seed={seed}"),
            format!("--seconds={seconds}"),
            format!("--players={players}"),
            format!("--block={}", options.block),
            format!("--directory={}", options.directory.display()),
        ];
        if let Self::Relay { number, .. } = self {
            arguments.push(format!("--number={number}"));
        }
        if sabotage {
            arguments.push("--sabotage".to_owned());
        }
        if any_map {
            arguments.push("--any-map".to_owned());
        }
        arguments
    }
}

/// The run that the process belongs to.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The plan.
    #[command(flatten)]
    pub plan: PlanOptions,
    /// The addresses of the run, as 127.A.B.
    #[arg(long)]
    pub block: Block,
    /// The folder with the run's join file and keys.
    #[arg(long)]
    pub directory: PathBuf,
}

impl RunOptions {
    fn plan(&self) -> Plan {
        Plan::new(self.plan, self.block)
    }
}
