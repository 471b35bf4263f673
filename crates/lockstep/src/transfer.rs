//! Snapshot transfer in chunks, from the server to a joining player, or from a donor to the server.
//!
//! [`Outgoing`] sends a snapshot as chunks of equal length, one per datagram, at a set rate that
//! leaves bandwidth for inputs. [`Incoming`] assembles and acknowledges them. Both are sans-IO.
//!
//! Losses are detected by later arrivals (selective acknowledgement, RFC 2018) and by time (RFC
//! 9002, section 6). Each transmission has a unique number, so retransmissions are unambiguous.
//!
//! The caller verifies the content, by the state hash reported for the snapshot's tick.
//!
//! A hostile sender makes a receiver hold at most twice what it sent, and no more than the
//! receiver's own limit; announcements cost nothing. A hostile receiver makes a sender send at the
//! set rate, and no faster.

mod outgoing;

use core::time::Duration;

use wire::Instant;

use crate::message::{
    AHEAD_MAX, CHUNK_HEAD_LEN, Chunk, Direction, ack_of, chunk_count, chunk_len, write_chunk_ack,
};
use crate::tick::slot;

pub(crate) use outgoing::{ACK_WAIT, Rate, RoundTrip};
pub use outgoing::{Outgoing, TAIL_MAX};

/// Time without a new acknowledgement, while chunks are sent, after which a waiting receiver is
/// given up: it has left, or does not want the snapshot. Chunks are sent at least once per second.
pub(crate) const STALL_TIME: Duration = Duration::from_secs(5);

/// Lowest datagram limit: four times the 16-byte header, plus as much data again.
const DATAGRAM_LEN_MIN: u16 = 80;

const HEAD_LEN: u64 = 16;

/// Latency of the first chunk and the last acknowledgement, with losses, on most paths.
const ROUND_TRIP: Duration = Duration::from_millis(250);

/// Send rate and datagram size of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferLimits {
    /// Bytes per second, headers of chunks included, but not of the transport; 1,250,000, which is
    /// 10 Mbit/s. With 0, a transfer ends after its burst.
    pub rate_bytes_per_s: u32,
    /// Bytes that may be sent in one burst; 8,800, eight datagrams of the usual length. It delays a
    /// following input by 7 ms at 10 Mbit/s. One datagram is always allowed.
    pub burst_bytes: u32,
    /// Longest datagram, in bytes, the 16-byte header included; 1,100 as
    /// [`Config::datagram_len_max`](crate::Config::datagram_len_max). Values below 80 count as 80.
    pub datagram_len_max: u16,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self {
            rate_bytes_per_s: 1_250_000,
            burst_bytes: 8_800,
            datagram_len_max: 1_100,
        }
    }
}

impl TransferLimits {
    pub(crate) fn stride(&self) -> u16 {
        let head_len = u16::try_from(CHUNK_HEAD_LEN).unwrap_or(DATAGRAM_LEN_MIN);
        let datagram_len = self.datagram_len_max.max(DATAGRAM_LEN_MIN);
        datagram_len.saturating_sub(head_len)
    }

    /// Returns how long a transfer of `len` bytes takes if one datagram in nine is lost and latency
    /// is [`ROUND_TRIP`]; [`Duration::MAX`] if it does not end.
    pub(crate) fn time_for(&self, len: usize) -> Duration {
        let Ok(total) = u32::try_from(len) else {
            return Duration::MAX;
        };
        let heads = u64::from(chunk_count(total, self.stride())).saturating_mul(HEAD_LEN);
        let bytes = u64::from(total).saturating_add(heads);
        let paid = bytes.saturating_sub(self.burst_bytes.into());
        // An eighth more than without loss.
        let nanos = paid.saturating_mul(1_125_000_000);
        let Some(nanos) = nanos.checked_div(self.rate_bytes_per_s.into()) else {
            return if paid == 0 { ROUND_TRIP } else { Duration::MAX };
        };
        Duration::from_nanos(nanos).saturating_add(ROUND_TRIP)
    }
}

/// Chunks after which an acknowledgement is due at once.
const ACK_EVERY: u32 = 16;

/// Silence on the newest transfer after which any other id counts as later. Ids wrap, and a sender
/// uses them for other receivers too: 128 of those between two of ours look like an earlier one. No
/// datagram is in flight that long.
const STALE_TIME: Duration = Duration::from_secs(10);

