//! Sender of states to one receiver.

use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;

use wire::Instant;

use super::{
    FRAGMENT_HEAD_LEN, FRAGMENTS_MAX, FragmentSet, PushError, StateAck, StateLimits, StatePart,
    WHOLE_HEAD_LEN, decode_state_ack, part_range, write_part,
};
use crate::transfer::{Rate, RoundTrip};

/// Lowest datagram limit, as for chunks of snapshots.
const DATAGRAM_LEN_MIN: u16 = 80;

/// Longest pause before a part is repeated to a silent receiver, which so has the state within a
/// second of its return.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Gaps after which a repaired state is abandoned: 8 s by default.
const HOLD_GAPS: u32 = 32;

/// States with a send time kept for round trip samples: 1 s at 60 Hz.
const RECENT: usize = 64;

/// Sends states to one receiver: the one in flight, and the newest.
///
/// Memory besides the two states, which several senders may share: 4 kB.
#[derive(Debug)]
pub struct StateSender {
    limits: StateLimits,
    split: Split,
    rate: Rate,
    trip: RoundTrip,
    /// Number of the last state pushed; 0 before the first.
    last: u32,
    waiting: Option<Numbered>,
    flight: Option<Flight>,
    sent_at: Vec<Instant>,
    recent: Vec<Sent>,
    /// Number of the newest state that the receiver has completely; 0 for none.
    acknowledged: u32,
    /// When that was acknowledged, or when sending began after a pause.
    known_at: Instant,
    /// When the receiver last acknowledged anything new, or when sending began after a pause.
    last_received: Instant,
    due: Option<Instant>,
    stats: StateSenderStats,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Number of the state; 0 if unused.
    number: u32,
    last: u16,
    at: Instant,
}

/// Counters of states and acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateSenderStats {
    /// States replaced by a newer one before any of them was sent.
    pub replaced: u64,
    /// States sent completely and abandoned for a newer one before they were acknowledged.
    pub left: u64,
    /// Datagrams retransmitted.
    pub repeated: u64,
    /// Malformed datagrams, and acknowledgements of states never sent. Acknowledgements of older
    /// states are not counted, since datagrams may be reordered.
    pub refused: u64,
}

impl StateSender {
    /// Creates a sender.
    #[must_use]
    pub fn new(limits: &StateLimits, now: Instant) -> Self {
        let datagram_len = limits.datagram_len_max.max(DATAGRAM_LEN_MIN);
        let burst = limits.burst_bytes.max(datagram_len.into());
        Self {
            limits: *limits,
            split: Split::new(datagram_len.into()),
            rate: Rate::new(limits.rate_bytes_per_s, burst, now),
            trip: RoundTrip::new(),
            last: 0,
            waiting: None,
            flight: None,
            sent_at: vec![Instant::ZERO; FRAGMENTS_MAX.into()],
            recent: vec![Sent::default(); RECENT],
            acknowledged: 0,
            known_at: now,
            last_received: now,
            due: None,
            stats: StateSenderStats::default(),
        }
    }

    /// Takes a state, which replaces a waiting one, and returns its number: one more than the
    /// previous, from 1 on.
    ///
    /// # Errors
    ///
    /// [`PushError`]; a waiting state is kept.
    pub fn push(&mut self, now: Instant, state: Arc<[u8]>) -> Result<u32, PushError> {
        let count = self.split.count(&state).ok_or(PushError::TooLong)?;
        let number = self.last.checked_add(1).ok_or(PushError::Exhausted)?;
        self.last = number;
        let waiting = Numbered {
            number,
            bytes: state,
            count,
        };
        if self.waiting.replace(waiting).is_some() {
            self.stats.replaced = self.stats.replaced.saturating_add(1);
        }
        self.rate.refill(now);
        self.due = self.plan(now);
        Ok(number)
    }

