//! What one process can be.
//!
//! The demonstration starts itself again with one of these, since cargo builds no other program
//! beside an example.

mod game_server;
mod hub;
mod matchmaker;
pub(crate) mod players;
mod post;
mod relay;
mod sweeper;
#[cfg(test)]
mod tests;
mod voice;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::plan::{Block, Plan, PlanOptions};
use daemon::exit::print_error;

pub(crate) use voice::Voice;

/// The process that this one shall be.
#[derive(Clone, Debug, Subcommand)]
pub enum Role {
    /// The switch for messages between nodes, with its store.
    Hub(RunOptions),
    /// Seats players, and starts the game server.
    Matchmaker(RunOptions),
    /// One match, on one UDP socket.
    GameServer(RunOptions),
    /// All players.
    Players(RunOptions),
    /// One node of the mesh.
    Relay {
        /// Its number.
        #[arg(long)]
        number: u8,
        /// The run.
        #[command(flatten)]
        run: RunOptions,
    },
    /// What removes the keys once whoever started it has gone.
    Sweeper {
        /// The folder with the run's join file and keys.
        #[arg(long)]
        directory: PathBuf,
    },
}

impl Role {
    /// Is that process until its parent lets go or it has nothing left to do.
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

    /// Returns the command line that makes a process this.
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

/// Which run the process belongs to.
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

/// Why a process ends early: one sentence.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
