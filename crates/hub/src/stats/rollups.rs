//! Rollups: figures of each series in buckets of 10 s, 1 min, 1 h and 1 day.

mod marks;
mod read;
mod rows;
mod shares;

use core::mem;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use wire::{NodeId, UnixTime};

use super::batch::{Batch, Entry};
use super::figures::{Figures, Measured};
use super::number::Number;
use super::query::Level;
use super::record::{Sample, StatKey};
use crate::field::{BatchSeq, Epoch, LogId, Name};

pub use marks::Applied;
use marks::Mark;
pub(crate) use rows::RowLoader;
pub use rows::{KeyValue, LoadError};
use shares::{SeriesRefusal, Share, Shares};

/// Limits and retention of [`Rollups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RollupConfig {
    /// Series; 10,000. Records of further ones are counted in the series `other`.
    pub series_max: usize,
    /// Series that one node may add; 1,000. Records of further ones are counted in the series
    /// `other`, which no node can add to by its name.
    pub node_series_max: usize,
    /// Buckets of the series that one node has added; 500,000. Levels have the same shares of it as
    /// of `buckets_max`.
    pub node_buckets_max: usize,
    /// Memory of the series that one node has added, bytes; 64 MiB, in the same shares.
    pub node_bytes_max: usize,
    /// Nodes that may send batches; 4,096. Each holds up to 64 numbers of batches.
    pub nodes_max: usize,
    /// Buckets of all series and levels; 2,000,000. Of these, 10 s buckets take at most a half, with
    /// 1 min buckets seven tenths, with 1 h buckets nine tenths. Records without a bucket are
    /// dropped at that level, and counted.
    pub buckets_max: usize,
    /// Memory of series and buckets, bytes; 256 MiB, in the same shares. A bucket takes 300 bytes,
    /// and 12 for each bin of a sketch (up to 12 KiB) and 4 for each player (up to 4 KiB). Without
    /// room, values are left out of sketches, and players out of unique counts; both are counted.
    pub bytes_max: usize,
    /// Rows of one answer; 10,000.
    pub rows_max: usize,
    /// Buckets that one answer reads, and for each step one more a series; 200,000.
    pub query_buckets_max: usize,
    /// Buckets with sketches or players that one answer merges; 20,000.
    pub query_sketches_max: usize,
    /// How far ahead of the hub's clock a record's time may be; 1 h. Others are dropped and counted.
    pub early_max: Duration,
    /// How long the raw log is kept; 24 h. See [`Rollups::raw_horizon`].
    pub raw_retention: Duration,
    /// How long buckets are kept, by [`Level`]: 1 day, 7 days, 90 days, for ever (`None`).
    pub retention: [Option<Duration>; 4],
}

impl Default for RollupConfig {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        let week = DAY.saturating_mul(7);
        Self {
            series_max: 10_000,
            node_series_max: 1_000,
            node_buckets_max: 500_000,
            node_bytes_max: 64 << 20,
            nodes_max: 4_096,
            buckets_max: 2_000_000,
            bytes_max: 256 << 20,
            rows_max: 10_000,
            query_buckets_max: 200_000,
            query_sketches_max: 20_000,
            early_max: Duration::from_secs(3_600),
            raw_retention: DAY,
            retention: [Some(DAY), Some(week), Some(DAY.saturating_mul(90)), None],
        }
    }
}

/// Counters of [`Rollups`]. They are stored with the buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RollupStats {
    /// Batches applied.
    pub batches: u64,
    /// Records of applied batches.
    pub records: u64,
    /// Batches that were applied before.
    pub duplicates: u64,
    /// Batches of an earlier run of their node.
    pub fenced: u64,
    /// Records too far ahead of the hub's clock; dropped.
    pub early: u64,
    /// Records older than the retention of a level, by level; dropped there.
    pub late: [u64; 4],
    /// Records of series beyond a limit, or named `other`; counted in `other`.
    pub other: u64,
    /// Records of these whose node has used up its share; more nodes may still add series.
    pub over_share: u64,
    /// Records for which there was no bucket, by level; dropped there.
    pub no_room: [u64; 4],
    /// Values and players left out of a sketch or a unique count, by level.
    pub trimmed: [u64; 4],
}