    /// Appends a due datagram to `out`; false if there is none.
    ///
    /// Unsent parts take precedence over retransmissions.
    pub fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        self.rate.refill(now);
        let next = self.next(now);
        let is_due = next.is_some_and(|(at, len)| at <= now && self.rate.holds(len));
        let is_sent = is_due && self.send(now, out);
        self.due = self.plan(now);
        is_sent
    }

    /// Handles a datagram of the receiver.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        let ack = decode_state_ack(datagram);
        if !ack.is_ok_and(|ack| self.on_ack(now, &ack)) {
            self.stats.refused = self.stats.refused.saturating_add(1);
        }
        self.rate.refill(now);
        self.due = self.plan(now);
    }

    /// Returns when to call [`poll`](Self::poll) next, if nothing arrives before; `None` if the
    /// newest state is acknowledged, or the rate is 0.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the number of the newest state that the receiver acknowledged completely.
    pub fn acknowledged(&self) -> Option<u32> {
        (self.acknowledged > 0).then_some(self.acknowledged)
    }

    /// Returns the length of the longest state it takes, in bytes: 256 fragments.
    pub const fn len_max(&self) -> usize {
        self.split.len_max()
    }

    /// Returns what became of states.
    pub const fn stats(&self) -> &StateSenderStats {
        &self.stats
    }

    fn send(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        self.advance(now);
        let Some(next) = self.next_part(now) else {
            return false;
        };
        let Some(flight) = &mut self.flight else {
            return false;
        };
        self.rate.spend(flight.state.datagram_len(next.index));
        if flight.is_sent() {
            self.stats.repeated = self.stats.repeated.saturating_add(1);
        }
        flight.send(now, next.index, &mut self.sent_at, out);
        if flight.is_sent() {
            // Retransmissions give no round trip sample; Karn and Partridge, 1987.
            let Numbered { number, count, .. } = flight.state;
            if let Some(recent) = self.recent.get_mut(slot(number)) {
                *recent = Sent {
                    number: if flight.is_repeated { 0 } else { number },
                    last: count.saturating_sub(1),
                    at: now,
                };
            }
        }
        true
    }

    fn plan(&self, now: Instant) -> Option<Instant> {
        let (at, len) = self.next(now)?;
        Some(at.max(self.rate.holds_at(len)?))
    }

    fn on_ack(&mut self, now: Instant, ack: &StateAck<'_>) -> bool {
        let sent = self.flight.as_ref().map(|flight| flight.state.number);
        // Nothing is in flight if the receiver has all that was sent.
        let newest = sent.unwrap_or(self.acknowledged);
        if ack.whole.max(ack.partial) > newest {
            return false;
        }
        if ack.whole > self.acknowledged {
            self.acknowledged = ack.whole;
            self.known_at = now;
            self.last_received = now;
            self.measure(now, ack.whole, |_| true);
        }
        self.measure(now, ack.partial, |last| {
            ack.arrived().any(|index| index == last)
        });
        let Some(flight) = &mut self.flight else {
            return true;
        };
        if ack.whole == newest {
            self.flight = None;
        } else if ack.partial == newest {
            self.last_received = now;
            ack.arrived().for_each(|index| flight.on_arrived(index));
        }
        true
    }

    /// Takes a round trip sample from the last part of a state, if it `has_arrived`.
    fn measure(&mut self, now: Instant, number: u32, has_arrived: impl FnOnce(u16) -> bool) {
        let recent = self.recent.get_mut(slot(number));
        let recent = recent.filter(|sent| number > 0 && sent.number == number);
        if let Some(sent) = recent
            && has_arrived(sent.last)
        {
            self.trip.on_sample(now, sent.at);
            sent.number = 0;
        }
    }

    fn next(&self, now: Instant) -> Option<(Instant, u32)> {
        let part = self.next_part(now).zip(self.flight.as_ref());
        let part = part.map(|(next, flight)| (next.at, flight.state.datagram_len(next.index)));
        let first = self.waiting.as_ref().zip(self.begins_at(now));
        let first = first.map(|(state, at)| (at, state.datagram_len(0)));
        [first, part]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| (*at).max(now))
    }

    fn next_part(&self, now: Instant) -> Option<Next> {
        let flight = self.flight.as_ref()?;
        // A newer state is waiting: a longer pause would save nothing.
        let pause_max = if self.waiting.is_some() {
            Duration::ZERO
        } else {
            PAUSE_MAX
        };
        let retransmit_timer = RetransmitTimer {
            answer: self.trip.probe_timeout(),
            last_received: self.last_received,
            pause_max,
        };
        flight.next(now, &self.sent_at, &retransmit_timer)
    }

    /// When a newer state replaces that in flight; `None` if it has unsent parts.
    fn begins_at(&self, now: Instant) -> Option<Instant> {
        let Some(flight) = &self.flight else {
            return Some(now);
        };
        if !flight.is_sent() {
            return None;
        }
        let gap_max = self.limits.gap_max;
        let is_held = now.saturating_since(self.known_at) >= gap_max;
        // A new state of one part costs no more than repeating the old one.
        if flight.state.count == 1 || !is_held {
            return Some(now);
        }
        let given_up = self.known_at + gap_max.saturating_mul(HOLD_GAPS);
        Some(given_up.max(now))
    }

    fn advance(&mut self, now: Instant) {
        if self.begins_at(now).is_none_or(|at| at > now) {
            return;
        }
        let Some(state) = self.waiting.take() else {
            return;
        };
        if self.flight.is_some() {
            self.stats.left = self.stats.left.saturating_add(1);
        } else {
            self.last_received = now;
        }
        let given_up = self.limits.gap_max.saturating_mul(HOLD_GAPS);
        if self.flight.is_none() || now.saturating_since(self.known_at) >= given_up {
            self.known_at = now;
        }
        self.flight = Some(Flight::new(state));
    }
}

