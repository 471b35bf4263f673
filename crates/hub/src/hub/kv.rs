//! The key-value store: answers reads from memory, orders writes, and serves watches.
//!
//! A write in memory is visible and answered at once. A durable write is stored first, then visible and
//! answered once it is on disk; the store assigns its revision and checks its condition. All entries are
//! in memory; the durable ones are read from the store at the start.

mod config;
pub(super) mod exchange;
mod leases;
mod tables;
mod watches;

use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{ConnectionId, Instant, NodeId};

use super::ENTRY_BYTES;
use crate::field::{Epoch, KvRequest, Redacted, Role};
use crate::kv::{
    Durability, KvChange, KvEntry, KvError, KvKey, KvLease, KvPut, KvRange, KvWrite,
    PAGE_ENTRIES_MAX, Revision,
};
use crate::record::{KvToHub, KvToNode, RECORD_BYTES_MAX};
use crate::store::{KvOp, KvOutcome, StoreError};
pub use config::{KvConfig, KvStats};
use leases::Leases;
use tables::{
    Outcomes, Size, WRITE_BYTES, Writes, encode, entry_bytes, request_bytes, to_entry, to_item,
};
use watches::{History, Watches};

pub(super) type Entries = BTreeMap<KvKey, Entry>;

#[derive(Clone, Debug)]
pub(super) struct Entry {
    revision: Revision,
    lease: Option<KvLease>,
    /// The node that set it, with its role, if it is in memory only. The store knows those of the others.
    by: Option<(NodeId, Role)>,
    value: Bytes,
}

/// State of the key-value store.
#[derive(Debug)]
pub(super) struct Kv {
    config: KvConfig,
    load: Load,
    entries: Entries,
    memory: Size,
    history: History,
    watches: Watches,
    leases: Leases,
    writes: Writes,
    /// Requests that arrived before the durable keys were read.
    waiting: VecDeque<(Caller, Request)>,
    /// Size of these requests, bytes.
    waiting_bytes: usize,
    is_advancing: bool,
    outcomes: Outcomes,
    out: Output,
    stats: KvStats,
}

/// What the hub is to do.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) ops: Vec<(KvOp, KvPending)>,
    pub(super) answers: Vec<(ConnectionId, Bytes)>,
    pub(super) results: Vec<(u64, Result<Revision, KvError>)>,
    /// Links whose watches have something to send.
    pub(super) woken: BTreeSet<ConnectionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Idle,
    Requested,
    /// The read failed; it is repeated at the next tick.
    Failed,
    Done,
}

/// What accepts more now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// The store accepts another operation.
    pub(super) store: bool,
    /// The outbox of the link accepts another entry.
    pub(super) outbox: bool,
}

/// A link with its run, or the hub's own process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Link {
        link: ConnectionId,
        run: KvLease,
        role: Role,
        request: KvRequest,
    },
    /// With the number that the caller has given.
    Local(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Write(KvWrite),
    Get(KvKey),
    Range(KvRange, u16),
}

/// An operation that the store has not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KvPending {
    number: u64,
    then: Then,
}

/// What to do when the store has executed an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Then {
    Load,
    Advance,
    /// Apply the change, and answer.
    Write {
        caller: Caller,
        key: KvKey,
        /// `None` if it is a deletion.
        value: Option<(Redacted<Bytes>, Option<KvLease>)>,
    },
    /// Apply the deletion, or retry.
    LeaseEnd(KvLease, KvKey),
}

/// State of the run that holds a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    Connected,
    /// Disconnected; its lease ends then.
    Until(Instant),
    /// A later run has joined.
    Superseded,
    /// Not known since the start of the hub, or it has left.
    Unknown,
}

/// Keys of ended leases that one turn deletes.
const LEASE_KEYS_MAX: usize = 256;

/// Pause until keys of ended leases are deleted again.
const LEASE_PAUSE: Duration = Duration::from_millis(1);

/// Delay of a retry if the store is busy.
const RETRY: Duration = Duration::from_millis(250);

/// Size of one page of keys at the start, bytes.
const LOAD_BYTES: usize = 1 << 20;