/// Identifies a batch: a node, its run, and the number of the batch in that run, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId {
    /// The node.
    pub node: NodeId,
    /// The epoch of its run.
    pub epoch: Epoch,
    /// The node's number of the batch.
    pub batch: BatchSeq,
}

/// Rollups of all series.
///
/// Append each batch to the raw log, with the time at which it was received, and then
/// [`apply`](Self::apply) it. From time to time, [`drain_dirty`](Self::drain_dirty) and write all
/// rows in one transaction. After a crash, [`load`](Self::load) the rows and apply the raw log again
/// from the position that was stored with them: the figures are the same as without the crash.
///
/// ```
/// use hub::stats::{
///     Applied, Batch, BatchId, BatchWriter, Cell, Query, RollupConfig, Rollups, Sample, StatRecord,
/// };
/// use hub::{BatchSeq, Epoch, Name};
/// use wire::{NodeId, UnixTime};
///
/// let now = UnixTime::from_secs(1_800_000_000);
/// let mut writer = BatchWriter::default();
/// for micros in [400, 420, 9_000] {
///     writer.push(&StatRecord {
///         time: now,
///         player: None,
///         key: Name::new("tick_us")?.into(),
///         sample: Sample::Event(micros.into()),
///     })?;
/// }
/// let batch = Batch::decode(&writer.take())?;
///
/// let mut rollups = Rollups::new(RollupConfig::default());
/// let id = BatchId { node: NodeId([1; 32]), epoch: Epoch(1), batch: BatchSeq(1) };
/// assert_eq!(rollups.apply(id, now, &batch), Applied::Counted);
/// assert_eq!(rollups.apply(id, now, &batch), Applied::Duplicate);
///
/// let query = Query::parse("count, max of tick_us from now-1h to now step 1h", now)?;
/// let rows = rollups.query(&query)?;
/// assert!(rows.is_empty(), "`to` is not included");
/// let later = UnixTime::from_secs(1_800_000_060);
/// let query = Query::parse("count, max of tick_us from now-1h to now step 1h", later)?;
/// let rows = rollups.query(&query)?;
/// assert_eq!(rows.last().map(|row| &row.cells[..]), Some(&[Cell::Number(3.0), Cell::Number(9_000.0)][..]));
///
/// let rows = rollups.drain_dirty(17); // 17: where the raw log continues
/// let (again, position) = Rollups::load(RollupConfig::default(), rows.iter().filter_map(|row| {
///     Some((&row.key[..], row.value.as_deref()?))
/// }))?;
/// assert_eq!((again.stats(), position), (rollups.stats(), 17));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rollups {
    config: RollupConfig,
    stats: RollupStats,
    marks: BTreeMap<NodeId, Mark>,
    ids: BTreeMap<StatKey, SeriesId>,
    series: BTreeMap<SeriesId, Series>,
    next_series: SeriesId,
    shares: Shares,
    /// The hub's log that the epochs of nodes belong to.
    log: LogId,
    dirty: Dirty,
}

/// Number of a series in the store; never used twice.
type SeriesId = u32;

/// Start of a bucket, in widths of its level since 1970.
type BucketIndex = u32;

#[derive(Debug)]
struct Series {
    key: StatKey,
    /// The node that has added it; `None` for `other`, which is always there.
    owner: Option<NodeId>,
    levels: [BTreeMap<BucketIndex, Bucket>; 4],
    /// Whether [`Rollups::drain_dirty`] has returned it.
    is_stored: bool,
}

#[derive(Debug, Default)]
struct Bucket {
    figures: Figures,
    /// Whether it is listed in [`Dirty`].
    is_dirty: bool,
    /// Whether [`Rollups::drain_dirty`] has returned it.
    is_stored: bool,
}

/// Rows that differ from what [`Rollups::drain_dirty`] has returned.
#[derive(Debug, Default)]
struct Dirty {
    nodes: BTreeSet<NodeId>,
    /// Those that exist, and those that were stored and are removed.
    series: BTreeSet<SeriesId>,
    /// Those that exist.
    buckets: Vec<BucketId>,
    /// Those that were stored and were removed; they may exist again.
    removed: BTreeSet<BucketId>,
}

