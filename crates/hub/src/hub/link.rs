//! A connection to a node.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{ClientId, InstanceId, Instant, NodeId};

use super::watch::Watch;
use crate::id::{Epoch, RequestId, SenderSeq};
use crate::name::Name;
use crate::record::{DownReason, Join, MailVerdict, ToNode};
use crate::role::Role;

#[derive(Debug)]
pub(super) struct Link {
    /// The authenticated key.
    pub(super) node: NodeId,
    pub(super) state: LinkState,
    /// When the last record arrived.
    pub(super) last_received: Instant,
    /// Bytes that the driver accepts now.
    pub(super) credit: usize,
    outbox: VecDeque<QueuedRecord>,
    /// Bytes in `outbox`.
    outbox_bytes: usize,
    /// Whether a heartbeat is to be answered.
    heartbeat: bool,
    /// A run of mails with the same verdict that is not in the outbox yet.
    settled: Option<(SenderSeq, SenderSeq, MailVerdict)>,
    /// One presence record that is not in the outbox yet.
    presence: Option<Bytes>,
    front: Front,
    /// Sent with `Busy`: how long to wait before a retry, milliseconds.
    retry_ms: u32,
}

/// A record that waits to be written.
#[derive(Debug)]
struct QueuedRecord {
    record: Bytes,
    /// The call that this record requests, if it is a request.
    request: Option<RequestId>,
}

impl From<Bytes> for QueuedRecord {
    fn from(record: Bytes) -> Self {
        let request = None;
        Self { record, request }
    }
}

/// Which record is written next: verdicts and presence alternate with the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    /// The outbox; a priority record only if the outbox is empty.
    Outbox,
    /// A priority record, since an outbox record was written last.
    PriorityNext,
    /// The front of the outbox is a priority record.
    PriorityQueued,
}

#[derive(Debug)]
pub(super) enum LinkState {
    /// Open; the first record must be a join.
    Fresh,
    /// The store assigns the epoch.
    Joining(Join),
    /// Joined.
    Joined(Box<Member>),
    /// Closes once the outbox is written.
    Closing,
}

/// A node that has joined.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) instance: InstanceId,
    pub(super) epoch: Epoch,
    pub(super) role: Role,
    pub(super) services: Vec<Name>,
    pub(super) watch: Watch,
    /// Mail delivered and not acknowledged, bytes.
    pub(super) unacknowledged: usize,
    /// Room reserved for mailbox reads in flight, bytes.
    pub(super) reading: usize,
    /// Whether a batch of its counts is in flight.
    pub(super) counting: bool,
    /// Players with reads that wait for an acknowledgement of this node.
    pub(super) waiting: BTreeSet<ClientId>,
    /// Players with reads that wait for room in the outbox.
    pub(super) waiting_for_outbox: BTreeSet<ClientId>,
    /// Position of the round robin over these players.
    pub(super) last_woken: ClientId,
}

impl Member {
    /// Returns the bytes of mail that are unacknowledged or reserved.
    pub(super) const fn mail_bytes(&self) -> usize {
        self.unacknowledged.saturating_add(self.reading)
    }
}

impl Link {
    pub(super) const fn new(node: NodeId, now: Instant, retry_ms: u32) -> Self {
        Self {
            node,
            state: LinkState::Fresh,
            last_received: now,
            credit: 0,
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            heartbeat: false,
            settled: None,
            presence: None,
            front: Front::Outbox,
            retry_ms,
        }
    }

    pub(super) fn member(&self) -> Option<&Member> {
        match &self.state {
            LinkState::Joined(member) => Some(member),
            LinkState::Fresh | LinkState::Joining(_) | LinkState::Closing => None,
        }
    }

    pub(super) fn member_mut(&mut self) -> Option<&mut Member> {
        match &mut self.state {
            LinkState::Joined(member) => Some(member),
            LinkState::Fresh | LinkState::Joining(_) | LinkState::Closing => None,
        }
    }

    pub(super) const fn is_closing(&self) -> bool {
        matches!(self.state, LinkState::Closing)
    }

    /// Appends a record to the outbox; `scratch` limits this to one allocation of its length.
    pub(super) fn push(&mut self, record: &ToNode<'_>, scratch: &mut Vec<u8>) {
        scratch.clear();
        record.encode(scratch);
        self.push_encoded(Bytes::copy_from_slice(scratch));
    }

    /// Appends an encoded record to the outbox.
    pub(super) fn push_encoded(&mut self, record: Bytes) {
        self.push_waiting(record.into());
    }

    /// Appends a request to the outbox. Its number is reported once it is written, or dropped.
    pub(super) fn push_request(
        &mut self,
        request: RequestId,
        record: &ToNode<'_>,
        scratch: &mut Vec<u8>,
    ) {
        scratch.clear();
        record.encode(scratch);
        self.push_waiting(QueuedRecord {
            record: Bytes::copy_from_slice(scratch),
            request: Some(request),
        });
    }

