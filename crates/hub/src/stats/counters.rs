//! Samples of one thread, kept in memory that does not grow.

use core::mem;

use wire::{ClientId, UnixTime};

use super::batch::{BatchFull, BatchWriter};
use super::number::Number;
use super::record::{Sample, StatKey};

/// Counters and events of one thread, for a game's tick.
///
/// [`count`](Self::count) and [`record`](Self::record) neither block nor allocate. Without room a
/// sample is dropped and counted. Give each thread its own; at the end of a tick
/// [`take`](Self::take) what was measured and send it to the thread that encodes it.
///
/// ```
/// use hub::stats::{BatchWriter, Counters, Tallies};
/// use hub::Name;
///
/// let mut counters = Counters::new(1_024, 8_192);
/// let kills = counters.register(Name::new("kill")?.into()).ok_or("too many series")?;
/// let ticks = counters.register(Name::new("tick_us")?.into()).ok_or("too many series")?;
///
/// counters.count(kills, 1);
/// counters.record(ticks, 412.into(), None);
/// let mut tallies = counters.take(Tallies::default());
///
/// let mut writer = BatchWriter::default();
/// let now = wire::UnixTime::from_secs(1_800_000_000);
/// while tallies.encode(counters.keys(), now, &mut writer).is_err() {
///     writer.take(); // a full batch to send
/// }
/// assert_eq!(writer.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Counters {
    keys: Vec<StatKey>,
    series_max: usize,
    events_max: usize,
    tallies: Tallies,
}

/// A series of one [`Counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesHandle(usize);

/// What was measured since the last [`Counters::take`].
#[derive(Debug, Default)]
pub struct Tallies {
    /// Sum of the increases of each series, by index.
    sums: Vec<u64>,
    /// Series with a sum other than 0.
    counted: Vec<usize>,
    events: Vec<TalliedEvent>,
    /// How many of `events` are encoded.
    encoded: usize,
    dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TalliedEvent {
    series: usize,
    player: Option<ClientId>,
    value: Number,
}

impl Counters {
    /// Creates counters for at most `series_max` series, and `events_max` events between two calls
    /// of [`take`](Self::take). The memory, 40 bytes for each event, is allocated now.
    #[must_use]
    pub fn new(series_max: usize, events_max: usize) -> Self {
        let mut counters = Self {
            keys: Vec::with_capacity(series_max),
            series_max,
            events_max,
            tallies: Tallies::default(),
        };
        counters.reserve();
        counters
    }

    /// Returns the handle of a series, which is new or known; `None` if there is no room.
    ///
    /// Call it ahead of need: it searches all keys.
    pub fn register(&mut self, key: StatKey) -> Option<SeriesHandle> {
        if let Some(known) = self.keys.iter().position(|known| *known == key) {
            return Some(SeriesHandle(known));
        }
        if self.keys.len() >= self.series_max {
            return None;
        }
        self.keys.push(key);
        Some(SeriesHandle(self.keys.len().saturating_sub(1)))
    }

    /// Adds to a counter.
    pub fn count(&mut self, series: SeriesHandle, increase: u64) {
        let sum = self.tallies.sums.get_mut(series.0);
        let Some(sum) = sum.filter(|_| series.0 < self.keys.len()) else {
            self.tallies.dropped = self.tallies.dropped.saturating_add(1);
            return;
        };
        if *sum == 0 && increase > 0 {
            // One entry for each series at most, so it has room.
            self.tallies.counted.push(series.0);
        }
        *sum = sum.saturating_add(increase);
    }

    /// Records an event of a series.
    pub fn record(&mut self, series: SeriesHandle, value: Number, player: Option<ClientId>) {
        if self.tallies.events.len() >= self.events_max || series.0 >= self.keys.len() {
            self.tallies.dropped = self.tallies.dropped.saturating_add(1);
            return;
        }
        self.tallies.events.push(TalliedEvent {
            series: series.0,
            player,
            value,
        });
    }

    /// Returns what was measured, and continues in `spare`, which is emptied. Pass back one that
    /// was encoded, and nothing is allocated.
    pub fn take(&mut self, spare: Tallies) -> Tallies {
        let taken = mem::replace(&mut self.tallies, spare);
        self.tallies.clear();
        self.reserve();
        taken
    }

    /// Returns whether nothing was measured, and nothing dropped, since the last
    /// [`take`](Self::take).
    pub const fn is_empty(&self) -> bool {
        self.tallies.is_empty() && self.tallies.dropped == 0
    }

    /// Returns the registered keys, for [`Tallies::encode`].
    pub fn keys(&self) -> &[StatKey] {
        &self.keys
    }

