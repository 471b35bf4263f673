//! Answers to queries.

use core::iter::Peekable;
use core::ops::RangeInclusive;
use std::collections::{BTreeMap, btree_map};

use wire::UnixTime;

use super::{Bucket, BucketIndex, Rollups, Series};
use crate::field::Name;
use crate::stats::figures::{Figures, FiguresSum};
use crate::stats::query::{Aggregate, Query, QueryError, QueryPage, QueryRow};
use crate::stats::record::{StatKey, StatText};

/// Values of the dimensions to group by.
type Group = Vec<Option<StatText>>;

/// Buckets of one series that are not read yet.
type Buckets<'a> = Peekable<btree_map::Range<'a, BucketIndex, Bucket>>;

impl Rollups {
    /// Answers a query: its rows, ordered by time and then by group.
    ///
    /// It reads each bucket of the level in the range of the query once.
    ///
    /// # Errors
    ///
    /// [`QueryError`] if the query or its answer is too long, or it takes too much work. See
    /// [`query_page`](Self::query_page).
    pub fn query(&self, query: &Query) -> Result<Vec<QueryRow>, QueryError> {
        let mut budget = self.budget();
        let (page, limit) = self.read(query, &mut budget)?;
        limit.map_or(Ok(page.rows), Err)
    }

    /// Answers the first part of a query, within the limits of one answer: whole steps, ordered by
    /// time and then by group. For the next part, query again from [`QueryPage::next`].
    ///
    /// # Errors
    ///
    /// [`QueryError`] if the query is too long, or one step alone exceeds a limit.
    pub fn query_page(&self, query: &Query) -> Result<QueryPage, QueryError> {
        let mut budget = self.budget();
        let (page, limit) = self.read(query, &mut budget)?;
        match limit {
            Some(limit) if page.rows.is_empty() => Err(limit),
            Some(_) | None => Ok(page),
        }
    }

    /// Returns the names of series after `after`, at most `max`, in order.
    #[must_use]
    pub fn names(&self, after: Option<Name>, max: usize) -> Vec<Name> {
        let mut names: Vec<Name> = self.ids.keys().map(StatKey::name).collect();
        names.dedup();
        names.retain(|name| after.is_none_or(|after| *name > after));
        names.truncate(max);
        names
    }

    const fn budget(&self) -> Budget {
        Budget {
            rows: self.config.rows_max,
            buckets: self.config.query_buckets_max,
            sketches: self.config.query_sketches_max,
        }
    }

    /// Reads whole steps within the budget; returns the limit that ended it, if any.
    fn read(
        &self,
        query: &Query,
        budget: &mut Budget,
    ) -> Result<(QueryPage, Option<QueryError>), QueryError> {
        let dimensions = query.filters.len().max(query.by.len());
        if dimensions > Query::DIMENSIONS_MAX || query.aggregates.len() > Query::AGGREGATES_MAX {
            return Err(QueryError::TooLong);
        }
        let mut page = QueryPage::default();
        let Some(range) = bucket_range(query) else {
            return Ok((page, None));
        };
        let mut groups = self.groups(query, &range);
        let count = groups.values().map(Vec::len).fold(0, usize::saturating_add);
        let step = Step::new(query);
        let (mut parts, mut sum) = (Vec::new(), FiguresSum::default());
        while let Some(row) = next_row(&mut groups, &step) {
            let start = step.start(row);
            let rows = page.rows.len();
            let mut spent = budget.spend_buckets(count);
            for (group, series) in &mut groups {
                step.take_parts(row, series, &mut parts);
                spent = spent.and_then(|()| budget.spend(&parts, &step));
                if spent.is_err() {
                    break;
                }
                if !parts.is_empty() {
                    page.rows.push(QueryRow {
                        start,
                        group: group.clone(),
                        cells: cells(&parts, &query.aggregates, &mut sum),
                    });
                }
            }
            if let Err(limit) = spent {
                page.rows.truncate(rows);
                page.next = Some(start);
                return Ok((page, Some(self.limit(limit))));
            }
        }
        Ok((page, None))
    }

