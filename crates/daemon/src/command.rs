//! The command line.

mod admin;
mod host;
mod hub;
mod key;
mod log;
mod matchmaker;
#[cfg(feature = "nats")]
mod nats;

use std::io;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use clap::error::ContextKind;
use clap::{Args, Parser, Subcommand};

use crate::control::spawn;
use crate::exit::{Failure, print_error};
use crate::relay::StopOn;
use crate::signals::Signal;
use crate::{relay, signals};
pub use admin::{
    AdminCommand, CheckedDocument, GetConfig, GraphArgs, HealthArgs, ImportedGames, NodeArgs,
    PutConfig, RouteArgs, SignedDocument,
};
pub use hub::{
    AckMail, ApiArgs, BackupFolder, CheckFolder, ClearMail, DeleteKey, GetKey, HubCommand,
    KeyDurability, KickPlayer, KvCommand, ListKeys, ListMail, ListNodes, ListPlayers, MailCommand,
    NewApiKey, PersonArgs, PersonCommand, PlainRequest, PurgeMail, PutKey, QueryStats,
    RestoreFolder, RunHub, SendMail, SwapKey, WatchKeys, WatchPresence,
};
pub use key::{CopiedKey, KeyCommand, NewClaimGrant, NewJoinFile, NewKey, PublicPart, ShownKey};
use log::log;
pub use matchmaker::{MatchmakerCommand, RunMatchmaker, StatusArgs};
#[cfg(feature = "nats")]
pub use nats::NatsArgs;

/// Commands of an operator.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// The message switch between game servers and matchmaker.
    #[command(subcommand)]
    Hub(HubCommand),
    /// The matchmaker, its HTTP edge, and the game servers that it starts.
    #[command(subcommand)]
    Matchmaker(MatchmakerCommand),
    /// Identities, and the join file that lists the members and their roles.
    #[command(subcommand)]
    Key(KeyCommand),
    /// One node of the mesh, until SIGTERM or SIGINT, on which it drains first.
    Relay(RunRelay),
    /// The mesh's signed configuration, and requests to a running node.
    #[command(subcommand)]
    Admin(AdminCommand),
}

impl Command {
    /// Runs it; prints a failure to stderr and returns the exit status.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        let result = match self {
            Self::Hub(command) => command.run(),
            Self::Matchmaker(command) => command.run(),
            Self::Key(command) => command.run(),
            Self::Relay(relay) => return relay.run(),
            Self::Admin(command) => command.run(),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                if self.is_json() {
                    failure.print_json_error();
                } else {
                    print_error("tickwire", &failure);
                }
                failure.exit.into()
            }
        }
    }

    /// Whether output and failures are JSON.
    const fn is_json(&self) -> bool {
        match self {
            Self::Matchmaker(command) => command.is_json(),
            Self::Key(command) => command.is_json(),
            Self::Admin(command) => command.is_json(),
            Self::Hub(command) => command.is_json(),
            Self::Relay(_) => false,
        }
    }
}

/// Parses the command line. On an error prints it, as JSON if `--json` is given, and exits with
/// status 2.
#[must_use]
pub fn parse<T: Parser>() -> T {
    let error = match T::try_parse() {
        Ok(line) => return line,
        Err(error) => error,
    };
    let mut args = std::env::args_os().skip(1).take_while(|arg| arg != "--");
    if error.use_stderr() && args.any(|arg| arg == "--json") {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let mut failure = Failure::usage(first.strip_prefix("error: ").unwrap_or(first));
        if let Some(option) = error.get(ContextKind::InvalidArg) {
            failure = failure.in_field(option.to_string());
        }
        failure.print_json_error();
        std::process::exit(failure.exit.code().into());
    }
    error.exit()
}

/// Requests from outside to end or to reload.
struct Requests {
    signals: Receiver<Signal>,
    stdin: Option<StdinEnd>,
}

impl Requests {
    /// Watches signals, and the end of stdin if `stdin` is set.
    fn watch(stdin: Option<StdinEnd>) -> Result<Self, Failure> {
        let (sender, signals) = mpsc::channel();
        signals::watch(move |signal| sender.send(signal).is_ok()).map_err(Failure::thread)?;
        Ok(Self { signals, stdin })
    }

    /// Returns the next request, if there is one.
    fn next(&self) -> Option<Signal> {
        let closed = self.stdin.as_ref().is_some_and(StdinEnd::has_come);
        let closed = closed.then_some(Signal::Stop);
        closed.or_else(|| self.signals.try_recv().ok())
    }
}

struct StdinEnd(Receiver<()>);

impl StdinEnd {
    fn watch() -> Result<Self, Failure> {
        let (open, end) = mpsc::channel();
        spawn("stdin", move || {
            let mut rest = [0; 256];
            while matches!(io::stdin().lock().read(&mut rest), Ok(1..)) {}
            drop(open);
        })
        .map_err(Failure::thread)?;
        Ok(Self(end))
    }

    fn has_come(&self) -> bool {
        self.0.try_recv() == Err(TryRecvError::Disconnected)
    }
}

fn print_line(text: &str) -> Result<(), Failure> {
    let line = format!("{text}\n");
    io::stdout()
        .write_all(line.as_bytes())
        .map_err(|error| Failure::refused(format_args!("the answer cannot be written: {error}")))
}

const POLL_INTERVAL: Duration = Duration::from_millis(200);

const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Options of `relay`.
#[derive(Args, Clone, Debug)]
pub struct RunRelay {
    /// Configuration file, JSON.
    #[arg(long)]
    config: PathBuf,
    /// Ends in order when stdin closes; a signal ends it at once.
    #[arg(long)]
    end_with_stdin: bool,
}

impl RunRelay {
    fn run(&self) -> ExitCode {
        let ending = if self.end_with_stdin {
            StopOn::StdinClosed
        } else {
            StopOn::Signal
        };
        if let Err(failure) = log() {
            print_error("tickwire relay", &failure);
            return failure.exit.into();
        }
        relay::main(&self.config, ending)
    }
}
