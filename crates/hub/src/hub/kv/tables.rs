//! What the key-value store counts: keys in memory, durable writes in flight, outcomes to come.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use wire::{ConnectionId, NodeId};

use super::{Caller, Entry, KvConfig, Request, Then};
use crate::field::{Redacted, Role};
use crate::hub::ENTRY_BYTES;
use crate::kv::owners::{KeyUsage, Owners};
use crate::kv::{Durability, KvEntry, KvError, KvKey, KvWrite};
use crate::record::{KvItem, KvToNode, ToNode};
use crate::store::{KvOutcome, StoreError};

/// Keys in memory only.
#[derive(Debug, Default)]
pub(super) struct Size {
    keys: usize,
    bytes: usize,
    owners: Owners,
}

/// Durable writes that the store has not completed.
#[derive(Debug, Default)]
pub(super) struct Writes {
    pub(super) keys: BTreeMap<KvKey, u32>,
    pub(super) links: BTreeMap<ConnectionId, usize>,
    pub(super) bytes: usize,
}

/// Outcomes in the order of their operations: the store may complete them in any order.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// Number of the first slot.
    first: u64,
    /// One for each operation that has not ended.
    slots: VecDeque<Option<(Then, Result<KvOutcome, StoreError>)>>,
}

impl Outcomes {
    /// Returns the number of the next operation.
    pub(super) fn open(&mut self) -> u64 {
        let number = self.first.saturating_add(self.slots.len() as u64);
        self.slots.push_back(None);
        number
    }

    /// Returns how many operations have not ended.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn put(&mut self, number: u64, outcome: (Then, Result<KvOutcome, StoreError>)) {
        let at = number.checked_sub(self.first);
        let at = at.and_then(|at| usize::try_from(at).ok());
        if let Some(slot) = at.and_then(|at| self.slots.get_mut(at)) {
            *slot = Some(outcome);
        }
    }

    /// Returns the next outcome, if all before it were returned.
    pub(super) fn next(&mut self) -> Option<(Then, Result<KvOutcome, StoreError>)> {
        let next = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.first = self.first.saturating_add(1);
        Some(next)
    }
}

impl Writes {
    pub(super) fn of(&self, caller: &Caller) -> usize {
        self.links.get(&caller.share()).copied().unwrap_or(0)
    }

    pub(super) fn begin(&mut self, caller: &Caller, key: &KvKey, bytes: usize) {
        let count = self.keys.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
        let own = self.links.entry(caller.share()).or_default();
        *own = own.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(WRITE_BYTES);
    }

    pub(super) fn end(&mut self, caller: &Caller, key: &KvKey, bytes: usize) {
        if let Some(count) = self.keys.get_mut(key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.keys.remove(key);
            }
        }
        if let Some(own) = self.links.get_mut(&caller.share()) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                self.links.remove(&caller.share());
            }
        }
        self.bytes = self.bytes.saturating_sub(bytes).saturating_sub(WRITE_BYTES);
    }
}

impl Size {
    /// Returns why `writer` may not set a key to an entry of `bytes` in place of `old`.
    pub(super) fn check(
        &self,
        config: &KvConfig,
        writer: Option<(NodeId, Role)>,
        (key, old): (&KvKey, Option<&Entry>),
        bytes: usize,
    ) -> Result<(), KvError> {
        let size = |entry: &Entry| entry_bytes(key, entry.value.len());
        let kept = self.bytes.saturating_sub(old.map_or(0, size));
        let is_full = old.is_none() && self.keys >= config.memory_keys_max;
        if is_full || kept.saturating_add(bytes) > config.memory_bytes_max {
            return Err(KvError::Full);
        }
        let Some((node, role)) = writer else {
            return Ok(());
        };
        let own = old.filter(|old| old.by.is_some_and(|(by, _)| by == node));
        let freed = own.map(|entry| KeyUsage::one(size(entry) as u64));
        let all = KeyUsage {
            keys: config.memory_keys_max as u64,
            bytes: config.memory_bytes_max as u64,
        };
        let change = (KeyUsage::one(bytes as u64), freed.unwrap_or_default());
        let writer = (node, Some(role));
        if config
            .shares
            .has_key_room(writer, &self.owners, change, all)
        {
            Ok(())
        } else {
            Err(KvError::OverShare)
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.owners.len().saturating_mul(96 + ENTRY_BYTES)
    }

    pub(super) fn add(&mut self, key: &KvKey, entry: &Entry) {
        if entry.revision.durability() == Durability::Memory {
            self.keys = self.keys.saturating_add(1);
            let bytes = entry_bytes(key, entry.value.len());
            self.bytes = self.bytes.saturating_add(bytes);
            if let Some((node, role)) = entry.by {
                self.owners.add(node, Some(role), bytes as u64);
            }
        }
    }

    pub(super) fn subtract(&mut self, key: &KvKey, entry: &Entry) {
        if entry.revision.durability() == Durability::Memory {
            self.keys = self.keys.saturating_sub(1);
            let bytes = entry_bytes(key, entry.value.len());
            self.bytes = self.bytes.saturating_sub(bytes);
            if let Some((node, _)) = entry.by {
                self.owners.subtract(node, bytes as u64);
            }
        }
    }
}

pub(super) fn to_entry(key: &KvKey, entry: &Entry) -> KvEntry {
    KvEntry {
        key: key.clone(),
        revision: entry.revision,
        lease: entry.lease,
        value: Redacted(entry.value.clone()),
    }
}

pub(super) fn to_item<'a>(key: &KvKey, entry: &'a Entry) -> KvItem<'a> {
    KvItem {
        key: key.clone(),
        revision: entry.revision,
        lease: entry.lease,
        value: Redacted(&entry.value),
    }
}

pub(super) fn encode(record: KvToNode<'_>) -> Bytes {
    let mut encoded = Vec::new();
    ToNode::Kv(record).encode(&mut encoded);
    encoded.into()
}

/// Memory of an entry, bytes.
pub(super) fn entry_bytes(key: &KvKey, value: usize) -> usize {
    const FIXED: usize = size_of::<(KvKey, Entry)>() + ENTRY_BYTES;
    FIXED
        .saturating_add(key.as_bytes().len())
        .saturating_add(value)
}

pub(super) fn request_bytes(request: &Request) -> usize {
    let value = if let Request::Write(KvWrite::Put(put)) = request {
        put.value.len()
    } else {
        0
    };
    value.saturating_add(WRITE_BYTES)
}

/// Memory of a request without its value, bytes.
pub(super) const WRITE_BYTES: usize = size_of::<(Caller, Request)>() + KvKey::LEN_MAX;
