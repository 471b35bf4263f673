//! Commands to the driver: processes and calls.

use core::time::Duration;

use wire::{CommandId, Effect, NodeId};

use crate::lease::ServerLink;
use crate::pool::Slot;

/// A command for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Start a game server with the identity key of the slot; completes with [`Outcome::Started`]
    /// or [`Outcome::Failed`]. The command's id identifies the process in
    /// [`Matchmaker::handle_exited`](crate::Matchmaker::handle_exited) and [`Command::Stop`].
    Spawn {
        /// The slot of the pool.
        slot: Slot,
        /// The node id of its key; it registers as this node.
        node: NodeId,
    },
    /// Stop the process in the slot, and make sure that it has ended; completes with
    /// [`Outcome::Stopped`], also if there is none. Repeated if no outcome arrives.
    Stop {
        /// The slot of the pool.
        slot: Slot,
        /// The [`Command::Spawn`] that started it; `None` if an earlier matchmaker did.
        run: Option<CommandId>,
    },
    /// Call the server instance with `body`, which holds no secret; completes with
    /// [`Outcome::Answered`] or [`Outcome::Failed`].
    Call {
        /// The instance to call.
        to: ServerLink,
        /// The record to send.
        body: Vec<u8>,
        /// Timeout of the call.
        timeout: Duration,
    },
}

impl Effect for Command {
    type Outcome = Outcome;
}

/// Outcome of a [`Command`]. One that does not fit the command counts as [`Outcome::Failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The process runs. It is ready once it registers.
    Started,
    /// The process has ended.
    Stopped,
    /// The server's answer.
    Answered(Vec<u8>),
    /// There is no process, or no answer.
    Failed,
}
