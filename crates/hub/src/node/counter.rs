//! Counts to send to the hub.

use std::collections::BTreeMap;

use crate::count::CountKey;
use crate::id::BatchSeq;
use crate::record::COUNTS_MAX;

/// Counts to send to the hub: one batch in flight, the rest accumulated.
#[derive(Debug, Default)]
pub(super) struct Counter {
    /// Increases since the last batch.
    waiting: BTreeMap<CountKey, u64>,
    /// The last batch number assigned.
    last: BatchSeq,
    /// The batch that is not confirmed as stored.
    in_flight: Option<Vec<(CountKey, u64)>>,
    /// Whether to send it.
    due: bool,
}

impl Counter {
    /// Adds to a key; returns false if there is no room for it.
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

    /// Creates the next batch, or resends the one in flight.
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

    /// Confirms batches up to `upto`.
    pub(super) fn on_counted(&mut self, upto: BatchSeq) {
        if upto >= self.last && self.in_flight.take().is_some() {
            self.due = false;
            // Do not wait for the next interval if another batch is full.
            if self.waiting.len() >= COUNTS_MAX {
                self.on_interval();
            }
        }
    }

    /// Returns the number of keys waiting or in flight.
    pub(super) fn len(&self) -> usize {
        let in_flight = self.in_flight.as_ref().map_or(0, Vec::len);
        self.waiting.len().saturating_add(in_flight)
    }

    pub(super) fn next(&self) -> Option<(BatchSeq, &[(CountKey, u64)])> {
        let entries = self.in_flight.as_ref().filter(|_| self.due)?;
        Some((self.last, entries))
    }

    pub(super) const fn on_sent(&mut self) {
        self.due = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_none()
    }
}
