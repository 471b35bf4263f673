//! Limits realtime messages on a path that loses a fifth of its packets or stops acknowledging.

use core::time::Duration;

use wire::Instant;

use crate::sent::Summary;

/// The circuit breaker of a session, based on RFC 8083: halves the realtime rate, and raises it by
/// a tenth for each second without cause. It reads the time only on events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Breaker {
    /// The limit, in bytes per second.
    pub(super) full: u32,
    pub(super) rate: u32,
    /// Counts of the current second and the two before, newest first.
    seconds: [LossCounts; 3],
    /// Whole seconds since the rate was halved, up to 3.
    whole: u8,
    began: Instant,
    /// Nothing was acknowledged since the path was last declared silent.
    pub(super) is_silent: bool,
    /// The rate before a silence halved it, until the trial decides.
    before: Option<u32>,
    trial: Option<Trial>,
    /// Send time of the packet that ended the last gap.
    gap_end: Option<Instant>,
    pub(super) is_gap_excused: bool,
}

/// The first RTT after a silence.
#[derive(Clone, Copy, Debug)]
struct Trial {
    ends_at: Instant,
    counts: LossCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct LossCounts {
    acknowledged: u32,
    lost: u32,
}

/// Least rate, in bytes per second.
pub(super) const FLOOR: u32 = 4_096;
/// Least sample of packets for a decision.
const PACKETS_MIN: u32 = 30;
const LOSS_PARTS: u32 = 5;
const SECOND: Duration = Duration::from_secs(1);
/// Least time between two gaps with excluded losses: the interval that [`LOSS_PARTS`] covers.
const GAP_DISTANCE_MIN: Duration = Duration::from_secs(3);
/// Bounds of the time in which a path must show after a silence that it delivers packets again.
const TRIAL_SPAN: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];
/// Idle seconds after which any rate is back at its limit: 4 KiB/s grow to 4 GiB/s in 147.
const IDLE_SECONDS_MAX: u32 = 150;

impl LossCounts {
    const fn add(&mut self, summary: &Summary, lost: u32) {
        self.acknowledged = self
            .acknowledged
            .saturating_add(summary.acked_packets)
            .saturating_add(summary.spurious_packets);
        self.lost = self
            .lost
            .saturating_add(lost)
            .saturating_sub(summary.spurious_packets);
    }

    const fn is_over_a_fifth(self) -> bool {
        self.lost.saturating_mul(LOSS_PARTS) > self.lost.saturating_add(self.acknowledged)
    }
}

impl Breaker {
    pub(super) const fn new(now: Instant, full: u32) -> Self {
        Self {
            full,
            rate: full,
            seconds: [LossCounts {
                acknowledged: 0,
                lost: 0,
            }; 3],
            whole: 0,
            began: now,
            is_silent: false,
            before: None,
            trial: None,
            gap_end: None,
            is_gap_excused: false,
        }
    }

    /// Evaluates the seconds that ended.
    pub(super) fn advance(&mut self, now: Instant) {
        if let Some(trial) = self.trial
            && trial.ends_at <= now
        {
            self.trial = None;
            if let Some(before) = self.before.take()
                && !trial.counts.is_over_a_fifth()
            {
                self.rate = self.rate.max(before);
            }
        }
        let mut steps = 0;
        while now.saturating_since(self.began) >= SECOND {
            if steps >= IDLE_SECONDS_MAX {
                self.began = now;
                break;
            }
            steps = steps.saturating_add(1);
            self.began += SECOND;
            self.end_second();
        }
    }

