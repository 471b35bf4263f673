//! What the key-value store counts: keys in memory, durable writes in flight, outcomes to come.

use std::collections::{BTreeMap, VecDeque};

use wire::ConnectionId;

use super::{Caller, Entry, Then, WRITE_BYTES, entry_bytes};
use crate::kv::{Durability, KvKey};
use crate::store::{KvOutcome, StoreError};

/// Keys in memory only.
#[derive(Debug, Default)]
pub(super) struct Size {
    pub(super) keys: usize,
    pub(super) bytes: usize,
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
    pub(super) fn add(&mut self, key: &KvKey, entry: &Entry) {
        if entry.revision.durability() == Durability::Memory {
            self.keys = self.keys.saturating_add(1);
            let bytes = entry_bytes(key, entry.value.len());
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    pub(super) fn subtract(&mut self, key: &KvKey, entry: &Entry) {
        if entry.revision.durability() == Durability::Memory {
            self.keys = self.keys.saturating_sub(1);
            let bytes = entry_bytes(key, entry.value.len());
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }
}
