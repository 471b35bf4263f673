//! Rows of rollups in a key-value store.
//!
//! | key | value |
//! |---|---|
//! | 0 | version 2, position in the raw log 8, log 8, next series 4, counters |
//! | 1, node 32 | version 1, epoch 4, applied batches |
//! | 2, series 4 | version 2, owner 32, name, count of dimensions, then name and text of each |
//! | 3, level 1, series 4, start in seconds since 1970 8 | version 1, figures |
//!
//! Keys are big-endian, so that the order of their bytes is the order of their fields. Version 1 of
//! rows 0 and 2 had neither the log, nor the counter of records over a share, nor the owner. It is
//! read; series without an owner, which is written as zeros, are limited together only.

use core::fmt;
use core::mem;
use std::collections::BTreeMap;

use wire::{Encode, NodeId, Reader, Writer};

use super::marks::Mark;
use super::{
    Bucket, BucketId, BucketIndex, RollupConfig, RollupStats, Rollups, Series, SeriesId, bucket_of,
    series_share,
};
use crate::field::LogId;
use crate::stats::batch::{BatchError, VERSION, decode_name, decode_text, encode_text};
use crate::stats::figures::Figures;
use crate::stats::query::Level;
use crate::stats::record::StatKey;
use crate::stats::varint;

/// Version of the rows with the position and of series.
const ROW_VERSION: u8 = 2;

/// The owner of series without one.
const NO_OWNER: NodeId = NodeId([0; 32]);

const META: u8 = 0;
const NODE: u8 = 1;
const SERIES: u8 = 2;
const BUCKET: u8 = 3;

/// A row to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Vec<u8>,
    /// The value; `None` removes the key.
    pub value: Option<Vec<u8>>,
}

/// Why rows are not those of [`Rollups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// A key has an unknown form.
    Key,
    /// The keys do not increase.
    Order,
    /// The value of a row does not decode; its key begins with this byte.
    Value(u8, BatchError),
    /// A bucket of a series that has no row.
    NoSeries(u32),
    /// Two series have the same key, or a series is not below the next one.
    Repeated(u32),
    /// There are rows, but none with the position in the raw log.
    NoPosition,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("a key of unknown form"),
            Self::Order => f.write_str("the keys do not increase"),
            Self::Value(kind, error) => write!(f, "a row of kind {kind}: {error}"),
            Self::NoSeries(id) => write!(f, "a bucket of series {id}, which has no row"),
            Self::Repeated(id) => write!(f, "series {id} has the key or number of another"),
            Self::NoPosition => f.write_str("no row has the position in the raw log"),
        }
    }
}

impl core::error::Error for LoadError {}

impl Rollups {
    /// Returns all rows that have changed since the last call, for one transaction. `position` is
    /// where the raw log continues after the last batch applied.
    ///
    /// If the transaction fails, start again from [`load`](Self::load): these rows are not returned
    /// again.
    pub fn drain_dirty(&mut self, position: u64) -> Vec<KeyValue> {
        let mut dirty = mem::take(&mut self.dirty);
        dirty.buckets.sort_unstable();
        let mut rows = Vec::new();
        rows.push(row(&[&META], |out| self.encode_meta(position, out)));
        for node in dirty.nodes {
            let mark = self.marks.get(&node);
            rows.push(row_or_removal(&[&NODE, &node], mark, Mark::encode));
        }
        for id in dirty.series {
            let series = self.series.get_mut(&id).map(|series| {
                series.is_stored = true;
                &*series
            });
            rows.push(row_or_removal(&[&SERIES, &id], series, Series::encode));
        }
        for id in dirty.removed {
            if bucket_of(&self.series, id).is_none() {
                rows.push(bucket_row(id, None));
            }
        }
        for id in dirty.buckets {
            let (level, series, index) = id;
            let series = self.series.get_mut(&series);
            let buckets = series.and_then(|series| series.level_mut(level));
            if let Some(bucket) = buckets.and_then(|buckets| buckets.get_mut(&index)) {
                bucket.is_dirty = false;
                bucket.is_stored = true;
                rows.push(bucket_row(id, Some(&bucket.figures)));
            }
        }
        rows
    }

    /// Gives all rows to `visit`, ordered by key: a checkpoint. `position` is where the raw log
    /// continues after the last batch applied.
    ///
    /// # Errors
    ///
    /// The first error of `visit`.
    pub fn visit_rows<E>(
        &self,
        position: u64,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut visit = |row: KeyValue| visit(&row.key, &row.value.unwrap_or_default());
        visit(row(&[&META], |out| self.encode_meta(position, out)))?;
        for (node, mark) in &self.marks {
            visit(row(&[&NODE, node], |out| mark.encode(out)))?;
        }
        for (id, series) in &self.series {
            visit(row(&[&SERIES, id], |out| series.encode(out)))?;
        }
        for level in Level::ALL {
            for (id, series) in &self.series {
                for (index, bucket) in series.level(level).into_iter().flatten() {
                    visit(bucket_row((level, *id, *index), Some(&bucket.figures)))?;
                }
            }
        }
        Ok(())
    }

