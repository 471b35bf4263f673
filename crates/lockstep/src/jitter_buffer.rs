//! What arrives unevenly, handed out as evenly as it was sent.

use std::collections::VecDeque;

use core::time::Duration;

use wire::Instant;

use crate::playout::Playout;
use crate::playout::PlayoutClock;

/// What arrives unevenly, out of order or twice, handed out in order, each once, and as evenly as
/// it was sent.
///
/// Each item comes with a moment of the sender's clock and is handed out so long after it as
/// [`Playout`] says: for voice, for inputs at a server that simulates, for anything that is used
/// whole. For states that are drawn in between there is [`Interpolation`](crate::Interpolation).
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
    /// In the order of the sender's moments, each of which is there once.
    items: VecDeque<(Instant, T)>,
    /// Most of them.
    len_max: usize,
    /// Moment of the item handed out last.
    handed: Option<Instant>,
    /// Items in a row that came too late.
    late_in_row: u32,
    stats: JitterStats,
}

impl<T> JitterBuffer<T> {
    /// Makes one that holds up to `items`, from 1 to 1,024: less counts as 1, more as 1,024.
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

    /// Takes what was sent at `sent_at` of the sender's clock, which may begin anywhere and goes as
    /// fast as ours, give or take 200 ppm.
    ///
    /// What is there already, came after a later one was handed out, or finds no room, is dropped
    /// and counted. Where the sender's clock jumps ahead by more than a second, or 32 items in a
    /// row come too late, all begins anew.
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
        // One that is too late counts as well: it tells how long to wait for those like it.
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

    /// Returns the next item and its moment, where it is due.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, T)> {
        if self.next_at()? > now {
            return None;
        }
        let (sent_at, item) = self.items.pop_front()?;
        self.handed = Some(sent_at);
        self.stats.items = self.stats.items.saturating_add(1);
        Some((sent_at, item))
    }

    /// Returns when the next item is due; `None` where there is none.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let (sent_at, _) = self.items.front()?;
        self.clock.play_at(*sent_at)
    }

    /// Returns how long what is as quick as the quickest of late is held back.
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

/// What a [`JitterBuffer`] counted; none of it ever goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JitterStats {
    /// Items handed out.
    pub items: u64,
    /// Items dropped: a later one had been handed out.
    pub dropped_late: u64,
    /// Items dropped: they were there.
    pub dropped_duplicate: u64,
    /// Items dropped: there was no room.
    pub dropped_full: u64,
    /// Times that all began anew, since the sender's clock had jumped.
    pub restarts: u64,
}

/// No network gets quicker by as much: the other clock has jumped.
const CLOCK_JUMP: Duration = Duration::from_secs(1);

/// Items in a row that may come too late: more say that the other clock went back.
const LATE_IN_ROW: u32 = 32;

/// Most items held, so that a wrong number takes no memory to speak of.
const ITEMS_MAX: u16 = 1_024;

#[cfg(test)]
mod tests;
