//! One connection to a node.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{ClientId, InstanceId, Instant, NodeId};

use super::watch::Watch;
use crate::id::{Epoch, RequestId, SenderSeq};
use crate::name::Name;
use crate::record::{DownReason, Join, MailVerdict, ToNode};
use crate::role::Role;

/// One connection to a node.
#[derive(Debug)]
pub(super) struct Link {
    /// Whose key was proved.
    pub(super) node: NodeId,
    pub(super) state: LinkState,
    /// When something came last.
    pub(super) last_received: Instant,
    /// Bytes that the driver takes now.
    pub(super) credit: usize,
    /// Records that wait to be written.
    outbox: VecDeque<QueuedRecord>,
    /// Their lengths together.
    outbox_bytes: usize,
    /// A heartbeat is to be answered.
    heartbeat: bool,
    /// What became of a run of mails, not yet in the outbox.
    settled: Option<(SenderSeq, SenderSeq, MailVerdict)>,
    /// One word of presence.
    presence: Option<Bytes>,
    front: Front,
    /// What a sender that is told `Busy` shall wait, milliseconds.
    retry_ms: u32,
}

/// A record that waits to be written.
#[derive(Debug)]
struct QueuedRecord {
    record: Bytes,
    /// Which call it asks; none for what is no request.
    request: Option<RequestId>,
}

impl From<Bytes> for QueuedRecord {
    fn from(record: Bytes) -> Self {
        let request = None;
        Self { record, request }
    }
}

/// What goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    /// The outbox, and what is not in it once that is empty.
    Outbox,
    /// What is not in the outbox: one record of it went before.
    PriorityNext,
    /// The first record of the outbox is what was not in it.
    PriorityQueued,
}

/// How far a link has come.
#[derive(Debug)]
pub(super) enum LinkState {
    /// Opened; the first record shall be a join.
    Fresh,
    /// The store makes its epoch.
    Joining(Join),
    /// It takes part.
    Joined(Box<Member>),
    /// It ends once the outbox is written.
    Closing,
}

/// A node that takes part.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) instance: InstanceId,
    pub(super) epoch: Epoch,
    pub(super) role: Role,
    pub(super) services: Vec<Name>,
    pub(super) watch: Watch,
    /// Mail that was given to it and not acknowledged, bytes.
    pub(super) unacknowledged: usize,
    /// Room kept for mail that the store reads for it, bytes.
    pub(super) reading: usize,
    /// Whether the store has a batch of its counts.
    pub(super) counting: bool,
    /// Players whose mail waits until others of this node, or they, have acknowledged theirs.
    pub(super) waiting: BTreeSet<ClientId>,
    /// Players whose mail waits until more of what waits to be written is.
    pub(super) waiting_for_outbox: BTreeSet<ClientId>,
    /// The player whose turn it was last among these.
    pub(super) last_woken: ClientId,
}

impl Member {
    /// Returns what of its mail is not acknowledged, or about to be given, bytes.
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

    /// Puts a record in the outbox, by way of `scratch`: one allocation of its length.
    pub(super) fn push(&mut self, record: &ToNode<'_>, scratch: &mut Vec<u8>) {
        scratch.clear();
        record.encode(scratch);
        self.push_encoded(Bytes::copy_from_slice(scratch));
    }

    /// Puts a record that is encoded in the outbox.
    pub(super) fn push_encoded(&mut self, record: Bytes) {
        self.push_waiting(record.into());
    }

    /// Puts a request in the outbox; that it is written, or never will be, is told by its number.
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

    /// Returns the requests that wait to be written.
    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.outbox.iter().filter_map(|waiting| waiting.request)
    }

    /// Notes what became of a mail; runs of the same end are told in one record.
    pub(super) fn settle(&mut self, seq: SenderSeq, verdict: MailVerdict) {
        match &mut self.settled {
            Some((_, last, known)) if *known == verdict && last.next() == seq => *last = seq,
            _ => {
                self.flush_settled();
                self.settled = Some((seq, seq, verdict));
            }
        }
    }

    /// Notes that a heartbeat is to be answered; several are answered by one.
    pub(super) const fn answer_heartbeat(&mut self) {
        self.heartbeat = true;
    }

    /// Ends the link: what waits is dropped, `reason` is the last that it hears.
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

    /// Takes the next record where the credit covers it.
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

    /// Returns about how many bytes the link holds besides itself.
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

    /// Returns what waits to be written, bytes.
    pub(super) const fn outbox_bytes(&self) -> usize {
        self.outbox_bytes
    }

    /// Returns whether a word of presence can be taken.
    pub(super) const fn has_presence_slot(&self) -> bool {
        self.presence.is_none() && !self.is_closing()
    }

    /// Takes a word of presence.
    pub(super) fn push_presence(&mut self, record: Bytes) {
        self.presence = Some(record);
    }

    /// Puts what became of mails, or a word of presence, in front of every other record, so that
    /// an outbox that others keep full holds up neither.
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

/// What a link has to write.
#[derive(Debug)]
pub(super) enum Next {
    /// This, and which call it asks.
    Record(Bytes, Option<RequestId>),
    /// Something that the credit does not cover.
    Blocked,
    /// Nothing.
    Empty,
}
