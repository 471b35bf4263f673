//! Sender of snapshots; round trip and rate.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use wire::Instant;

use super::{STALL_TIME, TransferLimits};
use crate::message::{
    AHEAD_MAX, CHUNK_HEAD_LEN, Chunk, ChunkAck, Direction, chunk_count, chunk_len, chunk_offset,
    write_chunk,
};
use crate::tick::slot;

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

    /// Appends a due datagram to `out`; false if there is none. Lost chunks go first, then unsent
    /// ones, in order, then the last [`TAIL_MAX`](super::TAIL_MAX) again.
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
        let from = self.flight.unanswered_from.filter(|_| !self.is_done())?;
        Some(from + STALL_TIME)
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

    fn datagram_len(&self) -> u32 {
        let head_len = u32::try_from(CHUNK_HEAD_LEN).unwrap_or(0);
        head_len.saturating_add(self.stride.into())
    }
}

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

    /// RFC 9002, section 6.2.1, with twice the acknowledgement delay.
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
    burst: u64,
    level: u64,
    at: Instant,
}

impl Rate {
    pub(crate) fn new(bytes_per_s: u32, burst_bytes: u32, now: Instant) -> Self {
        let burst = scaled(burst_bytes);
        Self {
            bytes_per_s,
            burst,
            level: burst,
            at: now,
        }
    }

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

    pub(crate) fn holds_at(&self, bytes: u32) -> Option<Instant> {
        let missing = scaled(bytes).saturating_sub(self.level);
        if missing == 0 {
            return Some(self.at);
        }
        if scaled(bytes) > self.burst || self.bytes_per_s == 0 {
            return None;
        }
        let nanos = missing.div_ceil(self.bytes_per_s.into());
        Some(self.at + Duration::from_nanos(nanos))
    }
}

fn scaled(bytes: u32) -> u64 {
    u64::from(bytes).saturating_mul(SCALE)
}

/// Transmissions at the end that are sent twice without a loss; 64, which is 56 ms at 10 Mbit/s. A
/// loss among them would only be noticed a round trip later, with the link idle meanwhile.
pub const TAIL_MAX: u32 = 64;

/// Later numbers that arrive before an earlier one counts as lost; RFC 9002, section 6.1.1.
const PASSED_MIN: u32 = 3;

/// Transmissions remembered: twice the chunks that may be in flight.
const LOG_LEN: u32 = 2_048;

/// Chunks sent per probe timeout; RFC 9002, section 6.2.4.
const PROBE_CHUNKS: u8 = 2;

/// Longest probe interval, unless the probe timeout is longer. RFC 9002, section 6.2.1, has no
/// bound, but players do not wait for minutes, and two datagrams per second are no load.
const PROBE_TIMEOUT_MAX: Duration = Duration::from_secs(1);

/// Chunks in flight, by index and by transmission. All memory is allocated at the start.
#[derive(Debug)]
struct Flight {
    count: u32,
    base: u32,
    /// First chunk never sent; at most [`AHEAD_MAX`] + 1 past `base`.
    unsent: u32,
    chunks: Vec<ChunkState>,
    log: SendLog,
    /// Largest number known to have arrived, and when it was sent.
    latest: Option<(u32, Instant)>,
    reordering: Duration,
    /// Chunks found lost; some may have been acknowledged since.
    lost: VecDeque<u32>,
    /// Once every chunk was sent: the next transmission to copy.
    tail: Option<u32>,
    trip: RoundTrip,
    /// When the last acknowledgement arrived; before that, when the first chunk was sent.
    last_received: Option<Instant>,
    /// When the first chunk was sent since the last arrival; `None` if nothing was sent since.
    unanswered_from: Option<Instant>,
    probe: Probe,
}

/// The newest [`LOG_LEN`] transmissions.
#[derive(Debug)]
struct SendLog {
    ring: Vec<Transmission>,
    next: u32,
    unjudged: u32,
}

impl SendLog {
    fn get(&self, number: u32) -> Option<Transmission> {
        let age = self.next.checked_sub(number)?;
        let is_kept = age > 0 && age <= LOG_LEN;
        let kept = self.ring.get(slot(number, LOG_LEN)).copied();
        kept.filter(|_| is_kept)
    }

    fn push(&mut self, transmission: Transmission) -> u32 {
        let number = self.next;
        if let Some(kept) = self.ring.get_mut(slot(number, LOG_LEN)) {
            *kept = transmission;
        }
        self.next = number.saturating_add(1);
        number
    }
}

