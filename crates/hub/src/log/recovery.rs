//! Recovery: rebuilds the index from the segments on disk.

use super::format::{self, HEAD_BYTES, LogRecord, ReadError};
use super::index::{Index, Place};
use super::segment::SegmentId;

/// Result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Segments read.
    pub segments: u64,
    /// Records read.
    pub records: u64,
    /// Bytes after the last whole record of the newest segment, rounded up to 512. They were
    /// written and never acknowledged; corruption there cannot be told apart.
    pub torn_bytes: u64,
    /// Corrupt ranges in older segments, of one record or more: the disk has lost synced data.
    pub rotten: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// The segment written to last.
    Newest,
    /// A segment that was synced before the next one began.
    Older,
}

/// Result of scanning one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// End of the last whole record, bytes.
    pub(super) end: u64,
    /// Whether its header and state are complete.
    pub(super) ready: bool,
    /// Whether any record follows the state, or did once.
    pub(super) used: bool,
}

/// A valid record that this release cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign;

/// Scans `bytes` of `segment` into `index`.
///
/// In the newest segment the first invalid record is the end: nothing after it was acknowledged.
/// Older segments were synced as a whole, so an invalid range is counted as corrupt, and the scan
/// continues with the next valid record.
pub(super) fn scan(
    segment: SegmentId,
    bytes: &[u8],
    age: Age,
    index: &mut Index,
    recovery: &mut Recovery,
) -> Result<Scan, Foreign> {
    let mut scan = Scan {
        end: 0,
        ready: false,
        used: false,
    };
    let mut started = false;
    let mut budget = (bytes.len() as u64).saturating_mul(SEARCH_FACTOR);
    loop {
        let rest = at(bytes, scan.end);
        let place = Place {
            segment,
            offset: scan.end,
        };
        match format::decode(rest, segment, scan.end) {
            Ok((record, len)) => {
                started |= matches!(record, LogRecord::Start(_));
                scan.used |= scan.ready || !is_state(&record);
                scan.ready |= (started || age == Age::Older) && record == LogRecord::Ready;
                index.apply(&record, place, u32::try_from(len).unwrap_or(u32::MAX));
                recovery.records = recovery.records.saturating_add(1);
                scan.end = scan.end.saturating_add(len as u64);
            }
            Err(ReadError::Unknown(_)) => return Err(Foreign),
            Err(ReadError::End | ReadError::Broken) if age == Age::Newest => return Ok(scan),
            Err(ReadError::End) if is_zero(rest) => return Ok(scan),
            Err(ReadError::End | ReadError::Broken) => {
                recovery.rotten = recovery.rotten.saturating_add(1);
                let next = skip(rest, place).or_else(|| search(rest, place, &mut budget));
                let Some(next) = next else {
                    // What was not searched may hold anything.
                    scan.used |= budget == 0;
                    return Ok(scan);
                };
                scan.ready |= is_ready_lost(rest, next.saturating_sub(scan.end));
                scan.end = next;
            }
        }
    }
}

/// Returns whether `segment` does not begin with its header, though data follows.
///
/// The header is in one sector, and a torn write leaves zeros after it. So such a segment is
/// corrupt, or belongs to another log.
pub(super) fn is_mixed_up(segment: SegmentId, bytes: &[u8]) -> bool {
    format::decode(bytes, segment, 0) == Err(ReadError::Broken)
        && !is_zero(at(bytes, format::START_BYTES as u64))
}

/// Returns whether `bytes` are all zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(ZEROS.len())
        .all(|chunk| Some(chunk) == ZEROS.get(..chunk.len()))
}

pub(super) const ZEROS: [u8; 512] = [0; 512];

/// How often a search may read each byte of a segment, on average. Mails that imitate record heads
/// make it read more.
const SEARCH_FACTOR: u64 = 8;

/// Size of a [`LogRecord::Ready`], bytes.
const READY_BYTES: u64 = HEAD_BYTES as u64 + 1;

/// Returns whether this record is part of the state.
const fn is_state(record: &LogRecord<'_>) -> bool {
    match record {
        LogRecord::Start(_)
        | LogRecord::Ready
        | LogRecord::Node(_)
        | LogRecord::Refusal { .. }
        | LogRecord::Total { .. } => true,
        LogRecord::Boot(_)
        | LogRecord::Mail(_)
        | LogRecord::Ack { .. }
        | LogRecord::Counts { .. }
        | LogRecord::Time(_) => false,
    }
}

/// Returns whether a corrupt range of `len` bytes was a [`LogRecord::Ready`]: no other record is as
/// short.
fn is_ready_lost(rest: &[u8], len: u64) -> bool {
    len == READY_BYTES && rest.get(4..HEAD_BYTES) == Some(&[0, 0, 0, 1])
}

/// Returns the position after a corrupt record, if its length field is intact.
fn skip(rest: &[u8], hole: Place) -> Option<u64> {
    let len = u32::from_be_bytes(*rest.get(4..HEAD_BYTES)?.first_chunk()?);
    let step = u64::from(len).saturating_add(HEAD_BYTES as u64);
    let next = hole.offset.saturating_add(step);
    format::decode(at(rest, step), hole.segment, next)
        .is_ok()
        .then_some(next)
}

/// Returns the position of the next valid record.
///
/// It may be inside the body of a mail with a lost head, if the sender guessed its position;
/// there is no other way to find the next record.
fn search(rest: &[u8], hole: Place, budget: &mut u64) -> Option<u64> {
    for (step, head) in (0_u64..).zip(rest.windows(HEAD_BYTES)).skip(1) {
        let len = head.last_chunk().map_or(0, |len| u32::from_be_bytes(*len));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len == 0 || len > format::PAYLOAD_BYTES_MAX {
            continue;
        }
        *budget = budget.saturating_sub(len as u64);
        if *budget == 0 {
            return None;
        }
        let offset = hole.offset.saturating_add(step);
        if format::decode(at(rest, step), hole.segment, offset).is_ok() {
            return Some(offset);
        }
    }
    None
}

fn at(bytes: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset)
        .ok()
        .and_then(|offset| bytes.get(offset..))
        .unwrap_or_default()
}
