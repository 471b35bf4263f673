//! The node's side of the key-value store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::NodeEvent;
use crate::field::{KvRequest, Redacted, WatchId};
use crate::kv::{
    Durability, KvChange, KvEntry, KvError, KvKey, KvPrefix, KvPut, KvRange, KvWrite,
    PAGE_ENTRIES_MAX, Revision, VALUE_BYTES_MAX,
};
use crate::record::{KvItem, KvToHub, KvToNode, ToHub};

/// Limits of a node's requests to the key-value store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvClientConfig {
    /// Requests without an answer. Default 1,024. Further ones are refused as `Busy`. The hub accepts
    /// 256 durable writes of a node at once by default.
    pub requests_max: usize,
    /// Requests that wait to be written, bytes. Default 4 MiB.
    pub outbox_bytes_max: usize,
    /// Watches. Default 64, as the hub accepts.
    pub watches_max: usize,
}

impl Default for KvClientConfig {
    fn default() -> Self {
        Self {
            requests_max: 1_024,
            outbox_bytes_max: 4 << 20,
            watches_max: 64,
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvAnswer {
    /// The write was executed.
    Written {
        /// The revision of the change.
        revision: Revision,
        /// Whether it survives a restart of the hub.
        durability: Durability,
    },
    /// The entry of the key; `None` if it does not exist.
    Entry(Option<KvEntry>),
    /// Entries of a range.
    Page {
        /// Ordered by key.
        entries: Vec<KvEntry>,
        /// Whether more follow: continue with [`KvRange::after`] the last key.
        more: bool,
    },
}

impl KvAnswer {
    /// Returns the size of its values, bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Written { .. } => 0,
            Self::Entry(entry) => entry.as_ref().map_or(0, |entry| entry.value.len()),
            Self::Page { entries, .. } => entries.iter().map(|entry| entry.value.len()).sum(),
        }
    }
}

/// The key-value store of the hub, as a node uses it: [`Node::kv`](crate::Node::kv).
///
/// Each request ends with one [`NodeEvent::KvAnswer`](crate::NodeEvent::KvAnswer). Requests end with their
/// link, and are never repeated: a read or a write that was not sent fails with [`KvError::HubDown`], a
/// write that may have been executed with [`KvError::Unknown`]. Writes with an expected revision are safe
/// to repeat. Watches survive a link: they continue after the last revision received.
#[derive(Debug)]
pub struct KvClient {
    config: KvClientConfig,
    is_up: bool,
    last_request: KvRequest,
    last_watch: WatchId,
    /// Requests that wait to be written, each encoded.
    outbox: VecDeque<(KvRequest, Kind, Bytes)>,
    outbox_bytes: usize,
    /// Requests without an answer.
    sent: BTreeMap<KvRequest, Kind>,
    watches: BTreeMap<WatchId, Watch>,
    /// Watches to begin.
    unsent: BTreeSet<WatchId>,
    /// Watches to end.
    ended: BTreeSet<WatchId>,
    /// Whether another record of the node was written last.
    has_turn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

#[derive(Debug)]
struct Watch {
    prefix: KvPrefix,
    /// The last revision received; none during a snapshot.
    last: Revision,
}

impl KvClient {
    pub(super) const fn new(config: KvClientConfig) -> Self {
        Self {
            config,
            is_up: false,
            last_request: KvRequest(0),
            last_watch: WatchId(0),
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            sent: BTreeMap::new(),
            watches: BTreeMap::new(),
            unsent: BTreeSet::new(),
            ended: BTreeSet::new(),
            has_turn: false,
        }
    }

    /// Sets a key; ends with [`KvAnswer::Written`].
    ///
    /// # Errors
    ///
    /// [`KvError`] if the value exceeds 64 KiB, no link is up, or too many requests are open.
    pub fn put(&mut self, put: KvPut) -> Result<KvRequest, KvError> {
        self.write(&KvWrite::Put(put))
    }

    /// Deletes a key, if it has the revision `expected`; ends with [`KvAnswer::Written`].
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: KvKey, expected: Option<Revision>) -> Result<KvRequest, KvError> {
        self.write(&KvWrite::Delete { key, expected })
    }

    /// Sets or deletes a key; ends with [`KvAnswer::Written`].
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn write(&mut self, write: &KvWrite) -> Result<KvRequest, KvError> {
        let request = self.next_request();
        match write {
            KvWrite::Put(put) if put.value.len() > VALUE_BYTES_MAX => Err(KvError::TooLarge),
            KvWrite::Put(put) => {
                let record = KvToHub::Put {
                    request,
                    key: put.key.clone(),
                    durability: put.durability,
                    lease: put.lease,
                    expected: put.expected,
                    value: Redacted(&put.value[..]),
                };
                self.push(request, Kind::Write, record)
            }
            KvWrite::Delete { key, expected } => {
                let record = KvToHub::Delete {
                    request,
                    key: key.clone(),
                    expected: *expected,
                };
                self.push(request, Kind::Write, record)
            }
        }
    }