/// Changes in memory after which a new durable revision is requested.
const ADVANCE_AFTER: u64 = 1 << (Revision::MEMORY_BITS - 1);

const MEMORY_CHANGES_MAX: u64 = (1 << Revision::MEMORY_BITS) - 1;

impl Kv {
    pub(super) fn new(config: KvConfig) -> Self {
        Self {
            config,
            load: Load::Idle,
            entries: BTreeMap::new(),
            memory: Size::default(),
            history: History::default(),
            watches: Watches::default(),
            leases: Leases::default(),
            writes: Writes::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_advancing: false,
            outcomes: Outcomes::default(),
            out: Output::default(),
            stats: KvStats::default(),
        }
    }

    pub(super) const fn stats(&self) -> KvStats {
        let mut stats = self.stats;
        stats.watch_resets = self.watches.resets;
        stats
    }

    pub(super) fn take_output(&mut self) -> Output {
        core::mem::take(&mut self.out)
    }

    /// Requests the durable keys, once.
    pub(super) fn begin(&mut self) {
        if self.load == Load::Idle {
            self.load = Load::Requested;
            self.push_load(None);
        }
    }

    /// Handles a record of a run that has joined. Returns false if its link is to be closed.
    pub(super) fn on_record(
        &mut self,
        (link, run, role): (ConnectionId, KvLease, Role),
        record: KvToHub<'_>,
        room: Room,
    ) -> bool {
        let (request, what) = match record {
            KvToHub::Put {
                request,
                key,
                durability,
                lease,
                expected,
                value,
            } => {
                let put = KvPut {
                    key,
                    value: value.to_bytes(),
                    durability,
                    lease,
                    expected,
                };
                (request, Request::Write(KvWrite::Put(put)))
            }
            KvToHub::Delete {
                request,
                key,
                expected,
            } => (request, Request::Write(KvWrite::Delete { key, expected })),
            KvToHub::Get { request, key } => (request, Request::Get(key)),
            KvToHub::Range {
                request,
                limit,
                range,
            } => (request, Request::Range(range, limit)),
            KvToHub::Watch {
                watch,
                from,
                prefix,
            } => {
                self.out.woken.insert(link);
                let max = self.config.node_watches_max;
                let at = (link, watch);
                return self.watches.insert(at, (prefix, from), &self.history, max);
            }
            KvToHub::Unwatch(watch) => {
                self.watches.remove(link, watch);
                return true;
            }
        };
        let caller = Caller::Link {
            link,
            run,
            role,
            request,
        };
        self.on_request(caller, what, room);
        true
    }

    /// Handles a request.
    pub(super) fn on_request(&mut self, caller: Caller, request: Request, room: Room) {
        if self.load == Load::Done {
            self.execute(caller, request, room);
            return;
        }
        let bytes = request_bytes(&request);
        let bytes = self.waiting_bytes.saturating_add(bytes);
        if self.waiting.len() >= WAITING_MAX || bytes > self.config.write_bytes_max {
            self.refuse(caller, KvError::Busy);
        } else {
            self.waiting_bytes = bytes;
            self.waiting.push_back((caller, request));
        }
    }

    /// A run has joined.
    pub(super) fn on_joined(&mut self, node: NodeId, epoch: Epoch, now: Instant) {
        self.leases.on_joined(node, epoch, now);
        self.end_leases(now, LEASE_KEYS_MAX);
    }

    /// A link has closed; the leases of its node end at `at`.
    pub(super) fn on_closed(&mut self, link: ConnectionId, node: NodeId, at: Instant) {
        self.watches.remove_link(link);
        let is_of_link =
            |caller: &Caller| matches!(caller, Caller::Link { link: of, .. } if *of == link);
        self.waiting.retain(|(caller, _)| !is_of_link(caller));
        let sizes = self.waiting.iter();
        self.waiting_bytes = sizes.map(|(_, request)| request_bytes(request)).sum();
        self.leases.end_at(node, at);
    }

    /// A node has left.
    pub(super) fn on_left(&mut self, node: NodeId, now: Instant) {
        self.leases.end_at(node, now);
        self.end_leases(now, LEASE_KEYS_MAX);
    }

