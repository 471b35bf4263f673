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
mod tests;
