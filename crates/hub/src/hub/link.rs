//! A connection to a node: its outbox, and what it watches.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{ClientId, ConnectionId, Instant, NodeId};

use crate::field::{Epoch, LiveSeq, Name, RequestId, SenderSeq};
use crate::record::{
    DownReason, Join, LiveOutcome, LiveToNode, MailVerdict, NodeFilter, PlayerFilter,
    PresenceFilter, ToNode, code,
};

#[derive(Debug)]
pub(super) struct Link {
    /// The authenticated key.
    pub(super) node: NodeId,
    pub(super) state: LinkState,
    pub(super) last_received: Instant,
    /// Bytes that the driver accepts now.
    pub(super) credit: usize,
    /// Records to write, each with the call that it requests, if any.
    outbox: VecDeque<(Bytes, Option<RequestId>)>,
    outbox_bytes: usize,
    heartbeat: bool,
    /// A run of mails with the same verdict that is not in the outbox yet.
    settled: Option<(SenderSeq, SenderSeq, MailVerdict)>,
    /// Runs of live messages with the same outcome that are not in the outbox yet, in order.
    sent: VecDeque<(LiveSeq, LiveSeq, LiveOutcome)>,
    /// One presence record that is not in the outbox yet.
    presence: Option<Bytes>,
    /// One change of a watched key that is not in the outbox yet.
    kv: Option<Bytes>,
    /// The kind of priority record that is taken next.
    turn: PriorityKind,
    /// Broadcasts and casts that were dropped and not reported yet.
    missed: u64,
    front: Front,
    /// Sent with `Busy`: how long to wait before a retry, milliseconds.
    retry_ms: u32,
}

/// Which record is written next: priority records alternate with the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    /// The outbox; a priority record only if the outbox is empty.
    Outbox,
    /// A priority record, since an outbox record was written last.
    PriorityNext,
    /// The front of the outbox is a priority record.
    PriorityQueued,
}

/// Kinds of priority records; they take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PriorityKind {
    /// Verdicts on mail.
    Verdict,
    /// Outcomes of live messages.
    Outcome,
    Presence,
    /// Changes of watched keys.
    Kv,
}

impl PriorityKind {
    const fn next(self) -> Self {
        match self {
            Self::Verdict => Self::Outcome,
            Self::Outcome => Self::Presence,
            Self::Presence => Self::Kv,
            Self::Kv => Self::Verdict,
        }
    }
}

#[derive(Debug)]
pub(super) enum LinkState {
    /// Open; the first record must be a join.
    Fresh,
    /// The store assigns the epoch.
    Joining(Join),
    Joined(Box<Member>),
    /// Closes once the outbox is written.
    Closing,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) join: Join,
    pub(super) epoch: Epoch,
    /// The last mail of the node with a verdict.
    pub(super) settled: SenderSeq,
    /// Topics that the node subscribes to.
    pub(super) topics: BTreeSet<Name>,
    pub(super) watch: Watch,
    /// Mail delivered and not acknowledged, bytes.
    pub(super) unacknowledged: usize,
    /// Room reserved for mailbox reads in flight, bytes.
    pub(super) reading: usize,
    pub(super) counting: bool,
    /// Players with a read that waits for an acknowledgement of this node.
    pub(super) waiting: BTreeSet<ClientId>,
    /// Players with a read that waits for room in the outbox.
    pub(super) waiting_for_outbox: BTreeSet<ClientId>,
    /// Position of the round robin over these players.
    pub(super) last_woken: ClientId,
}

