//! Counts on their way to the hub.

use std::collections::BTreeMap;

use crate::count::CountKey;
use crate::id::BatchSeq;
use crate::record::COUNTS_MAX;

/// Counts on their way to the hub: one batch under way, the rest added up.
#[derive(Debug, Default)]
pub(super) struct Counter {
    /// Increases since the last batch.
    waiting: BTreeMap<CountKey, u64>,
    /// The last number given to a batch.
    last: BatchSeq,
    /// The batch that is not yet known to be on the hub's disk.
    in_flight: Option<Vec<(CountKey, u64)>>,
    /// Whether it is to be sent.
    due: bool,
}

impl Counter {
    /// Adds to a key; returns whether there was room for it.
    pub(super) fn add(&mut self, key: CountKey, increase: u64, keys_max: usize) -> bool {
        let is_full = self.waiting.len() >= keys_max;
        match self.waiting.get_mut(&key) {
            Some(waiting) => *waiting = waiting.saturating_add(increase),
            None if is_full => return false,
            None => {
                self.waiting.insert(key, increase);
            }
        }
        true
    }

    /// Makes the next batch where none is under way; sends the one again that is.
    pub(super) fn on_interval(&mut self) {
        if self.in_flight.is_none() && !self.waiting.is_empty() {
            let mut entries = Vec::new();
            while entries.len() < COUNTS_MAX
                && let Some(entry) = self.waiting.pop_first()
            {
                entries.push(entry);
            }
            self.last = BatchSeq(self.last.0.saturating_add(1));
            self.in_flight = Some(entries);
        }
        self.due = self.in_flight.is_some();
    }

    /// Takes word that batches are on disk.
    pub(super) fn on_counted(&mut self, upto: BatchSeq) {
        if upto >= self.last && self.in_flight.take().is_some() {
            self.due = false;
            // More keys than one batch holds do not wait for the next interval.
            if self.waiting.len() >= COUNTS_MAX {
                self.on_interval();
            }
        }
    }

    /// Returns how many keys wait or are under way.
    pub(super) fn len(&self) -> usize {
        let in_flight = self.in_flight.as_ref().map_or(0, Vec::len);
        self.waiting.len().saturating_add(in_flight)
    }

    /// Returns the batch to send next.
    pub(super) fn next(&self) -> Option<(BatchSeq, &[(CountKey, u64)])> {
        let entries = self.in_flight.as_ref().filter(|_| self.due)?;
        Some((self.last, entries))
    }

    pub(super) const fn on_sent(&mut self) {
        self.due = false;
    }

    /// Returns whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_none()
    }
}
