//! The chain of closed ticks, as encoded bundles, and its reader.

use wire::{MatchId, Reader, Writer};

use crate::bundle::{self, Shape};
use crate::checksum::LogHash;
use crate::input::Row;
use crate::tick::Tick;
use crate::transfer::TransferLimits;

/// Bundles kept: 17 s at 60 Hz. A client with an older acknowledgement needs a snapshot.
pub(crate) const CHAIN_LEN: u32 = 1_024;

/// Ticks that a joining or returning peer may lack. The chain reaches further back, so that the
/// peer does not fall out of it while catching up: the rest is about 4 s at 60 Hz.
pub(crate) const REACH: u32 = CHAIN_LEN.saturating_sub(256);

/// The newest bundles, by tick; in one block of memory that never grows.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Tick of each slot plus 1; 0 if empty.
    ticks: Vec<u32>,
    /// Length of the bundle in each slot, in bytes.
    lens: Vec<u16>,
    /// `stride` bytes per slot.
    bytes: Vec<u8>,
    /// Longest bundle, in bytes.
    stride: usize,
    len: u32,
}

impl Chain {
    pub(crate) fn new(shape: Shape) -> Self {
        Self::with_len(shape, CHAIN_LEN)
    }

    pub(crate) fn with_len(shape: Shape, len: u32) -> Self {
        let len = len.max(1);
        let slots = usize::try_from(len).unwrap_or(usize::MAX);
        let stride = shape.bundle_len_max();
        Self {
            ticks: vec![0; slots],
            lens: vec![0; slots],
            bytes: vec![0; slots.saturating_mul(stride)],
            stride,
            len,
        }
    }

    pub(crate) fn put(&mut self, tick: Tick, bundle: &[u8]) {
        let slot = self.slot(tick);
        let start = slot.saturating_mul(self.stride);
        let (Some(tag), Some(len), Some(bytes)) = (
            self.ticks.get_mut(slot),
            self.lens.get_mut(slot),
            self.bytes
                .get_mut(start..start.saturating_add(bundle.len().min(self.stride))),
        ) else {
            return;
        };
        debug_assert_eq!(bytes.len(), bundle.len(), "no bundle is over the longest");
        if let ([byte], [only]) = (&mut *bytes, bundle) {
            // The usual length: unchanged, for one seat or a few.
            *byte = *only;
        } else {
            bytes.copy_from_slice(bundle.get(..bytes.len()).unwrap_or_default());
        }
        *tag = tick.0.saturating_add(1);
        *len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    }

    pub(crate) fn forget_from(&mut self, tick: Tick) {
        for tag in self.ticks.iter_mut().filter(|tag| **tag > tick.0) {
            *tag = 0;
        }
    }

    pub(crate) fn get(&self, tick: Tick) -> Option<&[u8]> {
        let slot = self.slot(tick);
        if self.ticks.get(slot) != Some(&tick.0.saturating_add(1)) {
            return None;
        }
        let start = slot.saturating_mul(self.stride);
        let len = usize::from(*self.lens.get(slot)?);
        self.bytes.get(start..start.saturating_add(len))
    }

    /// Appends at most `len_max` bytes of bundles before `end`; returns their number.
    pub(crate) fn write_run(
        &self,
        first: Tick,
        end: Tick,
        len_max: usize,
        out: &mut Vec<u8>,
    ) -> u32 {
        let len_max = out.len().saturating_add(len_max);
        let mut tick = first;
        while tick < end
            && let Some(bundle) = self.get(tick)
            && out.len().saturating_add(bundle.len()) <= len_max
        {
            out.extend_from_slice(bundle);
            tick = tick.plus(1);
        }
        tick.since(first)
    }

    pub(crate) const fn memory_len(&self) -> usize {
        let slot = size_of::<u32>().saturating_add(size_of::<u16>());
        self.bytes
            .len()
            .saturating_add(self.ticks.len().saturating_mul(slot))
    }

    pub(crate) fn has(&self, tick: Tick) -> bool {
        self.ticks.get(self.slot(tick)) == Some(&tick.0.saturating_add(1))
    }

    fn slot(&self, tick: Tick) -> usize {
        // The usual length is a constant, which avoids a division.
        let slot = if self.len == CHAIN_LEN {
            tick.0.checked_rem(CHAIN_LEN)
        } else {
            tick.0.checked_rem(self.len)
        };
        usize::try_from(slot.unwrap_or(0)).unwrap_or(0)
    }
}

