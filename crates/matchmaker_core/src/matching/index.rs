//! Waiting tickets of one region by rating.

use super::rules::Rating;

/// Buckets of one region. A bucket holds tickets of similar rating in order of arrival.
const BUCKETS: u32 = 1_024;

/// A bucket with more removed entries than waiting ones, and more than these, is compacted.
const REMOVED_MAX: u32 = 16;

/// A ticket in an index: all that the search needs of most tickets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) slot: u32,
    /// Number of the ticket in its slot; another one there now means that this entry is removed.
    pub(super) generation: u32,
    pub(super) rating: Rating,
    pub(super) players: u8,
    /// Whether it avoids players or has requirements.
    pub(super) has_conditions: bool,
    /// When the ticket accepts the region.
    pub(super) from_ms: u64,
    pub(super) since_ms: u64,
}

#[derive(Debug, Default)]
struct Bucket {
    entries: Vec<Entry>,
    /// Removed entries in front of the first that may wait.
    head: u32,
    removed: u32,
    players: u32,
    arrivals: Arrivals,
}

impl Bucket {
    /// Adds an entry in order of arrival; a ticket that returns is among the first.
    fn add(&mut self, entry: Entry) {
        let last = self.entries.last();
        if last.is_none_or(|last| last.since_ms <= entry.since_ms) {
            self.entries.push(entry);
            return;
        }
        let at = self
            .entries
            .partition_point(|other| other.since_ms <= entry.since_ms);
        self.entries.insert(at, entry);
        self.head = self.head.min(u32::try_from(at).unwrap_or(u32::MAX));
    }
}

/// Players that have arrived, decayed over [`Arrivals::SPAN_MS`].
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    /// Thousandths of a player.
    sum: u64,
    at_ms: u64,
}

impl Arrivals {
    const SPAN_MS: u64 = 16_384;

    /// Forgets a part of the sum by the time that has passed.
    const fn decay(&mut self, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.at_ms);
        self.at_ms = if now_ms > self.at_ms {
            now_ms
        } else {
            self.at_ms
        };
        let left = Self::SPAN_MS.saturating_sub(passed);
        // SPAN_MS is a power of two, and the sum below 2^42: 2^32 players.
        self.sum = self.sum.saturating_mul(left) / Self::SPAN_MS;
    }

    fn add(&mut self, now_ms: u64, players: u8) {
        self.decay(now_ms);
        self.sum = self
            .sum
            .saturating_add(u64::from(players).saturating_mul(1_000));
    }
}

/// The players around a rating, and how many arrive there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Density {
    pub(super) players: u64,
    /// Thousandths of a player per second.
    pub(super) arrivals: u64,
}

/// The tickets that may accept one region.
#[derive(Debug)]
pub(super) struct RatingIndex {
    low: i32,
    width: u32,
    buckets: Vec<Bucket>,
}

impl RatingIndex {
    pub(super) fn new((low, high): (Rating, Rating)) -> Self {
        let width = high.0.abs_diff(low.0).div_ceil(BUCKETS).max(1);
        let mut buckets = Vec::new();
        buckets.resize_with(BUCKETS as usize, Bucket::default);
        Self {
            low: low.0.min(high.0),
            width,
            buckets,
        }
    }

    /// Returns the bucket of a rating; those outside the usual range share the first and the last.
    #[expect(clippy::arithmetic_side_effects, reason = "the width is at least 1")]
    pub(super) fn bucket_of(&self, rating: Rating) -> u32 {
        if rating.0 < self.low {
            return 0;
        }
        let above = rating.0.abs_diff(self.low) / self.width;
        above.min(BUCKETS.saturating_sub(1))
    }

    /// Returns how many buckets above and below its own hold ratings within `window`.
    #[expect(clippy::arithmetic_side_effects, reason = "the width is at least 1")]
    pub(super) const fn reach(&self, window: u32) -> u32 {
        (window / self.width).saturating_add(1)
    }

    pub(super) fn insert(&mut self, now_ms: u64, entry: Entry) {
        let bucket = self.bucket_of(entry.rating);
        if let Some(bucket) = self.bucket_mut(bucket) {
            bucket.add(entry);
            bucket.players = bucket.players.saturating_add(entry.players.into());
            bucket.arrivals.add(now_ms, entry.players);
        }
    }

    /// Notes that a ticket was removed; `is_waiting` returns whether an entry still stands.
    pub(super) fn remove(
        &mut self,
        rating: Rating,
        players: u8,
        is_waiting: impl Fn(&Entry) -> bool,
    ) {
        let bucket = self.bucket_of(rating);
        let Some(bucket) = self.bucket_mut(bucket) else {
            return;
        };
        bucket.players = bucket.players.saturating_sub(players.into());
        bucket.removed = bucket.removed.saturating_add(1);
        let waiting = bucket.entries.len().saturating_sub(bucket.removed as usize);
        if bucket.removed > REMOVED_MAX && bucket.removed as usize > waiting {
            bucket.entries.retain(is_waiting);
            (bucket.head, bucket.removed) = (0, 0);
            return;
        }
        let mut rest = bucket.entries.iter().skip(bucket.head as usize);
        while rest.next().is_some_and(|entry| !is_waiting(entry)) {
            bucket.head = bucket.head.saturating_add(1);
        }
    }

