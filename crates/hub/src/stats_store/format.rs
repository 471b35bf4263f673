//! Encoding of the records of statistics on disk, framed as in [`crate::log::format`].
//!
//! | code | record | layout |
//! |---|---|---|
//! | 28 | first of a segment or checkpoint | magic 8, version 2, time ms 8 |
//! | 29 | batch of a node, in segments | log 8, node 32, epoch 4, batch 8, received ms 8, bytes... |
//! | 30 | rows of rollups, in checkpoints | (key length 1, value length 4, key, value)... |
//! | 31 | end of a checkpoint | rows 8, position 8 |

use wire::{NodeId, Reader, UnixTime, Writer};

use crate::field::{BatchSeq, DecodeError, Epoch, LogId, Redacted};
use crate::log::SegmentId;
use crate::log::format::{HEAD_BYTES, ReadError, check, frame};
use crate::stats::BatchId;

/// First bytes of a [`StatsLogRecord::Start`].
const MAGIC: [u8; 8] = *b"TWSTATLG";

/// Version of this format.
const VERSION: u16 = 1;

const START: u8 = 28;
const BATCH: u8 = 29;
const ROWS: u8 = 30;
const END: u8 = 31;

/// Size of a start, bytes. It fits a sector, so a disk writes it whole or not at all.
pub(super) const START_BYTES: usize = HEAD_BYTES + 1 + 8 + 2 + 8;

/// A record of a segment or checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatsLogRecord<'a> {
    /// Nothing in earlier segments was received after this time.
    Start(UnixTime),
    Batch(RawBatch<'a>),
    Rows(&'a [u8]),
    End {
        rows: u64,
        position: u64,
    },
}

/// A batch in the raw log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawBatch<'a> {
    /// The log that assigned the epoch.
    pub log: LogId,
    /// The node, its run, and the number of the batch.
    pub id: BatchId,
    /// The hub's wall clock when it was received.
    pub received: UnixTime,
    /// The encoded [`Batch`](crate::stats::Batch).
    pub bytes: Redacted<&'a [u8]>,
}

/// Appends `record` to `out`, encoded for `offset` of `segment`.
pub(super) fn encode(
    record: &StatsLogRecord<'_>,
    segment: SegmentId,
    offset: u64,
    out: &mut Vec<u8>,
) {
    frame(segment, offset, out, |out| {
        let mut out = Writer::new(out);
        match record {
            StatsLogRecord::Start(time) => {
                out.fields(&[&START, &MAGIC, &VERSION, &time.as_millis()]);
            }
            StatsLogRecord::Batch(it) => {
                out.fields(&[&BATCH, &it.log, &it.id.node, &it.id.epoch, &it.id.batch]);
                out.fields(&[&it.received.as_millis(), &it.bytes]);
            }
            StatsLogRecord::Rows(rows) => {
                out.u8(ROWS);
                out.bytes(rows);
            }
            StatsLogRecord::End { rows, position } => out.fields(&[&END, rows, position]),
        }
    });
}

/// Decodes the record at the front of `bytes`, which is at `offset` of `segment`; returns its whole
/// length.
pub(super) fn decode(
    bytes: &[u8],
    segment: SegmentId,
    offset: u64,
) -> Result<(StatsLogRecord<'_>, usize), ReadError> {
    let (payload, whole) = check(bytes, segment, offset)?;
    let record = decode_payload(payload).map_err(ReadError::Unknown)?;
    Ok((record, whole))
}

fn decode_payload(payload: &[u8]) -> Result<StatsLogRecord<'_>, DecodeError> {
    let mut reader = Reader::new(payload);
    let record = match reader.u8()? {
        START => {
            if reader.array()? != MAGIC || reader.u16()? != VERSION {
                return Err(DecodeError::Code(START));
            }
            StatsLogRecord::Start(UnixTime::from_millis(reader.u64()?))
        }
        BATCH => StatsLogRecord::Batch(RawBatch {
            log: LogId(reader.u64()?),
            id: BatchId {
                node: NodeId(reader.array()?),
                epoch: Epoch(reader.u32()?),
                batch: BatchSeq(reader.u64()?),
            },
            received: UnixTime::from_millis(reader.u64()?),
            bytes: Redacted(reader.take_rest()),
        }),
        ROWS => StatsLogRecord::Rows(reader.take_rest()),
        END => StatsLogRecord::End {
            rows: reader.u64()?,
            position: reader.u64()?,
        },
        code => return Err(DecodeError::Code(code)),
    };
    reader.finish(DecodeError::Trailing)?;
    Ok(record)
}

/// Appends a row to the payload of a [`StatsLogRecord::Rows`].
pub(super) fn push_row(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let mut out = Writer::new(out);
    out.u8(u8::try_from(key.len()).unwrap_or(u8::MAX));
    out.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
    out.bytes(key);
    out.bytes(value);
}

/// Removes a row from the front of the payload of a [`StatsLogRecord::Rows`].
pub(super) fn take_row<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let key = usize::from(reader.u8()?);
    let value = usize::try_from(reader.u32()?).map_err(|_| DecodeError::Count)?;
    Ok((reader.bytes(key)?, reader.bytes(value)?))
}
