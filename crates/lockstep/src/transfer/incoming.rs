//! Receiver of snapshots.

use core::time::Duration;

use wire::Instant;

use super::after;
use super::outgoing::ACK_WAIT;
use crate::message::{
    AHEAD_MAX, Chunk, Direction, ack_of, chunk_count, chunk_len, write_chunk_ack,
};

/// Chunks after which an acknowledgement is due at once.
const ACK_EVERY: u32 = 16;

/// Silence on the newest transfer after which any other id counts as later. Ids wrap, and a sender
/// uses them for other receivers too: 128 of those between two of ours look like an earlier one. No
/// datagram is in flight that long.
const STALE_TIME: Duration = Duration::from_secs(10);

/// Receives one snapshot after another from one sender.
///
/// Memory: 2 kB, and at most twice the received bytes of the current snapshot plus a chunk; of
/// these, at most the limit for the snapshot and [`AHEAD_MAX`] chunks.
#[derive(Debug)]
pub struct Incoming {
    /// Direction of the chunks.
    direction: Direction,
    /// Longest snapshot to accept.
    len_max: u32,
    transfer: Option<Transfer>,
    ahead: Ahead,
    /// Chunks not yet acknowledged.
    unanswered: u32,
    /// When the acknowledgement is due.
    due: Option<Instant>,
    stats: IncomingStats,
}

/// Counters of useless chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IncomingStats {
    /// Chunks that arrived again.
    pub duplicate: u64,
    /// Chunks of a transfer before the newest.
    pub stale: u64,
    /// Chunks of a snapshot over the limit.
    pub oversize: u64,
    /// Chunks with another length or stride than the first of their transfer.
    pub contradicting: u64,
    /// Chunks more than [`AHEAD_MAX`] past the first missing one, which no sender sends.
    pub too_far: u64,
}

/// The newest transfer.
#[derive(Debug)]
struct Transfer {
    id: u8,
    total: u32,
    stride: u16,
    /// Its number of chunks.
    count: u32,
    /// First missing chunk.
    next: u32,
    /// Largest transmission number that arrived.
    latest: u32,
    /// Bytes of the chunks before `next`, until taken.
    bytes: Vec<u8>,
    is_taken: bool,
    /// When the newest chunk arrived.
    heard_at: Instant,
}

impl Incoming {
    /// Creates a receiver of chunks in `direction`, for snapshots of at most `len_max` bytes.
    #[must_use]
    pub fn new(direction: Direction, len_max: u32) -> Self {
        Self {
            direction,
            len_max,
            transfer: None,
            ahead: Ahead::new(),
            unanswered: 0,
            due: None,
            stats: IncomingStats::default(),
        }
    }

    /// Handles a chunk. The first one of a later transfer ends the current one.
    pub fn on_chunk(&mut self, now: Instant, chunk: &Chunk<'_>) {
        if chunk.total > self.len_max {
            self.stats.oversize = self.stats.oversize.saturating_add(1);
            return;
        }
        self.begin(now, chunk);
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        if chunk.id != transfer.id {
            self.stats.stale = self.stats.stale.saturating_add(1);
            return;
        }
        if (chunk.total, chunk.stride) != (transfer.total, transfer.stride) {
            self.stats.contradicting = self.stats.contradicting.saturating_add(1);
            return;
        }
        if chunk.index > transfer.next.saturating_add(AHEAD_MAX) {
            self.stats.too_far = self.stats.too_far.saturating_add(1);
            return;
        }
        transfer.heard_at = transfer.heard_at.max(now);
        transfer.latest = transfer.latest.max(chunk.number);
        let was_whole = transfer.is_whole();
        // The missing one first: its slot is that of the last chunk that may be kept.
        if chunk.index == transfer.next && !was_whole {
            transfer.append(chunk.bytes, &mut self.ahead);
        } else if chunk.index > transfer.next && !self.ahead.has(chunk.index) {
            self.ahead.put(chunk.index, chunk.stride, chunk.bytes);
        } else {
            // Acknowledged all the same: the sender may not know.
            self.stats.duplicate = self.stats.duplicate.saturating_add(1);
        }
        let is_whole = transfer.is_whole();
        if is_whole && !was_whole {
            self.ahead.clear();
        }
        self.unanswered = self.unanswered.saturating_add(1);
        let is_due = self.unanswered >= ACK_EVERY || is_whole != was_whole;
        let due = if is_due { now } else { after(now, ACK_WAIT) };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Appends a due acknowledgement to `out`; false if there is none.
    pub fn poll_ack(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let Some(transfer) = &self.transfer else {
            return false;
        };
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.due = None;
        self.unanswered = 0;
        let ack = ack_of(transfer.id, transfer.next, transfer.latest);
        let arrived = self.ahead.past(transfer.next);
        write_chunk_ack(out, self.direction.back(), &ack, arrived);
        true
    }

    /// Returns when to call [`poll_ack`](Self::poll_ack) next.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the complete snapshot, once.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let transfer = self.transfer.as_mut()?;
        if transfer.is_taken || !transfer.is_whole() {
            return None;
        }
        transfer.is_taken = true;
        Some(core::mem::take(&mut transfer.bytes))
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &IncomingStats {
        &self.stats
    }

    /// Begins a transfer if `chunk` is the first, or of a later one than the newest.
    fn begin(&mut self, now: Instant, chunk: &Chunk<'_>) {
        let is_later = self.transfer.as_ref().is_none_or(|transfer| {
            let ahead = chunk.id.wrapping_sub(transfer.id).cast_signed();
            let is_stale = now.saturating_since(transfer.heard_at) > STALE_TIME;
            ahead > 0 || (ahead < 0 && is_stale)
        });
        if !is_later {
            return;
        }
        self.ahead.clear();
        self.unanswered = 0;
        self.due = None;
        self.transfer = Some(Transfer {
            id: chunk.id,
            total: chunk.total,
            stride: chunk.stride,
            count: chunk_count(chunk.total, chunk.stride),
            next: 0,
            latest: 0,
            bytes: Vec::new(),
            is_taken: false,
            heard_at: now,
        });
    }
}

impl Transfer {
    const fn is_whole(&self) -> bool {
        self.next >= self.count
    }

