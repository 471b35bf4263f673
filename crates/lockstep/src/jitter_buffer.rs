//! Jitter buffer: evens out arrival times.

use std::collections::VecDeque;

use core::time::Duration;

use wire::Instant;

use crate::playout::Playout;
use crate::playout::PlayoutClock;

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
    /// Most items.
    len_max: usize,
    /// Sender's time of the last returned item.
    handed: Option<Instant>,
    /// Late items in a row.
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
            handed: None,
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
        if self.handed == Some(sent_at) || self.has(sent_at) {
            self.stats.dropped_duplicate = self.stats.dropped_duplicate.saturating_add(1);
            return;
        }
        let is_late = self.handed.is_some_and(|handed| sent_at < handed);
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
        if self.handed.is_some_and(|handed| sent_at < handed) {
            return;
        }
        if self.items.len() >= self.len_max {
            self.stats.dropped_full = self.stats.dropped_full.saturating_add(1);
            return;
        }
        let place = self.items.partition_point(|(at, _)| *at < sent_at);
        self.items.insert(place, (sent_at, item));
    }

    /// Returns the next item and its time, if it is due.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, T)> {
        if self.next_at()? > now {
            return None;
        }
        let (sent_at, item) = self.items.pop_front()?;
        self.handed = Some(sent_at);
        self.stats.items = self.stats.items.saturating_add(1);
        Some((sent_at, item))
    }

    /// Returns when the next item is due; `None` if there is none.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let (sent_at, _) = self.items.front()?;
        self.clock.play_at(*sent_at)
    }

    /// Returns the delay of items that arrive at the fastest recent latency.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.clock.delay()
    }

    /// Returns the counters.
    #[must_use]
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
        self.handed = None;
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
const CLOCK_JUMP: Duration = Duration::from_secs(1);

/// Late items in a row before the other clock is assumed to have stepped back.
const LATE_IN_ROW: u32 = 32;

/// Most items held, which bounds memory.
const ITEMS_MAX: u16 = 1_024;

#[cfg(test)]
mod tests;
