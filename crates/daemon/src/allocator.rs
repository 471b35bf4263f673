//! Allocators, which start and stop game servers for a matchmaker.
//!
//! A matchmaker sends [`AllocatorCommand`]s over a bounded queue and receives [`Report`]s.
//! [`Matchmaker`](matchmaker_core::Matchmaker) decides how many processes run, which are kept warm,
//! and when a slot is retried.

mod local_process;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fmt};

use crossbeam_channel::{Receiver, Sender};
use matchmaker_core::{Outcome, Slot};
use wire::CommandId;

pub use local_process::{ChildOutput, LocalProcess, LocalProcessConfig, PortRange, PortRangeError};

/// A command to an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocatorCommand {
    /// Start a game server; answered by [`Report::Completed`], followed by [`Report::Exited`] when
    /// it exits.
    Start {
        /// Id of this process from now on.
        run: CommandId,
        /// Slot in the pool; determines identity and port.
        slot: Slot,
    },
    /// Stop the process in the slot; answered by [`Report::Completed`] when it has exited.
    Stop {
        /// Id of the answer.
        id: CommandId,
        /// Slot in the pool.
        slot: Slot,
    },
}

/// A report of an allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Outcome of a command.
    Completed(CommandId, Outcome),
    /// The process of this start command exited by itself.
    Exited(CommandId),
}

/// The matchmaker's end of the queue to an allocator.
#[derive(Clone, Debug)]
pub struct CommandSender(Sender<AllocatorCommand>);

/// The allocator's end.
#[derive(Debug)]
pub struct CommandQueue(Receiver<AllocatorCommand>);

impl CommandSender {
    /// Creates a queue. Its limit is far above the number of outstanding commands, one for each
    /// slot.
    #[must_use]
    pub fn new() -> (Self, CommandQueue) {
        let (sender, receiver) = crossbeam_channel::bounded(COMMANDS_MAX);
        (Self(sender), CommandQueue(receiver))
    }

    /// Sends a command without blocking; returns false if the queue is full or closed.
    pub fn send(&self, command: AllocatorCommand) -> bool {
        self.0.try_send(command).is_ok()
    }
}

const COMMANDS_MAX: usize = 1_024;

/// Parameters of a game server process.
///
/// | variable | holds |
/// |---|---|
/// | `TICKWIRE_IDENTITY` | path of its identity file |
/// | `TICKWIRE_JOIN_FILE` | path of the join file |
/// | `TICKWIRE_LISTEN` | address for players, `IP:PORT` |
/// | `TICKWIRE_SLOT` | slot in the pool, from 0 |
///
/// Its stdin is a pipe to which the allocator writes nothing. When the pipe closes, the process
/// must exit within two seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotEnvironment {
    /// Its identity file.
    pub identity: PathBuf,
    /// The join file.
    pub join_file: PathBuf,
    /// Address for players.
    pub listen: SocketAddr,
    /// Slot in the pool.
    pub slot: u16,
}

impl SlotEnvironment {
    /// Reads the variables of this process.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError`] names the missing or malformed variable.
    pub fn read() -> Result<Self, EnvironmentError> {
        let text = |name| env::var(name).map_err(|_| EnvironmentError(name));
        Ok(Self {
            identity: env::var_os(IDENTITY)
                .ok_or(EnvironmentError(IDENTITY))?
                .into(),
            join_file: env::var_os(JOIN_FILE)
                .ok_or(EnvironmentError(JOIN_FILE))?
                .into(),
            listen: text(LISTEN)?
                .parse()
                .map_err(|_| EnvironmentError(LISTEN))?,
            slot: text(SLOT)?.parse().map_err(|_| EnvironmentError(SLOT))?,
        })
    }

    fn write(&self, command: &mut Command) {
        command
            .env(IDENTITY, &self.identity)
            .env(JOIN_FILE, &self.join_file)
            .env(LISTEN, self.listen.to_string())
            .env(SLOT, self.slot.to_string());
    }
}

/// This variable is missing or malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvironmentError(pub &'static str);

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the environment variable {} is missing or malformed; a matchmaker sets it",
            self.0
        )
    }
}

impl std::error::Error for EnvironmentError {}

const IDENTITY: &str = "TICKWIRE_IDENTITY";
const JOIN_FILE: &str = "TICKWIRE_JOIN_FILE";
const LISTEN: &str = "TICKWIRE_LISTEN";
const SLOT: &str = "TICKWIRE_SLOT";