type BucketId = (Level, SeriesId, BucketIndex);

/// Memory of a bucket without sketch and players, bytes: the bucket, its share of a B-tree that is
/// half full, and its place in the list of dirty buckets.
const BUCKET_BYTES: usize = 2 * size_of::<(BucketIndex, Bucket)>() + 24;

/// Memory of a series without buckets, bytes: two keys, and shares of three B-trees.
const SERIES_BYTES: usize = 2 * size_of::<Series>() + 4 * size_of::<StatKey>();

/// Name of the series that counts the records of series beyond the limit.
const OTHER: &str = "other";

impl Rollups {
    /// Creates rollups without data.
    #[must_use]
    pub const fn new(config: RollupConfig) -> Self {
        Self {
            config,
            stats: ZERO_STATS,
            marks: BTreeMap::new(),
            ids: BTreeMap::new(),
            series: BTreeMap::new(),
            next_series: 0,
            shares: Shares::new(),
            log: LogId(0),
            dirty: Dirty {
                nodes: BTreeSet::new(),
                series: BTreeSet::new(),
                buckets: Vec::new(),
                removed: BTreeSet::new(),
            },
        }
    }

    /// Adds a batch to all levels, once: a batch that was applied before changes nothing.
    ///
    /// `received` is the hub's wall clock when the batch was appended to the raw log, from where it
    /// is taken again after a crash: it alone decides which records are too early or too late.
    pub fn apply(&mut self, id: BatchId, received: UnixTime, batch: &Batch) -> Applied {
        let applied = self.mark(id);
        match applied {
            Applied::Duplicate => {
                self.stats.duplicates = self.stats.duplicates.saturating_add(1);
            }
            Applied::Fenced => self.stats.fenced = self.stats.fenced.saturating_add(1),
            Applied::Counted | Applied::Full => {}
        }
        if applied != Applied::Counted {
            return applied;
        }
        self.stats.batches = self.stats.batches.saturating_add(1);
        let latest = received + self.config.early_max;
        // One series after the other; in each, the order of the log.
        let mut entries: Vec<&Entry> = batch.entries().iter().collect();
        count(&mut self.stats.records, entries.len());
        let all = entries.len();
        entries.retain(|entry| entry.time <= latest);
        count(&mut self.stats.early, all.saturating_sub(entries.len()));
        entries.sort_by_key(|entry| entry.series);
        for entries in entries.chunk_by(|one, next| one.series == next.series) {
            let key = entries.first().and_then(|it| batch.series().get(it.series));
            let Some(key) = key else {
                continue;
            };
            match self.series_id(key, id.node) {
                Ok(series) => self.apply_to_series(series, received, entries, Sampling::Full),
                Err(refusal) => {
                    count(&mut self.stats.other, entries.len());
                    if refusal == SeriesRefusal::Share {
                        count(&mut self.stats.over_share, entries.len());
                    }
                    let other = self.other_id();
                    self.apply_to_series(other, received, entries, Sampling::CountOnly);
                }
            }
        }
        applied
    }

    /// Removes buckets after their retention, and series without buckets.
    ///
    /// A driver calls it about once a minute with the wall clock.
    pub fn expire(&mut self, now: UnixTime) {
        let (mut removed, mut has_dirty) = (Vec::new(), false);
        for (id, series) in &mut self.series {
            for (level, buckets) in Level::ALL.into_iter().zip(&mut series.levels) {
                let Some(first) = first_kept(&self.config, level, now) else {
                    continue;
                };
                while let Some(entry) = buckets.first_entry()
                    && *entry.key() < first
                {
                    let (index, bucket) = entry.remove_entry();
                    self.shares.remove(series.owner, bucket.share());
                    has_dirty |= bucket.is_dirty;
                    if bucket.is_stored {
                        self.dirty.removed.insert((level, *id, index));
                    }
                }
            }
            if series.levels.iter().all(BTreeMap::is_empty) {
                removed.push(*id);
            }
        }
        if has_dirty {
            let series = &self.series;
            let exists = |id: &BucketId| bucket_of(series, *id).is_some();
            self.dirty.buckets.retain(exists);
        }
        for id in removed {
            if let Some(series) = self.series.remove(&id) {
                self.shares.remove(series.owner, series_share(&series.key));
                self.ids.remove(&series.key);
                if series.is_stored {
                    self.dirty.series.insert(id);
                } else {
                    self.dirty.series.remove(&id);
                }
            }
        }
    }

