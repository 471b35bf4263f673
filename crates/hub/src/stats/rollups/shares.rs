//! What series use, in all and by the node that has added them.

use std::collections::BTreeMap;

use wire::NodeId;

use super::RollupConfig;
use crate::stats::query::Level;

/// Room that series use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) series: usize,
    pub(super) buckets: usize,
    /// Memory of series and buckets, bytes.
    pub(super) bytes: usize,
}

/// What all series use, and what those of each node use.
#[derive(Debug, Default)]
pub(super) struct Shares {
    all: Share,
    /// By the node that has added the series; no entry is zero.
    of_node: BTreeMap<NodeId, Share>,
}

/// Why a record is counted in `other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeriesRefusal {
    /// There is no room for another series.
    Full,
    /// The node has used up its share.
    Share,
    /// It names `other`.
    Reserved,
}

impl Shares {
    pub(super) const fn new() -> Self {
        Self {
            all: Share {
                series: 0,
                buckets: 0,
                bytes: 0,
            },
            of_node: BTreeMap::new(),
        }
    }

    pub(super) const fn all(&self) -> Share {
        self.all
    }

    /// Checks whether `node` may add a series of `bytes`.
    pub(super) fn check_series(
        &self,
        config: &RollupConfig,
        node: NodeId,
        bytes: usize,
    ) -> Result<(), SeriesRefusal> {
        let used = self.of(Some(node));
        if used.series >= config.node_series_max
            || used.bytes.saturating_add(bytes) > config.node_bytes_max
        {
            return Err(SeriesRefusal::Share);
        }
        if self.all.series >= config.series_max
            || self.all.bytes.saturating_add(bytes) > config.bytes_max
        {
            return Err(SeriesRefusal::Full);
        }
        Ok(())
    }

    /// Returns how many buckets of `level` and bytes the series of `owner` may still add; `other`,
    /// which has no owner, is limited with all series only.
    pub(super) fn room(
        &self,
        config: &RollupConfig,
        owner: Option<NodeId>,
        level: Level,
    ) -> (usize, usize) {
        let part = |whole, used: usize| part_of(level, whole).saturating_sub(used);
        let buckets = part(config.buckets_max, self.all.buckets);
        let bytes = part(config.bytes_max, self.all.bytes);
        if owner.is_none() {
            return (buckets, bytes);
        }
        let used = self.of(owner);
        (
            buckets.min(part(config.node_buckets_max, used.buckets)),
            bytes.min(part(config.node_bytes_max, used.bytes)),
        )
    }

    /// Adds `more` for a series of `owner`.
    pub(super) fn add(&mut self, owner: Option<NodeId>, more: Share) {
        self.all.add(more);
        if let Some(node) = owner {
            self.of_node.entry(node).or_default().add(more);
        }
    }

    /// Removes `less` for a series of `owner`.
    pub(super) fn remove(&mut self, owner: Option<NodeId>, less: Share) {
        self.all.remove(less);
        if let Some(node) = owner
            && let Some(share) = self.of_node.get_mut(&node)
        {
            share.remove(less);
            if *share == Share::default() {
                self.of_node.remove(&node);
            }
        }
    }

    fn of(&self, owner: Option<NodeId>) -> Share {
        let share = owner.and_then(|node| self.of_node.get(&node));
        share.copied().unwrap_or_default()
    }
}

impl Share {
    const fn add(&mut self, more: Self) {
        self.series = self.series.saturating_add(more.series);
        self.buckets = self.buckets.saturating_add(more.buckets);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }

    const fn remove(&mut self, less: Self) {
        self.series = self.series.saturating_sub(less.series);
        self.buckets = self.buckets.saturating_sub(less.buckets);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// Returns the part of `whole` that buckets of `level` may use, with those of finer levels.
const fn part_of(level: Level, whole: usize) -> usize {
    let tenths = match level {
        Level::TenSeconds => 5,
        Level::Minute => 7,
        Level::Hour => 9,
        Level::Day => return whole,
    };
    (whole / 10).saturating_mul(tenths)
}
