//! Queued commands, events and replies.

use std::collections::{BTreeMap, VecDeque};

use wire::{CommandId, MatchId};

use crate::command::Command;
use crate::event::Event;
use crate::matchmaker::Caller;
use crate::pool::Slot;

/// What a command in flight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Spawn(Slot),
    Stop(Slot),
    Call(MatchId),
}

/// Queued commands, events and replies.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    commands: VecDeque<(CommandId, Command)>,
    /// Commands without an outcome; at most one per slot and match.
    pending: BTreeMap<CommandId, Pending>,
    /// Commands issued.
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

    /// Ignores the outcomes of a slot's commands.
    pub(crate) fn forget_slot(&mut self, slot: Slot) {
        let of_slot = |pending: &Pending| matches!(pending, Pending::Spawn(other) | Pending::Stop(other) if *other == slot);
        while let Some(id) = self
            .pending
            .iter()
            .find_map(|(id, pending)| of_slot(pending).then_some(*id))
        {
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
