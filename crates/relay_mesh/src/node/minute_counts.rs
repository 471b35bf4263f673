//! Counts that are reported at most once a minute.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::Instant;

/// Counts by key, with the last detail of each key.
#[derive(Debug)]
pub(super) struct MinuteCounts<K, D> {
    /// At most [`COUNTS_MAX`].
    counts: BTreeMap<K, Tally<D>>,
    /// The earliest time at which a count is due.
    due_at: Option<Instant>,
}

#[derive(Debug)]
struct Tally<D> {
    /// Since the last report.
    count: u64,
    /// The latest detail.
    detail: D,
    /// Earliest time of the next report.
    due_at: Instant,
}

impl<K, D> Default for MinuteCounts<K, D> {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
            due_at: None,
        }
    }
}

impl<K: Ord + Clone, D: Clone> MinuteCounts<K, D> {
    /// Counts one. A key's first report waits for a second, to cover more than one occurrence.
    pub(super) fn add(&mut self, now: Instant, key: K, detail: D) {
        self.add_many(now, key, detail, 1);
    }

    /// Counts `count` occurrences.
    pub(super) fn add_many(&mut self, now: Instant, key: K, detail: D, count: u64) {
        if count == 0 {
            return;
        }
        if self.counts.len() >= COUNTS_MAX && !self.counts.contains_key(&key) {
            self.counts.retain(|_, of| of.count > 0 || now < of.due_at);
            if self.counts.len() >= COUNTS_MAX {
                return;
            }
        }
        let of = self.counts.entry(key).or_insert(Tally {
            count: 0,
            detail: detail.clone(),
            due_at: now + FIRST_WAIT,
        });
        if of.count == 0 {
            of.due_at = of.due_at.max(now + FIRST_WAIT);
            let due_at = self.due_at.map_or(of.due_at, |due| due.min(of.due_at));
            self.due_at = Some(due_at);
        }
        of.count = of.count.saturating_add(count);
        of.detail = detail;
    }

    /// Takes the counts that are due: key, last detail, and count since the last report.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(K, D, u64)> {
        if self.due_at.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut due = Vec::new();
        for (key, of) in &mut self.counts {
            if of.count > 0 && of.due_at <= now {
                due.push((key.clone(), of.detail.clone(), of.count));
                (of.count, of.due_at) = (0, now + GAP);
            }
        }
        let waiting = self.counts.values().filter(|of| of.count > 0);
        self.due_at = waiting.map(|of| of.due_at).min();
        due
    }
}

/// Delay from a key's first count to its report.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Minimum time between two reports of a key.
const GAP: Duration = Duration::from_secs(60);
/// Maximum number of keys.
const COUNTS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_due_once_a_minute_with_its_count_and_last_detail() {
        let at = Instant::from_millis;
        let mut counts = MinuteCounts::default();
        let mut told = Vec::new();
        for tick in 0..1_800 {
            let now = at(tick * 100);
            counts.add(now, "ration", tick);
            if tick == 300 {
                counts.add(now, "too long", tick);
            }
            let due = counts.take_due(now);
            told.extend(
                due.into_iter()
                    .map(|(key, detail, count)| (tick, key, detail, count)),
            );
        }
        let expected = [
            (10, "ration", 10, 11),
            (310, "too long", 300, 1),
            (610, "ration", 610, 600),
            (1_210, "ration", 1_210, 600),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten() {
        let at = Instant::from_millis;
        let mut counts = MinuteCounts::default();
        for key in 0..2_000 {
            counts.add(at(0), key, ());
        }
        assert_eq!(counts.counts.len(), COUNTS_MAX);
        assert_eq!(counts.take_due(at(1_000)).len(), COUNTS_MAX);
        counts.add(at(60_000), 3_000, ());
        assert_eq!(counts.counts.len(), COUNTS_MAX, "there is no room");
        counts.add(at(61_000), 3_000, ());
        assert_eq!(counts.counts.len(), 1);
        assert_eq!(counts.take_due(at(62_000)).len(), 1);
    }
}
