//! Messages to several recipients: submissions of mail, and counts of their verdicts.

use bytes::Bytes;
use wire::{ClientId, ConnectionId, NodeId, UnixTime};

use super::table::Usage;
use super::{HubEvent, HubStats};
use crate::field::{Epoch, GroupRequest, Redacted, SenderSeq};
use crate::record::{
    GroupAction, GroupToHub, GroupToNode, MailManySubmission, MailSubmission, MailTo, MailVerdict,
};
use crate::store::{GroupOp, GroupOutcome, NewMail, Settled};

/// A mail of a node, from either of the two records.
#[derive(Debug)]
pub(super) struct Submission<'a> {
    pub(super) seq: SenderSeq,
    settled: SenderSeq,
    pub(super) ttl_s: u32,
    priority: u8,
    pub(super) to: MailTo,
    pub(super) body: Redacted<&'a [u8]>,
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

/// Returns the operation of the store for a request about a group, and the message to send to the
/// members that it returns.
pub(super) fn group_op(record: GroupToHub<'_>) -> (GroupOp, Option<Redacted<Bytes>>) {
    let group = record.group;
    let first = ClientId(0);
    match record.action {
        GroupAction::Leave(player) => (GroupOp::Leave { group, player }, None),
        GroupAction::List(first) => (GroupOp::Members { group, first }, None),
        GroupAction::Send(body) => (GroupOp::Members { group, first }, Some(body.to_bytes())),
        GroupAction::Join(player) => (GroupOp::Join { group, player }, None),
    }
}

/// Returns the answer for an outcome of the store.
pub(super) fn group_answer(request: GroupRequest, outcome: GroupOutcome) -> GroupToNode {
    let result = match outcome {
        GroupOutcome::Members { players, more } => {
            return GroupToNode::Members {
                request,
                players,
                more,
            };
        }
        GroupOutcome::Done => Ok(()),
        GroupOutcome::Refused(error) => Err(error),
    };
    GroupToNode::Done { request, result }
}

/// A request about a group that the store executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupPending {
    pub(super) link: ConnectionId,
    pub(super) request: GroupRequest,
    /// The live message to send to the members, if it is one.
    pub(super) message: Option<Redacted<Bytes>>,
}

impl GroupPending {
    fn bytes(&self) -> usize {
        self.message.as_ref().map_or(0, |body| body.0.len())
    }
}

/// Limits for messages to several recipients, and counts of mail.
#[derive(Debug, Default)]
pub(super) struct Fanout {
    /// Mails dropped from full mailboxes that no event has reported yet.
    dropped: u64,
    /// Requests about groups that the store executes.
    requests: Usage<ConnectionId>,
    /// Bytes of live messages in them.
    request_bytes: usize,
    /// Receivers of live messages since the last tick.
    receivers: Usage<ConnectionId>,
}

/// Most requests about groups of one link that the store executes.
const LINK_REQUESTS_MAX: usize = 64;

impl Fanout {
    /// Charges a link for the receivers of a live message; returns false if it has no budget left
    /// until the next tick.
    pub(super) fn charge(&mut self, link: ConnectionId, receivers: usize, max: usize) -> bool {
        let used = self.receivers.get(link);
        // One message is always permitted, so that a small limit rejects none for ever.
        let may = used == 0 || used.saturating_add(receivers) <= max;
        if may {
            self.receivers.add(link, receivers.max(1));
        }
        may
    }

    pub(super) fn on_tick(&mut self) {
        self.receivers = Usage::default();
    }

    /// Begins a request of a link; returns false if it has too many.
    pub(super) fn begin(&mut self, pending: &GroupPending) -> bool {
        let may = self.requests.get(pending.link) < LINK_REQUESTS_MAX;
        if may {
            self.requests.add(pending.link, 1);
            self.request_bytes = self.request_bytes.saturating_add(pending.bytes());
        }
        may
    }

    pub(super) fn end(&mut self, pending: &GroupPending) {
        self.requests.subtract(pending.link, 1);
        self.request_bytes = self.request_bytes.saturating_sub(pending.bytes());
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.request_bytes
    }

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
            MailVerdict::Full => stats.mail_full = stats.mail_full.saturating_add(1),
            MailVerdict::OverShare => {
                stats.mail_over_share = stats.mail_over_share.saturating_add(1);
            }
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