    /// Forgets which rows have changed, after all of them were stored by
    /// [`visit_rows`](Self::visit_rows).
    pub fn mark_stored(&mut self) {
        let dirty = mem::take(&mut self.dirty);
        for (level, series, index) in dirty.buckets {
            let series = self.series.get_mut(&series);
            let buckets = series.and_then(|series| series.level_mut(level));
            if let Some(bucket) = buckets.and_then(|buckets| buckets.get_mut(&index)) {
                bucket.is_dirty = false;
                bucket.is_stored = true;
            }
        }
        for id in dirty.series {
            if let Some(series) = self.series.get_mut(&id) {
                series.is_stored = true;
            }
        }
    }

    /// Loads all rows of a store, ordered by key; returns the position in the raw log from which to
    /// apply it again. Without rows, it is 0.
    ///
    /// More than the limits of `config` allow is kept, and does not grow.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if a row is not one of these, or of another version.
    pub fn load<'a>(
        config: RollupConfig,
        rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(Self, u64), LoadError> {
        let mut loader = RowLoader::new(config);
        for (key, value) in rows {
            loader.add(key, value)?;
        }
        Ok(loader.finish())
    }

    fn load_row(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let mut key = Reader::new(key);
        let kind = key.u8().map_err(|_| LoadError::Key)?;
        let on_value = |error| LoadError::Value(kind, error);
        match kind {
            NODE => {
                let node = NodeId(key.array().map_err(|_| LoadError::Key)?);
                let mark = whole(value, Mark::decode).map_err(on_value)?;
                self.marks.insert(node, mark);
            }
            SERIES => {
                let id = key.u32().map_err(|_| LoadError::Key)?;
                let (owner, of) = whole(value, decode_series).map_err(on_value)?;
                let is_new = self.ids.insert(of.clone(), id).is_none();
                if !is_new || id >= self.next_series {
                    return Err(LoadError::Repeated(id));
                }
                self.shares.add(owner, series_share(&of));
                let levels = [const { BTreeMap::new() }; 4];
                let series = Series {
                    key: of,
                    owner,
                    levels,
                    is_stored: true,
                };
                self.series.insert(id, series);
            }
            BUCKET => {
                let (level, id, index) = decode_bucket(&mut key).ok_or(LoadError::Key)?;
                let figures = Figures::decode(value).map_err(on_value)?;
                let series = self.series.get_mut(&id).ok_or(LoadError::NoSeries(id))?;
                let owner = series.owner;
                let buckets = series.level_mut(level).ok_or(LoadError::Key)?;
                let bucket = Bucket {
                    figures,
                    is_dirty: false,
                    is_stored: true,
                };
                self.shares.add(owner, bucket.share());
                buckets.insert(index, bucket);
            }
            _ => return Err(LoadError::Key),
        }
        key.finish(|_| LoadError::Key)
    }

    fn encode_meta(&self, position: u64, out: &mut Writer<'_>) {
        out.u8(ROW_VERSION);
        out.u64(position);
        out.u64(self.log.0);
        out.u32(self.next_series);
        for counter in counters(self.stats) {
            varint::write(counter, out);
        }
    }

    /// Reads everything of this row; returns the position.
    fn decode_meta(&mut self, value: &[u8]) -> Result<u64, BatchError> {
        let mut reader = Reader::new(value);
        let version = row_version(&mut reader)?;
        let position = reader.u64()?;
        if version >= ROW_VERSION {
            self.log = LogId(reader.u64()?);
        }
        self.next_series = reader.u32()?;
        let mut read = || varint::read(&mut reader);
        self.stats = RollupStats {
            batches: read()?,
            records: read()?,
            duplicates: read()?,
            fenced: read()?,
            early: read()?,
            other: read()?,
            late: [read()?, read()?, read()?, read()?],
            no_room: [read()?, read()?, read()?, read()?],
            trimmed: [read()?, read()?, read()?, read()?],
            over_share: 0,
        };
        if version >= ROW_VERSION {
            self.stats.over_share = varint::read(&mut reader)?;
        }
        reader.finish(BatchError::Trailing)?;
        Ok(position)
    }
}

/// Loads rows one by one, as [`Rollups::load`].
pub(crate) struct RowLoader {
    rollups: Rollups,
    position: Option<u64>,
    before: Vec<u8>,
}

impl RowLoader {
    pub(crate) const fn new(config: RollupConfig) -> Self {
        Self {
            rollups: Rollups::new(config),
            position: None,
            before: Vec::new(),
        }
    }

