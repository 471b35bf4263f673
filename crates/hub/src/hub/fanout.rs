//! Messages to several recipients: submissions of mail, and counts of their verdicts.

use wire::{NodeId, UnixTime};

use super::{HubEvent, HubStats};
use crate::field::{Epoch, Redacted, SenderSeq};
use crate::record::{MailManySubmission, MailSubmission, MailTo, MailVerdict};
use crate::store::{NewMail, Settled};

/// A mail of a node, from either of the two records.
#[derive(Debug)]
pub(super) struct Submission<'a> {
    pub(super) seq: SenderSeq,
    settled: SenderSeq,
    pub(super) ttl_s: u32,
    priority: u8,
    to: MailTo,
    body: Redacted<&'a [u8]>,
}

impl<'a> From<MailSubmission<'a>> for Submission<'a> {
    fn from(mail: MailSubmission<'a>) -> Self {
        Self {
            seq: mail.seq,
            settled: mail.settled,
            ttl_s: mail.ttl_s,
            priority: 0,
            to: MailTo::One(mail.to),
            body: mail.body,
        }
    }
}

impl<'a> From<MailManySubmission<'a>> for Submission<'a> {
    fn from(mail: MailManySubmission<'a>) -> Self {
        Self {
            seq: mail.seq,
            settled: mail.settled,
            ttl_s: mail.ttl_s,
            priority: mail.priority,
            to: mail.to.to_mail_to(),
            body: mail.body,
        }
    }
}

impl Submission<'_> {
    /// Returns the mail as this run of `node` sends it.
    pub(super) fn into_mail(self, (node, epoch): (NodeId, Epoch), expires: UnixTime) -> NewMail {
        NewMail {
            to: self.to,
            node,
            epoch,
            seq: self.seq,
            settled: self.settled,
            expires,
            priority: self.priority,
            body: self.body.to_bytes(),
        }
    }
}

/// Counts of messages to several recipients.
#[derive(Debug, Default)]
pub(super) struct Fanout {
    /// Mails dropped from full mailboxes that no event has reported yet.
    dropped: u64,
}

impl Fanout {
    /// Counts the verdict on a mail, once for each recipient.
    pub(super) fn count(&mut self, one: &Settled, stats: &mut HubStats) {
        let recipients = one.to.players().count().max(1) as u64;
        let refused = one.part.as_ref().map_or(0, |part| u64::from(part.refused));
        let stored = one
            .part
            .as_ref()
            .map_or(recipients, |part| part.stored.into());
        match one.verdict {
            MailVerdict::Stored => {
                stats.mail_stored = stats.mail_stored.saturating_add(stored);
                stats.mail_refused = stats.mail_refused.saturating_add(refused);
            }
            MailVerdict::Refused(_) => {
                stats.mail_refused = stats.mail_refused.saturating_add(recipients);
            }
            MailVerdict::Busy => stats.mail_busy = stats.mail_busy.saturating_add(1),
        }
        stats.mail_dropped = stats.mail_dropped.saturating_add(one.dropped.into());
        self.dropped = self.dropped.saturating_add(one.dropped.into());
    }

    /// Returns the event for the mails that were dropped since the last call, if any.
    pub(super) const fn take_event(&mut self) -> Option<HubEvent> {
        match core::mem::replace(&mut self.dropped, 0) {
            0 => None,
            count => Some(HubEvent::MailDropped { count }),
        }
    }
}
