//! Playout delay: how long received data is held so that later data is in time.

use crate::tick::{instant_of, signed_nanos};
use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

/// Delay against jitter and loss.
///
/// If it is too short, late data causes stutter; each millisecond adds latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Playout {
    /// This long after the fastest recent latency.
    Fixed(Duration),
    /// As long as needed: the second-largest lateness of the last 600 to 1,200 arrivals, or so much
    /// more that about 0.1 ms per second are missed. It rises at once, by no more than the current
    /// lateness, so a rise causes no extra stall; it falls by at most 4 ms per second.
    Adaptive {
        /// Longest delay; anything later is an outage, which causes one wait and does not change
        /// the delay.
        max: Duration,
    },
}

impl Playout {
    /// No delay.
    pub const NONE: Self = Self::Fixed(Duration::ZERO);
}

#[derive(Clone, Debug)]
pub(crate) struct PlayoutDelay {
    playout: Playout,
    needs: SecondLargest,
    /// Balances long-term misses against delay, in nanoseconds.
    steady: i64,
    current: i64,
    /// Lateness of the newest arrival, in nanoseconds: another one as late costs no more.
    played: i64,
    /// Whether an arrival was later than any delay covers, and none was in time since: the
    /// following, ever less late ones belong to the same outage.
    is_outage: bool,
    at: Option<Instant>,
}

impl PlayoutDelay {
    pub(crate) const fn new(playout: Playout) -> Self {
        Self {
            playout,
            needs: SecondLargest::new(),
            steady: 0,
            current: 0,
            played: 0,
            is_outage: false,
            at: None,
        }
    }

    /// Adds how much later than the fastest recent latency the next item arrived.
    pub(crate) fn on_late(&mut self, now: Instant, late: Duration) {
        let Playout::Adaptive { max } = self.playout else {
            return;
        };
        let max = nanos(max);
        let passed = nanos(now.saturating_since(self.at.unwrap_or(now)));
        self.at = Some(now);
        let late = nanos(late);
        let is_tail = late > self.current && late < self.played;
        self.is_outage = late > max || (self.is_outage && is_tail);
        if self.needs.need().is_some() {
            let missed = late.min(max).saturating_sub(self.current.max(self.played));
            self.steady = self.steady.saturating_sub(passed / STEADY_DOWN).max(0);
            if missed > 0 && !self.is_outage {
                let more = self.current.saturating_add((missed / 4).min(STEP_MAX));
                self.steady = self.steady.max(more);
            }
        }
        // An outage is no sample for the margin.
        if !self.is_outage {
            self.needs.add(late);
        }
        self.played = late.min(max);
        let need = self.needs.need().unwrap_or(0);
        self.steady = self.steady.min(need.saturating_add(STEADY_MAX));
        // Rise no further than the current lateness: items in time stay in time.
        let highest = self.current.max(late.min(max));
        let lowest = self.current.saturating_sub(passed / DOWN);
        self.current = need.max(self.steady).max(lowest).min(highest);
    }

    pub(crate) fn get(&self) -> Duration {
        match self.playout {
            Playout::Fixed(delay) => delay,
            Playout::Adaptive { .. } => {
                Duration::from_nanos(u64::try_from(self.current).unwrap_or(0))
            }
        }
    }
}

/// Fraction of the elapsed time by which the delay falls: 4 ms per second.
const DOWN: i64 = 250;

/// Fraction of the elapsed time by which the steady part falls: 0.9 ms per minute. A quarter of
/// each miss is added, so that in the long run four times as much is missed: 0.06 ms per second.
const STEADY_DOWN: i64 = 70_000;

/// Most that one miss adds: 4 ms, so that an outage has no lasting effect.
const STEP_MAX: i64 = 4_000_000;

/// Most of the steady part: 20 ms, a bit more than a tick at 60 Hz.
const STEADY_MAX: i64 = 20_000_000;

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// Arrivals over which the fastest is taken, twice: long enough for a quiet moment, short enough
/// for a drift of 200 ppm to cost 0.4 ms at 60 Hz.
const WINDOW: u32 = 64;

#[derive(Clone, Debug)]
pub(crate) struct PlayoutClock {
    /// Our clock at the sender's time 0, at the fastest recent latency, in nanoseconds: of the last
    /// whole window, and of the current one with its number of samples. `None` before the first
    /// arrival.
    quickest: Option<(i64, (i64, u32))>,
    delay: PlayoutDelay,
}

impl PlayoutClock {
    pub(crate) const fn new(playout: Playout) -> Self {
        Self {
            quickest: None,
            delay: PlayoutDelay::new(playout),
        }
    }