    /// Reads a key; ends with [`KvAnswer::Entry`].
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn get(&mut self, key: KvKey) -> Result<KvRequest, KvError> {
        let request = self.next_request();
        self.push(request, Kind::Read, KvToHub::Get { request, key })
    }

    /// Reads the first `limit` entries of a range, at most 1,024, and as many as fit one record of 65
    /// KiB; ends with [`KvAnswer::Page`].
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn range(&mut self, range: KvRange, limit: u16) -> Result<KvRequest, KvError> {
        let request = self.next_request();
        let record = KvToHub::Range {
            request,
            limit: limit.clamp(1, PAGE_ENTRIES_MAX),
            range,
        };
        self.push(request, Kind::Read, record)
    }

    /// Watches the keys that begin with `prefix`, from the changes after revision `from`; if that is
    /// [`Revision::NONE`] or too old, from a snapshot.
    ///
    /// [`NodeEvent::KvReset`](crate::NodeEvent::KvReset) precedes each snapshot,
    /// [`KvChanged`](crate::NodeEvent::KvChanged) reports its entries and then each change, in order of
    /// revisions, and [`KvComplete`](crate::NodeEvent::KvComplete) that all changes so far are reported. A
    /// node that reads too slowly gets another snapshot, never a gap.
    ///
    /// # Errors
    ///
    /// [`KvError::Busy`] if there are too many watches.
    pub fn watch(&mut self, prefix: KvPrefix, from: Revision) -> Result<WatchId, KvError> {
        if self.watches.len() >= self.config.watches_max {
            return Err(KvError::Busy);
        }
        self.last_watch = WatchId(self.last_watch.0.saturating_add(1));
        let watch = self.last_watch;
        let last = from;
        self.watches.insert(watch, Watch { prefix, last });
        self.unsent.insert(watch);
        Ok(watch)
    }

    /// Ends a watch. Returns whether it existed.
    pub fn unwatch(&mut self, watch: WatchId) -> bool {
        let existed = self.watches.remove(&watch).is_some();
        if existed && !self.unsent.remove(&watch) && self.is_up {
            self.ended.insert(watch);
        }
        existed
    }

    /// Returns the number of requests without an answer.
    pub fn requests_open(&self) -> usize {
        self.outbox.len().saturating_add(self.sent.len())
    }

    const fn next_request(&self) -> KvRequest {
        KvRequest(self.last_request.0.saturating_add(1))
    }

    fn push(
        &mut self,
        request: KvRequest,
        kind: Kind,
        record: KvToHub<'_>,
    ) -> Result<KvRequest, KvError> {
        if !self.is_up {
            return Err(KvError::HubDown);
        }
        let record = encode(record);
        let bytes = self.outbox_bytes.saturating_add(record.len());
        let is_full = self.requests_open() >= self.config.requests_max;
        if is_full || bytes > self.config.outbox_bytes_max {
            return Err(KvError::Busy);
        }
        self.last_request = request;
        self.outbox_bytes = bytes;
        self.outbox.push_back((request, kind, record));
        Ok(request)
    }

    /// The log of the hub is another one: its revisions are void.
    pub(super) fn forget_revisions(&mut self) {
        for watch in self.watches.values_mut() {
            watch.last = Revision::NONE;
        }
    }

    /// The node has joined.
    pub(super) fn on_up(&mut self) {
        self.is_up = true;
        self.ended.clear();
        self.unsent.extend(self.watches.keys().copied());
    }

    /// The link has closed: its requests end.
    pub(super) fn on_down(&mut self, events: &mut VecDeque<NodeEvent>) {
        self.is_up = false;
        self.outbox_bytes = 0;
        let sent = core::mem::take(&mut self.sent);
        let sent = sent.into_iter().map(|(request, kind)| match kind {
            Kind::Read => (request, KvError::HubDown),
            Kind::Write => (request, KvError::Unknown),
        });
        let unsent = self.outbox.drain(..);
        let unsent = unsent.map(|(request, ..)| (request, KvError::HubDown));
        events.extend(
            sent.chain(unsent)
                .map(|(request, error)| NodeEvent::KvAnswer {
                    request,
                    result: Err(error),
                }),
        );
    }