#[derive(Debug)]
struct Probe {
    last: Instant,
    timeouts: u32,
    chunks: u8,
    next: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct ChunkState {
    number: u32,
    before: Option<u32>,
    is_acked: bool,
    is_lost: bool,
}

#[derive(Clone, Copy, Debug)]
struct Transmission {
    index: u32,
    at: Instant,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// It was never sent, or it was lost.
    Needed,
    /// A precaution: an earlier transmission may still be in flight.
    Copy,
}

impl Flight {
    fn new(count: u32) -> Self {
        let slots = AHEAD_MAX.saturating_add(1).min(count);
        let slots = usize::try_from(slots).unwrap_or(0);
        let nothing = Transmission {
            index: 0,
            at: Instant::ZERO,
            purpose: Purpose::Copy,
        };
        Self {
            count,
            base: 0,
            unsent: 0,
            chunks: vec![ChunkState::default(); slots],
            log: SendLog {
                ring: vec![nothing; usize::try_from(LOG_LEN).unwrap_or(0)],
                next: 0,
                unjudged: 0,
            },
            latest: None,
            reordering: Duration::ZERO,
            lost: VecDeque::with_capacity(slots),
            tail: None,
            trip: RoundTrip::new(),
            last_received: None,
            unanswered_from: None,
            probe: Probe {
                last: Instant::ZERO,
                timeouts: 0,
                chunks: 0,
                next: 0,
            },
        }
    }

    fn on_ack(&mut self, now: Instant, ack: &ChunkAck<'_>) {
        // Reordered acknowledgements bring nothing new.
        if ack.next > self.unsent || ack.next < self.base || ack.latest >= self.log.next {
            return;
        }
        self.last_received = Some(now);
        self.probe.timeouts = 0;
        self.probe.chunks = 0;
        let before = self.latest;
        if before.is_none_or(|(before, _)| before < ack.latest)
            && let Some(transmission) = self.log.get(ack.latest)
        {
            self.latest = Some((ack.latest, transmission.at));
            self.trip.on_sample(now, transmission.at);
        }
        for index in (self.base..ack.next).chain(ack.arrived()) {
            if index < self.unsent {
                self.on_arrived(index, before, ack.latest);
            }
        }
        self.base = ack.next;
        while self.base < self.unsent && self.chunk(self.base).is_acked {
            self.base = self.base.saturating_add(1);
        }
    }

    fn judge(&mut self, now: Instant) {
        self.log.unjudged = self.log.unjudged.max(self.log.next.saturating_sub(LOG_LEN));
        while self.log.unjudged < self.log.next {
            if let Some(transmission) = self.awaited(self.log.unjudged) {
                if !self.is_lost(now, self.log.unjudged, &transmission) {
                    break;
                }
                if let Some(state) = self.chunk_mut(transmission.index) {
                    state.is_lost = true;
                }
                self.lost.push_back(transmission.index);
            }
            self.log.unjudged = self.log.unjudged.saturating_add(1);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.probe.timeouts = self.probe.timeouts.saturating_add(1);
            self.probe.chunks = PROBE_CHUNKS;
            self.probe.next = self.base;
            self.probe.last = now;
        }
    }

    /// A lost chunk first, then a new one, then a copy.
    fn choose(&mut self, now: Instant) -> Option<(u32, Purpose)> {
        while let Some(index) = self.lost.pop_front() {
            if self.is_open(index) && self.chunk(index).is_lost {
                return Some((index, Purpose::Needed));
            }
        }
        if self.probe.chunks > 0 {
            let mut rest = self.probe.next.max(self.base)..self.unsent;
            if let Some(index) = rest.find(|&index| self.is_open(index)) {
                self.probe.chunks = self.probe.chunks.saturating_sub(1);
                self.probe.next = index.saturating_add(1);
                return Some((index, Purpose::Copy));
            }
            self.probe.chunks = 0;
        }
        if self.may_begin(now) {
            return Some((self.unsent, Purpose::Needed));
        }
        while let Some(number) = self.next_in_tail(now) {
            self.tail = Some(number.saturating_add(1));
            if let Some(transmission) = self.awaited(number)
                && transmission.purpose == Purpose::Needed
            {
                return Some((transmission.index, Purpose::Copy));
            }
        }
        None
    }

    fn on_sent(&mut self, now: Instant, index: u32, purpose: Purpose) -> u32 {
        let is_first = index == self.unsent;
        debug_assert!(is_first || self.is_open(index), "{index} is not in flight");
        let number = self.log.push(Transmission {
            index,
            at: now,
            purpose,
        });
        if let Some(state) = self.chunk_mut(index) {
            *state = ChunkState {
                number,
                before: (!is_first).then_some(state.number),
                is_acked: false,
                is_lost: false,
            };
        }
        if is_first {
            self.unsent = self.unsent.saturating_add(1);
            if self.unsent == self.count {
                self.tail = Some(self.log.next.saturating_sub(TAIL_MAX));
            }
        }
        self.probe.last = now;
        self.last_received.get_or_insert(now);
        self.unanswered_from.get_or_insert(now);
        number
    }

