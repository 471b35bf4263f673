//! Unacknowledged chunks, loss detection, and selection of the next chunk.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

use super::after;
use super::outgoing::RoundTrip;
use crate::message::{AHEAD_MAX, ChunkAck};

/// Transmissions at the end that are sent twice without a loss; 64, which is 56 ms at 10 Mbit/s.
///
/// A lost chunk at the end is only noticed a round trip later, when all others have arrived, with
/// the link idle meanwhile. The copies cost 7 % of a mebibyte and save that round trip.
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
pub(super) struct Flight {
    /// Chunks of the snapshot.
    count: u32,
    /// First unacknowledged chunk.
    base: u32,
    /// First chunk never sent; at most [`AHEAD_MAX`] + 1 past `base`.
    unsent: u32,
    /// Chunks from `base` to `unsent`, by index modulo the length.
    chunks: Vec<ChunkState>,
    /// Number of the next transmission.
    number: u32,
    /// The newest [`LOG_LEN`] transmissions, by number modulo the length.
    log: Vec<Transmission>,
    /// First transmission not yet judged as lost or not.
    unjudged: u32,
    /// Largest number known to have arrived, and when it was sent.
    latest: Option<(u32, Instant)>,
    /// Longest observed reordering time.
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
    /// When a chunk was last sent, or the last probe timeout.
    last: Instant,
    /// Probe timeouts since the last acknowledgement.
    silences: u32,
    /// Chunks still to send for the last one.
    nudges: u8,
    /// Where to search for the next of them.
    nudge_from: u32,
}

/// A chunk in flight.
#[derive(Clone, Copy, Debug, Default)]
struct ChunkState {
    /// Number of its newest transmission.
    number: u32,
    /// Number of the previous one.
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

/// Why a chunk is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It was never sent, or it was lost.
    Needed,
    /// A precaution: an earlier transmission may still be in flight.
    Copy,
}

impl Flight {
    pub(super) fn new(count: u32) -> Self {
        let places = AHEAD_MAX.saturating_add(1).min(count);
        let places = usize::try_from(places).unwrap_or(0);
        let nothing = Transmission {
            index: 0,
            at: Instant::ZERO,
            purpose: Purpose::Copy,
        };
        Self {
            count,
            base: 0,
            unsent: 0,
            chunks: vec![ChunkState::default(); places],
            number: 0,
            log: vec![nothing; usize::try_from(LOG_LEN).unwrap_or(0)],
            unjudged: 0,
            latest: None,
            reordering: Duration::ZERO,
            lost: VecDeque::with_capacity(places),
            tail: None,
            trip: RoundTrip::new(),
            last_received: None,
            unanswered_from: None,
            last: Instant::ZERO,
            silences: 0,
            nudges: 0,
            nudge_from: 0,
        }
    }

