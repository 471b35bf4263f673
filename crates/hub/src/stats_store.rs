//! The store of statistics: a raw log, and rollups with checkpoints.
//!
//! A separate folder from mail: neither delays the other, and either opens without the
//! other. Batches are appended to the raw log with one sync for all that wait, and are then confirmed.
//! The rollups are in memory; a checkpoint has all of their rows, and a start applies the raw log
//! from there on.

mod checkpoint;
mod format;
mod raw_log;
#[cfg(test)]
mod tests;
mod view;

use core::{fmt, mem};

use wire::{CommandId, UnixTime};

use crate::field::Redacted;
use crate::log::{AppendError, OpenError, OpenFailure, SegmentFile, SegmentId, SnapshotId};
use crate::record::StatsVerdict;
use crate::stats::{
    Applied, Batch, BatchId, Query, QueryReason, QueryRefusal, RollupConfig, RollupStats, Rollups,
    StatsAnswer, StatsOp, encode_answer,
};
use crate::store::{Completed, Outcome, StoreError};
use checkpoint::{Checkpoint, CheckpointFault};
pub use format::RawBatch;
pub use raw_log::read_raw_log;
use raw_log::{Position, RawLog};
pub use view::{PlayerRecords, StatsCounters, StatsView};

/// Limits of a [`StatsStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatsStoreConfig {
    /// Length of a segment of the raw log, bytes; 16 MiB, at least
    /// [`SEGMENT_BYTES_MIN`](Self::SEGMENT_BYTES_MIN).
    pub segment_bytes: u64,
    /// Bytes of the raw log after which a checkpoint is written; 16 MiB, or the length of the last
    /// checkpoint if that is more. A start applies about as much.
    pub checkpoint_bytes: u64,
    /// Length of the raw log, bytes; 1 GiB. Beyond it segments that are in two checkpoints are removed
    /// before the end of their retention.
    pub raw_bytes_max: u64,
    /// Limits and retention of the rollups.
    pub rollups: RollupConfig,
}

impl StatsStoreConfig {
    /// Shortest segment, bytes.
    pub const SEGMENT_BYTES_MIN: u64 = 256 << 10;
}

impl Default for StatsStoreConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            checkpoint_bytes: 16 << 20,
            raw_bytes_max: 1 << 30,
            rollups: RollupConfig::default(),
        }
    }
}

/// Counters of a store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StatsStoreStats {
    /// Batches stored.
    pub stored: u64,
    /// Batches that were stored before.
    pub duplicates: u64,
    /// Batches that do not decode, of an earlier run, or of a node beyond the limit.
    pub refused: u64,
    /// Batches not stored for now, since the disk is full.
    pub busy: u64,
    /// Queries answered, and those that were refused.
    pub queries: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Checkpoints that could not be written. The next start takes longer.
    pub checkpoints_failed: u64,
    /// Segments of the raw log removed.
    pub segments_removed: u64,
}

/// What opening a store found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatsRecovery {
    /// Rows were loaded from a checkpoint.
    pub has_checkpoint: bool,
    /// Checkpoints that were broken or unfinished.
    pub checkpoints_ignored: u64,
    /// Bytes of the raw log applied.
    pub replayed_bytes: u64,
    /// Corrupt ranges in older segments: the disk has lost synced data.
    pub corrupt: u64,
}

/// Executes operations on statistics, as [`Store`](crate::Store) does for mail.
///
/// ```
/// use hub::log::MemorySegments;
/// use hub::stats_store::{StatsStore, StatsStoreConfig};
///
/// let disk = MemorySegments::new(64 << 20);
/// let mut store = StatsStore::open(disk, StatsStoreConfig::default())?;
/// let mut outcomes = Vec::new();
/// store.execute([], &mut outcomes);
/// while store.keep_up() {}
/// # Ok::<(), hub::OpenFailure<MemorySegments>>(())
/// ```
pub struct StatsStore<F> {
    log: RawLog<F>,
    rollups: Rollups,
    config: StatsStoreConfig,
    /// The last minute at which rollups expired.
    expired: UnixTime,
    /// The newest checkpoint, and the one before.
    checkpoints: [Option<Checkpoint>; 2],
    next_checkpoint: SnapshotId,
    /// Bytes of the raw log since the last checkpoint, or the last attempt.
    since: u64,
    recovery: StatsRecovery,
    stats: StatsStoreStats,
}

/// Interval at which rollups expire, by the times at which batches were received.
const EXPIRY_MS: u64 = 60_000;