    /// Returns the next record, if another record was written last.
    pub(super) fn next_in_turn(&self) -> Option<Bytes> {
        if self.has_turn { self.next() } else { None }
    }

    /// Returns the next record.
    pub(super) fn next(&self) -> Option<Bytes> {
        if let Some(watch) = self.ended.first() {
            return Some(encode(KvToHub::Unwatch(*watch)));
        }
        if let Some(id) = self.unsent.first()
            && let Some(watch) = self.watches.get(id)
        {
            return Some(encode(KvToHub::Watch {
                watch: *id,
                from: watch.last,
                prefix: watch.prefix.clone(),
            }));
        }
        self.outbox.front().map(|(.., record)| record.clone())
    }

    /// The record of [`next`](Self::next) was written.
    pub(super) fn on_written(&mut self) {
        self.has_turn = false;
        if self.ended.pop_first().is_some() || self.unsent.pop_first().is_some() {
            return;
        }
        if let Some((request, kind, record)) = self.outbox.pop_front() {
            self.outbox_bytes = self.outbox_bytes.saturating_sub(record.len());
            self.sent.insert(request, kind);
        }
    }

    /// Another record was written.
    pub(super) const fn on_other_written(&mut self) {
        self.has_turn = true;
    }

    /// Handles a record of the hub; returns false if it belongs to no request or watch.
    pub(super) fn on_record(
        &mut self,
        record: KvToNode<'_>,
        events: &mut VecDeque<NodeEvent>,
    ) -> bool {
        match record {
            KvToNode::Done { request, result } => {
                let answer = |revision: Revision| KvAnswer::Written {
                    revision,
                    durability: revision.durability(),
                };
                self.end(request, result.map(answer), events)
            }
            KvToNode::Entry { request, item } => {
                let entry = item.map(|item| to_entry(&item));
                self.end(request, Ok(KvAnswer::Entry(entry)), events)
            }
            KvToNode::Page {
                request,
                more,
                items,
            } => {
                let entries = items.iter().map(to_entry).collect();
                let page = KvAnswer::Page { entries, more };
                self.end(request, Ok(page), events)
            }
            KvToNode::Reset(id) => self.on_watch(id, events, |watch| {
                watch.last = Revision::NONE;
                NodeEvent::KvReset(id)
            }),
            KvToNode::Change {
                watch: id,
                key,
                revision,
                value,
            } => self.on_watch(id, events, |watch| {
                // During a snapshot, a new link starts over.
                if watch.last > Revision::NONE {
                    watch.last = revision;
                }
                let value = value.map(|(value, lease)| (value.to_bytes(), lease));
                let change = KvChange {
                    key,
                    revision,
                    value,
                };
                NodeEvent::KvChanged { watch: id, change }
            }),
            KvToNode::Complete {
                watch: id,
                revision,
            } => self.on_watch(id, events, |watch| {
                watch.last = revision;
                NodeEvent::KvComplete {
                    watch: id,
                    revision,
                }
            }),
        }
    }

    fn on_watch(
        &mut self,
        id: WatchId,
        events: &mut VecDeque<NodeEvent>,
        event: impl FnOnce(&mut Watch) -> NodeEvent,
    ) -> bool {
        // After the end of a watch, its last records may still arrive.
        let watch = self.watches.get_mut(&id);
        watch.is_some_and(|watch| {
            events.push_back(event(watch));
            true
        })
    }

    fn end(
        &mut self,
        request: KvRequest,
        result: Result<KvAnswer, KvError>,
        events: &mut VecDeque<NodeEvent>,
    ) -> bool {
        let is_open = self.sent.remove(&request).is_some();
        if is_open {
            events.push_back(NodeEvent::KvAnswer { request, result });
        }
        is_open
    }

    pub(super) fn memory_bytes(&self) -> usize {
        const REQUEST: usize = size_of::<(KvRequest, Kind, Bytes)>() + super::ENTRY;
        const WATCH: usize = size_of::<Watch>() + KvKey::LEN_MAX + 2 * super::ENTRY;
        self.outbox_bytes
            .saturating_add(self.requests_open().saturating_mul(REQUEST))
            .saturating_add(self.watches.len().saturating_mul(WATCH))
    }
}

fn to_entry(item: &KvItem<'_>) -> KvEntry {
    KvEntry {
        key: item.key.clone(),
        revision: item.revision,
        lease: item.lease,
        value: item.value.to_bytes(),
    }
}

fn encode(record: KvToHub<'_>) -> Bytes {
    let mut encoded = Vec::new();
    ToHub::Kv(record).encode(&mut encoded);
    encoded.into()
}