    const fn limit(&self, limit: Limit) -> QueryError {
        match limit {
            Limit::Rows => QueryError::Rows(self.config.rows_max),
            Limit::Work => QueryError::Work,
        }
    }

    /// Returns the buckets to read of each series, by group.
    fn groups(
        &self,
        query: &Query,
        range: &RangeInclusive<BucketIndex>,
    ) -> BTreeMap<Group, Vec<Buckets<'_>>> {
        let mut groups: BTreeMap<Group, Vec<Buckets<'_>>> = BTreeMap::new();
        for series in self.series_of(query) {
            let Some(buckets) = series.level(query.step.level()) else {
                continue;
            };
            let mut buckets = buckets.range(range.clone()).peekable();
            if buckets.peek().is_none() {
                continue;
            }
            let by = query.by.iter();
            let group = by.map(|name| series.key.dimension(*name).cloned());
            groups.entry(group.collect()).or_default().push(buckets);
        }
        groups
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

/// What one answer may still hold and cost.
struct Budget {
    rows: usize,
    buckets: usize,
    sketches: usize,
}

#[derive(Clone, Copy)]
enum Limit {
    Rows,
    Work,
}

impl Budget {
    fn spend_buckets(&mut self, count: usize) -> Result<(), Limit> {
        self.buckets = self.buckets.checked_sub(count).ok_or(Limit::Work)?;
        Ok(())
    }

    /// Spends the cost of one row: its buckets, and the sketches that it merges.
    fn spend(&mut self, parts: &[&Figures], step: &Step) -> Result<(), Limit> {
        let row = usize::from(!parts.is_empty());
        self.rows = self.rows.checked_sub(row).ok_or(Limit::Rows)?;
        self.spend_buckets(parts.len())?;
        if step.merges {
            let sketches = parts.iter().filter(|part| part.has_sketch()).count();
            self.sketches = self.sketches.checked_sub(sketches).ok_or(Limit::Work)?;
        }
        Ok(())
    }
}

/// The steps of a query.
struct Step {
    secs: u64,
    /// Buckets of a row.
    buckets: u64,
    /// Whether a column needs sketches or sets of players.
    merges: bool,
}

impl Step {
    fn new(query: &Query) -> Self {
        let secs = query.step.secs();
        let buckets = secs.checked_div(query.step.level().secs()).unwrap_or(1);
        let merges = |it: &Aggregate| matches!(it, Aggregate::Quantile(_) | Aggregate::Uniques);
        Self {
            secs,
            buckets,
            merges: query.aggregates.iter().any(merges),
        }
    }

    fn row(&self, bucket: BucketIndex) -> u64 {
        u64::from(bucket).checked_div(self.buckets).unwrap_or(0)
    }

    const fn start(&self, row: u64) -> UnixTime {
        UnixTime::from_secs(row.saturating_mul(self.secs))
    }

    /// Moves the buckets of a row into `parts`.
    fn take_parts<'a>(&self, row: u64, series: &mut [Buckets<'a>], parts: &mut Vec<&'a Figures>) {
        parts.clear();
        for buckets in series {
            while let Some((_, bucket)) = buckets.next_if(|(index, _)| self.row(**index) == row) {
                parts.push(&bucket.figures);
            }
        }
    }
}

/// Returns the first row that has buckets.
fn next_row(groups: &mut BTreeMap<Group, Vec<Buckets<'_>>>, step: &Step) -> Option<u64> {
    let series = groups.values_mut().flatten();
    let next = series.filter_map(|buckets| buckets.peek().map(|(index, _)| **index));
    next.min().map(|index| step.row(index))
}

fn cells(
    parts: &[&Figures],
    columns: &[Aggregate],
    sum: &mut FiguresSum,
) -> Vec<crate::stats::Cell> {
    if let [part] = parts {
        return columns.iter().map(|it| part.cell(*it)).collect();
    }
    sum.set(parts, columns);
    columns.iter().map(|it| sum.cell(*it)).collect()
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