    fn push_waiting(&mut self, waiting: QueuedRecord) {
        if !self.is_closing() {
            self.outbox_bytes = self.outbox_bytes.saturating_add(waiting.record.len());
            self.outbox.push_back(waiting);
        }
    }

    /// Returns the requests that are not written yet.
    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.outbox.iter().filter_map(|waiting| waiting.request)
    }

    /// Queues the verdict on a mail; consecutive mails with equal verdicts share a record.
    pub(super) fn settle(&mut self, seq: SenderSeq, verdict: MailVerdict) {
        match &mut self.settled {
            Some((_, last, known)) if *known == verdict && last.next() == seq => *last = seq,
            _ => {
                self.flush_settled();
                self.settled = Some((seq, seq, verdict));
            }
        }
    }

    /// Answers heartbeats; several are answered by one.
    pub(super) const fn answer_heartbeat(&mut self) {
        self.heartbeat = true;
    }

    /// Drops the outbox, and closes the link after `reason` is sent.
    pub(super) fn close(&mut self, reason: Option<DownReason>) {
        self.outbox.clear();
        self.outbox_bytes = 0;
        self.settled = None;
        self.presence = None;
        self.heartbeat = false;
        if let Some(reason) = reason {
            let mut encoded = Vec::new();
            ToNode::Down(reason).encode(&mut encoded);
            self.outbox.push_back(Bytes::from(encoded).into());
        }
        self.state = LinkState::Closing;
    }

    /// Removes the next record if the credit covers it.
    pub(super) fn next(&mut self) -> Next {
        if self.heartbeat && !self.is_closing() {
            self.heartbeat = false;
            self.outbox
                .push_front(Bytes::from_static(&[crate::record::code::HUB_HEARTBEAT]).into());
            self.outbox_bytes = self.outbox_bytes.saturating_add(1);
        }
        self.queue_priority_record();
        let Some(len) = self.outbox.front().map(|waiting| waiting.record.len()) else {
            return Next::Empty;
        };
        if len > self.credit {
            return Next::Blocked;
        }
        self.credit = self.credit.saturating_sub(len);
        self.front = match self.front {
            Front::Outbox | Front::PriorityNext => Front::PriorityNext,
            Front::PriorityQueued => Front::Outbox,
        };
        self.outbox_bytes = self.outbox_bytes.saturating_sub(len);
        self.outbox
            .pop_front()
            .map_or(Next::Empty, |QueuedRecord { record, request }| {
                Next::Record(record, request)
            })
    }

    /// Returns about how many bytes the link holds, without its own size.
    pub(super) fn memory_bytes(&self) -> usize {
        let presence = self.presence.as_ref().map_or(0, Bytes::len);
        let waiting = self
            .member()
            .map_or(0, |member| member.watch.len().saturating_mul(64));
        self.outbox_bytes
            .saturating_add(self.outbox.len().saturating_mul(size_of::<QueuedRecord>()))
            .saturating_add(waiting)
            .saturating_add(presence)
    }

    /// Returns the bytes in the outbox.
    pub(super) const fn outbox_bytes(&self) -> usize {
        self.outbox_bytes
    }

    /// Returns whether a presence record can be queued.
    pub(super) const fn has_presence_slot(&self) -> bool {
        self.presence.is_none() && !self.is_closing()
    }

    /// Queues a presence record.
    pub(super) fn push_presence(&mut self, record: Bytes) {
        self.presence = Some(record);
    }

    /// Moves a verdict or presence record to the front, so that a full outbox delays neither.
    fn queue_priority_record(&mut self) {
        let may = match self.front {
            Front::Outbox => self.outbox.is_empty(),
            Front::PriorityNext => true,
            Front::PriorityQueued => false,
        };
        if !may {
            return;
        }
        let settled = self.take_settled();
        if let Some(record) = settled.or_else(|| self.presence.take()) {
            self.outbox_bytes = self.outbox_bytes.saturating_add(record.len());
            self.outbox.push_front(record.into());
            self.front = Front::PriorityQueued;
        }
    }

    fn flush_settled(&mut self) {
        if let Some(record) = self.take_settled() {
            self.push_encoded(record);
        }
    }

    fn take_settled(&mut self) -> Option<Bytes> {
        let (first, last, verdict) = self.settled.take()?;
        let retry_ms = match verdict {
            MailVerdict::Busy => self.retry_ms,
            MailVerdict::Stored | MailVerdict::Refused(_) => 0,
        };
        let mut encoded = Vec::new();
        let record = ToNode::MailSettled {
            first,
            last,
            verdict,
            retry_ms,
        };
        record.encode(&mut encoded);
        Some(encoded.into())
    }
}

/// The next record of a link.
#[derive(Debug)]
pub(super) enum Next {
    /// The record, and the call that it requests.
    Record(Bytes, Option<RequestId>),
    /// The credit does not cover the next record.
    Blocked,
    /// The outbox is empty.
    Empty,
}