    /// Adds the next row.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        if self.position.is_some() && self.before[..] >= *key {
            return Err(LoadError::Order);
        }
        self.before.clear();
        self.before.extend_from_slice(key);
        if key == [META] {
            let read = self.rollups.decode_meta(value);
            self.position = Some(read.map_err(|error| LoadError::Value(META, error))?);
            return Ok(());
        }
        if self.position.is_none() {
            return Err(LoadError::NoPosition);
        }
        self.rollups.load_row(key, value)
    }

    /// Returns the rollups, and the position in the raw log from which to apply it again; 0 without
    /// rows.
    pub(crate) fn finish(self) -> (Rollups, u64) {
        (self.rollups, self.position.unwrap_or(0))
    }
}

impl Series {
    pub(super) fn level(&self, level: Level) -> Option<&BTreeMap<BucketIndex, Bucket>> {
        self.levels.get(usize::from(level_code(level)))
    }

    fn level_mut(&mut self, level: Level) -> Option<&mut BTreeMap<BucketIndex, Bucket>> {
        self.levels.get_mut(usize::from(level_code(level)))
    }
}

const fn level_code(level: Level) -> u8 {
    level as u8
}

/// The counters, in the order of the row.
fn counters(stats: RollupStats) -> impl Iterator<Item = u64> {
    let single = [
        stats.batches,
        stats.records,
        stats.duplicates,
        stats.fenced,
        stats.early,
        stats.other,
    ];
    let by_level = [stats.late, stats.no_room, stats.trimmed];
    let by_level = by_level.into_iter().flatten();
    single.into_iter().chain(by_level).chain([stats.over_share])
}

fn row(key: &[&dyn Encode], value: impl FnOnce(&mut Writer<'_>)) -> KeyValue {
    let (mut key_bytes, mut bytes) = (Vec::new(), Vec::new());
    Writer::new(&mut key_bytes).fields(key);
    value(&mut Writer::new(&mut bytes));
    KeyValue {
        key: key_bytes,
        value: Some(bytes),
    }
}

fn row_or_removal<T>(
    key: &[&dyn Encode],
    value: Option<&T>,
    encode: impl FnOnce(&T, &mut Writer<'_>),
) -> KeyValue {
    let mut row = row(key, |out| {
        if let Some(value) = value {
            encode(value, out);
        }
    });
    if value.is_none() {
        row.value = None;
    }
    row
}

fn bucket_row((level, id, index): BucketId, figures: Option<&Figures>) -> KeyValue {
    let start = u64::from(index).saturating_mul(level.secs());
    let key: [&dyn Encode; 4] = [&BUCKET, &level_code(level), &id, &start];
    row_or_removal(&key, figures, Figures::encode)
}

fn decode_bucket(key: &mut Reader<'_>) -> Option<(Level, SeriesId, BucketIndex)> {
    let code = key.u8().ok()?;
    let mut levels = Level::ALL.into_iter();
    let level = levels.find(|level| level_code(*level) == code)?;
    let id = key.u32().ok()?;
    let start = key.u64().ok()?;
    let is_start = start.is_multiple_of(level.secs());
    let index = u32::try_from(start.checked_div(level.secs())?).ok()?;
    is_start.then_some((level, id, index))
}

impl Series {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(ROW_VERSION);
        self.owner.unwrap_or(NO_OWNER).encode(out);
        let key = &self.key;
        key.name().encode(out);
        varint::write_len(key.dimensions().len(), out);
        for (name, text) in key.dimensions() {
            name.encode(out);
            encode_text(text, out);
        }
    }
}

fn decode_series(reader: &mut Reader<'_>) -> Result<(Option<NodeId>, StatKey), BatchError> {
    let owner = if row_version(reader)? >= ROW_VERSION {
        NodeId(reader.array()?)
    } else {
        NO_OWNER
    };
    let owner = (owner != NO_OWNER).then_some(owner);
    let name = decode_name(reader)?;
    let count = varint::read_len(reader, StatKey::DIMENSIONS_MAX)?;
    let mut dimensions = Vec::new();
    for _ in 0..count {
        dimensions.push((decode_name(reader)?, decode_text(reader)?));
    }
    let key = StatKey::from_sorted(name, dimensions).ok_or(BatchError::Repeated)?;
    Ok((owner, key))
}

fn row_version(reader: &mut Reader<'_>) -> Result<u8, BatchError> {
    match reader.u8()? {
        version @ (VERSION | ROW_VERSION) => Ok(version),
        version => Err(BatchError::Version(version)),
    }
}

/// Decodes a value that has nothing behind it.
fn whole<'a, T>(
    value: &'a [u8],
    decode: impl FnOnce(&mut Reader<'a>) -> Result<T, BatchError>,
) -> Result<T, BatchError> {
    let mut reader = Reader::new(value);
    let decoded = decode(&mut reader)?;
    reader.finish(BatchError::Trailing)?;
    Ok(decoded)
}