    pub(crate) fn on_arrival(&mut self, now: Instant, sent_at: Instant) {
        let base = signed_nanos(now).saturating_sub(signed_nanos(sent_at));
        let (settled, (filling, count)) = self.quickest.unwrap_or((base, (i64::MAX, 0)));
        let (filling, count) = (filling.min(base), count.saturating_add(1));
        self.quickest = Some(if count == WINDOW {
            (filling, (i64::MAX, 0))
        } else {
            (settled, (filling, count))
        });
    }

    /// Data of `sent_at` could be played from `now` on.
    pub(crate) fn on_ready(&mut self, now: Instant, sent_at: Instant) {
        if let Some(base) = self.base() {
            let late = signed_nanos(now).saturating_sub(signed_nanos(sent_at).saturating_add(base));
            let late = Duration::from_nanos(u64::try_from(late).unwrap_or(0));
            self.delay.on_late(now, late);
        }
    }

    /// Returns how much earlier it would have had to be sent at the fastest recent latency to
    /// arrive now; zero if not earlier.
    pub(crate) fn lead(&self, now: Instant, sent_at: Instant) -> Duration {
        let lead = self.base().map_or(0, |base| {
            let sooner = signed_nanos(sent_at).saturating_add(base);
            sooner.saturating_sub(signed_nanos(now))
        });
        Duration::from_nanos(u64::try_from(lead).unwrap_or(0))
    }

    /// Returns the sender's time that is played at `now`; `None` before the first arrival.
    pub(crate) fn played(&self, now: Instant) -> Option<Instant> {
        let base = self.base()?.saturating_add(nanos(self.delay.get()));
        Some(instant_of(signed_nanos(now).saturating_sub(base)))
    }

    pub(crate) fn play_at(&self, sent_at: Instant) -> Option<Instant> {
        let base = self.base()?.saturating_add(nanos(self.delay.get()));
        Some(instant_of(signed_nanos(sent_at).saturating_add(base)))
    }

    pub(crate) fn delay(&self) -> Duration {
        self.delay.get()
    }

    /// Restarts with another clock of the sender, and keeps the delay.
    pub(crate) const fn restart(&mut self) {
        self.quickest = None;
    }

    fn base(&self) -> Option<i64> {
        self.quickest
            .map(|(settled, (filling, _))| settled.min(filling))
    }
}

