//! Records of statistics: batches of samples, and queries.

use wire::{Reader, Writer};

use super::{BODY_BYTES_MAX, QUERY_BYTES_MAX, StatsVerdict, code};
use crate::field::{BatchSeq, DecodeError, QueryId, Redacted};

/// A batch or a query from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatsToHub<'a> {
    /// `code 1, batch 8, bytes...`: one batch of the module `stats`.
    Batch {
        /// The node's number of the batch: 1 for the first of its run.
        batch: BatchSeq,
        /// The encoded batch.
        bytes: Redacted<&'a [u8]>,
    },
    /// `code 1, query 8, text...`
    Query {
        /// The node's number of the query.
        query: QueryId,
        /// The query as text, at most [`QUERY_BYTES_MAX`] bytes.
        text: Redacted<&'a [u8]>,
    },
}

impl<'a> StatsToHub<'a> {
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            code::STATS_BATCH => Self::Batch {
                batch: BatchSeq(reader.u64()?),
                bytes: Redacted::decode(reader, BODY_BYTES_MAX)?,
            },
            code::STATS_QUERY => Self::Query {
                query: QueryId(reader.u64()?),
                text: Redacted::decode(reader, QUERY_BYTES_MAX)?,
            },
            code => return Err(DecodeError::Code(code)),
        })
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Batch { batch, bytes } => out.fields(&[&code::STATS_BATCH, batch, bytes]),
            Self::Query { query, text } => out.fields(&[&code::STATS_QUERY, query, text]),
        }
    }
}

/// A verdict on a batch, or the answer to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatsToNode<'a> {
    /// `code 1, batch 8, verdict 1, retry ms 4`
    Settled {
        /// The batch.
        batch: BatchSeq,
        /// The verdict.
        verdict: StatsVerdict,
        /// If busy, the delay before a retry, milliseconds.
        retry_ms: u32,
    },
    /// `code 1, query 8, bytes...`: one answer of the module `stats`.
    Answer {
        /// The node's number of the query.
        query: QueryId,
        /// The encoded answer.
        bytes: Redacted<&'a [u8]>,
    },
}

impl<'a> StatsToNode<'a> {
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            code::STATS_SETTLED => Self::Settled {
                batch: BatchSeq(reader.u64()?),
                verdict: StatsVerdict::from_code(reader.u8()?)?,
                retry_ms: reader.u32()?,
            },
            code::STATS_ANSWER => Self::Answer {
                query: QueryId(reader.u64()?),
                bytes: Redacted::decode(reader, BODY_BYTES_MAX)?,
            },
            code => return Err(DecodeError::Code(code)),
        })
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Settled {
                batch,
                verdict,
                retry_ms,
            } => out.fields(&[&code::STATS_SETTLED, batch, verdict, retry_ms]),
            Self::Answer { query, bytes } => out.fields(&[&code::STATS_ANSWER, query, bytes]),
        }
    }
}
