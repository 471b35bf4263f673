//! Answers to queries.

use core::ops::RangeInclusive;
use std::borrow::Cow;
use std::collections::BTreeMap;

use wire::UnixTime;

use super::{BucketIndex, Rollups, Series};
use crate::stats::figures::Figures;
use crate::stats::query::{Query, QueryError, QueryRow};
use crate::stats::record::{StatKey, StatText};

/// Values of the dimensions to group by.
type Group = Vec<Option<StatText>>;

impl Rollups {
    /// Answers a query: its rows, ordered by time and then by group.
    ///
    /// It reads each bucket of the level in the range of the query once.
    ///
    /// # Errors
    ///
    /// [`QueryError`] if the query or its answer is too long.
    pub fn query(&self, query: &Query) -> Result<Vec<QueryRow>, QueryError> {
        let dimensions = query.filters.len().max(query.by.len());
        if dimensions > Query::DIMENSIONS_MAX || query.aggregates.len() > Query::AGGREGATES_MAX {
            return Err(QueryError::TooLong);
        }
        let Some(range) = bucket_range(query) else {
            return Ok(Vec::new());
        };
        let mut groups: BTreeMap<Group, Vec<&Series>> = BTreeMap::new();
        for series in self.series_of(query) {
            let by = query.by.iter();
            let group = by.map(|name| series.key.dimension(*name).cloned());
            groups.entry(group.collect()).or_default().push(series);
        }
        let mut rows = Vec::new();
        for (group, series) in groups {
            let figures = collect(query, &range, &series);
            if rows.len().saturating_add(figures.len()) > self.config.rows_max {
                return Err(QueryError::Rows(self.config.rows_max));
            }
            for (start, figures) in figures {
                let aggregates = query.aggregates.iter();
                rows.push(QueryRow {
                    start,
                    group: group.clone(),
                    cells: aggregates.map(|it| figures.cell(*it)).collect(),
                });
            }
        }
        // Stable, so groups stay in order.
        rows.sort_by_key(|row| row.start);
        Ok(rows)
    }

    fn series_of(&self, query: &Query) -> impl Iterator<Item = &Series> {
        let first = StatKey::from(query.name);
        let ids = self.ids.range(first..);
        let ids = ids.take_while(|(key, _)| key.name() == query.name);
        let ids = ids.filter(|(key, _)| {
            let mut filters = query.filters.iter();
            filters.all(|(name, text)| key.dimension(*name) == Some(text))
        });
        ids.filter_map(|(_, id)| self.series.get(id))
    }
}

/// Returns the buckets of a query; `None` if there are none.
fn bucket_range(query: &Query) -> Option<RangeInclusive<BucketIndex>> {
    let step = query.step.secs();
    let width = query.step.level().secs();
    let buckets = step.checked_div(width)?;
    let from = query.from.as_secs().checked_div(step)?;
    let to = query.to.as_millis().div_ceil(step.saturating_mul(1_000));
    let from = BucketIndex::try_from(from.saturating_mul(buckets)).ok()?;
    let last = to.saturating_mul(buckets).checked_sub(1)?;
    let last = last.min(BucketIndex::MAX.into());
    let last = BucketIndex::try_from(last).ok()?;
    (from <= last).then_some(from..=last)
}

/// Merges the buckets of some series into rows.
fn collect<'a>(
    query: &Query,
    range: &RangeInclusive<BucketIndex>,
    series: &[&'a Series],
) -> BTreeMap<UnixTime, Cow<'a, Figures>> {
    let step = query.step.secs();
    let level = query.step.level();
    let per_row = step.checked_div(level.secs()).unwrap_or(1);
    let mut rows: BTreeMap<UnixTime, Cow<'a, Figures>> = BTreeMap::new();
    for series in series {
        let Some(buckets) = series.level(level) else {
            continue;
        };
        for (index, bucket) in buckets.range(range.clone()) {
            let row = u64::from(*index).checked_div(per_row).unwrap_or(0);
            let start = UnixTime::from_secs(row.saturating_mul(step));
            rows.entry(start)
                .and_modify(|figures| {
                    figures.to_mut().merge(&bucket.figures, &query.aggregates);
                })
                .or_insert(Cow::Borrowed(&bucket.figures));
        }
    }
    rows
}
