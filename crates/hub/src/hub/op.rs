//! Commands on their way to the store and back.

use std::collections::{BTreeMap, VecDeque};

use wire::{ClientId, CommandId, ConnectionId};

use super::claim::Generation;
use crate::id::{BatchSeq, MailSeq};
use crate::record::MailVerdict;
use crate::store::{Command, NewMail, Settled, StoreOp};

/// Commands on their way to the store and back.
#[derive(Debug, Default)]
pub(super) struct Ops {
    last: u64,
    queue: VecDeque<(CommandId, Command)>,
    in_flight: BTreeMap<CommandId, Pending>,
    /// Mails that go with the next command.
    staged: Vec<NewMail>,
    /// What they take, by link.
    staged_bytes: BTreeMap<ConnectionId, usize>,
    /// Bodies of mail in `staged` and in commands, bytes.
    mail_bytes: usize,
    /// The same for each link that has any.
    mail_bytes_of: BTreeMap<ConnectionId, usize>,
}

/// What to do when a command is completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Let the link join.
    Join(ConnectionId),
    /// Tell the senders; so many bytes of each link are no longer on their way. What they are told
    /// where the store takes none of it comes second.
    Append(BTreeMap<ConnectionId, usize>, Vec<Settled>),
    /// Deliver.
    Read(MailRead),
    /// Nothing, or try again.
    Ack(ClientId, Generation, MailSeq),
    /// Nothing: the claim is gone.
    Part,
    /// Tell the link.
    Count(ConnectionId, BatchSeq),
    /// Go on where there is more.
    Expire,
}

/// One read of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MailRead {
    pub(super) player: ClientId,
    /// For which claim: another one is given nothing of it.
    pub(super) generation: Generation,
    /// Where room is kept for what it brings.
    pub(super) link: ConnectionId,
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
    pub(super) fn stage(&mut self, link: ConnectionId, mail: NewMail) {
        let cost = cost(&mail);
        self.mail_bytes = self.mail_bytes.saturating_add(cost);
        for table in [&mut self.staged_bytes, &mut self.mail_bytes_of] {
            let bytes = table.entry(link).or_default();
            *bytes = bytes.saturating_add(cost);
        }
        self.staged.push(mail);
    }

    /// Takes the next command, the batch of mail behind all others.
    pub(super) fn poll(&mut self) -> Option<(CommandId, Command)> {
        if !self.staged.is_empty() {
            let mails = core::mem::take(&mut self.staged);
            let bytes = core::mem::take(&mut self.staged_bytes);
            let busy = mails.iter().map(busy).collect();
            self.push(StoreOp::Append(mails), Pending::Append(bytes, busy));
        }
        self.queue.pop_front()
    }

    /// Returns what to do now that `id` is completed; `None` where it is not known.
    pub(super) fn complete(&mut self, id: CommandId) -> Option<Pending> {
        let pending = self.in_flight.remove(&id)?;
        if let Pending::Append(freed, _) = &pending {
            for (link, freed) in freed {
                self.mail_bytes = self.mail_bytes.saturating_sub(*freed);
                if let Some(bytes) = self.mail_bytes_of.get_mut(link) {
                    *bytes = bytes.saturating_sub(*freed);
                    if *bytes == 0 {
                        self.mail_bytes_of.remove(link);
                    }
                }
            }
        }
        Some(pending)
    }

    /// Returns how many commands are not completed.
    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns about how many bytes all of it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.in_flight
            .len()
            .saturating_mul(super::OP_BYTES)
            .saturating_add(self.mail_bytes)
    }

    /// Returns what mail is on its way to disk, bytes.
    pub(super) const fn mail_bytes(&self) -> usize {
        self.mail_bytes
    }

    /// Returns what of it came over `link`.
    pub(super) fn mail_bytes_of(&self, link: ConnectionId) -> usize {
        self.mail_bytes_of.get(&link).copied().unwrap_or(0)
    }
}

/// What the sender of a mail is told that was not taken.
const fn busy(mail: &NewMail) -> Settled {
    Settled {
        node: mail.node,
        epoch: mail.epoch,
        seq: mail.seq,
        to: mail.to,
        verdict: MailVerdict::Busy,
    }
}

/// What a mail takes in memory: an empty one is not free.
const fn cost(mail: &NewMail) -> usize {
    mail.body.0.len().saturating_add(super::MAIL_BYTES)
}
