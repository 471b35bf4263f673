//! Statistics that can be read: records, rollups and queries.
//!
//! Pure: bytes and times in, bytes and rows out. A node collects samples in [`Counters`] and encodes
//! them with a [`BatchWriter`]. [`Rollups`] applies each batch once and answers a [`Query`];
//! [`Rollups::drain_dirty`] returns the rows that a store writes in one transaction.

mod batch;
mod counters;
mod figures;
mod number;
mod query;
mod record;
mod rollups;
mod sketch;
mod uniques;
mod varint;

pub use batch::{BATCH_BYTES_MAX, Batch, BatchError, BatchFull, BatchWriter};
pub use counters::{Counters, SeriesHandle, Tallies};
pub use number::{Finite, Number};
pub use query::{
    Aggregate, Cell, Level, ParseError, Quantile, Query, QueryError, QueryRow, QueryStep,
};
pub use record::{Sample, StatKey, StatKeyError, StatRecord, StatText, StatTextError};
pub use rollups::{Applied, BatchId, KeyValue, LoadError, RollupConfig, RollupStats, Rollups};

#[cfg(test)]
mod tests;
