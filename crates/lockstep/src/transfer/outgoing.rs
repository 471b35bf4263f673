//! Sender of snapshots; round trip and rate.

use core::time::Duration;
use std::sync::Arc;

use wire::Instant;

use super::flight::Flight;
use super::{STALL_TIME, TransferLimits, after};
use crate::message::{
    CHUNK_HEAD_LEN, Chunk, ChunkAck, Direction, chunk_count, chunk_len, chunk_offset, write_chunk,
};

/// Sends one snapshot to one receiver.
///
/// Memory besides the snapshot, which several may share: 60 kB, allocated at the start.
#[derive(Debug)]
pub struct Outgoing {
    direction: Direction,
    id: u8,
    bytes: Arc<[u8]>,
    total: u32,
    stride: u16,
    flight: Flight,
    rate: Rate,
    /// What [`poll_timeout`](Self::poll_timeout) returns.
    due: Option<Instant>,
}

impl Outgoing {
    /// Begins a transfer of `bytes` under `id`, to a receiver that has not seen this id or a later
    /// one; ids wrap, and are compared at a distance of at most 127.
    ///
    /// `None` if `bytes` are 4 GiB or more.
    #[must_use]
    pub fn new(
        direction: Direction,
        id: u8,
        bytes: Arc<[u8]>,
        limits: &TransferLimits,
        now: Instant,
    ) -> Option<Self> {
        let total = u32::try_from(bytes.len()).ok()?;
        let stride = limits.stride();
        let head_len = u32::try_from(CHUNK_HEAD_LEN).unwrap_or(0);
        let burst = limits
            .burst_bytes
            .max(head_len.saturating_add(stride.into()));
        Some(Self {
            direction,
            id,
            bytes,
            total,
            stride,
            flight: Flight::new(chunk_count(total, stride)),
            rate: Rate::new(limits.rate_bytes_per_s, burst, now),
            due: Some(now),
        })
    }

    /// Appends a due datagram to `out`; false if there is none.
    ///
    /// Lost chunks go first, then unsent ones, in order, then the last
    /// [`TAIL_MAX`](super::TAIL_MAX) again.
    pub fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.is_done() {
            self.due = None;
            return false;
        }
        self.rate.refill(now);
        self.flight.judge(now);
        let is_sent = self.rate.holds(self.datagram_len()) && self.send(now, out);
        self.due = self.plan(now);
        is_sent
    }

    /// Handles an acknowledgement; those of other transfers are ignored.
    pub fn on_ack(&mut self, now: Instant, ack: &ChunkAck<'_>) {
        if ack.id != self.id {
            return;
        }
        self.flight.on_ack(now, ack);
        self.flight.judge(now);
        self.rate.refill(now);
        self.due = self.plan(now);
    }

    /// Returns when to call [`poll`](Self::poll) next; `None` if all has arrived, or the rate is 0.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Returns when the receiver counts as stalled, unless it acknowledges more before:
    /// [`STALL_TIME`] after something was sent; `None` if all has arrived or nothing was sent.
    pub(crate) fn stalls_at(&self) -> Option<Instant> {
        let from = self.flight.unanswered_from().filter(|_| !self.is_done())?;
        Some(after(from, STALL_TIME))
    }

    /// Returns whether the receiver has the whole snapshot.
    pub const fn is_done(&self) -> bool {
        self.flight.is_done()
    }

    /// Returns the transfer's id.
    pub const fn id(&self) -> u8 {
        self.id
    }

    fn send(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let Some((index, purpose)) = self.flight.choose(now) else {
            return false;
        };
        let start = usize::try_from(chunk_offset(self.stride, index)).unwrap_or(usize::MAX);
        let len = chunk_len(self.total, self.stride, index);
        let bytes = self.bytes.get(start..start.saturating_add(len));
        let number = self.flight.on_sent(now, index, purpose);
        let chunk = Chunk {
            id: self.id,
            total: self.total,
            stride: self.stride,
            index,
            number,
            bytes: bytes.unwrap_or_default(),
        };
        write_chunk(out, self.direction, &chunk);
        let len = CHUNK_HEAD_LEN.saturating_add(len);
        self.rate.spend(u32::try_from(len).unwrap_or(u32::MAX));
        true
    }

    /// When there is something to do, if nothing arrives before.
    fn plan(&self, now: Instant) -> Option<Instant> {
        if self.is_done() {
            return None;
        }
        let timer = self.flight.timer();
        if !self.flight.has_work(now) {
            return timer;
        }
        let paid = self.rate.holds_at(self.datagram_len())?;
        Some(timer.map_or(paid, |timer| timer.min(paid)))
    }

    /// Length of all datagrams except the last.
    fn datagram_len(&self) -> u32 {
        let head_len = u32::try_from(CHUNK_HEAD_LEN).unwrap_or(0);
        head_len.saturating_add(self.stride.into())
    }
}

/// Longest delay of an acknowledgement.
pub(crate) const ACK_WAIT: Duration = Duration::from_millis(20);

/// Round trip assumed before the first sample; RFC 9002, section 6.2.2.
const INITIAL_NANOS: u64 = 333_000_000;

/// Least allowance for variation; `kGranularity` of RFC 9002, section 6.1.2.
const GRANULARITY_NANOS: u64 = 1_000_000;

/// Smoothed round trip and its variation, RFC 6298, section 2; including the acknowledgement delay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    smoothed_nanos: u64,
    variation_nanos: u64,
    is_seen: bool,
}

impl RoundTrip {
    pub(crate) const fn new() -> Self {
        Self {
            smoothed_nanos: INITIAL_NANOS,
            variation_nanos: INITIAL_NANOS / 2,
            is_seen: false,
        }
    }

