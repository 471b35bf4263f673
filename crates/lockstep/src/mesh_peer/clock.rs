//! Tick boundaries of a mesh peer, and synchronisation with the other clocks.
//!
//! Each datagram carries its sender's clock position. The observed lead is that position minus our
//! own, minus the one-way latency. Both sides report it to each other; with equal latency in both
//! directions, half the difference is how far one is ahead. A peer runs faster or slower by the
//! mean over all members, itself included. These corrections sum to zero over all peers, so that
//! measurement errors cannot make the whole mesh faster or slower.

use wire::Instant;

use crate::message::LEAD_UNKNOWN;
use crate::tick::{instant_of, signed_nanos};

/// Most change of a tick's length, as a fraction: 2 %.
const DILATION: i64 = 50;

/// Fraction of an error corrected per tick: stable with 16 ticks of latency and the smoothing
/// below.
const GAIN: i64 = 64;

/// Weight of the smoothed value against one sample, minus 1.
const SMOOTHING: i64 = 16;

/// Units per tick of a position.
const UNITS: i64 = 256;

/// Fine units per unit: 1/4,096 tick.
const FINE: i64 = 16;

/// Fixed-point bits of [`MeshClock::per_nano`].
const PER_NANO_BITS: u32 = 32;

/// Fine units per unit of a [lead](crate::message::PlayHead::lead), 1/32 tick.
const LEAD: i64 = 128;

/// Boundaries between ticks: tick `n` may be simulated from boundary `n` on.
#[derive(Debug)]
pub(super) struct MeshClock {
    period: i64,
    /// Units per nanosecond, times 2^32.
    per_nano: i64,
    pub(super) index: u32,
    deadline: i64,
    /// Whether it was due and had to wait for the game.
    pub(super) is_held: bool,
}

impl MeshClock {
    pub(super) fn new(at: Instant, period_nanos: u32) -> Self {
        let period = i64::from(period_nanos.max(1));
        Self {
            period,
            per_nano: (UNITS << PER_NANO_BITS).checked_div(period).unwrap_or(0),
            index: 0,
            deadline: signed_nanos(at),
            is_held: false,
        }
    }

    /// Passes the boundary if it is due and its number is at most `limit`. The next follows after
    /// one period, shortened by a fraction of `error`, the others' lead in fine units. Up to `lag`
    /// missed boundaries are made up for; after a hold, none.
    pub(super) fn pass(&mut self, now: Instant, limit: u32, lag: u32, error: i64) -> Option<u32> {
        let now = signed_nanos(now);
        if now < self.deadline || self.deadline == i64::MAX {
            return None;
        }
        if self.index > limit {
            self.is_held = true;
            return None;
        }
        let made_up = if self.is_held { 0 } else { i64::from(lag) };
        self.is_held = false;
        let oldest = now.saturating_sub(self.period.saturating_mul(made_up));
        let slip = self.period / DILATION;
        let wanted = error
            .saturating_mul(self.period)
            .checked_div(FINE.saturating_mul(UNITS).saturating_mul(GAIN))
            .unwrap_or(0);
        self.deadline = self
            .deadline
            .max(oldest)
            .saturating_add(self.period)
            .saturating_sub(wanted.clamp(slip.saturating_neg(), slip));
        let passed = self.index;
        self.index = passed.saturating_add(1);
        Some(passed)
    }

    /// Returns the position at `now`, in 1/256 tick; never past a boundary that was not passed.
    pub(super) fn position(&self, now: Instant) -> i64 {
        let left = self.deadline.saturating_sub(signed_nanos(now)).max(0);
        // Only a clock that has not begun is further away than a few ticks.
        let left = left.min(self.period.saturating_mul(4));
        let left = left.saturating_mul(self.per_nano) >> PER_NANO_BITS;
        i64::from(self.index)
            .saturating_mul(UNITS)
            .saturating_sub(left)
    }

    pub(super) fn deadline(&self) -> Instant {
        instant_of(self.deadline)
    }
}

/// Difference between another peer's clock and ours.
#[derive(Debug, Default)]
pub(super) struct ClockOffset {
    /// Its position minus ours on arrival, smoothed, in fine units.
    seen: Option<i64>,
    /// The largest difference since the last boundary, in 1/256 tick: the fastest datagram.
    sample: Option<i64>,
    /// The difference as it observes it, in fine units.
    announced: Option<i64>,
}

impl ClockOffset {
    /// Handles a datagram: the low 24 bits of its sender's position, the lead it reports, and our
    /// own position on arrival.
    pub(super) fn on_datagram(&mut self, clock: u32, lead: i16, ours: i64) {
        // The nearest position with these low bits, as in RFC 9000, appendix A.3, on 24 bits.
        let [_, a, b, c] = clock.wrapping_sub(low_position(ours)).to_be_bytes();
        let ahead = i64::from(i32::from_be_bytes([a, b, c, 0]) >> 8);
        self.sample = Some(self.sample.map_or(ahead, |known| known.max(ahead)));
        if lead != LEAD_UNKNOWN {
            self.announced = Some(i64::from(lead).saturating_mul(LEAD));
        }
    }