impl<F: SegmentFile> StatsStore<F> {
    /// Recovers the statistics in `files`.
    ///
    /// # Errors
    ///
    /// [`OpenFailure`] returns the files if the disk fails, has lost synced data, or was written by
    /// another release.
    pub fn open(files: F, config: StatsStoreConfig) -> Result<Self, OpenFailure<F>> {
        let segment_bytes = config
            .segment_bytes
            .max(StatsStoreConfig::SEGMENT_BYTES_MIN);
        let mut store = Self {
            log: RawLog::new(files, segment_bytes),
            rollups: Rollups::new(config.rollups),
            config,
            expired: UnixTime::default(),
            checkpoints: [None; 2],
            next_checkpoint: SnapshotId(1),
            since: 0,
            recovery: StatsRecovery::default(),
            stats: StatsStoreStats::default(),
        };
        match store.recover() {
            Ok(()) => Ok(store),
            Err(error) => Err(OpenFailure {
                error,
                files: store.log.files,
            }),
        }
    }

    fn recover(&mut self) -> Result<(), OpenError> {
        self.log.find()?;
        let found = self.log.files.list_snapshots()?;
        self.next_checkpoint = found.last().map_or(SnapshotId(1), |id| id.next());
        let mut position = Position::default();
        for id in found.into_iter().rev() {
            if self.recovery.has_checkpoint {
                self.log.files.remove_snapshot(id).unwrap_or_default();
                continue;
            }
            match checkpoint::load(&mut self.log.files, id, self.config.rollups) {
                Ok((rollups, found)) if self.is_in_log(found.position) => {
                    self.rollups = rollups;
                    position = found.position;
                    self.checkpoints = [Some(found), None];
                    self.recovery.has_checkpoint = true;
                }
                Ok(_) | Err(CheckpointFault::Broken) => {
                    let ignored = &mut self.recovery.checkpoints_ignored;
                    *ignored = ignored.saturating_add(1);
                    // It would hide a later one with its number.
                    self.log.files.remove_snapshot(id).unwrap_or_default();
                }
                Err(CheckpointFault::Foreign) => return Err(OpenError::Foreign(SegmentId(id.0))),
            }
        }
        if let Some(oldest) = self.log.oldest()
            && !self.recovery.has_checkpoint
            && oldest > SegmentId(1)
        {
            // The segments before it are in checkpoints only.
            return Err(OpenError::Corrupt(oldest));
        }
        let (rollups, expired) = (&mut self.rollups, &mut self.expired);
        let (bytes, corrupt) = self.log.replay(position, &mut |raw| {
            let batch = Batch::decode(&raw.bytes);
            // It was decoded before it was written.
            let batch = batch.map_err(|_| OpenError::Foreign(position.segment))?;
            apply(rollups, expired, raw, &batch);
            Ok(())
        })?;
        self.recovery.replayed_bytes = bytes;
        self.recovery.corrupt = corrupt;
        self.since = bytes;
        Ok(())
    }

    fn is_in_log(&self, position: Position) -> bool {
        position == Position::default() || self.log.contains(position.segment)
    }

    /// Executes all `ops`, syncs once, and appends the outcomes in order. A batch is confirmed only
    /// after it is on disk.
    pub fn execute(
        &mut self,
        ops: impl IntoIterator<Item = (CommandId, StatsOp)>,
        outcomes: &mut Vec<(CommandId, Outcome)>,
    ) {
        let first = outcomes.len();
        for (id, op) in ops {
            let outcome = match op {
                StatsOp::Append {
                    log,
                    node,
                    epoch,
                    batch,
                    now,
                    bytes,
                } => {
                    let id = BatchId { node, epoch, batch };
                    let verdict = self.append(&RawBatch {
                        log,
                        id,
                        received: now,
                        bytes: Redacted(&bytes),
                    });
                    verdict.map(Completed::StatsSettled)
                }
                StatsOp::Query { text, now } => {
                    let answer = self.answer(&text, now);
                    Ok(Completed::StatsAnswer(encode_answer(&answer).into()))
                }
            };
            outcomes.push((id, outcome));
        }
        if self.log.flush().is_err() {
            for (_, outcome) in outcomes.iter_mut().skip(first) {
                *outcome = Err(StoreError::Failed);
            }
        }
    }

    fn append(&mut self, raw: &RawBatch<'_>) -> Result<StatsVerdict, StoreError> {
        let Ok(batch) = Batch::decode(&raw.bytes) else {
            self.stats.refused = self.stats.refused.saturating_add(1);
            return Ok(StatsVerdict::Refused);
        };
        match self.rollups.check(raw.log, raw.id) {
            Applied::Counted => {}
            Applied::Duplicate => {
                self.stats.duplicates = self.stats.duplicates.saturating_add(1);
                return Ok(StatsVerdict::Stored);
            }
            Applied::Fenced | Applied::Full => {
                self.stats.refused = self.stats.refused.saturating_add(1);
                return Ok(StatsVerdict::Refused);
            }
        }
        match self.log.append(raw) {
            Ok(()) => {}
            Err(AppendError::Dead) => return Err(StoreError::Failed),
            Err(AppendError::Full) => {
                self.stats.busy = self.stats.busy.saturating_add(1);
                // Room that a checkpoint frees.
                self.since = self.since.max(self.config.checkpoint_bytes);
                return Ok(StatsVerdict::Busy);
            }
        }
        self.since = self.since.saturating_add(raw.bytes.len() as u64);
        self.stats.stored = self.stats.stored.saturating_add(1);
        apply(&mut self.rollups, &mut self.expired, raw, &batch);
        Ok(StatsVerdict::Stored)
    }