    /// Adds a sample: sent at `sent_at`, acknowledged at `now`.
    pub(crate) const fn on_sample(&mut self, now: Instant, sent_at: Instant) {
        let sample = now.as_nanos().saturating_sub(sent_at.as_nanos());
        if self.is_seen {
            let change = self.smoothed_nanos.abs_diff(sample);
            self.variation_nanos = self
                .variation_nanos
                .saturating_mul(3)
                .saturating_add(change)
                / 4;
            self.smoothed_nanos = self.smoothed_nanos.saturating_mul(7).saturating_add(sample) / 8;
        } else {
            self.is_seen = true;
            self.smoothed_nanos = sample;
            self.variation_nanos = sample / 2;
        }
    }

    /// Returns how much later another transmission must be sent for its arrival to prove a loss.
    ///
    /// An eighth of the round trip (RFC 9002, section 6.1.2), more if a longer `reordering` was
    /// observed, and at most the round trip (RFC 8985, section 6.2): paced chunks are reordered by
    /// time, and three of them may take less than a millisecond.
    pub(crate) fn reorder_window(&self, reordering: Duration) -> Duration {
        let reordering = u64::try_from(reordering.as_nanos()).unwrap_or(u64::MAX);
        // Plus an eighth: the next reordering may be a bit longer.
        let seen = reordering.saturating_add(reordering / 8);
        let window = seen.max(self.smoothed_nanos / 8);
        Duration::from_nanos(window.min(self.smoothed_nanos))
    }

    /// Returns the probe timeout; RFC 9002, section 6.2.1.
    ///
    /// It includes twice the acknowledgement delay, since an acknowledgement may be lost, and the
    /// next one repeats it.
    pub(crate) fn probe_timeout(&self) -> Duration {
        let variation = self.variation_nanos.saturating_mul(4);
        let nanos = self
            .smoothed_nanos
            .saturating_add(variation.max(GRANULARITY_NANOS));
        Duration::from_nanos(nanos).saturating_add(ACK_WAIT.saturating_mul(2))
    }
}

/// Fixed point: billionths of a byte.
const SCALE: u64 = 1_000_000_000;

/// Token bucket in billionths of a byte: exact, in whole numbers.
#[derive(Debug)]
pub(crate) struct Rate {
    bytes_per_s: u32,
    /// Capacity.
    burst: u64,
    /// Level at `at`.
    level: u64,
    at: Instant,
}

impl Rate {
    /// Creates a full one.
    pub(crate) fn new(bytes_per_s: u32, burst_bytes: u32, now: Instant) -> Self {
        let burst = scaled(burst_bytes);
        Self {
            bytes_per_s,
            burst,
            level: burst,
            at: now,
        }
    }

    /// Adds tokens for the elapsed time.
    pub(crate) fn refill(&mut self, now: Instant) {
        let nanos = now.as_nanos().saturating_sub(self.at.as_nanos());
        let gained = nanos.saturating_mul(self.bytes_per_s.into());
        self.level = self.level.saturating_add(gained).min(self.burst);
        self.at = self.at.max(now);
    }

    pub(crate) fn holds(&self, bytes: u32) -> bool {
        self.level >= scaled(bytes)
    }

    pub(crate) fn spend(&mut self, bytes: u32) {
        self.level = self.level.saturating_sub(scaled(bytes));
    }

    /// Returns when it holds `bytes`, if none are spent before; `None` for never.
    pub(crate) fn holds_at(&self, bytes: u32) -> Option<Instant> {
        let missing = scaled(bytes).saturating_sub(self.level);
        if missing == 0 {
            return Some(self.at);
        }
        if scaled(bytes) > self.burst || self.bytes_per_s == 0 {
            return None;
        }
        let nanos = missing.div_ceil(self.bytes_per_s.into());
        Some(after(self.at, Duration::from_nanos(nanos)))
    }
}

fn scaled(bytes: u32) -> u64 {
    u64::from(bytes).saturating_mul(SCALE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_timeout_follows_the_round_trip() {
        let mut trip = RoundTrip::new();
        assert_eq!(trip.probe_timeout(), Duration::from_millis(333 + 666 + 40));
        let start = Instant::from_millis(5);
        let at = |millis| start + Duration::from_millis(millis);
        trip.on_sample(at(100), start);
        assert_eq!(trip.probe_timeout(), Duration::from_millis(100 + 200 + 40));
        (0..100).for_each(|_| trip.on_sample(at(100), start));
        assert_eq!(trip.probe_timeout(), Duration::from_millis(100 + 1 + 40));
        // An acknowledgement from before the transmission, and one after centuries.
        trip.on_sample(Instant::ZERO, start);
        trip.on_sample(Instant::from_nanos(u64::MAX), start);
        trip.on_sample(Instant::from_nanos(u64::MAX), start);
        assert!(trip.probe_timeout() > Duration::from_secs(1 << 30));
    }

    #[test]
    fn it_is_exact_and_holds_no_more_than_its_burst() {
        let mut rate = Rate::new(3, 10, Instant::ZERO);
        rate.spend(10);
        assert_eq!(rate.holds_at(1), Some(Instant::from_nanos(333_333_334)));
        rate.refill(Instant::from_nanos(333_333_333));
        assert!(!rate.holds(1));
        rate.refill(Instant::from_nanos(333_333_334));
        assert!(rate.holds(1));
        // A clock that steps back adds nothing.
        rate.refill(Instant::ZERO);
        rate.refill(Instant::from_nanos(333_333_334));
        assert!(!rate.holds(2));
        rate.refill(Instant::from_nanos(u64::MAX));
        assert!(rate.holds(10) && !rate.holds(11));
        assert_eq!(rate.holds_at(11), None);
        assert_eq!(Rate::new(0, 0, Instant::ZERO).holds_at(1), None);
    }
}
