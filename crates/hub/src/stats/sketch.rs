//! Quantiles of any number of values, in bounded memory, mergeable.
//!
//! The bins are those of a float's own bits: its exponent and the first 6 bits of its fraction, so 64
//! bins for each power of two. A value is at most 1/128 (0.78 %) from the middle of its bin. If more
//! than [`BINS_MAX`] bins are used, neighbouring ones are joined in pairs, which doubles the error;
//! 1,024 bins at full resolution span a factor of 65,536. The result depends on the set of values
//! only, and neither on their order nor on how they were merged.

use wire::{Reader, Writer};

use super::batch::BatchError;
use super::varint;

/// Most bins.
const BINS_MAX: usize = 1_024;

/// Low bits of a fraction that do not choose a bin.
const DROPPED_BITS: u32 = 46;

/// The largest bin key of a finite float, at full resolution.
const KEY_MAX: i32 = 0x7ff << 6;

/// Joins after which both signs fit in [`BINS_MAX`] bins whatever their values.
const JOINS_MAX: u8 = 9;

/// Memory of one bin, bytes.
const BIN_BYTES: usize = size_of::<i32>() + size_of::<u64>();

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sketch {
    /// Keys of the bins, sorted; 0 is the key of zero, negative values have negative keys.
    keys: Vec<i32>,
    /// Values in each bin.
    counts: Vec<u64>,
    total: u64,
    /// How many times bins were joined.
    joins: u8,
}

