//! Queries of rollups.

mod parse;

use core::fmt;
use core::time::Duration;

use wire::UnixTime;

use super::record::StatText;
use crate::field::Name;
use crate::record::QUERY_BYTES_MAX;

pub use parse::ParseError;

/// Width of the buckets that rollups keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// 10 s.
    TenSeconds = 0,
    /// 1 min.
    Minute = 1,
    /// 1 h.
    Hour = 2,
    /// 1 day of UTC.
    Day = 3,
}

impl Level {
    /// All levels, finest first.
    pub const ALL: [Self; 4] = [Self::TenSeconds, Self::Minute, Self::Hour, Self::Day];

    /// Returns the width of a bucket, seconds.
    #[must_use]
    pub const fn secs(self) -> u64 {
        match self {
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }
}

/// Width of a query's rows: a multiple of 10 s, aligned to 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryStep(u64);

impl QueryStep {
    /// Returns a step, or `None` if `span` is not a multiple of 10 s, or zero.
    #[must_use]
    pub fn new(span: Duration) -> Option<Self> {
        let is_whole = span.subsec_nanos() == 0 && span.as_secs() > 0;
        let finest = Level::TenSeconds.secs();
        let fits = is_whole && span.as_secs().is_multiple_of(finest);
        fits.then_some(Self(span.as_secs()))
    }

    /// Returns the step, seconds.
    #[must_use]
    pub const fn secs(self) -> u64 {
        self.0
    }

    /// Returns the level that answers: the coarsest with buckets that divide the step.
    #[must_use]
    pub fn level(self) -> Level {
        let mut levels = Level::ALL.into_iter().rev();
        let level = levels.find(|level| self.0.is_multiple_of(level.secs()));
        level.unwrap_or(Level::TenSeconds)
    }
}

/// A quantile in steps of 0.01 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantile(u16);

impl Quantile {
    /// The median.
    pub const P50: Self = Self(5_000);
    /// 90 % of the values are at most this.
    pub const P90: Self = Self(9_000);
    /// 99 % of the values are at most this.
    pub const P99: Self = Self(9_900);

    /// Returns a quantile of `parts` in 10,000, or `None` if it is over 10,000.
    #[must_use]
    pub const fn new(parts: u16) -> Option<Self> {
        if parts > 10_000 {
            return None;
        }
        Some(Self(parts))
    }

    /// Returns the rank among `total` sorted values, from 0 (nearest rank).
    pub(super) fn rank(self, total: u64) -> Option<u64> {
        let last = total.checked_sub(1)?;
        let product = u128::from(total).saturating_mul(self.0.into());
        let rank = product.div_ceil(10_000).saturating_sub(1);
        u64::try_from(rank).ok().map(|rank| rank.min(last))
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 100, self.0 % 100);
        match (rest, rest % 10) {
            (0, _) => write!(f, "p{whole}"),
            (rest, 0) => write!(f, "p{whole}.{}", rest / 10),
            (rest, _) => write!(f, "p{whole}.{rest:02}"),
        }
    }
}

/// What a column of the answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aggregate {
    /// Number of records.
    Count,
    /// Sum of the values.
    Sum,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Sum divided by the number of records.
    Mean,
    /// Newest value or state.
    Last,
    /// Quantile of gauges and events, within 1 % if the values of a row span a factor of at most
    /// 65,536.
    Quantile(Quantile),
    /// Number of unique players; beyond 512 with a standard error of 1.6 %.
    Uniques,
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Quantile(quantile) => return quantile.fmt(f),
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Last => "last",
            Self::Uniques => "uniques",
        };
        f.write_str(name)
    }
}