    /// Handles an acknowledgement; impossible ones are ignored.
    pub(super) fn on_ack(&mut self, now: Instant, ack: &ChunkAck<'_>) {
        // Reordered acknowledgements bring nothing new.
        if ack.next > self.unsent || ack.next < self.base || ack.latest >= self.number {
            return;
        }
        self.last_received = Some(now);
        self.silences = 0;
        self.nudges = 0;
        let before = self.latest;
        if before.is_none_or(|(before, _)| before < ack.latest)
            && let Some(transmission) = self.transmission(ack.latest)
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

    /// Detects losses, and probe timeouts.
    pub(super) fn judge(&mut self, now: Instant) {
        self.unjudged = self.unjudged.max(self.number.saturating_sub(LOG_LEN));
        while self.unjudged < self.number {
            if let Some(transmission) = self.awaited(self.unjudged) {
                if !self.is_lost(now, self.unjudged, &transmission) {
                    break;
                }
                if let Some(state) = self.chunk_mut(transmission.index) {
                    state.is_lost = true;
                }
                self.lost.push_back(transmission.index);
            }
            self.unjudged = self.unjudged.saturating_add(1);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.silences = self.silences.saturating_add(1);
            self.nudges = PROBE_CHUNKS;
            self.nudge_from = self.base;
            self.last = now;
        }
    }

    /// Selects the chunk to send: a lost one first, which limits what the receiver has to keep,
    /// then a new one, then a copy.
    pub(super) fn choose(&mut self, now: Instant) -> Option<(u32, Purpose)> {
        while let Some(index) = self.lost.pop_front() {
            if self.is_open(index) && self.chunk(index).is_lost {
                return Some((index, Purpose::Needed));
            }
        }
        if self.nudges > 0 {
            let mut rest = self.nudge_from.max(self.base)..self.unsent;
            if let Some(index) = rest.find(|&index| self.is_open(index)) {
                self.nudges = self.nudges.saturating_sub(1);
                self.nudge_from = index.saturating_add(1);
                return Some((index, Purpose::Copy));
            }
            self.nudges = 0;
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

    /// Records that chunk `index` is sent, and returns the transmission's number.
    pub(super) fn on_sent(&mut self, now: Instant, index: u32, purpose: Purpose) -> u32 {
        let number = self.number;
        let is_first = index == self.unsent;
        debug_assert!(is_first || self.is_open(index), "{index} is not under way");
        if let Some(state) = self.chunk_mut(index) {
            *state = ChunkState {
                number,
                before: (!is_first).then_some(state.number),
                is_acked: false,
                is_lost: false,
            };
        }
        if let Some(place) = self.log.get_mut(place(number, LOG_LEN)) {
            *place = Transmission {
                index,
                at: now,
                purpose,
            };
        }
        self.number = number.saturating_add(1);
        if is_first {
            self.unsent = self.unsent.saturating_add(1);
            if self.unsent == self.count {
                self.tail = Some(self.number.saturating_sub(TAIL_MAX));
            }
        }
        self.last = now;
        self.last_received.get_or_insert(now);
        self.unanswered_from.get_or_insert(now);
        number
    }

    /// Whether [`choose`](Self::choose) may find something.
    pub(super) fn has_work(&self, now: Instant) -> bool {
        !self.lost.is_empty()
            || self.nudges > 0
            || self.may_begin(now)
            || self.next_in_tail(now).is_some()
    }

    /// When [`judge`](Self::judge) may have something to do.
    pub(super) fn timer(&self) -> Option<Instant> {
        let late = (self.unjudged..self.number)
            .find_map(|number| Some((number, self.awaited(number)?)))
            .filter(|(number, _)| self.latest.is_some_and(|(latest, _)| latest > *number))
            .map(|(_, transmission)| after(transmission.at, self.trip.probe_timeout()));
        match (late, self.probe_at()) {
            (Some(late), Some(silence)) => Some(late.min(silence)),
            (late, silence) => late.or(silence),
        }
    }

    /// Since when chunks are sent without any new arrival.
    pub(super) const fn unanswered_from(&self) -> Option<Instant> {
        self.unanswered_from
    }

    /// Whether all chunks are acknowledged.
    pub(super) const fn is_done(&self) -> bool {
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
            && let Some(transmission) = self.transmission(arrived)
        {
            let reordering = before_at.saturating_since(transmission.at);
            self.reordering = self.reordering.max(reordering);
        }
    }

    /// Whether later arrivals or its age show that `transmission` is lost.
    fn is_lost(&self, now: Instant, number: u32, transmission: &Transmission) -> bool {
        let Some((latest, latest_at)) = self.latest else {
            return false;
        };
        let passed = latest.saturating_sub(number);
        let window = self.trip.reorder_window(self.reordering);
        let is_overtaken = passed >= PASSED_MIN && after(transmission.at, window) <= latest_at;
        let is_late = passed > 0 && after(transmission.at, self.trip.probe_timeout()) <= now;
        is_overtaken || is_late
    }

    /// Whether a new chunk may be sent: the receiver has room, and answers.
    fn may_begin(&self, now: Instant) -> bool {
        self.unsent < self.count
            && self.unsent.saturating_sub(self.base) <= AHEAD_MAX
            && !self.is_unanswered(now)
    }

    /// The next transmission that may need a copy.
    fn next_in_tail(&self, now: Instant) -> Option<u32> {
        self.tail
            .filter(|&number| number < self.number && !self.is_unanswered(now))
    }

    /// Whether an answer is overdue: more chunks would likely be lost.
    fn is_unanswered(&self, now: Instant) -> bool {
        let is_overdue = |last_received| after(last_received, self.trip.probe_timeout()) <= now;
        self.base < self.unsent && self.last_received.is_some_and(is_overdue)
    }

    /// The probe timeout, unless something is sent or received.
    fn probe_at(&self) -> Option<Instant> {
        let factor = 1_u32.checked_shl(self.silences).unwrap_or(u32::MAX);
        let probe_timeout = self.trip.probe_timeout();
        let wait = probe_timeout
            .saturating_mul(factor)
            .min(probe_timeout.max(PROBE_TIMEOUT_MAX));
        (self.base < self.unsent).then(|| after(self.last, wait))
    }

    /// The transmission `number`, if it is the newest of a chunk neither acknowledged nor known to
    /// be lost.
    fn awaited(&self, number: u32) -> Option<Transmission> {
        let transmission = self.transmission(number)?;
        let state = self.chunk(transmission.index);
        let is_newest = state.number == number && !state.is_lost;
        (self.is_open(transmission.index) && is_newest).then_some(transmission)
    }

    /// The transmission `number`, if remembered.
    fn transmission(&self, number: u32) -> Option<Transmission> {
        let age = self.number.checked_sub(number)?;
        let is_kept = age > 0 && age <= LOG_LEN;
        let place = self.log.get(place(number, LOG_LEN)).copied();
        place.filter(|_| is_kept)
    }

    /// Whether the chunk was sent and is unacknowledged.
    fn is_open(&self, index: u32) -> bool {
        (self.base..self.unsent).contains(&index) && !self.chunk(index).is_acked
    }

    fn chunk(&self, index: u32) -> ChunkState {
        let place = place(index, self.chunks.len().try_into().unwrap_or(u32::MAX));
        self.chunks.get(place).copied().unwrap_or_default()
    }

    fn chunk_mut(&mut self, index: u32) -> Option<&mut ChunkState> {
        let place = place(index, self.chunks.len().try_into().unwrap_or(u32::MAX));
        self.chunks.get_mut(place)
    }
}

/// Slot of `number` in a ring of `len` slots.
fn place(number: u32, len: u32) -> usize {
    let place = number.checked_rem(len).unwrap_or(0);
    usize::try_from(place).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests;
