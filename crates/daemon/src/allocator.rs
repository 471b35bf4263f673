//! Allocators, which start and stop game servers for a matchmaker.
//!
//! A matchmaker sends [`AllocatorCommand`]s over a bounded queue and receives [`Report`]s.
//! [`Matchmaker`](matchmaker_core::Matchmaker) decides how many processes run, which are kept warm,
//! and when a slot is retried.

mod environment;
mod local_process;

use crossbeam_channel::{Receiver, Sender};
use matchmaker_core::{Outcome, Slot};
use wire::CommandId;

pub use environment::{EnvironmentError, SlotEnvironment};
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
