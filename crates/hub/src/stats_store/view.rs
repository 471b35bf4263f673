//! What readers ask of a store of statistics: queries, names, counters, and the records of one player.

use wire::{ClientId, UnixTime};

use super::raw_log::Position;
use super::{StatsStore, StatsStoreStats};
use crate::field::Name;
use crate::log::{OpenError, SegmentFile};
use crate::stats::{Batch, RollupStats, StatRecord, StatsAnswer};

/// A store of statistics as its readers use it, whatever its files are.
pub trait StatsView {
    /// As [`StatsStore::query`].
    ///
    /// # Errors
    ///
    /// As [`StatsStore::query`].
    fn query(&mut self, text: &str, now: UnixTime) -> StatsAnswer;

    /// Returns the names of series after `after`, at most `max`, in order.
    fn names(&self, after: Option<Name>, max: usize) -> Vec<Name>;

    /// Returns the counters.
    fn counters(&self) -> StatsCounters;

    /// Returns records of `player` in the raw log from `from` on: those of at most one segment, and of
    /// no further batch once there are `max`. Zero begins.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the segment cannot be read.
    fn player_records(
        &mut self,
        player: ClientId,
        from: u64,
        max: usize,
    ) -> Result<PlayerRecords, OpenError>;

    /// Returns when the raw log no longer has what is in it at `now`, if its disk is not removed before
    /// for its size: no record of a player is older than its retention.
    fn raw_end(&self, now: UnixTime) -> UnixTime;
}

/// Counters and sizes of a store of statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatsCounters {
    /// Counters of the store since it was opened.
    pub store: StatsStoreStats,
    /// Counters of the rollups, which are stored with them.
    pub rollups: RollupStats,
    /// Series.
    pub series: usize,
    /// Buckets of all levels.
    pub buckets: usize,
    /// Memory of series and buckets, bytes.
    pub memory_bytes: usize,
    /// Length of the raw log, bytes.
    pub raw_bytes: u64,
}

/// A part of the records of a player.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlayerRecords {
    /// The records, in the order in which they were received.
    pub records: Vec<StatRecord>,
    /// Where the next part begins; `None` if this is the last.
    pub next: Option<u64>,
}

impl<F: SegmentFile> StatsView for StatsStore<F> {
    fn query(&mut self, text: &str, now: UnixTime) -> StatsAnswer {
        Self::query(self, text, now)
    }

    fn names(&self, after: Option<Name>, max: usize) -> Vec<Name> {
        self.rollups.names(after, max)
    }

    fn counters(&self) -> StatsCounters {
        StatsCounters {
            store: self.stats,
            rollups: self.rollups.stats(),
            series: self.rollups.series_count(),
            buckets: self.rollups.bucket_count(),
            memory_bytes: self.rollups.memory_bytes(),
            raw_bytes: self.log.bytes(),
        }
    }

    fn player_records(
        &mut self,
        player: ClientId,
        from: u64,
        max: usize,
    ) -> Result<PlayerRecords, OpenError> {
        let mut found = PlayerRecords::default();
        let from = Position::from_number(from);
        found.next = self.log.read_from(from, &mut |raw| {
            // A batch that was stored decodes.
            let batch = Batch::decode(raw.bytes.0);
            let records = batch.iter().flat_map(Batch::records);
            found
                .records
                .extend(records.filter(|record| record.player == Some(player)));
            found.records.len() < max
        })?;
        Ok(found)
    }

    fn raw_end(&self, now: UnixTime) -> UnixTime {
        let kept = self.config.rollups.raw_retention.as_millis();
        let kept = u64::try_from(kept).unwrap_or(u64::MAX);
        UnixTime::from_millis(now.as_millis().saturating_add(kept))
    }
}