impl Member {
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
            sent: VecDeque::new(),
            presence: None,
            kv: None,
            turn: PriorityKind::Verdict,
            missed: 0,
            front: Front::Outbox,
            retry_ms,
        }
    }

    /// Returns the join that was requested or accepted.
    pub(super) fn join(&self) -> Option<&Join> {
        match &self.state {
            LinkState::Joining(join) => Some(join),
            LinkState::Joined(member) => Some(&member.join),
            LinkState::Fresh | LinkState::Closing => None,
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

    /// Appends a record to the outbox, with the call that it requests, if any.
    pub(super) fn push(&mut self, record: Bytes, request: Option<RequestId>) {
        if !self.is_closing() {
            self.outbox_bytes = self.outbox_bytes.saturating_add(record.len());
            self.outbox.push_back((record, request));
        }
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.outbox.iter().filter_map(|(_, request)| *request)
    }

    /// Queues the verdict on a mail; consecutive mails with equal verdicts share a record.
    pub(super) fn settle(&mut self, seq: SenderSeq, verdict: MailVerdict) {
        match &mut self.settled {
            Some((_, last, known)) if *known == verdict && last.next() == seq => *last = seq,
            _ => {
                if let Some(record) = self.take_settled() {
                    self.push(record, None);
                }
                self.settled = Some((seq, seq, verdict));
            }
        }
    }

    /// Notes that the mail has a verdict.
    pub(super) fn note_settled(&mut self, seq: SenderSeq) {
        if let Some(member) = self.member_mut() {
            member.settled = member.settled.max(seq);
        }
    }

    /// Queues the outcome of a live message; consecutive messages with equal outcomes share a
    /// record.
    pub(super) fn push_outcome(&mut self, live: LiveSeq, outcome: LiveOutcome) {
        match self.sent.back_mut() {
            Some((_, last, known)) if *known == outcome && last.next() == live => *last = live,
            _ => self.sent.push_back((live, live, outcome)),
        }
    }

    /// Appends a record that may be dropped if the outbox would exceed `bytes_max`; returns whether
    /// it was appended. Before the next one that fits, the node gets the number of dropped ones.
    pub(super) fn push_lossy(&mut self, record: Bytes, bytes_max: usize) -> bool {
        if self.outbox_bytes().saturating_add(record.len()) > bytes_max {
            self.missed = self.missed.saturating_add(1);
            return false;
        }
        if let Some(missed) = self.take_missed() {
            self.push(missed, None);
        }
        self.push(record, None);
        true
    }

    pub(super) const fn answer_heartbeat(&mut self) {
        self.heartbeat = true;
    }

    /// Drops the outbox, and closes the link after `reason` is sent.
    pub(super) fn close(&mut self, reason: Option<DownReason>) {
        self.outbox.clear();
        self.outbox_bytes = 0;
        self.settled = None;
        self.sent.clear();
        self.presence = None;
        self.kv = None;
        self.missed = 0;
        self.heartbeat = false;
        if let Some(reason) = reason {
            let record = encode(&ToNode::Down(reason));
            self.outbox.push_back((record, None));
        }
        self.state = LinkState::Closing;
    }

    /// Returns the call that the record at the front of the outbox requests, if any.
    pub(super) fn next_request(&self) -> Option<RequestId> {
        self.outbox.front()?.1
    }

    /// Drops the record at the front of the outbox.
    pub(super) fn drop_next(&mut self) {
        if let Some((record, _)) = self.outbox.pop_front() {
            self.outbox_bytes = self.outbox_bytes.saturating_sub(record.len());
        }
    }

    /// Removes the next record if the credit covers it.
    pub(super) fn next(&mut self) -> Option<(Bytes, Option<RequestId>)> {
        if self.heartbeat && !self.is_closing() {
            self.heartbeat = false;
            self.push_front(Bytes::from_static(&[code::HUB_HEARTBEAT]));
        }
        if self.outbox.is_empty()
            && let Some(missed) = self.take_missed()
        {
            self.push_front(missed);
        }
        self.queue_priority_record();
        let (record, _) = self.outbox.front()?;
        let len = record.len();
        self.credit = self.credit.checked_sub(len)?;
        self.front = match self.front {
            Front::Outbox | Front::PriorityNext => Front::PriorityNext,
            Front::PriorityQueued => Front::Outbox,
        };
        self.outbox_bytes = self.outbox_bytes.saturating_sub(len);
        self.outbox.pop_front()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let watched = [&self.presence, &self.kv].into_iter().flatten();
        let watched: usize = watched.map(Bytes::len).sum();
        let waiting = self
            .member()
            .map_or(0, |member| member.watch.len().saturating_mul(64));
        let entry = size_of::<(Bytes, Option<RequestId>)>();
        self.outbox_bytes()
            .saturating_add(self.outbox.len().saturating_mul(entry))
            .saturating_add(waiting)
            .saturating_add(watched)
    }

    /// Returns the bytes that wait to be written, with outcomes of live messages.
    pub(super) fn outbox_bytes(&self) -> usize {
        let outcomes = self.sent.len().saturating_mul(LIVE_SENT_BYTES);
        self.outbox_bytes.saturating_add(outcomes)
    }

    pub(super) const fn has_presence_slot(&self) -> bool {
        self.presence.is_none() && !self.is_closing()
    }

    pub(super) const fn has_kv_slot(&self) -> bool {
        self.kv.is_none() && !self.is_closing()
    }

    pub(super) fn push_kv(&mut self, record: Bytes) {
        self.kv = Some(record);
    }

    pub(super) fn push_presence(&mut self, record: Bytes) {
        self.presence = Some(record);
    }

    /// Moves a priority record to the front, so that a full outbox delays none of them.
    fn queue_priority_record(&mut self) {
        let may = match self.front {
            Front::Outbox => self.outbox.is_empty(),
            Front::PriorityNext => true,
            Front::PriorityQueued => false,
        };
        if !may {
            return;
        }
        for _ in 0..4 {
            let kind = self.turn;
            self.turn = kind.next();
            let record = match kind {
                PriorityKind::Verdict => self.take_settled(),
                PriorityKind::Outcome => self.take_sent(),
                PriorityKind::Presence => self.presence.take(),
                PriorityKind::Kv => self.kv.take(),
            };
            if let Some(record) = record {
                self.push_front(record);
                self.front = Front::PriorityQueued;
                return;
            }
        }
    }

    fn take_sent(&mut self) -> Option<Bytes> {
        let (first, last, outcome) = self.sent.pop_front()?;
        let record = ToNode::Live(LiveToNode::Sent {
            first,
            last,
            outcome,
        });
        Some(encode(&record))
    }

    fn take_missed(&mut self) -> Option<Bytes> {
        let count = core::mem::take(&mut self.missed);
        (count > 0).then(|| encode(&ToNode::Live(LiveToNode::Missed(count))))
    }

    fn push_front(&mut self, record: Bytes) {
        self.outbox_bytes = self.outbox_bytes.saturating_add(record.len());
        self.outbox.push_front((record, None));
    }

    fn take_settled(&mut self) -> Option<Bytes> {
        let (first, last, verdict) = self.settled.take()?;
        let retry_ms = match verdict {
            MailVerdict::Busy | MailVerdict::Full | MailVerdict::OverShare => self.retry_ms,
            MailVerdict::Stored | MailVerdict::Refused(_) => 0,
        };
        let record = ToNode::MailSettled {
            first,
            last,
            verdict,
            retry_ms,
        };
        Some(encode(&record))
    }
}

/// Size of the record with the outcome of a run, bytes.
const LIVE_SENT_BYTES: usize = 25;

fn encode(record: &ToNode<'_>) -> Bytes {
    let mut encoded = Vec::new();
    record.encode(&mut encoded);
    encoded.into()
}

/// Presence updates for one watcher.
///
/// A watcher gets a reset, a snapshot of all keys, an end marker, and then each key that changes.
/// Each record holds the state at the time it is sent, so faster changes are merged. If too many are
/// queued, the stream restarts with a reset.
#[derive(Debug)]
pub(super) struct Watch {
    filter: PresenceFilter,
    /// Nodes that were shown, if the filter has some nodes only: their end is reported, too.
    shown: BTreeSet<NodeId>,
    stage: Stage,
    changed: BTreeSet<Key>,
    changes_max: usize,
}

#[derive(Debug, Default)]
pub(super) struct Watchers {
    nodes: BTreeSet<ConnectionId>,
    players: BTreeSet<ConnectionId>,
}

impl Watchers {
    /// Makes `link` a watcher of what `filter` includes.
    pub(super) fn set(&mut self, link: ConnectionId, filter: &PresenceFilter) {
        self.remove(link);
        if filter.nodes != NodeFilter::None {
            self.nodes.insert(link);
        }
        if filter.players != PlayerFilter::None {
            self.players.insert(link);
        }
    }

    pub(super) fn remove(&mut self, link: ConnectionId) {
        self.nodes.remove(&link);
        self.players.remove(&link);
    }

    pub(super) fn of(&self, key: Key) -> impl Iterator<Item = ConnectionId> {
        match key {
            Key::Node(_) => &self.nodes,
            Key::Player(_) => &self.players,
        }
        .iter()
        .copied()
    }
}

/// A key with a presence that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Node(NodeId),
    Player(ClientId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reset,
    /// The snapshot continues after this key; `None`: from the start.
    Snapshot(Option<Key>),
    Changes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresenceUpdate {
    Reset,
    /// The first key after this one that the [filter](Watch::filter) includes, or the end marker.
    After(Option<Key>),
    Changed(Key),
}

impl Watch {
    /// A watch of what bits of [`Join`] say.
    pub(super) const fn new(mask: u8, changes_max: usize) -> Self {
        let mut watch = Self::of(PresenceFilter::from_bits(mask), changes_max);
        if mask == 0 {
            watch.stage = Stage::Changes;
        }
        watch
    }

    pub(super) const fn of(filter: PresenceFilter, changes_max: usize) -> Self {
        Self {
            filter,
            shown: BTreeSet::new(),
            stage: Stage::Reset,
            changed: BTreeSet::new(),
            changes_max,
        }
    }

    pub(super) const fn filter(&self) -> &PresenceFilter {
        &self.filter
    }

    /// Returns whether to send the state of `key`; `join` is that of a connected node.
    fn includes(&self, key: Key, join: Option<&Join>) -> bool {
        match key {
            Key::Node(node) => {
                self.filter.nodes == NodeFilter::All
                    || self.shown.contains(&node)
                    || join.is_some_and(|join| self.filter.nodes.includes(join))
            }
            Key::Player(player) => self.filter.players.includes(player),
        }
    }

    /// Notes that a node was sent as connected or not.
    pub(super) fn on_node_sent(&mut self, node: NodeId, join: Option<&Join>) {
        if join.is_none() {
            self.shown.remove(&node);
        } else if self.filter.nodes != NodeFilter::All {
            self.shown.insert(node);
        }
    }

    /// Queues a change of `key`; returns whether there is something new to send. `join` is that of a
    /// connected node.
    pub(super) fn note(&mut self, key: Key, join: Option<&Join>) -> bool {
        // The snapshot will reach this key and send its state then.
        let ahead = match self.stage {
            Stage::Reset => true,
            Stage::Snapshot(last) => last.is_none_or(|last| key > last),
            Stage::Changes => false,
        };
        if ahead || !self.includes(key, join) {
            return false;
        }
        self.changed.insert(key);
        if self.changed.len() > self.changes_max {
            self.changed.clear();
            self.stage = Stage::Reset;
        }
        true
    }

    pub(super) fn len(&self) -> usize {
        self.changed.len().saturating_add(self.shown.len())
    }

    /// Returns the next update; [`advance`](Self::advance) marks it as sent.
    pub(super) fn next(&self) -> Option<PresenceUpdate> {
        match self.stage {
            Stage::Reset => Some(PresenceUpdate::Reset),
            Stage::Snapshot(last) => Some(PresenceUpdate::After(last)),
            Stage::Changes => self.changed.first().copied().map(PresenceUpdate::Changed),
        }
    }

    /// Marks `update` as sent; `reached` is the key sent, `None` at the end of the snapshot.
    pub(super) fn advance(&mut self, update: PresenceUpdate, reached: Option<Key>) {
        match update {
            PresenceUpdate::Reset => {
                self.shown.clear();
                self.stage = Stage::Snapshot(None);
            }
            PresenceUpdate::After(_) => {
                self.stage = reached.map_or(Stage::Changes, |key| Stage::Snapshot(Some(key)));
            }
            PresenceUpdate::Changed(key) => {
                self.changed.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn player(id: u64) -> Key {
        Key::Player(ClientId(id))
    }

    #[test]
    fn hub_6_a_watcher_that_reads_nothing_starts_over() {
        let mut watch = Watch::new(Join::WATCH_PLAYERS, 3);
        watch.advance(PresenceUpdate::Reset, None);
        watch.advance(PresenceUpdate::After(None), Some(player(10)));
        assert!(!watch.note(player(11), None), "the walk comes there");
        assert!(!watch.note(Key::Node(NodeId([0; 32])), None), "not wanted");
        for id in 0..3 {
            assert!(watch.note(player(id), None));
        }
        assert_eq!(watch.next(), Some(PresenceUpdate::After(Some(player(10)))));
        watch.note(player(4), None);
        assert_eq!(watch.next(), Some(PresenceUpdate::Reset));
        assert!(watch.changed.is_empty());
    }

    #[test]
    fn changes_are_reported_once_each() {
        let mut watch = Watch::new(Join::WATCH_PLAYERS, 3);
        watch.advance(PresenceUpdate::Reset, None);
        watch.advance(PresenceUpdate::After(None), None);
        assert_eq!(watch.next(), None);
        watch.note(player(2), None);
        watch.note(player(2), None);
        assert_eq!(watch.next(), Some(PresenceUpdate::Changed(player(2))));
        watch.advance(PresenceUpdate::Changed(player(2)), Some(player(2)));
        assert_eq!(watch.next(), None);
    }
}