    /// Counts acknowledged and lost packets. An outage caused losses in a gap, not congestion: they
    /// are excluded, unless gaps make up a fifth of the time.
    pub(super) fn on_summary(&mut self, now: Instant, round_trip: Duration, summary: &Summary) {
        self.advance(now);
        if let Some((from, to)) = summary.gap {
            let distance = to.saturating_since(from).saturating_mul(LOSS_PARTS - 1);
            let distance = distance.max(GAP_DISTANCE_MIN);
            self.is_gap_excused = self
                .gap_end
                .is_none_or(|end| from.saturating_since(end) >= distance);
            self.gap_end = Some(to);
        }
        if summary.acked_packets > 0 && core::mem::take(&mut self.is_silent) {
            let [least, most] = TRIAL_SPAN;
            self.trial = Some(Trial {
                ends_at: now + round_trip.clamp(least, most),
                counts: LossCounts::default(),
            });
        }
        let excused = if self.is_gap_excused {
            summary.lost_in_gap
        } else {
            0
        };
        let lost = summary
            .lost_packets
            .saturating_sub(summary.lost_retransmits);
        let lost = lost.saturating_sub(excused);
        let [current, ..] = &mut self.seconds;
        current.add(summary, lost);
        if let Some(trial) = &mut self.trial {
            trial.counts.add(summary, lost);
        }
    }

    pub(super) fn on_silence(&mut self, now: Instant) {
        self.advance(now);
        self.is_silent = true;
        self.trial = None;
        self.before.get_or_insert(self.rate);
        self.halve();
    }

    fn end_second(&mut self) {
        self.whole = self.whole.saturating_add(1).min(3);
        match (self.is_too_much(), self.whole) {
            (true, 3) => {
                self.before = None;
                self.halve();
            }
            // The rate may be too high; three seconds will show.
            (true, _) => {}
            (false, _) if self.is_silent => {}
            (false, _) => {
                let more = (self.rate / 10).max(1);
                self.rate = self.rate.saturating_add(more).min(self.full);
            }
        }
        let [first, second, _] = self.seconds;
        self.seconds = [LossCounts::default(), first, second];
    }

    fn is_too_much(&self) -> bool {
        let count =
            |of: fn(&LossCounts) -> u32| self.seconds.iter().map(of).fold(0, u32::saturating_add);
        let lost = count(|counts| counts.lost);
        let settled = lost.saturating_add(count(|counts| counts.acknowledged));
        settled >= PACKETS_MIN && lost.saturating_mul(LOSS_PARTS) > settled
    }