    /// Appends the bytes of chunk `next`, and of kept ones that follow it.
    fn append(&mut self, bytes: &[u8], ahead: &mut Ahead) {
        self.reserve(bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.next = self.next.saturating_add(1);
        while !self.is_whole() {
            let len = chunk_len(self.total, self.stride, self.next);
            if !ahead.has(self.next) {
                break;
            }
            self.reserve(len);
            ahead.take(self.next, self.stride, len, &mut self.bytes);
            self.next = self.next.saturating_add(1);
        }
    }

    /// Reserves room for `len` bytes: doubles, but not past the end.
    fn reserve(&mut self, len: usize) {
        let held = self.bytes.len();
        if self.bytes.capacity().saturating_sub(held) >= len {
            return;
        }
        let total = usize::try_from(self.total).unwrap_or(usize::MAX);
        let rest = total.saturating_sub(held);
        self.bytes.reserve_exact(held.max(len).min(rest));
    }
}

/// Chunks by index, at most [`AHEAD_MAX`], in memory that grows with them.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Slot of each chunk plus 1, by index modulo [`AHEAD_MAX`]; 0 if none.
    places: Vec<u16>,
    /// Slots of one stride each.
    slots: Vec<u8>,
    /// Free slots.
    free: Vec<u16>,
    /// One past the last chunk kept.
    end: u32,
    /// Number of chunks kept.
    held: u32,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self {
            places: vec![0; usize::try_from(AHEAD_MAX).unwrap_or(0)],
            slots: Vec::new(),
            free: Vec::new(),
            end: 0,
            held: 0,
        }
    }

    /// Clears all, and frees the chunks' memory.
    pub(super) fn clear(&mut self) {
        self.places.fill(0);
        self.slots = Vec::new();
        self.free = Vec::new();
        self.end = 0;
        self.held = 0;
    }

    /// Keeps a chunk that is not kept yet, of at most `stride` bytes.
    ///
    /// The caller ensures that all kept chunks lie within [`AHEAD_MAX`] of each other, and that
    /// `stride` stays the same until [`clear`](Self::clear).
    pub(super) fn put(&mut self, index: u32, stride: u16, bytes: &[u8]) {
        let stride = usize::from(stride);
        let used = self.slots.len().checked_div(stride).unwrap_or(0);
        let slot = self
            .free
            .pop()
            .unwrap_or_else(|| u16::try_from(used).unwrap_or(u16::MAX));
        let start = usize::from(slot).saturating_mul(stride);
        if usize::from(slot) == used {
            self.slots.resize(start.saturating_add(stride), 0);
        }
        let end = start.saturating_add(bytes.len());
        let (Some(place), Some(room)) = (
            self.places.get_mut(place(index)),
            self.slots.get_mut(start..end),
        ) else {
            debug_assert!(false, "chunk {index} has no place");
            return;
        };
        room.copy_from_slice(bytes);
        *place = slot.saturating_add(1);
        self.end = self.end.max(index.saturating_add(1));
        self.held = self.held.saturating_add(1);
    }

    /// Appends the first `len` bytes of a chunk to `out` and removes it; false if it is not kept.
    pub(super) fn take(&mut self, index: u32, stride: u16, len: usize, out: &mut Vec<u8>) -> bool {
        let place = self.places.get_mut(place(index));
        let Some((place, slot)) = place.and_then(|place| Some((place.checked_sub(1)?, place)))
        else {
            return false;
        };
        let start = usize::from(place).saturating_mul(stride.into());
        let bytes = self.slots.get(start..start.saturating_add(len));
        out.extend_from_slice(bytes.unwrap_or_default());
        *slot = 0;
        self.free.push(place);
        self.held = self.held.saturating_sub(1);
        true
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.places.get(place(index)).is_some_and(|slot| *slot > 0)
    }

    /// Returns the kept chunks past `next`, in order.
    pub(super) fn past(&self, next: u32) -> impl Iterator<Item = u32> + '_ {
        let end = if self.held == 0 { 0 } else { self.end };
        (next.saturating_add(1)..end).filter(|&index| self.has(index))
    }
}

fn place(index: u32) -> usize {
    usize::try_from(index % AHEAD_MAX).unwrap_or(0)
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests;
