//! Which tick an input is for: the delay that a client chooses from how its inputs arrive.

use core::time::Duration;

use wire::Instant;

use crate::config::InputDelay;
use crate::margin::Margin;
use crate::tick::Tick;

/// Ticks whose delay is remembered: as many inputs as can be on their way.
const TICKS: u32 = 64;

/// Time between two steps down.
const DOWN_INTERVAL: Duration = Duration::from_secs(5);

/// Time after a step up without a step down; twice as long each time that a step down is taken back.
const CALM: Duration = Duration::from_secs(10);

/// Inputs that were overtaken by a newer one, each of which is a sample, at most: one is lost. More
/// are words of the server that were lost, or a path that got quicker.
const OVERTAKEN_MAX: u32 = 1;

/// Time for which one late input counts: in the long run there are at most 2.5 a minute.
const LATE_COUNTS: Duration = Duration::from_secs(24);

/// Late inputs that may count at once and change nothing: what two losses in a row make of 2 %.
const LATE_FREE: u16 = 2;

/// Time within which late inputs are one: an outage is no reason to wait for ever.
const LATE_APART: Duration = Duration::from_secs(1);

/// Most late inputs that count at once. Each further one is worth a sixteenth of a tick: all are two
/// ticks.
const LATE_MAX: u16 = LATE_FREE + 32;

/// What an input must have to spare beyond what is needed for the delay to go down.
const SPARE: u16 = 1;

/// Longest time without a step down, where the steps before were taken back.
const CALM_MAX: Duration = Duration::from_secs(160);

/// What a step up must follow a step down by, not to be put down to it.
const TAKEN_BACK: Duration = Duration::from_secs(30);

/// The delay, and what led to it.
///
/// It goes by quarter ticks: inputs are for whole ticks, but the boundary at which one is stamped
/// may lie up to three quarters of a tick after the arrival of a turn.
#[derive(Debug)]
pub(super) struct DelayControl {
    range: InputDelay,
    /// Length of a quarter tick, in nanoseconds.
    quarter: i64,
    /// Quarter ticks from a boundary to the arrival of the turn that has its input.
    current: u16,
    /// How long before that arrival inputs had to be stamped to come in time, in nanoseconds.
    needs: Margin,
    /// Late inputs that count, and when their number changed.
    late: (u16, Instant),
    /// How long before that arrival tick `t` was stamped, in nanoseconds, at place `t % TICKS`.
    stamped: Vec<i64>,
    /// First tick of which no word has come.
    next: Option<Tick>,
    /// When the delay may go down.
    down_at: Option<Instant>,
    /// When it went down last.
    went_down: Option<Instant>,
    /// Time after a step up without a step down.
    calm: Duration,
}

impl DelayControl {
    pub(super) fn new(range: InputDelay, period_nanos: u32) -> Self {
        Self {
            range,
            quarter: i64::from(period_nanos / 4).max(1),
            current: quarters(range.min()),
            needs: Margin::new(),
            late: (0, Instant::ZERO),
            stamped: vec![0; usize::try_from(TICKS).unwrap_or(0)],
            next: None,
            down_at: None,
            went_down: None,
            calm: CALM,
        }
    }

    /// Returns the delay, in ticks, rounded up.
    pub(super) fn ticks(&self) -> u8 {
        u8::try_from(self.current.div_ceil(4)).unwrap_or(u8::MAX)
    }

    /// Returns how long after the arrival of a turn a boundary is: less than a tick.
    pub(super) fn phase(&self) -> Duration {
        let phase = quarters(self.ticks()).saturating_sub(self.current);
        let nanos = self.quarter.saturating_mul(phase.into());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// Takes note that `tick` was stamped so long before its turn arrives.
    pub(super) fn on_stamped(&mut self, tick: Tick, lead: Duration) {
        if let Some(stamped) = self.stamped.get_mut(place(tick)) {
            *stamped = i64::try_from(lead.as_nanos()).unwrap_or(i64::MAX);
        }
    }

    /// Takes word, at `now`, that an input came late.
    pub(super) fn on_late(&mut self, now: Instant) {
        let (count, since) = self.late;
        if now >= since + LATE_APART {
            self.late = (count.saturating_add(1).min(LATE_MAX), now);
        }
    }

    /// Takes word that the input of `tick`, the newest that arrived, came `slack` quarter ticks
    /// before its tick's close. Returns the new delay where it changes.
    ///
    /// Those between the newest before and this one came with it, as later copies, and so a tick
    /// later each.
    pub(super) fn on_slack(&mut self, now: Instant, tick: Tick, slack: i8) -> Option<u8> {
        if self.range.min() == self.range.max() || self.next.is_some_and(|next| tick < next) {
            return None;
        }
        let overtaken = self.next.map_or(0, |next| tick.since(next));
        self.next = Some(tick.plus(1));
        for back in 0..=overtaken.min(OVERTAKEN_MAX) {
            let lead = self.stamped.get(place(tick.minus(back)));
            let lead = lead.copied().unwrap_or_default();
            let late = i64::from(back)
                .saturating_mul(4)
                .saturating_sub(slack.into());
            let late = late.saturating_mul(self.quarter);
            self.needs.add(lead.saturating_add(late));
        }
        self.choose(now)
    }

    fn choose(&mut self, now: Instant) -> Option<u8> {
        let (late, since) = self.late;
        if late > 0 && now >= since + LATE_COUNTS {
            self.late = (late.saturating_sub(1), now);
        }
        let late = i64::from(late.saturating_sub(LATE_FREE)).saturating_mul(self.quarter / 4);
        let need = self.needs.need()?.max(0).saturating_add(late);
        // A boundary is a little late where time is looked at now and then: that much is no need.
        let need = need.saturating_add(self.quarter.saturating_sub(1) / 2);
        let need = need.checked_div(self.quarter).unwrap_or(0);
        let need = u16::try_from(need).unwrap_or(u16::MAX);
        let (min, max) = (quarters(self.range.min()), quarters(self.range.max()));
        if need > self.current {
            let is_taken_back = self
                .went_down
                .take()
                .is_some_and(|at| now.saturating_since(at) < TAKEN_BACK);
            if is_taken_back {
                self.calm = self.calm.saturating_mul(2).min(CALM_MAX);
            }
            self.down_at = Some(now + self.calm);
            return self.set(need.min(max));
        }
        let down_at = *self.down_at.get_or_insert(now + self.calm);
        if now >= down_at && need.saturating_add(SPARE) <= self.current {
            self.down_at = Some(now + DOWN_INTERVAL);
            self.went_down = Some(now);
            return self.set(self.current.saturating_sub(4).max(need).max(min));
        }
        None
    }

    /// Sets the delay; returns the ticks where they change.
    fn set(&mut self, current: u16) -> Option<u8> {
        let before = self.ticks();
        self.current = current;
        let ticks = self.ticks();
        (ticks != before).then_some(ticks)
    }

    /// Bytes that it holds.
    pub(super) const fn memory_len(&self) -> usize {
        self.stamped.len().saturating_mul(size_of::<i64>())
    }
}

fn quarters(ticks: u8) -> u16 {
    u16::from(ticks).saturating_mul(4)
}

fn place(tick: Tick) -> usize {
    usize::try_from(tick.0 % TICKS).unwrap_or(0)
}