    fn has_work(&self, now: Instant) -> bool {
        !self.lost.is_empty()
            || self.probe.chunks > 0
            || self.may_begin(now)
            || self.next_in_tail(now).is_some()
    }

    fn timer(&self) -> Option<Instant> {
        let late = (self.log.unjudged..self.log.next)
            .find_map(|number| Some((number, self.awaited(number)?)))
            .filter(|(number, _)| self.latest.is_some_and(|(latest, _)| latest > *number))
            .map(|(_, transmission)| transmission.at + self.trip.probe_timeout());
        match (late, self.probe_at()) {
            (Some(late), Some(silence)) => Some(late.min(silence)),
            (late, silence) => late.or(silence),
        }
    }

    const fn is_done(&self) -> bool {
        self.base >= self.count
    }

    /// A chunk arrived; `before` was the latest arrival until this acknowledgement, `latest` is the
    /// largest number it names.
    fn on_arrived(&mut self, index: u32, before: Option<(u32, Instant)>, latest: u32) {
        let Some(state) = self.chunk_mut(index).filter(|state| !state.is_acked) else {
            return;
        };
        state.is_acked = true;
        let (number, earlier) = (state.number, state.before);
        self.unanswered_from = None;
        // A transmission past `latest` has not arrived: it was the previous one.
        let arrived = match earlier {
            None => number,
            Some(earlier) if number > latest => earlier,
            Some(_) => return,
        };
        // It was reordered, not lost; so may the next be.
        if let Some((before, before_at)) = before
            && before > arrived
            && let Some(transmission) = self.log.get(arrived)
        {
            let reordering = before_at.saturating_since(transmission.at);
            self.reordering = self.reordering.max(reordering);
        }
    }

    fn is_lost(&self, now: Instant, number: u32, transmission: &Transmission) -> bool {
        let Some((latest, latest_at)) = self.latest else {
            return false;
        };
        let passed = latest.saturating_sub(number);
        let window = self.trip.reorder_window(self.reordering);
        let is_overtaken = passed >= PASSED_MIN && transmission.at + window <= latest_at;
        let is_late = passed > 0 && transmission.at + self.trip.probe_timeout() <= now;
        is_overtaken || is_late
    }

    /// Whether a new chunk may be sent: the receiver has room, and answers.
    fn may_begin(&self, now: Instant) -> bool {
        self.unsent < self.count
            && self.unsent.saturating_sub(self.base) <= AHEAD_MAX
            && !self.is_unanswered(now)
    }

    fn next_in_tail(&self, now: Instant) -> Option<u32> {
        self.tail
            .filter(|&number| number < self.log.next && !self.is_unanswered(now))
    }

    /// Whether an answer is overdue: more chunks would likely be lost.
    fn is_unanswered(&self, now: Instant) -> bool {
        let is_overdue = |last_received| last_received + self.trip.probe_timeout() <= now;
        self.base < self.unsent && self.last_received.is_some_and(is_overdue)
    }

    fn probe_at(&self) -> Option<Instant> {
        let factor = 1_u32.checked_shl(self.probe.timeouts).unwrap_or(u32::MAX);
        let probe_timeout = self.trip.probe_timeout();
        let wait = probe_timeout
            .saturating_mul(factor)
            .min(probe_timeout.max(PROBE_TIMEOUT_MAX));
        (self.base < self.unsent).then(|| self.probe.last + wait)
    }

    /// The transmission `number`, if it is the newest of an open chunk.
    fn awaited(&self, number: u32) -> Option<Transmission> {
        let transmission = self.log.get(number)?;
        let state = self.chunk(transmission.index);
        let is_newest = state.number == number && !state.is_lost;
        (self.is_open(transmission.index) && is_newest).then_some(transmission)
    }

    fn is_open(&self, index: u32) -> bool {
        (self.base..self.unsent).contains(&index) && !self.chunk(index).is_acked
    }

    fn chunk(&self, index: u32) -> ChunkState {
        let slot = slot(index, self.chunks.len().try_into().unwrap_or(u32::MAX));
        self.chunks.get(slot).copied().unwrap_or_default()
    }

    fn chunk_mut(&mut self, index: u32) -> Option<&mut ChunkState> {
        let slot = slot(index, self.chunks.len().try_into().unwrap_or(u32::MAX));
        self.chunks.get_mut(slot)
    }
}

#[cfg(test)]
mod tests;