    fn reserve(&mut self) {
        self.tallies.sums.resize(self.series_max, 0);
        self.tallies.counted.reserve_exact(self.series_max);
        self.tallies.events.reserve_exact(self.events_max);
    }
}

impl Tallies {
    /// Moves everything into `writer`, with the time of the tick and the keys of the [`Counters`]
    /// that it was taken from.
    ///
    /// # Errors
    ///
    /// [`BatchFull`] if the batch is full. Send it and call again for the rest.
    pub fn encode(
        &mut self,
        keys: &[StatKey],
        time: UnixTime,
        writer: &mut BatchWriter,
    ) -> Result<(), BatchFull> {
        while let Some(series) = self.counted.last().copied() {
            let sum = self.sums.get(series).copied().unwrap_or(0);
            if let Some(key) = keys.get(series) {
                // A larger sum than a record holds leaves the rest for another.
                let part = i64::try_from(sum).unwrap_or(i64::MAX);
                let sample = Sample::Add(Number::Int(part));
                writer.push_parts(time, None, key, &sample)?;
                let left = sum.saturating_sub(part.unsigned_abs());
                self.set_sum(series, left);
                if left > 0 {
                    continue;
                }
            } else {
                self.set_sum(series, 0);
            }
            self.counted.pop();
        }
        while let Some(event) = self.events.get(self.encoded) {
            if let Some(key) = keys.get(event.series) {
                let sample = Sample::Event(event.value);
                writer.push_parts(time, event.player, key, &sample)?;
            }
            self.encoded = self.encoded.saturating_add(1);
        }
        Ok(())
    }

    /// Returns how many samples were dropped for want of room.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns whether nothing is left to encode.
    pub const fn is_empty(&self) -> bool {
        self.counted.is_empty() && self.encoded == self.events.len()
    }

    fn set_sum(&mut self, series: usize, sum: u64) {
        if let Some(known) = self.sums.get_mut(series) {
            *known = sum;
        }
    }

    fn clear(&mut self) {
        while let Some(series) = self.counted.pop() {
            self.set_sum(series, 0);
        }
        self.events.clear();
        self.encoded = 0;
        self.dropped = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Batch;
    use super::*;
    use crate::Name;

    const NOW: UnixTime = UnixTime::from_secs(1_800_000_000);

    fn key(name: &str) -> StatKey {
        Name::new(name).unwrap().into()
    }

    fn samples(tallies: &mut Tallies, counters: &Counters) -> Vec<Sample> {
        let mut writer = BatchWriter::default();
        tallies.encode(counters.keys(), NOW, &mut writer).unwrap();
        let batch = Batch::decode(&writer.take()).unwrap();
        batch.records().map(|record| record.sample).collect()
    }

    #[test]
    fn counts_are_summed_and_events_are_kept_in_order() {
        let mut counters = Counters::new(4, 2);
        let kills = counters.register(key("kill")).unwrap();
        let ticks = counters.register(key("tick_us")).unwrap();
        assert_eq!(counters.register(key("kill")), Some(kills));
        counters.count(kills, 2);
        counters.count(kills, 0);
        counters.count(kills, 3);
        counters.record(ticks, 7.into(), Some(ClientId(1)));
        counters.record(ticks, 6.into(), None);
        let mut first = counters.take(Tallies::default());
        let expected = [
            Sample::Add(5.into()),
            Sample::Event(7.into()),
            Sample::Event(6.into()),
        ];
        assert_eq!(samples(&mut first, &counters), expected);
        assert!(first.is_empty());
        // The spare is used again.
        counters.count(kills, 1);
        let mut second = counters.take(first);
        assert_eq!(samples(&mut second, &counters), [Sample::Add(1.into())]);
    }

    #[test]
    fn samples_without_room_are_dropped_and_counted() {
        let mut counters = Counters::new(1, 2);
        let ticks = counters.register(key("tick_us")).unwrap();
        assert_eq!(counters.register(key("kill")), None);
        let mut other = Counters::new(2, 0);
        other.register(key("a"));
        let stranger = other.register(key("b")).unwrap();
        counters.count(stranger, 1);
        for value in 0..4 {
            counters.record(ticks, value.into(), None);
        }
        let mut taken = counters.take(Tallies::default());
        assert_eq!(taken.dropped(), 3);
        assert_eq!(samples(&mut taken, &counters).len(), 2);
        assert_eq!(counters.take(taken).dropped(), 0);
    }

    #[test]
    fn a_full_batch_loses_nothing() {
        let mut counters = Counters::new(1, 20_000);
        let ticks = counters.register(key("tick_us")).unwrap();
        counters.count(ticks, u64::MAX);
        for value in 0..20_000 {
            counters.record(ticks, (1_000_000 + value).into(), Some(ClientId(9)));
        }
        let mut tallies = counters.take(Tallies::default());
        let (mut writer, mut batches, mut sum) = (BatchWriter::default(), 0, 0_u128);
        loop {
            let result = tallies.encode(counters.keys(), NOW, &mut writer);
            batches += 1;
            for record in Batch::decode(&writer.take()).unwrap().records() {
                let Some(Number::Int(value)) = record.sample.number() else {
                    panic!("a float");
                };
                sum += u128::from(value.unsigned_abs());
            }
            if result.is_ok() {
                break;
            }
        }
        assert!(batches > 1);
        let events: u128 = (0..20_000).map(|value| 1_000_000 + value).sum();
        assert_eq!(sum, u128::from(u64::MAX) + events);
    }
}
