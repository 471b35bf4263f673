//! Where each durable key is in the log, and the number of the last change.

use core::ops::Bound;
use std::collections::BTreeMap;

use wire::NodeId;

use super::format::StoredKv;
use super::index::Place;
use super::segment::SegmentId;
use crate::field::Role;
use crate::kv::owners::Owners;
use crate::kv::{KvKey, KvLease};

/// All durable keys. Values are in the log only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KvTable {
    /// Number of the last change.
    sequence: u64,
    entries: BTreeMap<KvKey, KvPlace>,
    /// Size of all entries in the log, bytes.
    bytes: u64,
    /// The same for each segment that has any.
    live: BTreeMap<SegmentId, u64>,
    owners: Owners,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvPlace {
    /// Number of the change that set it.
    pub(crate) sequence: u64,
    pub(crate) lease: Option<KvLease>,
    pub(crate) place: Place,
    /// Length of its record, bytes.
    pub(crate) len: u32,
    /// The node that set it, if one did.
    pub(crate) by: Option<NodeId>,
}

impl KvTable {
    /// Notes the role with which `node` has joined.
    pub(super) fn set_role(&mut self, node: NodeId, role: Option<Role>) {
        self.owners.set_role(node, role);
    }

    pub(crate) const fn owners(&self) -> &Owners {
        &self.owners
    }

    pub(super) fn on_mark(&mut self, sequence: u64) {
        self.sequence = self.sequence.max(sequence);
    }

    /// Sets a key, by a node that has joined as `role`; a copy of its record replaces the original.
    pub(super) fn set(
        &mut self,
        stored: &StoredKv<'_>,
        role: Option<Role>,
        place: Place,
        len: u32,
    ) {
        self.on_mark(stored.sequence);
        let known = self.entries.get(&stored.key);
        if known.is_some_and(|known| known.sequence > stored.sequence) {
            return;
        }
        self.remove(&stored.key);
        let entry = KvPlace {
            sequence: stored.sequence,
            lease: stored.lease,
            place,
            len,
            by: stored.by,
        };
        if let Some(by) = stored.by {
            self.owners.add(by, role, len.into());
        }
        self.bytes = self.bytes.saturating_add(len.into());
        let live = self.live.entry(place.segment).or_default();
        *live = live.saturating_add(len.into());
        self.entries.insert(stored.key.clone(), entry);
    }

    pub(super) fn delete(&mut self, key: &KvKey, sequence: u64) {
        self.on_mark(sequence);
        if self.get(key).is_some_and(|known| known.sequence < sequence) {
            self.remove(key);
        }
    }

    /// Forgets a key with a record that the disk has lost.
    pub(crate) fn remove(&mut self, key: &KvKey) {
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        let len = u64::from(entry.len);
        if let Some(by) = entry.by {
            self.owners.subtract(by, len);
        }
        self.bytes = self.bytes.saturating_sub(len);
        if let Some(live) = self.live.get_mut(&entry.place.segment) {
            *live = live.saturating_sub(len);
            if *live == 0 {
                self.live.remove(&entry.place.segment);
            }
        }
    }

    pub(crate) fn get(&self, key: &KvKey) -> Option<&KvPlace> {
        self.entries.get(key)
    }

    /// Returns the entries after `key`, ordered by key.
    pub(crate) fn after(&self, key: Option<&KvKey>) -> impl Iterator<Item = (&KvKey, &KvPlace)> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range::<KvKey, _>((from, Bound::Unbounded))
    }

    /// Returns the first key with its record in `segment`.
    pub(super) fn first_in(&self, segment: SegmentId) -> Option<(KvKey, KvPlace)> {
        let mut entries = self.entries.iter().filter(|_| self.live_in(segment) > 0);
        let found = entries.find(|(_, entry)| entry.place.segment == segment);
        found.map(|(key, entry)| (key.clone(), *entry))
    }

    pub(crate) fn is_live_at(&self, key: &KvKey, place: Place) -> bool {
        self.get(key).is_some_and(|entry| entry.place == place)
    }

    pub(crate) fn live_in(&self, segment: SegmentId) -> u64 {
        self.live.get(&segment).copied().unwrap_or(0)
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }
}