    /// Returns the time before which the raw log is no longer needed, if it also ends before the
    /// position that is stored with the rows.
    #[must_use]
    pub fn raw_horizon(&self, now: UnixTime) -> UnixTime {
        let retention = u64::try_from(self.config.raw_retention.as_millis());
        UnixTime::from_millis(
            now.as_millis()
                .saturating_sub(retention.unwrap_or(u64::MAX)),
        )
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> RollupStats {
        self.stats
    }

    /// Returns the number of series.
    #[must_use]
    pub fn series_count(&self) -> usize {
        self.series.len()
    }

    /// Returns the number of buckets of all levels.
    #[must_use]
    pub const fn bucket_count(&self) -> usize {
        self.shares.all().buckets
    }

    /// Returns the memory of series and buckets, bytes; at most [`RollupConfig::bytes_max`].
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.shares.all().bytes
    }

    /// Returns what [`apply`](Self::apply) would return for a batch of a node with an epoch of `log`;
    /// changes nothing.
    pub fn check(&self, log: LogId, id: BatchId) -> Applied {
        let marks = (log == self.log).then_some(&self.marks);
        match marks.and_then(|marks| marks.get(&id.node)) {
            Some(mark) => mark.check(id.epoch, id.batch),
            None if marks.is_some_and(|marks| marks.len() >= self.config.nodes_max) => {
                Applied::Full
            }
            None => Applied::Counted,
        }
    }

    /// Names the hub's log that assigns the epochs of nodes. With another log than before all epochs
    /// start again, so earlier ones are forgotten.
    pub fn set_log(&mut self, log: LogId) {
        if mem::replace(&mut self.log, log) != log {
            self.dirty.nodes.extend(self.marks.keys());
            self.marks.clear();
        }
    }

    fn mark(&mut self, id: BatchId) -> Applied {
        if self.marks.len() >= self.config.nodes_max && !self.marks.contains_key(&id.node) {
            return Applied::Full;
        }
        let applied = self
            .marks
            .entry(id.node)
            .or_default()
            .apply(id.epoch, id.batch);
        if applied == Applied::Counted {
            self.dirty.nodes.insert(id.node);
        }
        applied
    }

    /// Returns the series of a key, which is known, or which `node` adds.
    fn series_id(&mut self, key: &StatKey, node: NodeId) -> Result<SeriesId, SeriesRefusal> {
        if key.name().as_str() == OTHER {
            return Err(SeriesRefusal::Reserved);
        }
        if let Some(id) = self.ids.get(key) {
            return Ok(*id);
        }
        let bytes = series_share(key).bytes;
        self.shares.check_series(&self.config, node, bytes)?;
        Ok(self.add_series(key.clone(), Some(node)))
    }

    fn other_id(&mut self) -> SeriesId {
        let known = Name::new(OTHER).map(StatKey::from);
        // A valid name, so there is always a key.
        let Ok(key) = known else {
            return 0;
        };
        match self.ids.get(&key) {
            Some(id) => *id,
            None => self.add_series(key, None),
        }
    }

    fn add_series(&mut self, key: StatKey, owner: Option<NodeId>) -> SeriesId {
        let id = self.next_series;
        self.next_series = id.saturating_add(1);
        self.shares.add(owner, series_share(&key));
        self.ids.insert(key.clone(), id);
        let levels = [const { BTreeMap::new() }; 4];
        let series = Series {
            key,
            owner,
            levels,
            is_stored: false,
        };
        self.series.insert(id, series);
        self.dirty.series.insert(id);
        id
    }