impl Sketch {
    /// Creates a sketch of some values.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut keys: Vec<_> = values.map(key).collect();
        keys.sort_unstable();
        let mut sketch = Self {
            total: u64::try_from(keys.len()).unwrap_or(u64::MAX),
            ..Self::default()
        };
        for key in keys {
            sketch.push(key, 1);
        }
        sketch.join_until_few();
        sketch
    }

    /// Adds a value if its bin exists, or takes the memory for it from `room`. Returns false if
    /// there is no room.
    pub(super) fn add(&mut self, value: f64, room: &mut usize) -> bool {
        let key = joined(key(value), self.joins);
        match self.keys.binary_search(&key) {
            Ok(at) => self.raise(at, 1),
            Err(at) => {
                let Some(left) = room.checked_sub(BIN_BYTES) else {
                    return false;
                };
                let before = self.memory_bytes().saturating_add(BIN_BYTES);
                self.keys.insert(at, key);
                self.counts.insert(at, 1);
                self.join_until_few();
                let freed = before.saturating_sub(self.memory_bytes());
                *room = left.saturating_add(freed);
            }
        }
        self.total = self.total.saturating_add(1);
        true
    }

    /// Adds the values of another sketch. It grows by at most the memory of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        while self.joins < other.joins {
            self.join();
        }
        self.total = self.total.saturating_add(other.total);
        let joins = self.joins.saturating_sub(other.joins);
        if self.raise_known(other, joins) {
            return;
        }
        let len = self.keys.len().saturating_add(other.keys.len());
        let mut merged = Self {
            keys: Vec::with_capacity(len),
            counts: Vec::with_capacity(len),
            ..*self
        };
        let (mut at, mut their_at) = (0_usize, 0_usize);
        while let (Some(key), Some(theirs)) = (self.keys.get(at), other.keys.get(their_at)) {
            let theirs = joined(*theirs, joins);
            // Without a branch that depends on the keys: it would be guessed wrongly.
            let (is_ours, is_theirs) = (*key <= theirs, theirs <= *key);
            let count = self.counts.get(at).copied().unwrap_or(0);
            let their_count = other.counts.get(their_at).copied().unwrap_or(0);
            let sum = count.saturating_mul(u64::from(is_ours));
            let sum = sum.saturating_add(their_count.saturating_mul(u64::from(is_theirs)));
            merged.push(theirs.min(*key), sum);
            at = at.saturating_add(usize::from(is_ours));
            their_at = their_at.saturating_add(usize::from(is_theirs));
        }
        for (key, count) in self.bins().skip(at) {
            merged.push(key, count);
        }
        for (key, count) in other.bins().skip(their_at) {
            merged.push(joined(key, joins), count);
        }
        *self = merged;
        self.join_until_few();
    }

    /// Adds the bins of `other` if there are few and none is new, which is usual for a batch.
    fn raise_known(&mut self, other: &Self, joins: u8) -> bool {
        if other.keys.len().saturating_mul(4) > self.keys.len() {
            return false;
        }
        let keys = other.keys.iter();
        let places = keys.map(|key| self.keys.binary_search(&joined(*key, joins)).ok());
        let Some(places) = places.collect::<Option<Vec<_>>>() else {
            return false;
        };
        for (at, count) in places.into_iter().zip(&other.counts) {
            self.raise(at, *count);
        }
        true
    }

    fn bins(&self) -> impl Iterator<Item = (i32, u64)> {
        self.keys.iter().copied().zip(self.counts.iter().copied())
    }

    fn raise(&mut self, at: usize, more: u64) {
        if let Some(count) = self.counts.get_mut(at) {
            *count = count.saturating_add(more);
        }
    }

    /// Appends a bin, or adds it to the last one if the key is the same.
    fn push(&mut self, key: i32, count: u64) {
        if self.keys.last() == Some(&key) {
            self.raise(self.keys.len().saturating_sub(1), count);
        } else {
            self.keys.push(key);
            self.counts.push(count);
        }
    }

    /// Returns the value at `rank`, where 0 is the smallest; `None` if there are not so many.
    pub(super) fn at_rank(&self, rank: u64) -> Option<f64> {
        let mut below = 0_u64;
        let at = self.counts.iter().position(|count| {
            below = below.saturating_add(*count);
            rank < below
        });
        let key = self.keys.get(at?)?;
        Some(middle(*key, self.joins))
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.keys.len().saturating_mul(BIN_BYTES)
    }

    fn join_until_few(&mut self) {
        while self.keys.len() > BINS_MAX && self.joins < JOINS_MAX {
            self.join();
        }
    }

    fn join(&mut self) {
        let mut merged = Self {
            total: self.total,
            joins: self.joins.saturating_add(1),
            ..Self::default()
        };
        for (key, count) in self.bins() {
            merged.push(joined(key, 1), count);
        }
        *self = merged;
    }

    /// Encoding: joins 1, count of bins, then each bin's distance from the one before, and its count.
    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.joins);
        varint::write_len(self.keys.len(), out);
        let mut before = 0_i64;
        for (key, count) in self.bins() {
            let key = i64::from(key);
            varint::write_signed(key.saturating_sub(before), out);
            varint::write(count, out);
            before = key;
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, BatchError> {
        let joins = reader.u8()?;
        if joins > JOINS_MAX {
            return Err(BatchError::Count);
        }
        let limit = i64::from(joined(KEY_MAX, joins));
        let count = varint::read_len(reader, BINS_MAX)?;
        let mut sketch = Self {
            joins,
            ..Self::default()
        };
        let mut before = None;
        for _ in 0..count {
            let step = varint::read_signed(reader)?;
            let key = step.checked_add(before.unwrap_or(0));
            let key = key.filter(|key| (limit.saturating_neg()..=limit).contains(key));
            let key = key.ok_or(BatchError::Number)?;
            if before.is_some_and(|before| before >= key) {
                return Err(BatchError::Repeated);
            }
            let values = varint::read(reader)?;
            let total = sketch.total.checked_add(values).filter(|_| values > 0);
            sketch.total = total.ok_or(BatchError::Number)?;
            let narrow = i32::try_from(key).map_err(|_| BatchError::Number)?;
            sketch.push(narrow, values);
            before = Some(key);
        }
        Ok(sketch)
    }
}

/// The values of several sketches, for one row after the other.
///
/// Bins are counted in place, at the coarsest resolution of the sketches, so a sum costs one addition
/// a bin. It has more bins than a [`Sketch`] may have, and loses nothing by joining them.
#[derive(Debug, Default)]
pub(super) struct SketchSum {
    /// Bins in blocks, one for each power of two and sign at full resolution; allocated by the
    /// first sum.
    bins: Vec<u64>,
    /// A bit for each block that is not zero.
    used: UsedBlocks,
    total: u64,
    joins: u8,
}

#[derive(Debug)]
struct UsedBlocks([u64; BLOCKS / 64]);

impl Default for UsedBlocks {
    fn default() -> Self {
        Self([0; BLOCKS / 64])
    }
}

/// Bins of a block.
const BLOCK: usize = 64;

/// Blocks: bins of all keys, negative and positive.
const BLOCKS: usize = 4_096;

/// Added to a key, so that it is an index into the bins.
const KEY_OFFSET: i32 = 1 << 17;

