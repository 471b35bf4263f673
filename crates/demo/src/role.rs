//! The processes of a run.
//!
//! The demonstration starts itself again with one of these roles, since cargo builds no other
//! program with an example.

mod game_server;
mod mail;
pub(crate) mod players;
mod relay;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::{Args, Subcommand};
use daemon::allocator::{ChildOutput, LocalProcessConfig, PortRange};
use daemon::control::{ParentPipe, spawn, write_line};
use daemon::edge::{EdgeConfig, Transport};
use daemon::exit::print_error;
use daemon::role::hub::{HubOptions, HubProcess};
use daemon::role::matchmaker::{MatchmakerOptions, MatchmakerProcess};
use matchmaker_core::{Config, Rule, TeamSize};

pub(crate) use crate::BoxError as Failure;
use crate::keyring;
use crate::message::{ChildCommand, ChildEvent};
use crate::plan::{APP, Block, Plan, PlanOptions};

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
        match self.serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                print_error(self.name(), &error);
                ExitCode::FAILURE
            }
        }
    }

    fn serve(&self) -> Result<(), Failure> {
        if let Self::Sweeper { directory } = self {
            // An input that cannot be read has no writer either.
            drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
            return Ok(keyring::sweep(directory)?);
        }
        let parent = ParentPipe::open()?;
        let (events, writer) = EventWriter::start()?;
        let result = match self {
            Self::Hub(options) => run_hub(options, &parent, &events),
            Self::Matchmaker(options) => run_matchmaker(options, &parent, &events),
            Self::GameServer(options) => game_server::run(options, &parent, &events),
            Self::Players(options) => players::run(options, &parent, &events),
            Self::Relay { number, run } => relay::run(run, *number, &parent, &events),
            Self::Sweeper { .. } => Ok(()),
        };
        drop(events);
        // Nothing is left to write, or the pipe is closed.
        drop(writer.join());
        result
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Hub(_) => "hub",
            Self::Matchmaker(_) => "matchmaker",
            Self::GameServer(_) => "game-server",
            Self::Players(_) => "players",
            Self::Relay { .. } => "relay",
            Self::Sweeper { .. } => "sweeper",
        }
    }

    /// Returns the arguments that start a process in this role.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["role".to_owned(), self.name().to_owned()];
        let options = match self {
            Self::Hub(options)
            | Self::Matchmaker(options)
            | Self::GameServer(options)
            | Self::Players(options)
            | Self::Relay { run: options, .. } => options,
            Self::Sweeper { directory } => {
                arguments.push(format!("--directory={}", directory.display()));
                return arguments;
            }
        };
        let PlanOptions {
            seed,
            seconds,
            players,
            sabotage,
            any_map,
        } = options.plan;
        arguments.extend([
            format!("--seed={seed}"),
            format!("--seconds={seconds}"),
            format!("--players={players}"),
            format!("--block={}", options.block),
            format!("--directory={}", options.directory.display()),
        ]);
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

type Parent = ParentPipe<ChildCommand>;

/// Runs the hub, which stores mail and counts in a folder, until the parent closes the pipe.
fn run_hub(options: &RunOptions, parent: &Parent, events: &EventWriter) -> Result<(), Failure> {
    let directory = &options.directory;
    let identity = keyring::identity(directory, "hub")?;
    let join_file = keyring::join_file(directory)?;
    let folder = keyring::store_path(directory);
    let hub = HubProcess::start(HubOptions::new(&identity, join_file, &folder))?;
    events.send(ChildEvent::Ready);
    while parent.next(Duration::ZERO).is_ok() {
        hub.wait(CHECK_INTERVAL)?;
    }
    hub.shutdown(HUB_SHUTDOWN_TIMEOUT)?;
    Ok(())
}

/// Runs the matchmaker until the parent closes the pipe. The game server that it starts ends with
/// it.
fn run_matchmaker(
    options: &RunOptions,
    parent: &Parent,
    events: &EventWriter,
) -> Result<(), Failure> {
    let plan = options.plan();
    let identity = keyring::identity(&options.directory, "matchmaker")?;
    let join_file = keyring::join_file(&options.directory)?;
    let players = u8::try_from(plan.options().players)?;
    let matchmaker = MatchmakerProcess::start(MatchmakerOptions {
        identity: &identity,
        join_file: &join_file,
        app_id: APP.0,
        rule: Rule::TeamSize(TeamSize::new(players, 1)?),
        config: Config::default(),
        pool: Some(pool(options)?),
        edge: EdgeConfig::new(plan.edge(), Transport::PlainHttp),
    })?;
    events.send(ChildEvent::Ready);
    while parent.next(Duration::ZERO).is_ok() {
        matchmaker.wait(CHECK_INTERVAL)?;
    }
    matchmaker.shutdown(MATCHMAKER_SHUTDOWN_TIMEOUT);
    Ok(())
}

/// One game server: this program again. It writes its events to the same pipe as this process.
fn pool(options: &RunOptions) -> Result<LocalProcessConfig, Failure> {
    let server = options.plan().server();
    let ports = PortRange::new(server.port(), server.port()).ok_or("the server has no port")?;
    let arguments = Role::GameServer(options.clone()).arguments();
    Ok(LocalProcessConfig {
        output: ChildOutput::Inherit,
        ..LocalProcessConfig::new(
            std::env::current_exe()?,
            arguments.into_iter().map(Into::into).collect(),
            vec![keyring::key_path(&options.directory, "game")],
            keyring::join_path(&options.directory),
            (server.ip(), ports),
        )
    })
}

const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time to close links, and again to finish stores in progress.
const HUB_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(400);
const MATCHMAKER_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// Sends events to the parent without blocking.
#[derive(Clone, Debug)]
pub(crate) struct EventWriter(SyncSender<ChildEvent>);

impl EventWriter {
    /// Starts the writing thread. It ends if all writers are dropped and all events are written.
    pub(crate) fn start() -> io::Result<(Self, JoinHandle<()>)> {
        let (sender, event) = mpsc::sync_channel(EVENTS_MAX);
        let writer = spawn("events", move || {
            let mut stdout = io::stdout().lock();
            for event in event {
                // If the parent has closed the pipe, this process ends soon.
                if write_line(&mut stdout, &event).is_err() {
                    return;
                }
            }
        })?;
        Ok((Self(sender), writer))
    }

    #[cfg(test)]
    pub(crate) fn observed() -> (Self, mpsc::Receiver<ChildEvent>) {
        let (sender, event) = mpsc::sync_channel(EVENTS_MAX);
        (Self(sender), event)
    }

    /// Queues an event; drops it if the queue is full.
    pub(crate) fn send(&self, event: ChildEvent) {
        // The run is then reported as incomplete.
        drop(self.0.try_send(event));
    }
}

/// Queued events if the parent is slow: half a minute of 64 players' statuses.
const EVENTS_MAX: usize = 8_192;

#[cfg(test)]
mod tests;