    fn apply_to_series(
        &mut self,
        id: SeriesId,
        received: UnixTime,
        entries: &[&Entry],
        sampling: Sampling,
    ) {
        let Some(series) = self.series.get_mut(&id) else {
            return;
        };
        let owner = series.owner;
        let each = Level::ALL.into_iter().zip(&mut series.levels);
        let losses = self.stats.late.iter_mut().zip(&mut self.stats.no_room);
        let losses = losses.zip(&mut self.stats.trimmed);
        for ((level, buckets), ((late, no_room), trimmed)) in each.zip(losses) {
            let first = first_kept(&self.config, level, received).unwrap_or(0);
            let place = |entry: &&Entry| bucket_index(level, entry.time);
            for entries in entries.chunk_by(|one, next| place(one) == place(next)) {
                let Some(index) = entries.first().and_then(place) else {
                    count(no_room, entries.len());
                    continue;
                };
                if index < first {
                    count(late, entries.len());
                    continue;
                }
                let (bucket_room, mut room) = self.shares.room(&self.config, owner, level);
                let bucket = match buckets.get_mut(&index) {
                    Some(bucket) => {
                        self.shares.remove(owner, bucket.share());
                        bucket
                    }
                    None if bucket_room > 0 && room >= BUCKET_BYTES => {
                        room = room.saturating_sub(BUCKET_BYTES);
                        buckets.entry(index).or_default()
                    }
                    None => {
                        count(no_room, entries.len());
                        continue;
                    }
                };
                if !mem::replace(&mut bucket.is_dirty, true) {
                    self.dirty.buckets.push((level, id, index));
                }
                let samples = entries.iter().map(|entry| sampling.of(entry));
                let samples: Vec<_> = samples.collect();
                count(trimmed, bucket.figures.add(&samples, &mut room));
                self.shares.add(owner, bucket.share());
            }
        }
    }
}

/// The part of a record that its bucket stores.
#[derive(Clone, Copy)]
enum Sampling {
    Full,
    /// One, as for a counter.
    CountOnly,
}

impl Sampling {
    const fn of(self, entry: &Entry) -> Measured<'_> {
        match self {
            Self::Full => (entry.time, entry.player, &entry.sample),
            Self::CountOnly => (entry.time, None, &Sample::Add(Number::Int(1))),
        }
    }
}

const ZERO_STATS: RollupStats = RollupStats {
    batches: 0,
    records: 0,
    duplicates: 0,
    fenced: 0,
    early: 0,
    late: [0; 4],
    other: 0,
    over_share: 0,
    no_room: [0; 4],
    trimmed: [0; 4],
};

fn count(counter: &mut u64, more: usize) {
    *counter = counter.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
}

/// What a series without buckets uses.
fn series_share(key: &StatKey) -> Share {
    let key = key.memory_bytes().saturating_mul(2);
    Share {
        series: 1,
        buckets: 0,
        bytes: SERIES_BYTES.saturating_add(key),
    }
}

impl Bucket {
    fn share(&self) -> Share {
        Share {
            series: 0,
            buckets: 1,
            bytes: BUCKET_BYTES.saturating_add(self.figures.memory_bytes()),
        }
    }
}

/// Returns the bucket of a time; `None` past the year 3300.
fn bucket_index(level: Level, time: UnixTime) -> Option<BucketIndex> {
    u32::try_from(time.as_secs().checked_div(level.secs())?).ok()
}

/// Returns the first bucket that is kept at `now`; `None` if all are.
fn first_kept(config: &RollupConfig, level: Level, now: UnixTime) -> Option<BucketIndex> {
    let retention = config.retention.into_iter().zip(Level::ALL);
    let mut of_level = retention.filter(|(_, of)| *of == level);
    let (retention, _) = of_level.next()?;
    let horizon = now.as_secs().saturating_sub(retention?.as_secs());
    bucket_index(level, UnixTime::from_secs(horizon))
}

fn bucket_of(series: &BTreeMap<SeriesId, Series>, (level, id, index): BucketId) -> Option<&Bucket> {
    series.get(&id)?.level(level)?.get(&index)
}