impl SketchSum {
    /// Replaces the sum by that of `sketches`.
    pub(super) fn set<'a>(&mut self, sketches: impl Iterator<Item = &'a Sketch> + Clone) {
        self.clear();
        self.joins = sketches.clone().map(|it| it.joins).max().unwrap_or(0);
        for sketch in sketches {
            if self.bins.is_empty() {
                self.bins.resize(BLOCKS * BLOCK, 0);
            }
            self.total = self.total.saturating_add(sketch.total);
            let joins = self.joins.saturating_sub(sketch.joins);
            if joins == 0 {
                self.add(sketch.bins());
            } else {
                self.add(
                    sketch
                        .bins()
                        .map(|(key, count)| (joined(key, joins), count)),
                );
            }
        }
    }

    /// Adds bins in the order of their keys.
    fn add(&mut self, bins: impl Iterator<Item = (i32, u64)>) {
        let mut last = usize::MAX;
        for (key, count) in bins {
            let place = usize::try_from(key.saturating_add(KEY_OFFSET)).unwrap_or(0);
            if let Some(bin) = self.bins.get_mut(place) {
                *bin = bin.saturating_add(count);
            }
            let block = place / BLOCK;
            if block != last {
                last = block;
                if let Some(word) = self.used.0.get_mut(block / 64) {
                    *word |= 1 << (block % 64);
                }
            }
        }
    }

    fn block(&self, at: usize) -> Option<&[u64]> {
        let start = at.saturating_mul(BLOCK);
        self.bins.get(start..start.saturating_add(BLOCK))
    }

    fn clear(&mut self) {
        for at in self.used.iter() {
            let start = at.saturating_mul(BLOCK);
            if let Some(block) = self.bins.get_mut(start..start.saturating_add(BLOCK)) {
                block.fill(0);
            }
        }
        self.used = UsedBlocks::default();
        self.total = 0;
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the value at `rank`, where 0 is the smallest; `None` if there are not so many.
    pub(super) fn at_rank(&self, rank: u64) -> Option<f64> {
        let mut below = 0_u64;
        for at in self.used.iter() {
            let block = self.block(at)?;
            let sum = block.iter().fold(0, |sum: u64, it| sum.wrapping_add(*it));
            if rank >= below.saturating_add(sum) {
                below = below.saturating_add(sum);
                continue;
            }
            let bin = block.iter().position(|count| {
                below = below.saturating_add(*count);
                rank < below
            })?;
            let place = at.saturating_mul(BLOCK).saturating_add(bin);
            let key = i32::try_from(place).ok()?.saturating_sub(KEY_OFFSET);
            return Some(middle(key, self.joins));
        }
        None
    }
}

impl UsedBlocks {
    /// Returns the numbers of the bits that are set, ascending.
    fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.0.iter().zip((0_usize..).step_by(64));
        words.flat_map(|(word, first)| {
            let mut left = *word;
            core::iter::from_fn(move || {
                let bit = usize::try_from(left.trailing_zeros()).unwrap_or(0);
                left &= left.checked_sub(1)?;
                Some(first.saturating_add(bit))
            })
        })
    }
}

/// Returns the key of a finite value at full resolution.
fn key(value: f64) -> i32 {
    let place = value.abs().to_bits() >> DROPPED_BITS;
    let place = i32::try_from(place).unwrap_or(KEY_MAX);
    // The smallest values count as zero.
    if value < 0.0 {
        place.saturating_neg()
    } else {
        place
    }
}

/// Returns the key after `joins` more joins; zero keeps its own bin.
fn joined(key: i32, joins: u8) -> i32 {
    let place = key.unsigned_abs();
    let place = (place.saturating_sub(1) >> joins).saturating_add(u32::from(place > 0));
    let place = i32::try_from(place).unwrap_or(KEY_MAX);
    if key < 0 {
        place.saturating_neg()
    } else {
        place
    }
}

/// Returns the middle of a bin.
fn middle(key: i32, joins: u8) -> f64 {
    let place = key.unsigned_abs();
    if place == 0 {
        return 0.0;
    }
    let first = (place.saturating_sub(1) << joins).saturating_add(1);
    let low = edge(first);
    let high = edge(first.saturating_add(1 << joins));
    let middle = low + (high - low) / 2.0;
    if key < 0 { -middle } else { middle }
}