/// A question about all series of one name.
///
/// The text form, at most [`Query::TEXT_BYTES_MAX`] bytes, words separated by spaces:
///
/// ```text
/// query     = aggregate *("," aggregate) "of" name [where] [by] "from" time "to" time "step" span
/// where     = "where" filter *("," filter)
/// filter    = name "=" (word | string)
/// by        = "by" name *("," name)
/// aggregate = "count" | "sum" | "min" | "max" | "mean" | "last" | "uniques" | quantile
/// quantile  = "p" number, 0 to 100 with at most 2 decimals
/// time      = seconds since 1970 | "now" | "now-" span
/// span      = number ("s" | "m" | "h" | "d")
/// name      = 1 to 32 of a-z 0-9 . _ -
/// word      = 1 to 64 of a-z 0-9 . _ -
/// string    = '"' 1 to 64 bytes, with \" and \\ '"'
/// ```
///
/// ```
/// use hub::stats::Query;
/// let now = wire::UnixTime::from_secs(1_800_000_000);
/// let text = r#"p99, count of tick_us where map = "Dust 2" by region from now-30d to now step 1h"#;
/// let query = Query::parse(text, now)?;
/// assert_eq!(query.step.secs(), 3_600);
/// let error = Query::parse("p99 for tick_us", now).unwrap_err();
/// assert_eq!(error.to_string(), "at byte 4: found `for` where `,` or `of` is expected");
/// # Ok::<(), hub::stats::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// Name of the series.
    pub name: Name,
    /// Start, rounded down to a multiple of the step.
    pub from: UnixTime,
    /// End, rounded up to a multiple of the step; not included.
    pub to: UnixTime,
    /// Width of a row.
    pub step: QueryStep,
    /// Only series with these values of dimensions; at most [`Query::DIMENSIONS_MAX`].
    pub filters: Vec<(Name, StatText)>,
    /// One row for each combination of values of these dimensions; at most
    /// [`Query::DIMENSIONS_MAX`].
    pub by: Vec<Name>,
    /// The columns; at most [`Query::AGGREGATES_MAX`].
    pub aggregates: Vec<Aggregate>,
}

impl Query {
    /// Longest text, bytes.
    pub const TEXT_BYTES_MAX: usize = QUERY_BYTES_MAX;
    /// Most filters, and most dimensions to group by.
    pub const DIMENSIONS_MAX: usize = 8;
    /// Most columns.
    pub const AGGREGATES_MAX: usize = 16;

    /// Creates a query of all series called `name`, without columns.
    pub const fn new(name: Name, from: UnixTime, to: UnixTime, step: QueryStep) -> Self {
        Self {
            name,
            from,
            to,
            step,
            filters: Vec::new(),
            by: Vec::new(),
            aggregates: Vec::new(),
        }
    }

    /// Parses the text form. `now` is what the text calls so.
    ///
    /// # Errors
    ///
    /// [`ParseError`] says where, what was found, and what is expected.
    pub fn parse(text: &str, now: UnixTime) -> Result<Self, ParseError> {
        parse::query(text, now)
    }
}

/// Writes the text form, with times in whole seconds.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        separated(f, &self.aggregates, |f, aggregate| write!(f, "{aggregate}"))?;
        write!(f, " of {}", self.name)?;
        if !self.filters.is_empty() {
            f.write_str(" where ")?;
            separated(f, &self.filters, |f, (name, text)| {
                let text = text.as_str().replace('\\', "\\\\").replace('"', "\\\"");
                write!(f, "{name} = \"{text}\"")
            })?;
        }
        if !self.by.is_empty() {
            f.write_str(" by ")?;
            separated(f, &self.by, |f, name| write!(f, "{name}"))?;
        }
        let (from, to) = (self.from.as_secs(), self.to.as_secs());
        write!(f, " from {from} to {to} step {}s", self.step.secs())
    }
}

fn separated<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write(f, item)?;
    }
    Ok(())
}

/// A part of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryPage {
    /// Rows of whole steps, ordered by time and then by group.
    pub rows: Vec<QueryRow>,
    /// Where the next part starts: query again with this as [`Query::from`]. `None` if this is the
    /// last part.
    pub next: Option<UnixTime>,
}

/// One row of an answer. Rows without records are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryRow {
    /// Start of the row's time.
    pub start: UnixTime,
    /// Values of [`Query::by`]; `None` for series without that dimension.
    pub group: Vec<Option<StatText>>,
    /// Values of [`Query::aggregates`].
    pub cells: Vec<Cell>,
}

/// Value of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// No record has such a value.
    Empty,
    /// A number.
    Number(f64),
    /// A state.
    Text(StatText),
}

/// Why a query has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryError {
    /// The answer has more rows than this limit.
    Rows(usize),
    /// More filters, dimensions or columns than a query may have.
    TooLong,
    /// It reads more buckets or merges more sketches than one answer may. Use a coarser step, a
    /// shorter range, more filters, or pages.
    Work,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(limit) => write!(f, "the answer has more than {limit} rows"),
            Self::TooLong => f.write_str("too many filters, dimensions or columns"),
            Self::Work => f.write_str("the answer takes too much work"),
        }
    }
}

impl core::error::Error for QueryError {}
