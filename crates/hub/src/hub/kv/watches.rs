//! Watches of keys: a snapshot, then each change in order of revisions, from one history for all.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use wire::ConnectionId;

use super::{Entries, Kv};
use crate::field::{Redacted, WatchId};
use crate::kv::{KvChange, KvKey, KvPrefix, Revision};
use crate::record::{KvToNode, ToNode};

impl Kv {
    /// Returns the last revision that is visible.
    pub(in crate::hub) const fn revision(&self) -> Revision {
        self.history.head()
    }
}

/// The last changes, ordered by revision.
#[derive(Debug, Default)]
pub(super) struct History {
    changes: VecDeque<KvChange>,
    bytes: usize,
    /// All changes after this revision are here.
    floor: Revision,
    /// The last revision that is visible.
    head: Revision,
}

impl History {
    /// Appends a change, and drops the oldest beyond the limits.
    pub(super) fn push(&mut self, change: KvChange, changes_max: usize, bytes_max: usize) {
        self.head = change.revision;
        self.bytes = self.bytes.saturating_add(change_bytes(&change));
        self.changes.push_back(change);
        while (self.changes.len() > changes_max || self.bytes > bytes_max)
            && let Some(oldest) = self.changes.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(change_bytes(&oldest));
            self.floor = oldest.revision;
        }
    }

    /// Continues at `head`, without the changes before.
    pub(super) fn restart(&mut self, head: Revision) {
        self.changes.clear();
        self.bytes = 0;
        self.floor = head;
        self.head = head;
    }

    /// Notes a revision without a change.
    pub(super) fn advance(&mut self, head: Revision) {
        self.head = self.head.max(head);
    }

    pub(super) const fn head(&self) -> Revision {
        self.head
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether all changes after `revision` are here.
    fn covers(&self, revision: Revision) -> bool {
        revision >= self.floor && revision <= self.head
    }

    fn after(&self, revision: Revision) -> impl Iterator<Item = &KvChange> {
        let first = self
            .changes
            .partition_point(|change| change.revision <= revision);
        self.changes.range(first..)
    }
}

/// Size of a change in the history, bytes.
fn change_bytes(change: &KvChange) -> usize {
    let value = change.value.as_ref().map_or(0, |(value, _)| value.len());
    let key = change.key.as_bytes().len();
    size_of::<KvChange>()
        .saturating_add(value)
        .saturating_add(key)
}

/// The watches of all links.
#[derive(Debug, Default)]
pub(super) struct Watches {
    links: BTreeMap<ConnectionId, LinkWatches>,
    prefixes: BTreeMap<KvPrefix, BTreeSet<(ConnectionId, WatchId)>>,
    /// Number of watches by the length of their prefix.
    lengths: BTreeMap<usize, usize>,
    /// Snapshots that began since the history did not reach back.
    pub(super) resets: u64,
}

#[derive(Debug, Default)]
struct LinkWatches {
    watches: BTreeMap<WatchId, Watch>,
    /// Watches that may have something to send.
    pending: BTreeSet<WatchId>,
    /// The watch that sent last.
    last: WatchId,
}

#[derive(Debug)]
struct Watch {
    prefix: KvPrefix,
    stage: Stage,
    /// All changes up to this revision are sent, or will be part of the snapshot.
    cursor: Revision,
    /// Whether to report that all changes up to now are sent.
    reports_complete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Reset,
    /// The snapshot has reached this key; `None`: none yet.
    Snapshot(Option<KvKey>),
    Changes,
}

impl Watches {
    /// Adds a watch; it replaces one with the same number. Returns false if the link has `max` others.
    pub(super) fn insert(
        &mut self,
        at: (ConnectionId, WatchId),
        (prefix, from): (KvPrefix, Revision),
        history: &History,
        max: usize,
    ) -> bool {
        let (link, watch) = at;
        self.remove(link, watch);
        let own = self.links.entry(link).or_default();
        if own.watches.len() >= max {
            return false;
        }
        own.pending.insert(watch);
        let stage = if from > Revision::NONE && history.covers(from) {
            Stage::Changes
        } else {
            Stage::Reset
        };
        let length = prefix.as_str().len();
        self.prefixes.entry(prefix.clone()).or_default().insert(at);
        let count = self.lengths.entry(length).or_default();
        *count = count.saturating_add(1);
        let state = Watch {
            prefix,
            stage,
            cursor: from,
            reports_complete: true,
        };
        own.watches.insert(watch, state);
        true
    }

    pub(super) fn remove(&mut self, link: ConnectionId, watch: WatchId) {
        let Some(own) = self.links.get_mut(&link) else {
            return;
        };
        own.pending.remove(&watch);
        let Some(state) = own.watches.remove(&watch) else {
            return;
        };
        if own.watches.is_empty() {
            self.links.remove(&link);
        }
        let length = state.prefix.as_str().len();
        if let Some(watches) = self.prefixes.get_mut(&state.prefix) {
            watches.remove(&(link, watch));
            if watches.is_empty() {
                self.prefixes.remove(&state.prefix);
            }
        }
        if let Some(count) = self.lengths.get_mut(&length) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
    }