fn edge(place: u32) -> f64 {
    let edge = f64::from_bits(u64::from(place) << DROPPED_BITS);
    if edge.is_finite() { edge } else { f64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROOM: usize = usize::MAX;

    fn sketch(values: &[f64]) -> Sketch {
        let mut sketch = Sketch::default();
        for value in values {
            assert!(sketch.add(*value, &mut { ROOM }));
        }
        sketch
    }

    /// Values within a factor of 65,536 are found within 1 %.
    fn assert_within_one_percent(mut values: Vec<f64>) {
        let sketch = sketch(&values);
        values.sort_unstable_by(f64::total_cmp);
        for (rank, exact) in (0..).zip(&values) {
            let found = sketch.at_rank(rank).unwrap();
            let error = (found - exact).abs();
            assert!(error <= exact.abs() / 100.0, "{found} for {exact}");
        }
        assert_eq!(sketch.at_rank(sketch.total()), None);
    }

    #[test]
    fn integers_to_64_are_exact_to_a_bin() {
        assert_within_one_percent((-64..=64_i32).map(f64::from).collect());
    }

    #[test]
    fn extreme_values_have_a_bin() {
        for value in [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 0.0, -0.0] {
            let sketch = sketch(&[value]);
            let found = sketch.at_rank(0).unwrap();
            assert!((found - value).abs() <= value.abs() / 100.0, "{value}");
        }
    }

    #[test]
    fn any_values_fit_into_1024_bins() {
        let mut bits = 0_u64;
        let mut all = Sketch::default();
        while bits < f64::INFINITY.to_bits() {
            for value in [f64::from_bits(bits), -f64::from_bits(bits)] {
                all.add(value, &mut { ROOM });
            }
            bits += 1 << 45;
        }
        assert!(all.keys.len() <= BINS_MAX, "{}", all.keys.len());
        assert!(all.joins <= JOINS_MAX);
        let mut bytes = Vec::new();
        all.encode(&mut Writer::new(&mut bytes));
        assert_eq!(Sketch::decode(&mut Reader::new(&bytes)), Ok(all));
    }

    #[test]
    fn without_room_no_bin_is_added() {
        let mut sketch = sketch(&[1.0]);
        assert!(sketch.add(1.0, &mut 0));
        assert!(!sketch.add(2.0, &mut 0));
        assert_eq!(sketch.total(), 2);
    }

    proptest! {
        #[test]
        fn quantiles_are_within_one_percent(
            values in prop::collection::vec((1.0..65_000.0_f64, any::<bool>()), 1..200),
        ) {
            let signed = values.into_iter().map(|(value, minus)| if minus { -value } else { value });
            assert_within_one_percent(signed.collect());
        }

        /// Also where bins are joined: the values are any floats.
        #[test]
        fn neither_order_nor_merging_matters(
            values in prop::collection::vec(prop::num::f64::NORMAL, 0..3_000),
            cut in 0..3_000_usize,
        ) {
            let whole = sketch(&values);
            let (left, right) = values.split_at(cut.min(values.len()));
            let mut merged = sketch(right);
            merged.merge(&sketch(left));
            prop_assert_eq!(&merged, &whole);
            prop_assert_eq!(&Sketch::of(values.iter().copied()), &whole);
            // The sum in place has the resolution of the coarser part, and the same values.
            let parts = [sketch(left), sketch(right)];
            let mut sum = SketchSum::default();
            sum.set([&whole].into_iter());
            sum.set(parts.iter());
            prop_assert_eq!(sum.total(), whole.total());
            let mut joined_sum = Sketch { joins: sum.joins, ..Sketch::default() };
            for part in &parts {
                let mut part = part.clone();
                while part.joins < sum.joins {
                    part.join();
                }
                for (key, count) in part.bins() {
                    let at = joined_sum.keys.binary_search(&key);
                    match at {
                        Ok(at) => joined_sum.raise(at, count),
                        Err(at) => {
                            joined_sum.keys.insert(at, key);
                            joined_sum.counts.insert(at, count);
                        }
                    }
                }
            }
            for rank in 0..=whole.total() {
                prop_assert_eq!(sum.at_rank(rank), joined_sum.at_rank(rank));
            }
            let mut bytes = Vec::new();
            whole.encode(&mut Writer::new(&mut bytes));
            prop_assert_eq!(Sketch::decode(&mut Reader::new(&bytes)), Ok(whole));
        }
    }
}
