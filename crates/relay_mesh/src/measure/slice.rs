//! Windows of 200 ms, which distinguish a degraded link from a single bad answer.

use core::time::Duration;

use wire::Instant;

/// A window of 200 ms, for detecting degradation.
#[derive(Debug)]
pub(super) struct Slice {
    start: Instant,
    /// Best round trip in it, in µs.
    best: Option<u32>,
    /// Whether a probe became overdue in it.
    lost: bool,
    /// Consecutive closed windows that were bad.
    bad_in_a_row: u8,
}

impl Slice {
    pub(super) const fn at(start: Instant) -> Self {
        Self {
            start,
            best: None,
            lost: false,
            bad_in_a_row: 0,
        }
    }

    pub(super) fn on_answer(&mut self, round_trip: Duration) {
        let micros = u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX);
        self.best = Some(self.best.map_or(micros, |best| best.min(micros)));
    }

    pub(super) const fn on_loss(&mut self) {
        self.lost = true;
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        now.saturating_since(self.start) >= SLICE
    }

    /// Returns whether the last closed windows make the link degraded.
    pub(super) const fn is_degraded(&self) -> bool {
        self.bad_in_a_row >= WINDOWS_BAD
    }

    /// Closes the window; `median` is that of the last 30 s, in µs.
    pub(super) const fn close(&mut self, now: Instant, median: u32) {
        let bad = match self.best {
            Some(best) => Some(best > median.saturating_add(EXCESS_MICROS)),
            None if self.lost => Some(true),
            // No probe ended in this window, so it counts neither way.
            None => None,
        };
        let bad_in_a_row = match bad {
            Some(true) => self.bad_in_a_row.saturating_add(1),
            Some(false) => 0,
            None => self.bad_in_a_row,
        };
        *self = Self {
            bad_in_a_row,
            ..Self::at(now)
        };
    }
}

/// Length of a window.
const SLICE: Duration = Duration::from_millis(200);
/// Consecutive bad windows that make a link degraded.
const WINDOWS_BAD: u8 = 3;
/// A window is bad if its best answer exceeds the median by more than this: 25 ms.
const EXCESS_MICROS: u32 = 25_000;
