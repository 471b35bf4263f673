//! From what a disk holds to an index.

use super::format::{self, HEAD_BYTES, LogRecord, ReadError};
use super::index::{Index, Place};
use super::segment::SegmentId;

/// What the recovery of a log found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Segments that were read.
    pub segments: u64,
    /// Records that were read.
    pub records: u64,
    /// Bytes behind the last whole record of the newest segment, written but never acknowledged;
    /// rounded up to 512. Rot in the newest segment cannot be told from that.
    pub torn_bytes: u64,
    /// Holes in older segments, of one record or more, that were on disk once and do not check now:
    /// the disk has lost what it had confirmed.
    pub rotten: u64,
}

/// Which segment is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// The one that was written to last.
    Newest,
    /// One that was whole on disk before the next was begun.
    Older,
}

/// How the reading of one segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// Where the last whole record ends, bytes.
    pub(super) end: u64,
    /// Whether the segment begins as one does and its state is told to the end.
    pub(super) ready: bool,
    /// Whether anything follows that, or must have.
    pub(super) used: bool,
}

/// A record that this release cannot read, though it was written so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign;

/// Reads `bytes` of `segment` into `index`.
///
/// In the newest segment the first record that does not check is the end: what is behind it was
/// never acknowledged. In an older one all was on disk before the next was begun; there a hole is
/// counted as rotten, and reading goes on with the next record that checks.
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

/// Returns whether `bytes` of `segment` do not begin as it does, though something follows.
///
/// The first record lies in one sector, and a write that was cut off leaves zeros behind it: such a
/// segment was begun, and has rotted or is another one's.
pub(super) fn is_mixed_up(segment: SegmentId, bytes: &[u8]) -> bool {
    format::decode(bytes, segment, 0) == Err(ReadError::Broken)
        && !is_zero(at(bytes, format::START_BYTES as u64))
}

/// Returns whether there is nothing in `bytes`.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(ZEROS.len())
        .all(|chunk| Some(chunk) == ZEROS.get(..chunk.len()))
}

/// What an unused part of a segment is compared with.
pub(super) const ZEROS: [u8; 512] = [0; 512];

/// How often a search may read each byte of a segment, on average: mails that look like the heads
/// of records make it read more.
const SEARCH_FACTOR: u64 = 8;

/// What a [`LogRecord::Ready`] takes.
const READY_BYTES: u64 = HEAD_BYTES as u64 + 1;

/// Returns whether the state at a segment's beginning has such records.
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

/// Returns whether a hole of `len` bytes at the front of `rest` is a [`LogRecord::Ready`]: no other
/// record is as short.
fn is_ready_lost(rest: &[u8], len: u64) -> bool {
    len == READY_BYTES && rest.get(4..HEAD_BYTES) == Some(&[0, 0, 0, 1])
}

/// Returns where the record behind a rotten one begins, where the rotten one's length is whole.
fn skip(rest: &[u8], hole: Place) -> Option<u64> {
    let len = u32::from_be_bytes(*rest.get(4..HEAD_BYTES)?.first_chunk()?);
    let step = u64::from(len).saturating_add(HEAD_BYTES as u64);
    let next = hole.offset.saturating_add(step);
    format::decode(at(rest, step), hole.segment, next)
        .is_ok()
        .then_some(next)
}

/// Returns where the next record begins that checks where it lies.
///
/// That may be inside the body of a mail whose head is lost, and whose sender guessed where it would
/// lie; nothing else tells where the next record begins.
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
