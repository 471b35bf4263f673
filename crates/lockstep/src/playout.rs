//! How long what arrives is held back, so that what comes later is there in time.

use core::time::Duration;

use wire::Instant;

use crate::margin::Margin;

/// How long what arrives is held back against jitter and loss.
///
/// Too short, and the picture stands still where something comes late; each millisecond is one of
/// latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Playout {
    /// So long after the quickest of late would have come.
    Fixed(Duration),
    /// As long as is needed: the worst but one of the last 600 to 1,200 arrivals, or so much more
    /// that some 0.1 ms in a second are missed. It goes up at once, by no more than what is late
    /// itself, so that going up costs no time; and down by 4 ms a second at most.
    Adaptive {
        /// Longest; what comes later than that is an outage, which is waited for once and changes
        /// nothing.
        max: Duration,
    },
}

impl Playout {
    /// At once.
    pub const NONE: Self = Self::Fixed(Duration::ZERO);
}

/// The delay, and what led to it.
#[derive(Clone, Debug)]
pub(crate) struct PlayoutDelay {
    playout: Playout,
    /// How late arrivals were, in nanoseconds.
    needs: Margin,
    /// What balances what is missed in the long run against what is held back, in nanoseconds.
    steady: i64,
    /// What is held back, in nanoseconds.
    current: i64,
    /// How late the newest was, in nanoseconds: the next one, as late, costs no more.
    played: i64,
    /// Whether one was later than any delay covers, and none in time since: what comes then, ever less
    /// late, is of the same outage.
    is_outage: bool,
    /// Latest time told.
    at: Option<Instant>,
}

impl PlayoutDelay {
    pub(crate) const fn new(playout: Playout) -> Self {
        Self {
            playout,
            needs: Margin::new(),
            steady: 0,
            current: 0,
            played: 0,
            is_outage: false,
            at: None,
        }
    }

    /// Takes how much later than the quickest of late the next one in order was there.
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
        // One that no delay would cover teaches nothing about those that one does.
        if !self.is_outage {
            self.needs.add(late);
        }
        self.played = late.min(max);
        let need = self.needs.need().unwrap_or(0);
        self.steady = self.steady.min(need.saturating_add(STEADY_MAX));
        // No further than what is late itself: what is in time is not held back for later ones.
        let highest = self.current.max(late.min(max));
        let lowest = self.current.saturating_sub(passed / DOWN);
        self.current = need.max(self.steady).max(lowest).min(highest);
    }

    /// Returns how long to hold back.
    pub(crate) fn get(&self) -> Duration {
        match self.playout {
            Playout::Fixed(delay) => delay,
            Playout::Adaptive { .. } => {
                Duration::from_nanos(u64::try_from(self.current).unwrap_or(0))
            }
        }
    }
}

/// Part of the time that passes by which the delay goes down: 4 ms a second.
const DOWN: i64 = 250;

/// Part of the time that passes by which the steady part goes down: 0.9 ms a minute. A quarter of
/// what is missed is added, so that in the long run four times as much is missed: 0.06 ms a second.
const STEADY_DOWN: i64 = 70_000;

/// Most that one miss adds: 4 ms. An outage is no reason to wait for ever.
const STEP_MAX: i64 = 4_000_000;

/// Most that it is beyond the worst but one: 20 ms, a tick at 60 Hz and some.
const STEADY_MAX: i64 = 20_000_000;

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// Arrivals over which the quickest is taken, twice: long enough for a quiet moment, short enough
/// for a drift of 200 ppm to cost 0.4 ms at 60 Hz.
const WINDOW: u32 = 64;

/// How the sender's moments come to be ours.
#[derive(Clone, Debug)]
pub(crate) struct PlayoutClock {
    /// What our clock shows when the sender's shows nothing, had the quickest of late been sent
    /// then, in nanoseconds: of the last whole window, and of the one that is being filled, with
    /// how many are in it. `None` before the first arrival.
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

    /// Takes the arrival of what was sent at `sent_at` of the sender's clock.
    pub(crate) fn on_arrival(&mut self, now: Instant, sent_at: Instant) {
        let base = instant_nanos(now).saturating_sub(instant_nanos(sent_at));
        let (settled, (filling, count)) = self.quickest.unwrap_or((base, (i64::MAX, 0)));
        let (filling, count) = (filling.min(base), count.saturating_add(1));
        self.quickest = Some(if count == WINDOW {
            (filling, (i64::MAX, 0))
        } else {
            (settled, (filling, count))
        });
    }

    /// Takes word that what belongs to `sent_at` could be played from `now` on.
    pub(crate) fn on_ready(&mut self, now: Instant, sent_at: Instant) {
        if let Some(base) = self.base() {
            let late =
                instant_nanos(now).saturating_sub(instant_nanos(sent_at).saturating_add(base));
            let late = Duration::from_nanos(u64::try_from(late).unwrap_or(0));
            self.delay.on_late(now, late);
        }
    }

    /// Returns how much sooner than the quickest of late it would have had to be sent, to come
    /// now; none where it is not sooner.
    pub(crate) fn lead(&self, now: Instant, sent_at: Instant) -> Duration {
        let lead = self.base().map_or(0, |base| {
            let sooner = instant_nanos(sent_at).saturating_add(base);
            sooner.saturating_sub(instant_nanos(now))
        });
        Duration::from_nanos(u64::try_from(lead).unwrap_or(0))
    }

    /// Returns the moment of the sender's clock that is played at `now`; `None` before the first
    /// arrival.
    pub(crate) fn played(&self, now: Instant) -> Option<Instant> {
        let base = self.base()?.saturating_add(nanos(self.delay.get()));
        Some(instant(instant_nanos(now).saturating_sub(base)))
    }

    /// Returns when `sent_at` is played.
    pub(crate) fn play_at(&self, sent_at: Instant) -> Option<Instant> {
        let base = self.base()?.saturating_add(nanos(self.delay.get()));
        Some(instant(instant_nanos(sent_at).saturating_add(base)))
    }

    /// Returns how long what is as quick as the quickest is held back.
    pub(crate) fn delay(&self) -> Duration {
        self.delay.get()
    }

    /// Begins anew with another clock of the sender's, keeping what was learned of the network.
    pub(crate) const fn restart(&mut self) {
        self.quickest = None;
    }

    fn base(&self) -> Option<i64> {
        self.quickest
            .map(|(settled, (filling, _))| settled.min(filling))
    }
}

fn instant_nanos(now: Instant) -> i64 {
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

fn instant(nanos: i64) -> Instant {
    Instant::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests;
