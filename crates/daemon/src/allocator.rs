//! Allocators: what starts and ends the game servers that a matchmaker asks for.
//!
//! A matchmaker gives [`AllocatorCommand`]s by a bounded queue and hears [`Report`]s. How many processes there
//! are, which are warm and when a slot is tried again is decided by
//! [`Matchmaker`](matchmaker_core::Matchmaker), the same for all allocators.

mod environment;
mod local_process;

use crossbeam_channel::{Receiver, Sender};
use matchmaker_core::{Outcome, Slot};
use wire::CommandId;

pub use environment::{EnvironmentError, SlotEnvironment};
pub use local_process::{ChildOutput, LocalProcess, LocalProcessConfig, PortRange, PortRangeError};

/// What an allocator shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocatorCommand {
    /// Start a game server; answered by [`Report::Completed`], its end told by [`Report::Exited`].
    Start {
        /// Names the process from now on.
        run: CommandId,
        /// Which slot of the pool: it decides identity and port.
        slot: Slot,
    },
    /// End the process in the slot; answered by [`Report::Completed`] once it has ended.
    Stop {
        /// What to answer.
        id: CommandId,
        /// Which slot of the pool.
        slot: Slot,
    },
}

/// What an allocator tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// How an order ended.
    Completed(CommandId, Outcome),
    /// The process that this order started has ended by itself.
    Exited(CommandId),
}

/// The matchmaker's end of the queue to an allocator.
#[derive(Clone, Debug)]
pub struct CommandSender(Sender<AllocatorCommand>);

/// The allocator's end.
#[derive(Debug)]
pub struct CommandQueue(Receiver<AllocatorCommand>);

impl CommandSender {
    /// Makes a queue. Its bound is far above what a matchmaker has open at a time: one order for
    /// each slot that changes.
    #[must_use]
    pub fn new() -> (Self, CommandQueue) {
        let (sender, receiver) = crossbeam_channel::bounded(COMMANDS_MAX);
        (Self(sender), CommandQueue(receiver))
    }

    /// Gives an order; returns whether the allocator will see it. Never blocks.
    pub fn send(&self, command: AllocatorCommand) -> bool {
        self.0.try_send(command).is_ok()
    }
}

/// Commands that may wait in the queue.
const COMMANDS_MAX: usize = 1_024;