    /// Returns the entries of a bucket, oldest first; some may be removed.
    pub(super) fn entries(&self, bucket: u32) -> &[Entry] {
        let bucket = self.buckets.get(bucket as usize);
        let rest = bucket.and_then(|it| it.entries.get(it.head as usize..));
        rest.unwrap_or_default()
    }

    /// Returns the buckets that are `distance` away from `bucket`: below and above.
    pub(super) fn around(bucket: u32, distance: u32) -> [Option<u32>; 2] {
        let above = bucket.checked_add(distance);
        let above = above.filter(|above| distance > 0 && *above < BUCKETS);
        [bucket.checked_sub(distance), above]
    }

    /// Returns the players in the buckets up to `reach` away from that of `rating`.
    pub(super) fn density(&self, now_ms: u64, rating: Rating, reach: u32) -> Density {
        let middle = self.bucket_of(rating);
        let first = middle.saturating_sub(reach) as usize;
        let last =
            (middle.saturating_add(reach) as usize).min(self.buckets.len().saturating_sub(1));
        let buckets = self.buckets.get(first..=last).unwrap_or_default();
        let mut density = Density::default();
        for bucket in buckets {
            let mut arrivals = bucket.arrivals;
            arrivals.decay(now_ms);
            density.players = density.players.saturating_add(bucket.players.into());
            density.arrivals = density.arrivals.saturating_add(arrivals.sum);
        }
        // The sum of a steady rate decays to rate times span.
        density.arrivals = density.arrivals.saturating_mul(1_000) / Arrivals::SPAN_MS;
        density
    }

    /// Returns about how many bytes the index holds.
    pub(super) fn memory_bytes(&self) -> usize {
        let entries = self.buckets.iter().map(|bucket| bucket.entries.capacity());
        let entries: usize = entries.sum();
        let buckets = self.buckets.len().saturating_mul(size_of::<Bucket>());
        entries
            .saturating_mul(size_of::<Entry>())
            .saturating_add(buckets)
    }

    fn bucket_mut(&mut self, bucket: u32) -> Option<&mut Bucket> {
        self.buckets.get_mut(bucket as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(slot: u32, rating: i32) -> Entry {
        Entry {
            slot,
            generation: 0,
            rating: Rating(rating),
            players: 1,
            has_conditions: false,
            from_ms: 0,
            since_ms: 0,
        }
    }

    fn index() -> RatingIndex {
        RatingIndex::new((Rating(0), Rating(102_400)))
    }

    #[test]
    fn ratings_outside_the_range_share_the_outer_buckets() {
        let index = index();
        let bucket = |rating| index.bucket_of(Rating(rating));
        let buckets = [i32::MIN, -1, 0, 99, 100, 102_399, 102_400, i32::MAX].map(bucket);
        assert_eq!(buckets, [0, 0, 0, 0, 1, 1_023, 1_023, 1_023]);
        assert_eq!(RatingIndex::around(0, 0), [Some(0), None]);
        assert_eq!(RatingIndex::around(1, 2), [None, Some(3)]);
        assert_eq!(RatingIndex::around(1_023, 1), [Some(1_022), None]);
    }

    #[test]
    fn removed_entries_are_skipped_in_front_and_compacted_behind() {
        let mut index = index();
        for slot in 0..100 {
            index.insert(0, entry(slot, 50));
        }
        index.remove(Rating(50), 1, |entry| entry.slot != 0);
        assert_eq!(index.entries(0).len(), 99);
        for last in 1..51 {
            index.remove(Rating(50), 1, |entry| entry.slot > last);
        }
        let left: Vec<_> = index.entries(0).iter().map(|entry| entry.slot).collect();
        assert_eq!(left, (51..100).collect::<Vec<_>>());
        assert_eq!(index.density(0, Rating(50), 3).players, 49);
    }

    #[test]
    fn a_steady_rate_of_arrivals_is_measured() {
        let mut index = index();
        for ms in 0..60_000 {
            if ms % 50 == 0 {
                index.insert(ms, entry(0, 5_000));
            }
        }
        let arrivals = index.density(60_000, Rating(5_000), 2).arrivals;
        assert!((19_000..21_500).contains(&arrivals), "{arrivals}");
        assert_eq!(index.density(90_000, Rating(5_000), 2).arrivals, 0);
        assert_eq!(index.density(60_000, Rating(6_000), 2).arrivals, 0);
    }
}