    /// Answers a query in text form, in a part of at most
    /// [`RollupConfig::rows_max`] rows. `now` is what the text calls so.
    ///
    /// # Errors
    ///
    /// [`QueryRefusal`] with the reason and a sentence.
    pub fn query(&mut self, text: &str, now: UnixTime) -> StatsAnswer {
        self.stats.queries = self.stats.queries.saturating_add(1);
        let query = Query::parse(text, now);
        let query = query.map_err(|error| QueryRefusal::new(QueryReason::Syntax, error))?;
        Ok(self.rollups.query_page(&query)?)
    }

    fn answer(&mut self, text: &[u8], now: UnixTime) -> StatsAnswer {
        match str::from_utf8(text) {
            Ok(text) => self.query(text, now),
            Err(_) => Err(QueryRefusal::new(
                QueryReason::Syntax,
                "the text is no UTF-8",
            )),
        }
    }

    /// Does one step of housekeeping: a checkpoint, or the removal of a segment. Returns whether to
    /// call again. Call it after each batch of operations until it returns false: this is what bounds
    /// disk use.
    pub fn keep_up(&mut self) -> bool {
        if self.log.is_dead {
            return false;
        }
        let [newest, before] = self.checkpoints;
        let due = self
            .config
            .checkpoint_bytes
            .max(newest.map_or(0, |it| it.bytes));
        if self.since >= due {
            self.write_checkpoint();
            return true;
        }
        let Some(before) = before else {
            return false;
        };
        let horizon = self.rollups.raw_horizon(self.log.time);
        let upto = before.position.segment;
        let is_removed = self.log.trim(upto, horizon, self.config.raw_bytes_max);
        let removed = &mut self.stats.segments_removed;
        *removed = removed.saturating_add(u64::from(is_removed));
        is_removed
    }

    /// Writes a checkpoint, and removes the one before the last. Does nothing if batches wait for a
    /// sync.
    fn write_checkpoint(&mut self) {
        if self.log.flush().is_err() {
            return;
        }
        self.since = 0;
        let id = self.next_checkpoint;
        self.next_checkpoint = id.next();
        let position = self.log.position();
        let written = checkpoint::write(&mut self.log.files, id, &self.rollups, position);
        let Ok(checkpoint) = written else {
            // The raw log has everything.
            let failed = &mut self.stats.checkpoints_failed;
            *failed = failed.saturating_add(1);
            self.log.files.remove_snapshot(id).unwrap_or_default();
            return;
        };
        self.stats.checkpoints = self.stats.checkpoints.saturating_add(1);
        self.rollups.mark_stored();
        let [newest, before] = mem::take(&mut self.checkpoints);
        self.checkpoints = [Some(checkpoint), newest];
        if let Some(before) = before {
            self.log
                .files
                .remove_snapshot(before.id)
                .unwrap_or_default();
        }
    }

    /// Returns whether the disk has failed. The store accepts nothing more; restart the process.
    pub const fn is_dead(&self) -> bool {
        self.log.is_dead
    }

    /// Returns what opening found.
    pub const fn recovery(&self) -> StatsRecovery {
        self.recovery
    }

    /// Returns the counters of the store.
    pub const fn stats(&self) -> StatsStoreStats {
        self.stats
    }

    /// Returns the counters of the rollups, which are stored with them.
    pub const fn rollup_stats(&self) -> RollupStats {
        self.rollups.stats()
    }

    /// Returns the rollups.
    pub const fn rollups(&self) -> &Rollups {
        &self.rollups
    }

    /// Returns the files, for tests that inject faults.
    pub const fn files_mut(&mut self) -> &mut F {
        &mut self.log.files
    }

    /// Returns the files; unsynced data may be lost.
    pub fn into_files(self) -> F {
        self.log.files
    }
}

impl<F> fmt::Debug for StatsStore<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsStore")
            .field("recovery", &self.recovery)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// Applies a batch as it was received; live and after a restart.
fn apply(rollups: &mut Rollups, expired: &mut UnixTime, raw: &RawBatch<'_>, batch: &Batch) {
    rollups.set_log(raw.log);
    let millis = raw.received.as_millis();
    let minute = millis.saturating_sub(millis.checked_rem(EXPIRY_MS).unwrap_or(0));
    let minute = UnixTime::from_millis(minute);
    if minute > *expired {
        *expired = minute;
        rollups.expire(minute);
    }
    rollups.apply(raw.id, raw.received, batch);
}
