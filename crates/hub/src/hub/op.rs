//! Commands to the store, and what to do on completion.

use std::collections::{BTreeMap, VecDeque};

use wire::{ClientId, CommandId, ConnectionId};

use super::claim::Generation;
use crate::id::{BatchSeq, MailSeq};
use crate::record::MailVerdict;
use crate::store::{Command, NewMail, Settled, StoreOp};

/// Commands to the store.
#[derive(Debug, Default)]
pub(super) struct Ops {
    last: u64,
    queue: VecDeque<(CommandId, Command)>,
    in_flight: BTreeMap<CommandId, Pending>,
    /// Mails for the next `Append`.
    staged: Vec<NewMail>,
    /// Their cost per link, bytes.
    staged_bytes: BTreeMap<ConnectionId, usize>,
    /// Cost of all mail staged or in flight, bytes.
    mail_bytes: usize,
    /// The same per link.
    mail_bytes_of: BTreeMap<ConnectionId, usize>,
}

/// What to do on completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Complete the join of the link.
    Join(ConnectionId),
    /// Report verdicts, and release these bytes per link. If the store fails, report the verdicts
    /// in the second field.
    Append(BTreeMap<ConnectionId, usize>, Vec<Settled>),
    /// Deliver.
    Read(MailRead),
    /// Continue, or retry.
    Ack(ClientId, Generation, MailSeq),
    /// Nothing: the claim has ended.
    Part,
    /// Confirm the batch.
    Count(ConnectionId, BatchSeq),
    /// Continue if more mail has expired.
    Expire,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MailRead {
    pub(super) player: ClientId,
    /// The claim that it is for; the result is dropped if that has been replaced.
    pub(super) generation: Generation,
    /// The link with the reserved room.
    pub(super) link: ConnectionId,
}

impl Ops {
    /// Queues a command.
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

    /// Returns the next command; the staged mails become the last one.
    pub(super) fn poll(&mut self) -> Option<(CommandId, Command)> {
        if !self.staged.is_empty() {
            let mails = core::mem::take(&mut self.staged);
            let bytes = core::mem::take(&mut self.staged_bytes);
            let busy = mails.iter().map(busy).collect();
            self.push(StoreOp::Append(mails), Pending::Append(bytes, busy));
        }
        self.queue.pop_front()
    }

    /// Completes `id`; `None` if it is unknown.
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

    /// Returns how many commands are queued or in flight.
    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns about how many bytes it holds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.in_flight
            .len()
            .saturating_mul(super::OP_BYTES)
            .saturating_add(self.mail_bytes)
    }

    /// Returns the cost of mail on its way to disk, bytes.
    pub(super) const fn mail_bytes(&self) -> usize {
        self.mail_bytes
    }

    /// Returns the cost of mail from `link`, bytes.
    pub(super) fn mail_bytes_of(&self, link: ConnectionId) -> usize {
        self.mail_bytes_of.get(&link).copied().unwrap_or(0)
    }
}

/// The verdict on a mail that the store did not accept.
const fn busy(mail: &NewMail) -> Settled {
    Settled {
        node: mail.node,
        epoch: mail.epoch,
        seq: mail.seq,
        to: mail.to,
        verdict: MailVerdict::Busy,
    }
}

/// Memory of a mail; an empty body is not free.
const fn cost(mail: &NewMail) -> usize {
    mail.body.0.len().saturating_add(super::MAIL_BYTES)
}