/// Samples per window; the maximum is over up to two: 10 s at 60 Hz. One in 600 to 1,200 may exceed
/// it, which is 3 to 6 a minute.
const MAX_WINDOW: u32 = 600;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SecondLargest {
    settled: TopTwo,
    filling: TopTwo,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TopTwo(i64, i64);

impl TopTwo {
    const NONE: Self = Self(i64::MIN, i64::MIN);

    fn with(self, need: i64) -> Self {
        if need > self.0 {
            Self(need, self.0)
        } else {
            Self(self.0, self.1.max(need))
        }
    }
}

impl SecondLargest {
    pub(crate) const fn new() -> Self {
        Self {
            settled: TopTwo::NONE,
            filling: TopTwo::NONE,
            count: 0,
        }
    }

    pub(crate) fn add(&mut self, need: i64) {
        self.filling = self.filling.with(need);
        self.count = self.count.saturating_add(1);
        if self.count == MAX_WINDOW {
            self.settled = self.filling;
            self.filling = TopTwo::NONE;
            self.count = 0;
        }
    }

    pub(crate) fn need(&self) -> Option<i64> {
        let TopTwo(first, second) = self.filling;
        let need = self.settled.with(first).with(second).1;
        (need > i64::MIN).then_some(need)
    }
}

/// Takes items that arrive unevenly, out of order or twice, and returns them in order, each once,
/// at the pace at which they were sent.
///
/// Each item carries a time of the sender's clock and is returned after the delay of [`Playout`]:
/// for voice, for inputs at a simulating server, for anything consumed whole. To display states in
/// between, use [`Interpolation`](crate::Interpolation).
///
/// ```
/// use core::time::Duration;
/// use lockstep::{JitterBuffer, Playout};
/// use wire::Instant;
///
/// let (ms, at) = (Duration::from_millis, Instant::from_millis);
/// let mut buffer = JitterBuffer::new(Playout::Fixed(ms(30)), 64);
/// buffer.push(at(1_020), at(20), "second");
/// buffer.push(at(1_025), at(0), "first");
/// assert_eq!(buffer.next_at(), Some(at(1_030)));
/// assert_eq!(buffer.pop(at(1_029)), None);
/// assert_eq!(buffer.pop(at(1_030)), Some((at(0), "first")));
/// assert_eq!(buffer.pop(at(1_050)), Some((at(20), "second")));
/// ```
#[derive(Clone, Debug)]
pub struct JitterBuffer<T> {
    clock: PlayoutClock,
    /// In order of the sender's times, each once.
    items: VecDeque<(Instant, T)>,
    len_max: usize,
    /// Sender's time of the last returned item.
    popped: Option<Instant>,
    late_in_row: u32,
    stats: JitterStats,
}

impl<T> JitterBuffer<T> {
    /// Creates one for up to `items` items, clamped to 1 to 1,024.
    #[must_use]
    pub fn new(playout: Playout, items: u16) -> Self {
        let len_max = usize::from(items.clamp(1, ITEMS_MAX));
        Self {
            clock: PlayoutClock::new(playout),
            items: VecDeque::with_capacity(len_max),
            len_max,
            popped: None,
            late_in_row: 0,
            stats: JitterStats::default(),
        }
    }

    /// Takes an item sent at `sent_at` of the sender's clock, which has any origin and deviates
    /// from ours by at most 200 ppm.
    ///
    /// An item that is a duplicate, is older than a returned one, or finds no room is dropped and
    /// counted. If the sender's clock jumps ahead by more than a second, or 32 items in a row are
    /// late, it restarts.
    pub fn push(&mut self, now: Instant, sent_at: Instant, item: T) {
        if self.clock.lead(now, sent_at) > CLOCK_JUMP {
            self.restart();
        }
        if self.popped == Some(sent_at) || self.has(sent_at) {
            self.stats.dropped_duplicate = self.stats.dropped_duplicate.saturating_add(1);
            return;
        }
        let is_late = self.popped.is_some_and(|popped| sent_at < popped);
        if is_late {
            self.stats.dropped_late = self.stats.dropped_late.saturating_add(1);
            self.late_in_row = self.late_in_row.saturating_add(1);
            if self.late_in_row >= LATE_IN_ROW {
                self.restart();
            }
        } else {
            self.late_in_row = 0;
        }
        self.clock.on_arrival(now, sent_at);
        // A late item counts as well: it shows how long to wait for similar ones.
        self.clock.on_ready(now, sent_at);
        if self.popped.is_some_and(|popped| sent_at < popped) {
            return;
        }
        if self.items.len() >= self.len_max {
            self.stats.dropped_full = self.stats.dropped_full.saturating_add(1);
            return;
        }
        let index = self.items.partition_point(|(at, _)| *at < sent_at);
        self.items.insert(index, (sent_at, item));
    }

    /// Returns the next item and its time, if it is due.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, T)> {
        if self.next_at()? > now {
            return None;
        }
        let (sent_at, item) = self.items.pop_front()?;
        self.popped = Some(sent_at);
        self.stats.items = self.stats.items.saturating_add(1);
        Some((sent_at, item))
    }

    /// Returns when the next item is due; `None` if there is none.
    pub fn next_at(&self) -> Option<Instant> {
        let (sent_at, _) = self.items.front()?;
        self.clock.play_at(*sent_at)
    }

    /// Returns the delay of items that arrive at the fastest recent latency.
    pub fn delay(&self) -> Duration {
        self.clock.delay()
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &JitterStats {
        &self.stats
    }

    fn has(&self, sent_at: Instant) -> bool {
        let found = self.items.binary_search_by_key(&sent_at, |(at, _)| *at);
        found.is_ok()
    }

    fn restart(&mut self) {
        self.items.clear();
        self.clock.restart();
        self.popped = None;
        self.late_in_row = 0;
        self.stats.restarts = self.stats.restarts.saturating_add(1);
    }
}

/// Counters of a [`JitterBuffer`]; they never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JitterStats {
    /// Items returned.
    pub items: u64,
    /// Items dropped: a later one had been returned.
    pub dropped_late: u64,
    /// Items dropped: duplicates.
    pub dropped_duplicate: u64,
    /// Items dropped: no room.
    pub dropped_full: u64,
    /// Restarts, after the sender's clock had jumped.
    pub restarts: u64,
}

/// No network gets faster by this much: the other clock has jumped.
pub(crate) const CLOCK_JUMP: Duration = Duration::from_secs(1);

/// Late items in a row before the other clock is assumed to have stepped back.
pub(crate) const LATE_IN_ROW: u32 = 32;

const ITEMS_MAX: u16 = 1_024;

#[cfg(test)]
mod tests;
