//! Statistics that can be read: records, rollups and queries.
//!
//! Pure: bytes and times in, bytes and rows out. A node collects samples in [`Counters`] and encodes
//! them with a [`BatchWriter`]. [`Rollups`] applies each batch once and answers a [`Query`];
//! [`Rollups::drain_dirty`] returns the rows that a store writes in one transaction.

mod answer;
mod batch;
mod counters;
mod figures;
mod number;
mod op;
mod query;
mod record;
mod rollups;
mod sketch;
mod uniques;
mod varint;

pub use answer::{QueryReason, QueryRefusal, StatsAnswer, decode_answer, encode_answer};
pub use batch::{BATCH_BYTES_MAX, Batch, BatchError, BatchFull, BatchWriter};
pub use counters::{Counters, SeriesHandle, Tallies};
pub use number::{Finite, Number};
pub use op::StatsOp;
pub use query::{
    Aggregate, Cell, Level, ParseError, Quantile, Query, QueryError, QueryPage, QueryRow, QueryStep,
};
pub use record::{Sample, StatKey, StatKeyError, StatRecord, StatText, StatTextError};
pub(crate) use rollups::RowLoader;
pub use rollups::{Applied, BatchId, KeyValue, LoadError, RollupConfig, RollupStats, Rollups};

#[cfg(test)]
mod tests;