    pub(super) fn remove_link(&mut self, link: ConnectionId) {
        let own = self.links.get(&link);
        let watches: Vec<_> = own
            .into_iter()
            .flat_map(|own| own.watches.keys().copied())
            .collect();
        for watch in watches {
            self.remove(link, watch);
        }
        self.links.remove(&link);
    }

    pub(super) fn links(&self) -> impl Iterator<Item = ConnectionId> {
        self.links.keys().copied()
    }

    /// Notes that `key` has changed at `revision`; adds the links that have something to send to `woken`.
    pub(super) fn note(
        &mut self,
        key: &KvKey,
        revision: Revision,
        woken: &mut BTreeSet<ConnectionId>,
    ) {
        let lengths = self.lengths.keys().copied();
        for length in lengths.take_while(|length| *length <= key.as_bytes().len()) {
            let prefix = key.prefix(length);
            for (link, watch) in self.prefixes.get(&prefix).into_iter().flatten() {
                woken.insert(*link);
                let Some(own) = self.links.get_mut(link) else {
                    continue;
                };
                if own.pending.insert(*watch)
                    && let Some(state) = own.watches.get_mut(watch)
                {
                    // It had all changes before this one.
                    state.cursor = Revision(revision.0.saturating_sub(1));
                }
            }
        }
    }

    /// Makes all watches start over.
    pub(super) fn reset_all(&mut self, woken: &mut BTreeSet<ConnectionId>) {
        for (link, own) in &mut self.links {
            woken.insert(*link);
            for (watch, state) in &mut own.watches {
                state.stage = Stage::Reset;
                own.pending.insert(*watch);
            }
        }
    }

    /// Returns the next record for a link, if it has one. Its watches take turns.
    pub(super) fn next(
        &mut self,
        link: ConnectionId,
        entries: &Entries,
        history: &History,
    ) -> Option<Bytes> {
        let own = self.links.get_mut(&link)?;
        loop {
            let after = (Bound::Excluded(own.last), Bound::Unbounded);
            let next = own.pending.range(after).next();
            let watch = *next.or_else(|| own.pending.first())?;
            own.last = watch;
            let state = own.watches.get_mut(&watch);
            let record = state.and_then(|state| {
                let is_reset = state.stage != Stage::Reset && !history.covers(state.cursor);
                if is_reset {
                    state.stage = Stage::Reset;
                    self.resets = self.resets.saturating_add(1);
                }
                state.next(watch, entries, history)
            });
            if record.is_some() {
                return record;
            }
            own.pending.remove(&watch);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lengths.values().sum()
    }
}

impl Watch {
    fn next(&mut self, watch: WatchId, entries: &Entries, history: &History) -> Option<Bytes> {
        let reached = match &self.stage {
            Stage::Reset => {
                self.stage = Stage::Snapshot(None);
                self.cursor = history.head();
                self.reports_complete = true;
                return Some(encode(KvToNode::Reset(watch)));
            }
            Stage::Snapshot(reached) => Some(reached.as_ref()),
            Stage::Changes => None,
        };
        let mut changes = history.after(self.cursor);
        // The snapshot has not reached later keys, and includes their changes.
        let change = changes.find(|change| {
            change.key.starts_with(&self.prefix)
                && reached.is_none_or(|reached| reached.is_some_and(|key| change.key <= *key))
        });
        if let Some(change) = change {
            self.cursor = change.revision;
            return Some(encode(to_record(watch, change)));
        }
        self.cursor = history.head();
        if let Some(reached) = reached {
            let from = reached.map_or_else(
                || Bound::Included(self.prefix.as_str().as_bytes()),
                |key| Bound::Excluded(key.as_bytes()),
            );
            let mut rest = entries.range::<[u8], _>((from, Bound::Unbounded));
            let entry = rest.next().filter(|(key, _)| key.starts_with(&self.prefix));
            if let Some((key, entry)) = entry {
                let change = KvChange {
                    key: key.clone(),
                    revision: entry.revision,
                    value: Some((Redacted(entry.value.clone()), entry.lease)),
                };
                self.stage = Stage::Snapshot(Some(key.clone()));
                return Some(encode(to_record(watch, &change)));
            }
            self.stage = Stage::Changes;
        }
        let revision = history.head();
        core::mem::take(&mut self.reports_complete)
            .then(|| encode(KvToNode::Complete { watch, revision }))
    }
}

fn to_record(watch: WatchId, change: &KvChange) -> KvToNode<'_> {
    KvToNode::Change {
        watch,
        key: change.key.clone(),
        revision: change.revision,
        value: change
            .value
            .as_ref()
            .map(|(value, lease)| (Redacted(&value[..]), *lease)),
    }
}

fn encode(record: KvToNode<'_>) -> Bytes {
    let mut encoded = Vec::new();
    ToNode::Kv(record).encode(&mut encoded);
    encoded.into()
}
