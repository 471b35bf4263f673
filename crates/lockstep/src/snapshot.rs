//! A snapshot: an application state, and the context needed to continue from it.
//!
//! | field | bytes |
//! |---|---|
//! | first tick that is not part of it | 4 |
//! | running hash over all ticks before | 8 |
//! | inputs and origins of the tick before: a bundle against the initial row | |
//! | the application's state | to the end |

use wire::{Reader, Writer};

use crate::bundle::{self, Shape};
use crate::chain::{ChainReader, REACH};
use crate::checksum::LogHash;
use crate::tick::Tick;
use crate::transfer::TransferLimits;
use crate::turn::Row;

/// The header before the application's state.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotHead {
    /// First tick that is not part of the state.
    pub(crate) next: Tick,
    /// Hash over all ticks before.
    pub(crate) log: LogHash,
    /// Inputs of the tick before.
    pub(crate) row: Row,
}

/// Writes the snapshot of `state`, which the ticks read by `reader` led to.
pub(crate) fn write(reader: &ChainReader, neutral: &[u8], state: &[u8]) -> Vec<u8> {
    write_from(reader.next(), reader.log(), reader.row(), neutral, state)
}

/// Writes the snapshot of `state`, the one before tick `next`; `row` and `log` are those of the
/// tick before.
pub(crate) fn write_from(
    next: Tick,
    log: LogHash,
    row: &Row,
    neutral: &[u8],
    state: &[u8],
) -> Vec<u8> {
    let seats = u16::try_from(row.origins.len()).unwrap_or(u16::MAX);
    let initial = Row::initial(seats, row.width, neutral);
    let mut out = Vec::with_capacity(state.len().saturating_add(HEAD_LEN_USUAL));
    let mut writer = Writer::new(&mut out);
    writer.u32(next.0);
    writer.u64(log.to_raw());
    bundle::encode(&initial, row, &mut out);
    out.extend_from_slice(state);
    out
}

/// The first tick after a snapshot, for a peer that does not interpret inputs; `None` if its header
/// is invalid.
pub(crate) fn next_of(bytes: &[u8], shape: Shape) -> Option<Tick> {
    let mut reader = Reader::new(bytes);
    let next = Tick(reader.u32().ok()?);
    reader.u64().ok()?;
    bundle::check(reader.rest(), shape).ok()?;
    is_playable(next).then_some(next)
}

/// Decodes a snapshot; `None` if its header is invalid.
pub(crate) fn read<'a>(
    bytes: &'a [u8],
    shape: Shape,
    neutral: &[u8],
) -> Option<(SnapshotHead, &'a [u8])> {
    let mut reader = Reader::new(bytes);
    let next = Tick(reader.u32().ok()?);
    let log = LogHash::from_raw(reader.u64().ok()?);
    let rest = reader.rest();
    let len = bundle::check(rest, shape).ok()?;
    let (row_bytes, state) = rest.split_at_checked(len)?;
    let mut row = Row::initial(shape.seats, shape.width, neutral);
    bundle::apply(row_bytes, &mut row).ok()?;
    is_playable(next).then_some((SnapshotHead { next, log, row }, state))
}

/// A transfer of `len` bytes must begin before the returned tick closes, so that the chain still
/// holds `next` when it ends; `None` if no transfer is fast enough.
pub(crate) fn last_start(
    next: Tick,
    len: usize,
    transfer: &TransferLimits,
    period_nanos: u64,
) -> Option<Tick> {
    let nanos = transfer.time_for(len).as_nanos();
    let ticks = nanos.div_ceil(u128::from(period_nanos.max(1)));
    let age = REACH.checked_sub(u32::try_from(ticks).ok()?)?;
    Some(next.plus(age))
}

/// Tick 0 has no predecessor, and the last tick no successor.
fn is_playable(next: Tick) -> bool {
    next > Tick(0) && next <= Tick::LAST
}

/// Ticks for which a received snapshot is given out; then another is requested, so that there is
/// less to catch up: 4 s at 60 Hz.
pub(crate) const KEEP_TICKS: u32 = 256;

/// Capacity for the header of most matches.
const HEAD_LEN_USUAL: usize = 64;
