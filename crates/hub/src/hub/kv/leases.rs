//! Keys that are deleted when the run of a node ends.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Instant, NodeId};

use crate::field::Epoch;
use crate::kv::{KvKey, KvLease};

/// The runs that hold keys. A run without a key has no entry.
#[derive(Debug, Default)]
pub(super) struct Leases {
    holders: BTreeMap<KvLease, Holder>,
    /// When the first lease ends.
    next: Option<Instant>,
}

#[derive(Debug, Default)]
struct Holder {
    keys: BTreeSet<KvKey>,
    /// When the lease ends; `None` while the node is connected.
    ends: Option<Instant>,
}

impl Leases {
    /// Adds a key; `ends` is when the lease ends, if the run is not connected.
    pub(super) fn bind(&mut self, lease: KvLease, key: KvKey, ends: Option<Instant>) {
        let holder = self.holders.entry(lease).or_insert_with(|| Holder {
            keys: BTreeSet::new(),
            ends,
        });
        holder.keys.insert(key);
        if let Some(ends) = ends {
            holder.ends = Some(holder.ends.map_or(ends, |known| known.min(ends)));
        }
        self.refresh();
    }

    /// Binds a key again after its deletion failed: until `ends`, but not before `earliest`. The keys of
    /// a run that has rejoined do not end.
    pub(super) fn retry(
        &mut self,
        lease: KvLease,
        key: KvKey,
        ends: Option<Instant>,
        earliest: Instant,
    ) {
        self.bind(lease, key, ends.map(|ends| ends.max(earliest)));
    }

    pub(super) fn unbind(&mut self, lease: KvLease, key: &KvKey) {
        if let Some(holder) = self.holders.get_mut(&lease) {
            holder.keys.remove(key);
            if holder.keys.is_empty() {
                self.holders.remove(&lease);
                self.refresh();
            }
        }
    }

    /// A run has joined: earlier ones of its node end, and its own lease continues.
    pub(super) fn on_joined(&mut self, node: NodeId, epoch: Epoch, now: Instant) {
        for (lease, holder) in self.of_node(node) {
            holder.ends = match lease.epoch.cmp(&epoch) {
                core::cmp::Ordering::Less => Some(now),
                core::cmp::Ordering::Equal => None,
                core::cmp::Ordering::Greater => holder.ends,
            };
        }
        self.refresh();
    }

    /// The leases of a node end at `at`, unless it joins again before.
    pub(super) fn end_at(&mut self, node: NodeId, at: Instant) {
        for (_, holder) in self.of_node(node) {
            holder.ends = Some(holder.ends.map_or(at, |known| known.min(at)));
        }
        self.refresh();
    }

    /// Removes and returns up to `max` keys of leases that have ended.
    pub(super) fn take_ended(&mut self, now: Instant, max: usize) -> Vec<(KvLease, KvKey)> {
        let mut ended = Vec::new();
        if self.next.is_none_or(|next| next > now) {
            return ended;
        }
        for (lease, holder) in &mut self.holders {
            if holder.ends.is_none_or(|ends| ends > now) {
                continue;
            }
            while ended.len() < max
                && let Some(key) = holder.keys.pop_first()
            {
                ended.push((*lease, key));
            }
        }
        self.holders.retain(|_, holder| !holder.keys.is_empty());
        self.refresh();
        ended
    }

    /// Sets when the next keys are taken, if there are any.
    pub(super) fn pause(&mut self, until: Instant) {
        self.next = self.next.map(|next| next.max(until));
    }

    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let keys = self.holders.values().map(|holder| holder.keys.len());
        keys.sum::<usize>().saturating_mul(KEY_BYTES)
    }

    fn of_node(&mut self, node: NodeId) -> impl Iterator<Item = (&KvLease, &mut Holder)> {
        let lease = |epoch| KvLease { node, epoch };
        let all = lease(Epoch(0))..=lease(Epoch(u32::MAX));
        self.holders.range_mut(all)
    }

    fn refresh(&mut self) {
        self.next = self.holders.values().filter_map(|holder| holder.ends).min();
    }
}

/// Size of a key of a lease; its characters are shared with the entry, bytes.
const KEY_BYTES: usize = size_of::<KvKey>() + super::super::ENTRY_BYTES;
