//! Commands on their way to the store and back.

use std::collections::{BTreeMap, VecDeque};

use wire::{ClientId, CommandId, ConnectionId};

use super::claim::Generation;
use crate::id::{BatchSeq, MailSeq};
use crate::store::{Command, NewMail, StoreOp};

/// Commands on their way to the store and back.
#[derive(Debug, Default)]
pub(super) struct Ops {
    last: u64,
    queue: VecDeque<(CommandId, Command)>,
    in_flight: BTreeMap<CommandId, Pending>,
    /// Mails that go with the next command.
    staged: Vec<NewMail>,
    staged_bytes: usize,
    /// Bodies of mail in `staged` and in commands, bytes.
    mail_bytes: usize,
}

/// What to do when a command is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Let the link join.
    Join(ConnectionId),
    /// Tell the senders; so many bytes are no longer on their way.
    Append(usize),
    /// Deliver, where the claim still is this one.
    Read(ClientId, Generation),
    /// Nothing, or try again.
    Ack(ClientId, Generation, MailSeq),
    /// Tell the link.
    Count(ConnectionId, BatchSeq),
    /// Go on where there is more.
    Expire,
}

impl Ops {
    /// Puts a command in the queue.
    pub(super) fn push(&mut self, op: StoreOp, pending: Pending) {
        self.last = self.last.saturating_add(1);
        let id = CommandId(self.last);
        self.in_flight.insert(id, pending);
        self.queue.push_back((id, Command::Store(op)));
    }

    /// Adds a mail to the next batch.
    pub(super) fn stage(&mut self, mail: NewMail) {
        self.staged_bytes = self.staged_bytes.saturating_add(cost(&mail));
        self.mail_bytes = self.mail_bytes.saturating_add(cost(&mail));
        self.staged.push(mail);
    }

    /// Takes the next command, the batch of mail behind all others.
    pub(super) fn poll(&mut self) -> Option<(CommandId, Command)> {
        if !self.staged.is_empty() {
            let mails = core::mem::take(&mut self.staged);
            let bytes = core::mem::take(&mut self.staged_bytes);
            self.push(StoreOp::Append(mails), Pending::Append(bytes));
        }
        self.queue.pop_front()
    }

    /// Returns what to do now that `id` is completed; `None` where it is not known.
    pub(super) fn complete(&mut self, id: CommandId) -> Option<Pending> {
        let pending = self.in_flight.remove(&id)?;
        if let Pending::Append(bytes) = pending {
            self.mail_bytes = self.mail_bytes.saturating_sub(bytes);
        }
        Some(pending)
    }

    /// Returns how many commands are not completed.
    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns what mail is on its way to disk, bytes.
    pub(super) const fn mail_bytes(&self) -> usize {
        self.mail_bytes
    }
}

/// What a mail takes in memory: an empty one is not free.
const fn cost(mail: &NewMail) -> usize {
    mail.body.len().saturating_add(128)
}