    pub(super) fn settle(&mut self) {
        let Some(sample) = self.sample.take() else {
            return;
        };
        let sample = sample.saturating_mul(FINE);
        self.seen = Some(self.seen.map_or(sample, |seen| {
            seen.saturating_add(sample.saturating_sub(seen) / SMOOTHING)
        }));
    }

    pub(super) fn ahead(&self) -> i64 {
        match (self.seen, self.announced) {
            // Use the rounded value that we reported, so that both sides see the same difference.
            (Some(seen), Some(announced)) => lead_of(seen).saturating_sub(announced) / 2,
            (None, _) | (_, None) => 0,
        }
    }

    pub(super) fn lead(&self) -> i16 {
        let Some(seen) = self.seen else {
            return LEAD_UNKNOWN;
        };
        i16::try_from(lead_of(seen) / LEAD).unwrap_or(LEAD_UNKNOWN)
    }
}

/// The smoothed difference `seen` as reported, in fine units.
fn lead_of(seen: i64) -> i64 {
    let floor = i64::from(LEAD_UNKNOWN).saturating_add(1);
    let lead = seen.div_euclid(LEAD).clamp(floor, i64::from(i16::MAX));
    lead.saturating_mul(LEAD)
}

pub(super) const fn low_position(position: i64) -> u32 {
    let [.., a, b, c] = position.to_be_bytes();
    u32::from_be_bytes([0, a, b, c])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u32 = 10_000_000;
    const TICK: i64 = UNITS * FINE;

    fn millis(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn ticks_are_longer_or_shorter_by_at_most_2_percent() {
        let mut clock = MeshClock::new(millis(100), PERIOD);
        assert_eq!(clock.pass(millis(99), 9, 4, 0), None);
        assert_eq!(clock.pass(millis(100), 9, 4, 0), Some(0));
        assert_eq!(clock.deadline(), millis(110));
        assert_eq!(clock.pass(millis(110), 9, 4, 100 * TICK), Some(1));
        assert_eq!(clock.deadline(), Instant::from_nanos(119_800_000));
        assert_eq!(clock.pass(millis(120), 9, 4, -100 * TICK), Some(2));
        assert_eq!(clock.deadline(), Instant::from_nanos(130_000_000));
        // Half a tick of error changes the length by 1/128 of a tick.
        assert_eq!(clock.pass(millis(130), 9, 4, TICK / 2), Some(3));
        assert_eq!(clock.deadline(), Instant::from_nanos(139_921_875));
    }

    #[test]
    fn a_late_timer_is_recovered_and_a_hold_is_not() {
        let mut clock = MeshClock::new(millis(0), PERIOD);
        let passed = (0..100).take_while(|_| clock.pass(millis(500), 99, 4, 0).is_some());
        assert_eq!(passed.count(), 5, "four that were missed, and the one due");
        assert_eq!(clock.pass(millis(510), 4, 4, 0), None);
        assert!(clock.is_held);
        assert_eq!(clock.position(millis(700)), 5 * UNITS, "it stands");
        assert_eq!(clock.pass(millis(700), 5, 4, 0), Some(5));
        assert_eq!(clock.deadline(), millis(710));
    }

    #[test]
    fn the_clock_offset_is_half_the_difference_of_both_measurements() {
        // One is 2 ticks ahead of the other; the latency is 3 ticks each way.
        let (mut one, mut other) = (ClockOffset::default(), ClockOffset::default());
        let distant = 70_000 * UNITS;
        for _ in 0..400 {
            one.on_datagram(
                low_position(distant - 3 * UNITS),
                other.lead(),
                distant + 2 * UNITS,
            );
            other.on_datagram(
                low_position(distant + 2 * UNITS - 3 * UNITS),
                one.lead(),
                distant,
            );
            one.settle();
            other.settle();
        }
        assert_eq!((one.ahead(), other.ahead()), (-2 * TICK, 2 * TICK));
    }

    #[test]
    fn every_seat_and_lead_is_in_range() {
        for (clock, lead) in [(0, i16::MIN), (0xff_ffff, i16::MAX), (0x80_0000, -32_767)] {
            for ours in [0, 1, i64::from(u32::MAX) * UNITS] {
                let mut offset = ClockOffset::default();
                offset.on_datagram(clock, lead, ours);
                offset.settle();
                assert!(
                    offset.ahead().abs() <= (1 << 16) * TICK,
                    "{}",
                    offset.ahead()
                );
            }
        }
    }
}