fn slot(number: u32) -> usize {
    usize::try_from(number).unwrap_or(0) % RECENT
}

#[derive(Clone, Copy, Debug)]
struct Split {
    datagram_len: usize,
}

impl Split {
    const fn new(datagram_len: usize) -> Self {
        Self { datagram_len }
    }

    const fn len_max(self) -> usize {
        self.stride().saturating_mul(FRAGMENTS_MAX as usize)
    }

    fn count(self, state: &[u8]) -> Option<u16> {
        if state.len().saturating_add(WHOLE_HEAD_LEN) <= self.datagram_len {
            return Some(1);
        }
        let count = state.len().div_ceil(self.stride());
        // It only fits one datagram with the short header.
        let count = u16::try_from(count.max(2)).ok()?;
        (count <= FRAGMENTS_MAX).then_some(count)
    }

    const fn stride(self) -> usize {
        self.datagram_len.saturating_sub(FRAGMENT_HEAD_LEN)
    }
}

#[derive(Clone, Debug)]
struct Numbered {
    number: u32,
    bytes: Arc<[u8]>,
    count: u16,
}

impl Numbered {
    fn datagram_len(&self, index: u16) -> u32 {
        let head = if self.count > 1 {
            FRAGMENT_HEAD_LEN
        } else {
            WHOLE_HEAD_LEN
        };
        let range = self.range(index);
        let len = head.saturating_add(range.end.saturating_sub(range.start));
        u32::try_from(len).unwrap_or(u32::MAX)
    }

    fn write(&self, index: u16, out: &mut Vec<u8>) {
        let part = StatePart {
            number: self.number,
            total: self.total(),
            count: self.count,
            index,
            bytes: self.bytes.get(self.range(index)).unwrap_or_default(),
        };
        write_part(out, &part);
    }

    fn range(&self, index: u16) -> Range<usize> {
        let range = part_range(self.total(), self.count, index);
        let [start, end] =
            [range.start, range.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        start..end
    }

    fn total(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }
}

#[derive(Debug)]
struct Flight {
    state: Numbered,
    unsent: u16,
    arrived: FragmentSet,
    is_repeated: bool,
}

#[derive(Clone, Copy, Debug)]
struct RetransmitTimer {
    answer: Duration,
    /// When the receiver last acknowledged anything new.
    last_received: Instant,
    /// Longest pause towards a silent receiver, unless an answer may take longer.
    pause_max: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    index: u16,
    at: Instant,
}

impl Flight {
    fn new(state: Numbered) -> Self {
        Self {
            state,
            unsent: 0,
            arrived: FragmentSet::default(),
            is_repeated: false,
        }
    }

    /// Returns the next datagram: an unsent part, else the missing part sent longest ago; `None` if
    /// the receiver has all. `sent_at` are the last send times of the parts.
    fn next(
        &self,
        now: Instant,
        sent_at: &[Instant],
        retransmit_timer: &RetransmitTimer,
    ) -> Option<Next> {
        if self.unsent < self.state.count {
            let (index, at) = (self.unsent, now);
            return Some(Next { index, at });
        }
        let parts = (0..self.state.count).zip(sent_at);
        let missing = parts.filter(|(index, _)| !self.arrived.has(*index));
        let due = missing.map(|(index, sent)| {
            // Exponential backoff: a pause as long as the silence before it.
            let silence = sent.saturating_since(retransmit_timer.last_received);
            let pause = silence
                .min(retransmit_timer.pause_max)
                .max(retransmit_timer.answer);
            let at = *sent + pause;
            Next { index, at }
        });
        due.min_by_key(|next| (next.at, next.index))
    }

    fn send(&mut self, now: Instant, index: u16, sent_at: &mut [Instant], out: &mut Vec<u8>) {
        self.state.write(index, out);
        if let Some(sent) = sent_at.get_mut(usize::from(index)) {
            *sent = now;
        }
        if index == self.unsent {
            self.unsent = self.unsent.saturating_add(1);
        } else {
            self.is_repeated = true;
        }
    }

    fn on_arrived(&mut self, index: u16) {
        if index < self.unsent {
            self.arrived.insert(index);
        }
    }

    const fn is_sent(&self) -> bool {
        self.unsent >= self.state.count
    }
}
