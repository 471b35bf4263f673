//! Client clock: samples inputs in step with the server's clock, as observed through the network.

use core::time::Duration;

use wire::Instant;

use crate::message::PERIOD_NANOS;
use crate::tick::Tick;

/// Arrivals over which the fastest is taken, twice: long enough for a quiet moment, short enough
/// for a drift of 200 ppm to cost 0.4 ms.
const WINDOW: u32 = 64;

/// Arrivals in a row that are late by more than a jump, after which they are accepted at once. A
/// server that waited that long for a player waits again before [`WINDOW`] of them have arrived,
/// once it runs out of inputs stamped meanwhile, at most 64. After a link outage there are fewer
/// arrivals, of many ticks each; and a downlink delayed for less than 0.8 s at 60 Hz changes
/// nothing.
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
    /// Length of a tick, in nanoseconds.
    period: i64,
    /// When bundle 0 would have arrived, at the speed of the fastest recent one; may lie before the
    /// origin of time.
    base: i64,
    /// Fastest of the last whole window.
    settled: i64,
    /// Fastest of the current window, and its number of samples.
    filling: (i64, u32),
    /// Fastest of the last arrivals that were all late by more than a jump, and their number.
    late: (i64, u32),
    /// How much later than arrivals boundaries are, in nanoseconds; less than a tick.
    phase: i64,
    /// Number of the next boundary.
    index: u32,
    /// Its time.
    deadline: i64,
    /// Number of jumps.
    jumps: u64,
}

impl TickClock {
    /// Starts with the arrival of `tick` at `now`.
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

    /// Handles the arrival of `tick`, the newest of its datagram.
    pub(crate) fn on_arrival(&mut self, now: Instant, tick: Tick) {
        let base = base_of(now, self.period, tick);
        self.note_late(base);
        let (quickest, count) = self.filling;
        self.filling = (quickest.min(base), count.saturating_add(1));
        self.base = self.settled.min(self.filling.0);
        if self.filling.1 == WINDOW {
            self.settled = self.filling.0;
            self.filling = (i64::MAX, 0);
        }
    }

    /// Makes the ticks after `tick` `period_nanos` long.
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