#[derive(Debug)]
pub(crate) struct ReceivedChain {
    pub(crate) chain: Chain,
    /// First tick that has not arrived.
    pub(crate) end: Tick,
    /// One past the newest tick that arrived.
    pub(crate) seen_end: Tick,
}

impl ReceivedChain {
    pub(crate) const fn new(chain: Chain) -> Self {
        Self {
            chain,
            end: Tick(0),
            seen_end: Tick(0),
        }
    }

    /// Continues with `tick`: those before it are not awaited.
    pub(crate) fn begin_at(&mut self, tick: Tick) {
        self.end = tick;
        self.skip_held();
        self.seen_end = self.seen_end.max(self.end);
    }

    /// Keeps the bundle of `tick`; false if it had arrived.
    pub(crate) fn put(&mut self, tick: Tick, bundle: &[u8]) -> bool {
        if tick < self.end || self.chain.has(tick) {
            return false;
        }
        self.chain.put(tick, bundle);
        self.seen_end = self.seen_end.max(tick.plus(1));
        self.skip_held();
        true
    }

    /// Returns how many bundles were at or after `limit`, and how many had arrived.
    pub(crate) fn extend<'a>(
        &mut self,
        first: Tick,
        limit: Tick,
        bundles: impl Iterator<Item = &'a [u8]>,
    ) -> (u64, u64) {
        let (mut tick, mut early, mut repeated) = (first, 0_u64, 0_u64);
        for bundle in bundles {
            if tick >= self.end.max(limit) {
                early = early.saturating_add(1);
            } else if !self.put(tick, bundle) {
                repeated = repeated.saturating_add(1);
            }
            tick = tick.plus(1);
        }
        (early, repeated)
    }

    /// Returns whether a later tick is held, and `copies` datagrams with the first missing one were
    /// due.
    pub(crate) fn is_gap(&self, copies: u32) -> bool {
        self.end.plus(copies) < self.seen_end
    }

    /// Returns the bundle `index` ticks after the one nearest to this low half, if it is held.
    pub(crate) fn bundle_near(&self, first_low: u16, index: u32) -> Option<&[u8]> {
        self.chain.get(self.end.widen_near(first_low)?.plus(index))
    }

    fn skip_held(&mut self) {
        while self.chain.has(self.end) {
            self.end = self.end.plus(1);
        }
    }
}

/// Reads a chain from tick 0 on, one turn at a time.
#[derive(Clone, Debug)]
pub(crate) struct ChainReader {
    pub(crate) next: Tick,
    pub(crate) row: Row,
    pub(crate) log: LogHash,
}

impl ChainReader {
    pub(crate) fn new(shape: Shape, neutral: &[u8], match_id: MatchId) -> Self {
        Self {
            next: Tick(0),
            row: Row::initial(shape.seats, shape.width, neutral),
            log: LogHash::new(match_id),
        }
    }

    pub(crate) fn resume_from(&mut self, next: Tick, row: &Row, log: LogHash) {
        self.next = next;
        self.row.copy_from(row);
        self.log = log;
    }

    pub(crate) fn read(&mut self, chain: &Chain) -> Option<Tick> {
        let bundle = chain.get(self.next)?;
        let applied = bundle::apply(bundle, &mut self.row);
        debug_assert!(applied.is_ok(), "only checked bundles enter a chain");
        self.log.absorb(bundle);
        let tick = self.next;
        self.next = tick.plus(1);
        Some(tick)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SnapshotHead {
    pub(crate) next: Tick,
    pub(crate) log: LogHash,
    pub(crate) row: Row,
}

/// Writes the snapshot of `state`, which the ticks read by `reader` led to.
pub(crate) fn write_snapshot(reader: &ChainReader, neutral: &[u8], state: &[u8]) -> Vec<u8> {
    write_snapshot_at(reader.next, reader.log, &reader.row, neutral, state)
}

/// Writes state number `next`; `row` and `log` are those of the tick before.
pub(crate) fn write_snapshot_at(
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

/// The first tick after a snapshot; `None` if its header is invalid.
pub(crate) fn snapshot_next(bytes: &[u8], shape: Shape) -> Option<Tick> {
    let mut reader = Reader::new(bytes);
    let next = Tick(reader.u32().ok()?);
    reader.u64().ok()?;
    bundle::check(reader.rest(), shape).ok()?;
    is_playable(next).then_some(next)
}

/// Decodes a snapshot; `None` if its header is invalid.
pub(crate) fn read_snapshot<'a>(
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

const HEAD_LEN_USUAL: usize = 64;
