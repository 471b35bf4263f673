//! What the matchmaker gives the driver and the application: commands, events and replies.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use wire::{CommandId, Effect, MatchId, NodeId};

use crate::server::{ServerLink, Slot};
use crate::ticket::TicketId;

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

/// An event for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The ticket has changed state.
    Ticket(TicketId),
    /// A server accepted the match, and all its players have tokens.
    MatchLive {
        /// The match.
        match_id: MatchId,
        /// The server instance.
        server: ServerLink,
    },
    /// A live match has ended.
    MatchEnded {
        /// The match.
        match_id: MatchId,
        /// The reason.
        end: MatchEnd,
        /// The result that its server reported; empty if none.
        result: Vec<u8>,
    },
    /// An instance registered.
    ServerUp(ServerLink),
    /// An instance is lost permanently.
    ServerDown {
        /// The server instance.
        server: ServerLink,
        /// The reason.
        reason: DownReason,
    },
    /// A slot's process did not become a server; retried later.
    SpawnFailed {
        /// The slot.
        slot: Slot,
        /// Consecutive failures.
        failures: u32,
    },
    /// This many events were dropped; query every ticket of interest.
    Missed(u64),
}

/// Why a live match has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatchEnd {
    /// Its server reported the end.
    Reported,
    /// Its server's heartbeat does not list it.
    Unlisted,
    /// Its server is lost.
    ServerLost,
    /// No player has entered, and its last token has expired.
    NotEntered,
}

/// Why an instance is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownReason {
    /// Its lease expired.
    LeaseLost,
    /// Its process ended.
    Exited,
    /// Another instance registered from the same node.
    Superseded,
    /// It announced its end.
    Left,
    /// It was idle, and was stopped.
    Unused,
}

/// Identifies a server's call, for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// The instance, as authenticated by its link.
    pub link: ServerLink,
    /// The driver's number of the call.
    pub call: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Spawn(Slot),
    Stop(Slot),
    Call(MatchId),
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    commands: VecDeque<(CommandId, Command)>,
    /// Commands without an outcome; at most one per slot and match.
    pending: BTreeMap<CommandId, Pending>,
    commanded: u64,
    events: VecDeque<Event>,
    /// Events dropped since the last one that was polled.
    missed: u64,
    replies: VecDeque<(Caller, Vec<u8>)>,
}

impl Outbox {
    pub(crate) fn command(&mut self, pending: Pending, command: Command) -> CommandId {
        self.commanded = self.commanded.saturating_add(1);
        let id = CommandId(self.commanded);
        self.pending.insert(id, pending);
        self.commands.push_back((id, command));
        id
    }

    /// Returns what the command was for; `None` if its outcome is not expected.
    pub(crate) fn complete(&mut self, id: CommandId) -> Option<Pending> {
        self.pending.remove(&id)
    }

    /// Ignores the outcome of a command; one that was not polled yet is removed.
    pub(crate) fn forget(&mut self, id: CommandId) {
        if self.pending.remove(&id).is_some() {
            self.commands.retain(|(other, _)| *other != id);
        }
    }

    pub(crate) fn forget_slot(&mut self, slot: Slot) {
        let is_of_slot =
            |pending: &Pending| *pending == Pending::Spawn(slot) || *pending == Pending::Stop(slot);
        let ids = self
            .pending
            .iter()
            .filter(|(_, pending)| is_of_slot(pending));
        let ids: Vec<_> = ids.map(|(id, _)| *id).collect();
        for id in ids {
            self.forget(id);
        }
    }

    /// Adds an event; beyond `max` the oldest are dropped. Returns how many were.
    pub(crate) fn event(&mut self, event: Event, max: usize) -> u64 {
        self.events.push_back(event);
        let mut lost = 0_u64;
        while self.events.len() > max {
            self.events.pop_front();
            lost = lost.saturating_add(1);
        }
        self.missed = self.missed.saturating_add(lost);
        lost
    }

    /// Adds a reply; returns whether there was room.
    pub(crate) fn reply(&mut self, to: Caller, body: Vec<u8>, max: usize) -> bool {
        let has_room = self.replies.len() < max;
        if has_room {
            self.replies.push_back((to, body));
        }
        has_room
    }

    pub(crate) fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        self.commands.pop_front()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        if self.missed > 0 {
            return Some(Event::Missed(core::mem::take(&mut self.missed)));
        }
        self.events.pop_front()
    }

    pub(crate) fn poll_reply(&mut self) -> Option<(Caller, Vec<u8>)> {
        self.replies.pop_front()
    }

    /// Returns how many commands (queued or in flight), events and replies it holds.
    pub(crate) fn len(&self) -> usize {
        [
            self.commands.len(),
            self.pending.len(),
            self.events.len(),
            self.replies.len(),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }
}
