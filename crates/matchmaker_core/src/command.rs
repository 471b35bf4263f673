//! Effects that the matchmaker asks for: processes and calls.

use core::time::Duration;

use wire::{CommandId, Effect, NodeId};

use crate::lease::ServerLink;
use crate::pool::Slot;

/// What the driver shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Start a game server with the identity key of the slot; [`Outcome::Started`] or
    /// [`Outcome::Failed`]. The id of this command names the process from then on, in
    /// [`Matchmaker::handle_exited`](crate::Matchmaker::handle_exited) and [`Command::Stop`].
    Spawn {
        /// Which slot of the pool.
        slot: Slot,
        /// Whose key it shall have; it registers as this node.
        node: NodeId,
    },
    /// End the process in the slot, and make sure that it has ended; [`Outcome::Stopped`]. Where
    /// there is none, it has ended. Comes again where no outcome came.
    Stop {
        /// Which slot of the pool.
        slot: Slot,
        /// The [`Command::Spawn`] that started it; `None` where an earlier matchmaker did.
        run: Option<CommandId>,
    },
    /// Call the server instance with `body`; [`Outcome::Answered`] or [`Outcome::Failed`]. It holds
    /// no secret.
    Call {
        /// Whom.
        to: ServerLink,
        /// What to say.
        body: Vec<u8>,
        /// After this time an answer is of no use.
        timeout: Duration,
    },
}

impl Effect for Command {
    type Outcome = Outcome;
}

/// How a [`Command`] ended. One that does not belong to the command counts as [`Outcome::Failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The process runs; ready it is when it registers.
    Started,
    /// The process has ended.
    Stopped,
    /// The server's answer.
    Answered(Vec<u8>),
    /// No process, or no answer.
    Failed,
}
