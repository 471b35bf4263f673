//! A client's clock: the input delay, and tick boundaries in step with the server's clock, as
//! observed through the network.

use core::time::Duration;

use wire::Instant;

use crate::message::PERIOD_NANOS;
use crate::playout::SecondLargest;
use crate::tick::{InputDelay, Tick, instant_of, signed_nanos};

/// Number of ticks with a remembered delay: as many as inputs can be in flight.
const TICKS: u32 = 64;

/// Time between two steps down.
const DOWN_INTERVAL: Duration = Duration::from_secs(5);

/// Time after a step up without a step down; doubles each time that a step down has to be undone.
const CALM: Duration = Duration::from_secs(10);

/// Most inputs between two acknowledgements that each count as a sample; one may be lost. More mean
/// that acknowledgements were lost, or that the path got faster.
const OVERTAKEN_MAX: u32 = 1;

/// Time for which a late input counts: in the long run at most 2.5 a minute.
const LATE_COUNTS: Duration = Duration::from_secs(24);

/// Late inputs that may count at once without an effect: at 2 % loss, two losses in a row.
const LATE_FREE: u16 = 2;

/// Late inputs within this time count once, so that an outage does not raise the delay for long.
const LATE_APART: Duration = Duration::from_secs(1);

/// Most late inputs that count at once: two ticks, a sixteenth each.
const LATE_INPUTS_MAX: u16 = LATE_FREE + 32;

/// Margin that inputs must have before the delay goes down.
const SPARE: u16 = 1;

/// Longest time without a step down, after steps down that had to be undone.
const CALM_MAX: Duration = Duration::from_secs(160);

/// A step up this long after a step down is not attributed to it.
const TAKEN_BACK: Duration = Duration::from_secs(30);

/// The delay and the samples behind it, in quarter ticks: inputs are for whole ticks, but a
/// boundary may lie up to three quarters of a tick after the arrival of a turn.
#[derive(Debug)]
pub(super) struct DelayControl {
    range: InputDelay,
    quarter: i64,
    /// Quarter ticks from a boundary to the arrival of the turn with its input.
    current: u16,
    /// How long before that arrival inputs had to be stamped to be in time, in nanoseconds.
    needs: SecondLargest,
    /// Late inputs that count, and when their number last changed.
    late: (u16, Instant),
    /// How long before that arrival tick `t` was stamped, in nanoseconds, in slot `t % TICKS`.
    stamped: Vec<i64>,
    next: Option<Tick>,
    down_at: Option<Instant>,
    went_down: Option<Instant>,
    calm: Duration,
}

impl DelayControl {
    pub(super) fn new(range: InputDelay, period_nanos: u32) -> Self {
        Self {
            range,
            quarter: i64::from(period_nanos / 4).max(1),
            current: quarters(range.min()),
            needs: SecondLargest::new(),
            late: (0, Instant::ZERO),
            stamped: vec![0; usize::try_from(TICKS).unwrap_or(0)],
            next: None,
            down_at: None,
            went_down: None,
            calm: CALM,
        }
    }

    pub(super) fn ticks(&self) -> u8 {
        u8::try_from(self.current.div_ceil(4)).unwrap_or(u8::MAX)
    }