/// Receives one snapshot after another from one sender. Memory: 2 kB, and at most twice the
/// received bytes of the current snapshot, within the limit for it plus [`AHEAD_MAX`] chunks.
#[derive(Debug)]
pub struct Incoming {
    direction: Direction,
    len_max: u32,
    transfer: Option<Transfer>,
    ahead: Ahead,
    unanswered: u32,
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

#[derive(Debug)]
struct Transfer {
    id: u8,
    total: u32,
    stride: u16,
    count: u32,
    next: u32,
    latest: u32,
    bytes: Vec<u8>,
    is_taken: bool,
    last_received: Instant,
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
        transfer.last_received = transfer.last_received.max(now);
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
        let due = if is_due { now } else { now + ACK_WAIT };
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

    fn begin(&mut self, now: Instant, chunk: &Chunk<'_>) {
        let is_later = self.transfer.as_ref().is_none_or(|transfer| {
            let ahead = chunk.id.wrapping_sub(transfer.id).cast_signed();
            let is_stale = now.saturating_since(transfer.last_received) > STALE_TIME;
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
            last_received: now,
        });
    }
}

impl Transfer {
    const fn is_whole(&self) -> bool {
        self.next >= self.count
    }

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
struct Ahead {
    /// Row of chunk `i` plus 1, in slot `i % AHEAD_MAX`; 0 if it is not kept.
    rows: Vec<u16>,
    bytes: Vec<u8>,
    free: Vec<u16>,
    end: u32,
    held: u32,
}

impl Ahead {
    fn new() -> Self {
        Self {
            rows: vec![0; usize::try_from(AHEAD_MAX).unwrap_or(0)],
            bytes: Vec::new(),
            free: Vec::new(),
            end: 0,
            held: 0,
        }
    }

    fn clear(&mut self) {
        self.rows.fill(0);
        self.bytes = Vec::new();
        self.free = Vec::new();
        self.end = 0;
        self.held = 0;
    }

    /// Keeps a new chunk. The caller ensures that all lie within [`AHEAD_MAX`] of each other, and
    /// that `stride` stays the same until [`clear`](Self::clear).
    fn put(&mut self, index: u32, stride: u16, bytes: &[u8]) {
        let stride = usize::from(stride);
        let used = self.bytes.len().checked_div(stride).unwrap_or(0);
        let used = u16::try_from(used).unwrap_or(u16::MAX);
        let row = self.free.pop().unwrap_or(used);
        let start = usize::from(row).saturating_mul(stride);
        if row == used {
            self.bytes.resize(start.saturating_add(stride), 0);
        }
        let room = self.bytes.get_mut(start..start.saturating_add(bytes.len()));
        let (Some(room), Some(kept)) = (room, self.rows.get_mut(slot(index, AHEAD_MAX))) else {
            debug_assert!(false, "chunk {index} has no room");
            return;
        };
        room.copy_from_slice(bytes);
        *kept = row.saturating_add(1);
        self.end = self.end.max(index.saturating_add(1));
        self.held = self.held.saturating_add(1);
    }

    /// Appends the first `len` bytes of a chunk to `out` and removes it; false if it is not kept.
    fn take(&mut self, index: u32, stride: u16, len: usize, out: &mut Vec<u8>) -> bool {
        let kept = self.rows.get_mut(slot(index, AHEAD_MAX));
        let Some((row, kept)) = kept.and_then(|kept| Some((kept.checked_sub(1)?, kept))) else {
            return false;
        };
        let start = usize::from(row).saturating_mul(stride.into());
        let bytes = self.bytes.get(start..start.saturating_add(len));
        out.extend_from_slice(bytes.unwrap_or_default());
        *kept = 0;
        self.free.push(row);
        self.held = self.held.saturating_sub(1);
        true
    }

    fn has(&self, index: u32) -> bool {
        let row = self.rows.get(slot(index, AHEAD_MAX));
        row.is_some_and(|row| *row > 0)
    }

    fn past(&self, next: u32) -> impl Iterator<Item = u32> + '_ {
        let end = if self.held == 0 { 0 } else { self.end };
        (next.saturating_add(1)..end).filter(|&index| self.has(index))
    }
}

#[cfg(test)]
mod tests;
