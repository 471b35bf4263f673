//! From what a disk holds to an index.

#![warn(clippy::arithmetic_side_effects)]

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
    /// Records of older segments that were on disk once and do not check now: the disk has lost
    /// what it had confirmed.
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
    /// Whether anything follows that.
    pub(super) used: bool,
}

/// A record that this release cannot read, though it was written so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign;

/// Reads `bytes` of `segment` into `index`.
///
/// In the newest segment the first record that does not check is the end: what is behind it was
/// never acknowledged. In an older one all was on disk before the next was begun; there it is
/// counted as rotten, and skipped where its length leads to a record that checks.
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
    loop {
        let rest = at(bytes, scan.end);
        let place = Place {
            segment,
            offset: scan.end,
        };
        match format::decode(rest, segment, scan.end) {
            Ok((record, len)) => {
                started |= matches!(record, LogRecord::Start { .. });
                scan.used |= scan.ready;
                scan.ready |= (started || age == Age::Older) && record == LogRecord::Ready;
                index.apply(&record, place, u32::try_from(len).unwrap_or(u32::MAX));
                recovery.records = recovery.records.saturating_add(1);
                scan.end = scan.end.saturating_add(len as u64);
            }
            Err(ReadError::Unknown(_)) => return Err(Foreign),
            Err(ReadError::End) => return Ok(scan),
            Err(ReadError::Broken) if age == Age::Newest => return Ok(scan),
            Err(ReadError::Broken) => {
                recovery.rotten = recovery.rotten.saturating_add(1);
                match skip(rest, segment, scan.end) {
                    Some(next) => scan.end = next,
                    None => return Ok(scan),
                }
            }
        }
    }
}

/// Returns where the record behind a rotten one begins, where the rotten one's length is whole.
fn skip(rest: &[u8], segment: SegmentId, offset: u64) -> Option<u64> {
    let len = u32::from_be_bytes(*rest.get(4..HEAD_BYTES)?.first_chunk()?);
    let step = u64::from(len).saturating_add(HEAD_BYTES as u64);
    let next = offset.saturating_add(step);
    format::decode(at(rest, step), segment, next)
        .is_ok()
        .then_some(next)
}

fn at(bytes: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset)
        .ok()
        .and_then(|offset| bytes.get(offset..))
        .unwrap_or_default()
}