    pub(super) fn phase(&self) -> Duration {
        let phase = quarters(self.ticks()).saturating_sub(self.current);
        let nanos = self.quarter.saturating_mul(phase.into());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// `tick` was stamped `lead` before its turn arrives.
    pub(super) fn on_stamped(&mut self, tick: Tick, lead: Duration) {
        if let Some(stamped) = self.stamped.get_mut(tick.slot(TICKS)) {
            *stamped = i64::try_from(lead.as_nanos()).unwrap_or(i64::MAX);
        }
    }

    pub(super) fn on_late(&mut self, now: Instant) {
        let (count, since) = self.late;
        if now >= since + LATE_APART {
            self.late = (count.saturating_add(1).min(LATE_INPUTS_MAX), now);
        }
    }

    /// The newest input that arrived, of `tick`, was `slack` quarter ticks early; those between it
    /// and the last acknowledged one arrived as copies. Returns the new delay if it changes.
    pub(super) fn on_slack(&mut self, now: Instant, tick: Tick, slack: i8) -> Option<u8> {
        if self.range.min() == self.range.max() || self.next.is_some_and(|next| tick < next) {
            return None;
        }
        let overtaken = self.next.map_or(0, |next| tick.since(next));
        self.next = Some(tick.plus(1));
        for back in 0..=overtaken.min(OVERTAKEN_MAX) {
            let lead = self.stamped.get(tick.minus(back).slot(TICKS));
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
        // A boundary is a little late if time is only polled now and then; that much is ignored.
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

    fn set(&mut self, current: u16) -> Option<u8> {
        let before = self.ticks();
        self.current = current;
        let ticks = self.ticks();
        (ticks != before).then_some(ticks)
    }

    pub(super) const fn memory_len(&self) -> usize {
        self.stamped.len().saturating_mul(size_of::<i64>())
    }
}

fn quarters(ticks: u8) -> u16 {
    u16::from(ticks).saturating_mul(4)
}

/// Arrivals over which the fastest is taken, twice: long enough for a quiet moment, short enough
/// for a drift of 200 ppm to cost 0.4 ms.
const WINDOW: u32 = 64;

/// Arrivals in a row that are late by more than a jump, after which they are accepted at once. A
/// server that waited for a player waits again before so many, once it runs out of inputs, at most
/// 64.
const LATE_MAX: u32 = 48;

/// Clock error, in ticks, above which the clock jumps instead of adjusting its rate.
const JUMP_TICKS: i64 = 15;

/// Most boundaries due at once: the missed ones, and the one of a jump.
pub(crate) const DUE_MAX: u32 = 17;

/// Most change of a tick's length, as a fraction: 2 %.
const DILATION: i64 = 50;

/// Boundaries between ticks: boundary `n` is when bundle `n` arrives on a fast network, or a
/// fraction of a tick later.
#[derive(Debug)]
pub(crate) struct TickClock {
    period: i64,
    /// When bundle 0 would have arrived at the fastest recent latency.
    base: i64,
    settled: i64,
    filling: (i64, u32),
    /// Fastest of the last arrivals that were all late by more than a jump, and their number.
    late: (i64, u32),
    /// How much later than arrivals boundaries are, in nanoseconds; less than a tick.
    phase: i64,
    pub(super) index: u32,
    deadline: i64,
    pub(super) jumps: u64,
}

impl TickClock {
    pub(crate) fn new(now: Instant, period_nanos: u32, tick: Tick) -> Self {
        debug_assert!(PERIOD_NANOS.contains(&period_nanos), "no other is decoded");
        let period = i64::from(period_nanos.max(*PERIOD_NANOS.start()));
        let base = base_of(now, period, tick);
        let index = tick.0.saturating_add(1);
        Self {
            period,
            base,
            settled: base,
            filling: (i64::MAX, 0),
            late: (i64::MAX, 0),
            phase: 0,
            index,
            deadline: at(base, period, index),
            jumps: 0,
        }
    }

    pub(crate) fn on_arrival(&mut self, now: Instant, tick: Tick) {
        let base = base_of(now, self.period, tick);
        self.count_late(base);
        let (quickest, count) = self.filling;
        self.filling = (quickest.min(base), count.saturating_add(1));
        self.base = self.settled.min(self.filling.0);
        if self.filling.1 == WINDOW {
            self.settled = self.filling.0;
            self.filling = (i64::MAX, 0);
        }
    }

    pub(crate) fn set_period(&mut self, period_nanos: u32, tick: Tick) {
        let period = i64::from(period_nanos.max(*PERIOD_NANOS.start()));
        let sooner = period.saturating_sub(self.period);
        if sooner == 0 {
            return;
        }
        // Treat past arrivals as if ticks had always been that long.
        let sooner = sooner.saturating_mul(tick.0.into());
        for base in [&mut self.base, &mut self.settled] {
            *base = base.saturating_sub(sooner);
        }
        for (quickest, count) in [&mut self.filling, &mut self.late] {
            if *count > 0 {
                *quickest = quickest.saturating_sub(sooner);
            }
        }
        self.period = period;
    }

    fn count_late(&mut self, base: i64) {
        let (quickest, count) = self.late;
        let limit = self.period.saturating_mul(JUMP_TICKS);
        self.late = if base.saturating_sub(self.base) > limit {
            (quickest.min(base), count.saturating_add(1))
        } else {
            (i64::MAX, 0)
        };
        if self.late.1 == LATE_MAX {
            self.settled = self.late.0;
            self.filling = (i64::MAX, 0);
            self.late = (i64::MAX, 0);
        }
    }

    /// Boundaries move earlier at once, later by 2 % of a tick each.
    pub(crate) fn set_phase(&mut self, phase: Duration) {
        let phase = i64::try_from(phase.as_nanos()).unwrap_or(i64::MAX);
        let phase = phase.min(self.period.saturating_sub(1));
        let sooner = self.phase.saturating_sub(phase);
        self.phase = phase;
        if sooner > 0 {
            let target = at(self.base, self.period, self.index).saturating_add(phase);
            let deadline = self.deadline.saturating_sub(sooner);
            self.deadline = deadline.max(target).min(self.deadline);
        }
    }

    /// Passes the boundary if it is due; at most [`DUE_MAX`] are due at once.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<u32> {
        let now = signed_nanos(now);
        if now < self.deadline || self.deadline == i64::MAX {
            return None;
        }
        let passed = self.index;
        let limit = self.period.saturating_mul(JUMP_TICKS);
        let index = passed.saturating_add(1);
        let steady = self.deadline.saturating_add(self.period);
        let target = at(self.base, self.period, index).saturating_add(self.phase);
        let is_far = target.saturating_sub(steady).saturating_abs() > limit;
        if is_far || now.saturating_sub(steady) > limit {
            let since = now.saturating_sub(self.base).max(0);
            let ahead = since
                .checked_div(self.period)
                .unwrap_or(0)
                .saturating_add(1);
            self.index = u32::try_from(ahead).unwrap_or(u32::MAX);
            self.deadline = at(self.base, self.period, self.index)
                .saturating_add(self.phase)
                .max(now.saturating_add(1));
            self.jumps = self.jumps.saturating_add(1);
        } else {
            let slip = self.period / DILATION;
            self.index = index;
            self.deadline = target.clamp(steady.saturating_sub(slip), steady.saturating_add(slip));
        }
        Some(passed)
    }

    pub(crate) fn deadline(&self) -> Instant {
        instant_of(self.deadline)
    }

    pub(crate) fn arrival(&self, tick: Tick) -> Instant {
        instant_of(at(self.base, self.period, tick.0))
    }

    /// First bundle that arrives later than `before` ahead of `now` on a fast network.
    pub(crate) fn count_by(&self, now: Instant, before: Duration) -> Tick {
        let before = i64::try_from(before.as_nanos()).unwrap_or(i64::MAX);
        let since = signed_nanos(now)
            .saturating_sub(self.base)
            .saturating_sub(before);
        let count = since.div_euclid(self.period).saturating_add(1);
        Tick(u32::try_from(count.max(0)).unwrap_or(u32::MAX))
    }
}

fn base_of(now: Instant, period: i64, tick: Tick) -> i64 {
    signed_nanos(now).saturating_sub(period.saturating_mul(tick.0.into()))
}

fn at(base: i64, period: i64, index: u32) -> i64 {
    base.saturating_add(period.saturating_mul(index.into()))
}

#[cfg(test)]
mod tests;