    /// Counts late arrivals, and accepts them once there are enough.
    fn note_late(&mut self, base: i64) {
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

    /// Sets how much later than arrivals boundaries are: earlier at once, later by 2 % of a tick
    /// each.
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

    /// Passes the boundary if it is due, and returns its number. At most [`DUE_MAX`] are due at
    /// once, also at the last numbers.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<u32> {
        let now = nanos(now);
        // There are none at the end of time.
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
            // There is no boundary past the last number.
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

    /// Returns the time of the next boundary.
    pub(crate) fn deadline(&self) -> Instant {
        instant(self.deadline)
    }

    /// Returns the number of the next boundary.
    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// Returns when bundle `tick` arrives on a fast network.
    pub(crate) fn arrival(&self, tick: Tick) -> Instant {
        instant(at(self.base, self.period, tick.0))
    }

    /// Returns the first bundle that, on a fast network, arrives later than `before` ahead of
    /// `now`.
    pub(crate) fn count_by(&self, now: Instant, before: Duration) -> Tick {
        let before = i64::try_from(before.as_nanos()).unwrap_or(i64::MAX);
        let since = nanos(now).saturating_sub(self.base).saturating_sub(before);
        let count = since.div_euclid(self.period).saturating_add(1);
        Tick(u32::try_from(count.max(0)).unwrap_or(u32::MAX))
    }

    pub(crate) const fn jumps(&self) -> u64 {
        self.jumps
    }
}

fn base_of(now: Instant, period: i64, tick: Tick) -> i64 {
    nanos(now).saturating_sub(period.saturating_mul(tick.0.into()))
}

fn at(base: i64, period: i64, index: u32) -> i64 {
    base.saturating_add(period.saturating_mul(index.into()))
}

fn nanos(now: Instant) -> i64 {
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

fn instant(nanos: i64) -> Instant {
    Instant::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u32 = 10_000_000;

    fn millis(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn boundaries_follow_the_quickest_arrival() {
        let mut clock = TickClock::new(millis(1_050), PERIOD, Tick(100));
        assert_eq!(clock.deadline(), millis(1_060));
        assert_eq!(clock.pass(millis(1_059)), None);
        assert_eq!(clock.pass(millis(1_060)), Some(101));
        assert_eq!(clock.arrival(Tick(102)), millis(1_070));
        let held = Duration::from_millis(10);
        assert_eq!(clock.count_by(millis(1_079), held), Tick(102));
        assert_eq!(clock.count_by(millis(1_080), held), Tick(103));
        assert_eq!(clock.count_by(millis(20), held), Tick(0));
        // Tick 102 arrives 4 ms early: the clock runs 2 % faster.
        clock.on_arrival(millis(1_066), Tick(102));
        assert_eq!(clock.pass(millis(1_070)), Some(102));
        assert_eq!(clock.deadline(), Instant::from_nanos(1_079_800_000));
    }

    #[test]
    fn slow_arrivals_count_after_a_window_without_quick_ones() {
        let mut clock = TickClock::new(millis(0), PERIOD, Tick(0));
        for tick in 1..=63 {
            clock.on_arrival(millis(u64::from(tick) * 10 + 5), Tick(tick));
            assert_eq!(clock.arrival(Tick(0)), millis(0));
        }
        clock.on_arrival(millis(645), Tick(64));
        clock.on_arrival(millis(655), Tick(65));
        assert_eq!(clock.arrival(Tick(0)), millis(5));
    }

    #[test]
    fn arrivals_that_are_all_later_than_a_jump_count_after_48() {
        let mut clock = TickClock::new(millis(0), PERIOD, Tick(0));
        // The server waited for 6 s before tick 1; of the 48, two are faster than the others.
        for tick in 1..=48 {
            assert_eq!(clock.arrival(Tick(0)), millis(0), "{tick}");
            let jitter = if tick % 8 == 0 { 0 } else { 3 };
            let at = millis(6_000 + u64::from(tick) * 10 + jitter);
            clock.on_arrival(at, Tick(tick));
        }
        assert_eq!(clock.arrival(Tick(0)), millis(6_000));
        // It jumps back: numbers that were passed before occur again.
        while clock.pass(millis(6_170)).is_some() {}
        assert_eq!((clock.index(), clock.jumps()), (18, 1));
        // A single arrival in time restarts the count.
        for tick in (49..=400).filter(|tick| tick % 48 != 0) {
            clock.on_arrival(millis(9_000 + u64::from(tick) * 10), Tick(tick));
            clock.on_arrival(millis(6_000 + u64::from(tick) * 10), Tick(tick));
        }
        assert_eq!(clock.arrival(Tick(0)), millis(6_000));
    }

    #[test]
    fn boundaries_go_later_slowly_and_sooner_at_once() {
        let mut clock = TickClock::new(millis(1_050), PERIOD, Tick(100));
        clock.set_phase(Duration::from_millis(1));
        assert_eq!(clock.pass(millis(1_060)), Some(101));
        assert_eq!(clock.deadline(), Instant::from_nanos(1_070_200_000));
        for (at, index) in (1_071..).step_by(10).zip(102..106) {
            assert_eq!(clock.pass(millis(at)), Some(index));
        }
        assert_eq!(clock.deadline(), millis(1_111));
        clock.set_phase(Duration::ZERO);
        assert_eq!(clock.deadline(), millis(1_110));
        // On its way to 9 ms it is set back to 1 ms, but not into the past.
        clock.set_phase(Duration::from_millis(9));
        assert_eq!(clock.pass(millis(1_110)), Some(106));
        clock.set_phase(Duration::from_millis(1));
        assert_eq!(clock.deadline(), Instant::from_nanos(1_120_200_000));
        clock.set_phase(Duration::MAX);
        assert!(clock.phase < PERIOD.into());
    }

    #[test]
    fn a_long_pause_is_a_jump_and_a_short_one_is_made_up() {
        let mut clock = TickClock::new(millis(0), PERIOD, Tick(0));
        let mut passed = 0;
        while clock.pass(millis(150)).is_some() {
            passed += 1;
        }
        assert_eq!((passed, clock.jumps()), (15, 0));
        let mut passed = 0;
        while clock.pass(millis(60_000)).is_some() {
            passed += 1;
        }
        assert_eq!((passed, clock.jumps()), (1, 1));
        assert_eq!(clock.index(), 6_001);
        assert_eq!(clock.deadline(), millis(60_010));
    }

    #[test]
    fn longer_ticks_move_no_boundary_by_more_than_2_percent_of_one() {
        let mut clock = TickClock::new(millis(1_000), PERIOD, Tick(100));
        let (mut at, mut before) = (1_000_000_000_u64, clock.deadline());
        let mut period = PERIOD;
        for tick in 101..1_000_u32 {
            at += u64::from(period);
            let now = Instant::from_nanos(at);
            while let Some(index) = clock.pass(now) {
                let gap = clock.deadline().saturating_since(before).as_nanos();
                assert!((9_800_000..=12_240_000).contains(&gap), "{index}: {gap}");
                before = clock.deadline();
            }
            clock.on_arrival(now, Tick(tick));
            // A fifth longer, and the usual length again.
            period = if tick < 500 { 12_000_000 } else { PERIOD };
            clock.set_period(period, Tick(tick));
            assert_eq!(clock.arrival(Tick(tick)), now);
            assert!(clock.index().abs_diff(tick) <= 1, "{tick}");
        }
        assert_eq!(clock.jumps(), 0);
    }

    #[test]
    fn ls_10_lengths_that_change_all_the_time_wake_nobody_more_often_than_they_are_told() {
        let mut clock = TickClock::new(millis(1_000), PERIOD, Tick(1_000));
        let mut passed = 0;
        for step in 1..10_000_u32 {
            let now = millis(1_000 + u64::from(step));
            // Each also of a tick far ahead.
            clock.set_period(
                PERIOD * (1 + step % 2),
                Tick(step.wrapping_mul(0x9e37_79b9)),
            );
            while clock.pass(now).is_some() {
                passed += 1;
            }
        }
        let (words, ticks) = (10_000, 1_021);
        assert!(passed <= words + ticks, "{passed}");
    }

    #[test]
    fn the_last_number_is_no_trap() {
        let mut clock = TickClock::new(millis(1_000), 1_000_000, Tick(u32::MAX - 3));
        for later in [10, 100, 100_000, u64::MAX / 1_000_000] {
            let now = millis(1_000 + later.min(u64::MAX / 1_000_000 - 1_000));
            let passed = (0..100).take_while(|_| clock.pass(now).is_some()).count();
            assert!(passed <= usize::try_from(DUE_MAX).unwrap(), "{passed}");
        }
        assert_eq!(clock.index(), u32::MAX);
    }
}