    /// Returns when keys of ended leases are to be deleted.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.leases.next()
    }

    /// Deletes keys of ended leases; `room` is how many operations the store accepts.
    pub(super) fn end_leases(&mut self, now: Instant, room: usize) {
        if self.load != Load::Done {
            // Their keys are not known yet.
            self.leases.pause(now + RETRY);
            return;
        }
        for (lease, key) in self.leases.take_ended(now, LEASE_KEYS_MAX) {
            let Some(entry) = self.entries.get(&key) else {
                continue;
            };
            let revision = entry.revision;
            if revision.durability() == Durability::Memory {
                if let Some(revision) = self.next_revision() {
                    self.stats.leases_ended = self.stats.leases_ended.saturating_add(1);
                    self.apply(key, revision, None, (None, None));
                } else {
                    self.leases.bind(lease, key, Some(now + RETRY));
                }
            } else if self.out.ops.len() < room {
                let op = KvOp::Delete {
                    by: None,
                    key: key.clone(),
                    expected: Some(revision),
                };
                self.issue(op, Then::LeaseEnd(lease, key));
            } else {
                self.leases.bind(lease, key, Some(now + RETRY));
            }
        }
        if self.leases.next().is_some_and(|next| next <= now) {
            self.leases.pause(now + LEASE_PAUSE);
        }
    }

    /// Handles the outcome of an operation. `grace` is when the leases of runs that are not known end after
    /// a start.
    pub(super) fn on_outcome(
        &mut self,
        pending: KvPending,
        outcome: Result<KvOutcome, StoreError>,
        (now, grace): (Instant, Instant),
        state_of: &dyn Fn(KvLease) -> RunState,
    ) {
        let end_of = |lease, unknown| match state_of(lease) {
            RunState::Connected => None,
            RunState::Until(at) => Some(at),
            RunState::Superseded => Some(now),
            RunState::Unknown => Some(unknown),
        };
        self.outcomes.put(pending.number, (pending.then, outcome));
        while let Some((then, outcome)) = self.outcomes.next() {
            if then == Then::Load {
                self.on_loaded(outcome, &|lease| end_of(lease, grace));
            } else {
                self.on_executed(then, &outcome, now, &|lease| end_of(lease, now));
            }
        }
    }

    fn on_executed(
        &mut self,
        then: Then,
        outcome: &Result<KvOutcome, StoreError>,
        now: Instant,
        end_of: &dyn Fn(KvLease) -> Option<Instant>,
    ) {
        match then {
            Then::Load => {}
            Then::Advance => {
                self.is_advancing = false;
                if let Ok(KvOutcome::Done(revision)) = outcome {
                    self.history.advance(*revision);
                }
            }
            Then::Write { caller, key, value } => {
                let bytes = value.as_ref().map_or(0, |(value, _)| value.len());
                self.writes.end(&caller, &key, bytes);
                match outcome {
                    Ok(KvOutcome::Done(revision)) => {
                        let lease = value.as_ref().and_then(|(_, lease)| *lease);
                        let ends = lease.and_then(&end_of);
                        self.apply(key, *revision, value, (ends, None));
                        self.answer(caller, Ok(*revision));
                    }
                    Ok(KvOutcome::Refused(error)) => self.refuse(caller, *error),
                    Err(StoreError::Failed) => self.refuse(caller, KvError::Unknown),
                    Ok(KvOutcome::Loaded { .. }) | Err(_) => self.refuse(caller, KvError::Busy),
                }
            }
            Then::LeaseEnd(lease, key) => match outcome {
                Ok(KvOutcome::Done(revision)) => {
                    self.stats.leases_ended = self.stats.leases_ended.saturating_add(1);
                    self.apply(key, *revision, None, (None, None));
                }
                // It was written again since.
                Ok(KvOutcome::Refused(KvError::Conflict { .. } | KvError::NotFound)) => {}
                Ok(_) | Err(_) => self.leases.retry(lease, key, end_of(lease), now + RETRY),
            },
        }
    }

    /// Returns the next record of a link's watches.
    pub(super) fn next_record(&mut self, link: ConnectionId) -> Option<Bytes> {
        if self.load == Load::Done {
            self.watches.next(link, &self.entries, &self.history)
        } else {
            None
        }
    }

    /// Retries the first read of the durable keys.
    pub(super) fn on_tick(&mut self) {
        if self.load == Load::Failed {
            self.load = Load::Idle;
            self.begin();
        }
    }

    pub(super) fn get(&self, key: &KvKey) -> Option<KvEntry> {
        let entry = self.entries.get(key)?;
        Some(to_entry(key, entry))
    }

    /// Returns up to `limit` entries of a range, and whether more follow.
    pub(super) fn range(&self, range: &KvRange, limit: usize) -> (Vec<KvEntry>, bool) {
        let mut found = self.entries_in(range);
        let entries = found.by_ref().take(limit);
        let entries = entries.map(|(key, entry)| to_entry(key, entry)).collect();
        (entries, found.next().is_some())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        const WATCH: usize = size_of::<KvChange>() + 3 * ENTRY_BYTES + KvKey::LEN_MAX;
        let entries = self.entries.iter();
        let entries = entries.map(|(key, entry)| entry_bytes(key, entry.value.len()));
        entries
            .fold(0, usize::saturating_add)
            .saturating_add(self.history.bytes())
            .saturating_add(self.leases.memory_bytes())
            .saturating_add(self.memory.memory_bytes())
            .saturating_add(self.watches.len().saturating_mul(WATCH))
            .saturating_add(self.writes.bytes)
            .saturating_add(self.waiting_bytes)
    }

    fn entries_in(&self, range: &KvRange) -> impl Iterator<Item = (&KvKey, &Entry)> {
        let from = Bound::Included(range.from());
        let entries = self.entries.range::<[u8], _>((from, Bound::Unbounded));
        let range = range.clone();
        entries.take_while(move |(key, _)| !range.has_passed(key.as_bytes()))
    }

    fn issue(&mut self, op: KvOp, then: Then) {
        let number = self.outcomes.open();
        self.out.ops.push((op, KvPending { number, then }));
    }

    fn push_load(&mut self, after: Option<KvKey>) {
        let bytes_max = LOAD_BYTES;
        let op = KvOp::Load { after, bytes_max };
        self.issue(op, Then::Load);
    }

    fn on_loaded(
        &mut self,
        outcome: Result<KvOutcome, StoreError>,
        end_of: &dyn Fn(KvLease) -> Option<Instant>,
    ) {
        let Ok(KvOutcome::Loaded {
            entries,
            more,
            revision,
        }) = outcome
        else {
            self.load = Load::Failed;
            self.entries.clear();
            return;
        };
        let last = entries.last().map(|entry| entry.key.clone());
        for loaded in entries {
            if let Some(lease) = loaded.lease {
                self.leases.bind(lease, loaded.key.clone(), end_of(lease));
            }
            let entry = Entry {
                revision: loaded.revision,
                lease: loaded.lease,
                by: None,
                value: loaded.value.0,
            };
            self.entries.insert(loaded.key, entry);
        }
        if more && last.is_some() {
            self.push_load(last);
            return;
        }
        self.load = Load::Done;
        self.history.restart(revision);
        self.out.woken.extend(self.watches.links());
        self.watches.reset_all(&mut self.out.woken);
        self.waiting_bytes = 0;
        let room = Room {
            store: true,
            outbox: true,
        };
        for (caller, request) in core::mem::take(&mut self.waiting) {
            self.execute(caller, request, room);
        }
    }

    fn execute(&mut self, caller: Caller, request: Request, room: Room) {
        match request {
            Request::Get(_) | Request::Range(..) if !room.outbox => {
                self.refuse(caller, KvError::Busy);
            }
            Request::Get(key) => self.answer_get(caller, &key),
            Request::Range(range, limit) => self.answer_range(caller, &range, limit),
            Request::Write(write) => {
                let is_in_memory = match &write {
                    KvWrite::Put(put) => put.durability == Durability::Memory,
                    KvWrite::Delete { key, .. } => {
                        let entry = self.entries.get(key);
                        entry.is_some_and(|it| it.revision.durability() == Durability::Memory)
                    }
                };
                let result = if is_in_memory {
                    self.write_in_memory(caller, write).map(Some)
                } else {
                    self.write_to_disk(caller, write, room).map(|()| None)
                };
                match result {
                    Ok(Some(revision)) => self.answer(caller, Ok(revision)),
                    Ok(None) => {}
                    Err(error) => self.refuse(caller, error),
                }
            }
        }
    }

    fn write_in_memory(&mut self, caller: Caller, write: KvWrite) -> Result<Revision, KvError> {
        let (key, expected) = match &write {
            KvWrite::Put(put) => (&put.key, put.expected),
            KvWrite::Delete { key, expected } => (key, *expected),
        };
        let entry = self.entries.get(key);
        let is_durable = entry.is_some_and(|entry| entry.revision.durability() == Durability::Disk);
        if is_durable || self.writes.keys.contains_key(key) {
            return Err(KvError::OtherDurability);
        }
        let current = entry.map_or(Revision::NONE, |entry| entry.revision);
        if expected.is_some_and(|expected| expected != current) {
            return Err(KvError::Conflict { current });
        }
        if let KvWrite::Put(put) = &write {
            if put.value.len() > crate::kv::VALUE_BYTES_MAX {
                return Err(KvError::TooLarge);
            }
            let bytes = entry_bytes(key, put.value.len());
            self.memory
                .check(&self.config, caller.writer(), (key, entry), bytes)?;
        }
        let revision = self.next_revision().ok_or(KvError::Busy)?;
        match write {
            KvWrite::Put(put) => {
                let lease = caller.run().filter(|_| put.lease);
                let by = caller.writer();
                self.apply(put.key, revision, Some((put.value, lease)), (None, by));
            }
            KvWrite::Delete { key, .. } => self.apply(key, revision, None, (None, None)),
        }
        Ok(revision)
    }

    fn write_to_disk(&mut self, caller: Caller, write: KvWrite, room: Room) -> Result<(), KvError> {
        let by = caller.run();
        let (key, value, op) = match write {
            KvWrite::Put(put) => {
                if put.value.len() > crate::kv::VALUE_BYTES_MAX {
                    return Err(KvError::TooLarge);
                }
                let entry = self.entries.get(&put.key);
                if entry.is_some_and(|it| it.revision.durability() == Durability::Memory) {
                    return Err(KvError::OtherDurability);
                }
                let op = KvOp::Put {
                    by,
                    lease: put.lease,
                    key: put.key.clone(),
                    expected: put.expected,
                    value: put.value.clone(),
                };
                let lease = by.filter(|_| put.lease);
                (put.key, Some((put.value, lease)), op)
            }
            KvWrite::Delete { key, expected } => {
                let op = KvOp::Delete {
                    by,
                    key: key.clone(),
                    expected,
                };
                (key, None, op)
            }
        };
        let bytes = value.as_ref().map_or(0, |(value, _)| value.len());
        let total = self
            .writes
            .bytes
            .saturating_add(WRITE_BYTES)
            .saturating_add(bytes);
        let is_full = self.writes.of(&caller) >= self.config.node_writes_max;
        if !room.store || is_full || total > self.config.write_bytes_max {
            return Err(KvError::Busy);
        }
        self.writes.begin(&caller, &key, bytes);
        self.issue(op, Then::Write { caller, key, value });
        Ok(())
    }

    /// Returns a revision for a change in memory; `None` if a durable one is needed first.
    fn next_revision(&mut self) -> Option<Revision> {
        let head = self.history.head();
        let used = head.0 & MEMORY_CHANGES_MAX;
        if used >= ADVANCE_AFTER && !self.is_advancing {
            self.is_advancing = true;
            self.issue(KvOp::Advance, Then::Advance);
        }
        (used < MEMORY_CHANGES_MAX).then(|| Revision(head.0.saturating_add(1)))
    }

    /// Makes a change visible. `ends` is when its lease ends, if its run is not connected; `by` is the
    /// writer of a key in memory.
    fn apply(
        &mut self,
        key: KvKey,
        revision: Revision,
        value: Option<(Redacted<Bytes>, Option<KvLease>)>,
        (ends, by): (Option<Instant>, Option<(NodeId, Role)>),
    ) {
        let known = self
            .entries
            .get(&key)
            .map_or(Revision::NONE, |entry| entry.revision);
        if known >= revision {
            // The store has completed a later change of the key before.
            return;
        }
        if let Some(old) = self.entries.remove(&key) {
            self.memory.subtract(&key, &old);
            if let Some(lease) = old.lease {
                self.leases.unbind(lease, &key);
            }
        }
        if let Some((value, lease)) = &value {
            let entry = Entry {
                revision,
                lease: *lease,
                by,
                value: value.0.clone(),
            };
            self.memory.add(&key, &entry);
            if let Some(lease) = lease {
                self.leases.bind(*lease, key.clone(), ends);
            }
            self.entries.insert(key.clone(), entry);
        }
        self.stats.changes = self.stats.changes.saturating_add(1);
        if revision <= self.history.head() {
            // The store has completed a later change first: order is lost, so watches start over.
            self.history.restart(self.history.head());
            self.watches.reset_all(&mut self.out.woken);
            return;
        }
        self.watches.note(&key, revision, &mut self.out.woken);
        let change = KvChange {
            key,
            revision,
            value,
        };
        let changes_max = self.config.history_changes_max;
        let bytes_max = self.config.history_bytes_max;
        self.history.push(change, changes_max, bytes_max);
    }

    fn answer_get(&mut self, caller: Caller, key: &KvKey) {
        let Caller::Link { link, request, .. } = caller else {
            return;
        };
        let item = self.entries.get(key).map(|entry| to_item(key, entry));
        let answer = encode(KvToNode::Entry { request, item });
        self.out.answers.push((link, answer));
    }

    fn answer_range(&mut self, caller: Caller, range: &KvRange, limit: u16) {
        let Caller::Link { link, request, .. } = caller else {
            return;
        };
        let limit = usize::from(limit.min(PAGE_ENTRIES_MAX));
        let mut bytes = PAGE_HEAD_BYTES;
        let mut more = false;
        let mut items = Vec::new();
        for (key, entry) in self.entries_in(range) {
            let len = key.as_bytes().len().saturating_add(entry.value.len());
            bytes = bytes.saturating_add(len).saturating_add(ITEM_BYTES);
            if !items.is_empty() && (items.len() >= limit || bytes > RECORD_BYTES_MAX) {
                more = true;
                break;
            }
            items.push(to_item(key, entry));
        }
        let answer = encode(KvToNode::Page {
            request,
            more,
            items,
        });
        self.out.answers.push((link, answer));
    }

    fn refuse(&mut self, caller: Caller, error: KvError) {
        self.stats.refused = self.stats.refused.saturating_add(1);
        let is_over = u64::from(error == KvError::OverShare);
        self.stats.over_share = self.stats.over_share.saturating_add(is_over);
        self.answer(caller, Err(error));
    }

    fn answer(&mut self, caller: Caller, result: Result<Revision, KvError>) {
        match caller {
            Caller::Link { link, request, .. } => {
                let answer = encode(KvToNode::Done { request, result });
                self.out.answers.push((link, answer));
            }
            Caller::Local(ticket) => self.out.results.push((ticket, result)),
        }
    }
}

impl Caller {
    const fn run(&self) -> Option<KvLease> {
        match self {
            Self::Link { run, .. } => Some(*run),
            Self::Local(_) => None,
        }
    }

    const fn writer(&self) -> Option<(NodeId, Role)> {
        match self {
            Self::Link { run, role, .. } => Some((run.node, *role)),
            Self::Local(_) => None,
        }
    }

    /// Returns the key of its share; the hub's own process has one, too.
    const fn share(&self) -> ConnectionId {
        match self {
            Self::Link { link, .. } => *link,
            Self::Local(_) => ConnectionId(u32::MAX),
        }
    }
}

/// Requests that wait for the durable keys at most.
const WAITING_MAX: usize = 4_096;

/// Size of a page without its items, bytes.
const PAGE_HEAD_BYTES: usize = 12;

/// Size of an item with a lease, without its key's characters and its value, bytes.
const ITEM_BYTES: usize = 1 + 8 + 37 + 4;