    fn halve(&mut self) {
        self.rate = (self.rate / 2).max(FLOOR.min(self.full));
        self.seconds = [LossCounts::default(); 3];
        self.whole = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u32 = 262_144;
    const ROUND_TRIP: Duration = Duration::from_millis(40);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Acknowledges one packet.
    fn acked(breaker: &mut Breaker, millis: u64) {
        let summary = Summary {
            acked_packets: 1,
            ..Summary::default()
        };
        breaker.on_summary(at(millis), ROUND_TRIP, &summary);
    }

    /// One second with these counts, reported in 20 steps; returns the rate after it.
    fn second(breaker: &mut Breaker, start: u64, acked: u32, lost: u32) -> u32 {
        for part in 0..20 {
            let summary = Summary {
                acked_packets: acked / 20,
                lost_packets: lost / 20,
                ..Summary::default()
            };
            breaker.on_summary(at(start * 1_000 + part * 50), ROUND_TRIP, &summary);
        }
        breaker.advance(at(start * 1_000 + 1_000));
        breaker.rate
    }

    #[test]
    fn more_than_a_fifth_lost_in_three_seconds_halves_the_rate() {
        let mut breaker = Breaker::new(at(0), FULL);
        for start in 0..30 {
            assert_eq!(second(&mut breaker, start, 80, 20), FULL);
        }
        let mut breaker = Breaker::new(at(0), FULL);
        let mut rates = Vec::new();
        for start in 0..30 {
            rates.push(second(&mut breaker, start, 60, 20));
        }
        let halves: Vec<u32> = (1..=10).map(|step| (FULL >> step).max(FLOOR)).collect();
        let thirds: Vec<u32> = rates.iter().copied().skip(2).step_by(3).collect();
        assert_eq!(thirds, halves);
        // The rate does not grow in between.
        assert_eq!(
            &rates[..6],
            &[FULL, FULL, FULL / 2, FULL / 2, FULL / 2, FULL / 4]
        );
    }

    #[test]
    fn each_second_without_loss_restores_a_tenth_of_the_rate() {
        let mut breaker = Breaker::new(at(0), FULL);
        for start in 0..3 {
            second(&mut breaker, start, 60, 40);
        }
        let mut expected = FULL / 2;
        assert_eq!(breaker.rate, expected);
        for second in 4..=13 {
            breaker.advance(at(second * 1_000 - 1));
            assert_eq!(breaker.rate, expected);
            expected = (expected + expected / 10).min(FULL);
            breaker.advance(at(second * 1_000));
            assert_eq!(breaker.rate, expected);
        }
        assert_eq!(breaker.rate, FULL);
    }

    #[test]
    fn silence_halves_down_to_the_floor_and_a_day_idle_is_cheap() {
        let mut breaker = Breaker::new(at(0), FULL);
        for _ in 0..20 {
            breaker.on_silence(at(10));
        }
        breaker.advance(at(60_000));
        assert_eq!(breaker.rate, FLOOR, "nothing was acknowledged");
        acked(&mut breaker, 60_000);
        breaker.advance(at(86_400_000));
        assert_eq!(breaker.rate, FULL);
        let mut small = Breaker::new(at(0), 1_000);
        small.on_silence(at(0));
        assert_eq!(small.rate, 1_000, "below the floor from the start");
    }

    #[test]
    fn few_packets_and_late_ones_prove_nothing() {
        let mut breaker = Breaker::new(at(0), FULL);
        let lost = Summary {
            lost_packets: 29,
            ..Summary::default()
        };
        breaker.on_summary(at(100), ROUND_TRIP, &lost);
        breaker.advance(at(3_000));
        assert_eq!(breaker.rate, FULL);
        let mut breaker = Breaker::new(at(0), FULL);
        let late = Summary {
            lost_packets: 100,
            spurious_packets: 100,
            ..Summary::default()
        };
        breaker.on_summary(at(100), ROUND_TRIP, &late);
        breaker.advance(at(3_000));
        assert_eq!(breaker.rate, FULL);
    }

    /// The path recovers: `lost` packets in the gap.
    fn back(breaker: &mut Breaker, (from, to): (u64, u64), lost: u32) {
        let summary = Summary {
            acked_packets: 1,
            lost_packets: lost,
            lost_in_gap: lost,
            gap: Some((at(from), at(to))),
            ..Summary::default()
        };
        breaker.on_summary(at(to + 40), ROUND_TRIP, &summary);
    }

    #[test]
    fn a_gap_restores_the_rate_in_a_round_trip_and_its_losses_do_not_count() {
        let mut breaker = Breaker::new(at(0), FULL);
        acked(&mut breaker, 1_000);
        breaker.on_silence(at(1_300));
        breaker.on_silence(at(4_300));
        assert_eq!(breaker.rate, FULL / 4);
        back(&mut breaker, (1_000, 5_000), 400);
        assert_eq!(breaker.rate, FULL / 4);
        breaker.advance(at(5_090));
        assert_eq!(breaker.rate, FULL);
        for start in 6..20 {
            assert_eq!(second(&mut breaker, start, 80, 0), FULL);
        }
    }

    #[test]
    fn loss_after_a_gap_and_frequent_gaps_restore_no_rate() {
        let mut breaker = Breaker::new(at(0), FULL);
        breaker.on_silence(at(1_300));
        back(&mut breaker, (1_000, 2_000), 60);
        let lost = Summary {
            lost_packets: 1,
            ..Summary::default()
        };
        breaker.on_summary(at(2_060), ROUND_TRIP, &lost);
        breaker.advance(at(2_900));
        assert!(breaker.rate < FULL);
        // One second of total loss, then two without: more than a fifth is lost.
        let mut breaker = Breaker::new(at(0), FULL);
        for cycle in 0..10 {
            let start = cycle * 3_000;
            breaker.on_silence(at(start + 300));
            back(&mut breaker, (start, start + 1_000), 60);
            breaker.advance(at(start + 1_500));
            if cycle > 0 {
                assert!(breaker.rate < FULL, "{cycle}");
            }
        }
        assert!(breaker.rate <= FULL / 8, "{}", breaker.rate);
    }
}
