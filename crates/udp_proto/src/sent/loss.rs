//! Loss detection: reordering tolerance, and outages.

use core::time::Duration;

use wire::Instant;

use super::Summary;
use super::scan::Slot;
use crate::nanos::{Deadline, Nanos};
use crate::rtt::RttEstimator;

#[derive(Clone, Copy, Debug)]
pub(super) struct LossDetector {
    pub(super) gaps: Gaps,
    pub(super) tolerance: Tolerance,
    pub(super) deadline: Deadline,
    /// When the last ack-eliciting packet was sent or the last probe requested.
    pub(super) probe_base: Instant,
    /// Probe timeouts since the last new acknowledgement.
    pub(super) probes: u32,
}

impl LossDetector {
    pub(super) const fn new() -> Self {
        Self {
            gaps: Gaps::NONE,
            tolerance: Tolerance::new(),
            deadline: Deadline::NEVER,
            probe_base: Instant::ZERO,
            probes: 0,
        }
    }
}

/// Starts at the thresholds of RFC 9002, section 6.1, grows with each spurious loss, and halves
/// every 30 s without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    pub(super) threshold: u64,
    /// Extra time beyond 9/8 of the RTT.
    slack: Nanos,
    /// Time of the last spurious loss or halving.
    since: Instant,
}

impl Tolerance {
    /// RFC 9002, section 6.1.1.
    pub(super) const THRESHOLD_MIN: u64 = 3;
    pub(super) const THRESHOLD_MAX: u64 = 64;
    /// Time without a spurious loss after which both halve.
    pub(super) const HALVING: Duration = Duration::from_secs(30);

    pub(super) const fn new() -> Self {
        Self {
            threshold: Self::THRESHOLD_MIN,
            slack: Nanos::ZERO,
            since: Instant::ZERO,
        }
    }

    pub(super) fn on_spurious(&mut self, now: Instant, overtaken: u64, rtt: &RttEstimator) {
        let seen = overtaken.saturating_add(1).min(Self::THRESHOLD_MAX);
        self.threshold = self.threshold.max(seen);
        let round = Nanos::of(rtt.smoothed());
        self.slack = (self.slack + round.divided(8)).min(round);
        self.since = now;
    }

    /// Halves as often as due.
    pub(super) fn decay(&mut self, now: Instant) {
        while self.is_raised() && self.since + Self::HALVING <= now {
            self.since += Self::HALVING;
            self.threshold = (self.threshold / 2).max(Self::THRESHOLD_MIN);
            self.slack = self.slack.divided(2);
            if self.slack < Nanos::of(RttEstimator::GRANULARITY) {
                self.slack = Nanos::ZERO;
            }
        }
    }

    /// Returns the extra time beyond 9/8 of the RTT, at most one RTT.
    pub(super) fn slack(&self, rtt: &RttEstimator) -> Nanos {
        self.slack.min(Nanos::of(rtt.smoothed()))
    }

    fn is_raised(&self) -> bool {
        self.threshold > Self::THRESHOLD_MIN || self.slack > Nanos::ZERO
    }
}

/// Finds outages. Congestion loses packets among others that arrive; if none of 300 ms arrives, the
/// losses say nothing about the capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    newest: Option<(u64, Instant)>,
    /// The numbers on either side of the last gap, which arrived.
    last: (u64, u64),
}

/// What one pass finds not to have arrived since the last packet that arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    lost: u32,
    /// Some have not arrived and may be late.
    has_open: bool,
    sent_at: Option<Instant>,
}

const GAP_MIN: Duration = Duration::from_millis(300);

impl Gaps {
    pub(super) const NONE: Self = Self {
        newest: None,
        last: (0, 0),
    };

    pub(super) fn on_acked(
        &mut self,
        number: u64,
        at: Instant,
        run: &mut Run,
        summary: &mut Summary,
    ) {
        let Some((before, before_at)) = self.newest else {
            self.newest = Some((number, at));
            return run.end(summary);
        };
        if number < before {
            return;
        }
        if run.is_any() && at.saturating_since(before_at) >= GAP_MIN {
            self.last = (before, number);
            summary.gap = Some((before_at, at));
            run.end_in_gap(summary);
        }
        run.end(summary);
        self.newest = Some((number, at));
    }

    pub(super) fn on_lost(&self, number: u64, slot: &Slot, run: &mut Run, summary: &mut Summary) {
        if slot.kind.signals_congestion() {
            self.on_lost_at(number, slot.at, run, summary);
        }
    }

    fn on_lost_at(&self, number: u64, at: Instant, run: &mut Run, summary: &mut Summary) {
        run.lost = run.lost.saturating_add(1);
        run.sent_at = run.sent_at.max(Some(at));
        let (first, last) = self.last;
        if first < number && number < last {
            run.end_in_gap(summary);
        } else if self.newest.is_some_and(|(newest, _)| number < newest) {
            run.end(summary);
        }
    }
}

impl Run {
    pub(super) const fn on_open(&mut self) {
        self.has_open = true;
    }

    const fn is_any(&self) -> bool {
        self.lost > 0 || self.has_open
    }

    pub(super) fn end(&mut self, summary: &mut Summary) {
        summary.lost_sent_at = summary.lost_sent_at.max(self.sent_at);
        *self = Self::default();
    }

    fn end_in_gap(&mut self, summary: &mut Summary) {
        summary.lost_in_gap = summary.lost_in_gap.saturating_add(self.lost);
        summary.gap_lost_sent_at = summary.gap_lost_sent_at.max(self.sent_at);
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Instant {
        Instant::from_millis(secs * 1_000)
    }

    #[test]
    fn slack_grows_with_spurious_losses_and_halves_without() {
        let rtt = RttEstimator::new(Duration::ZERO);
        let mut tolerance = Tolerance::new();
        tolerance.decay(secs(1_000_000));
        tolerance.on_spurious(secs(1_000_000), 40, &rtt);
        assert_eq!(tolerance.threshold, 41);
        assert_eq!(tolerance.slack(&rtt).get(), Duration::from_millis(25));
        for _ in 0..20 {
            tolerance.on_spurious(secs(1_000_000), 5_000, &rtt);
        }
        assert_eq!(tolerance.threshold, Tolerance::THRESHOLD_MAX);
        assert_eq!(tolerance.slack(&rtt).get(), rtt.smoothed());
        tolerance.decay(secs(1_000_029));
        assert_eq!(tolerance.threshold, 64);
        tolerance.decay(secs(1_000_030));
        assert_eq!(tolerance.threshold, 32);
        tolerance.decay(secs(1_000_059));
        assert_eq!(tolerance.threshold, 32);
        tolerance.decay(Instant::from_nanos(u64::MAX));
        assert_eq!(tolerance.threshold, Tolerance::THRESHOLD_MIN);
        assert_eq!(tolerance.slack(&rtt).get(), Duration::ZERO);
    }

    #[test]
    fn slack_below_a_millisecond_is_dropped() {
        let rtt = RttEstimator::new(Duration::ZERO);
        let mut tolerance = Tolerance::new();
        tolerance.on_spurious(secs(0), 1, &rtt);
        // An eighth of 200 ms, halved four times and once more.
        tolerance.decay(secs(120));
        assert_eq!(tolerance.slack(&rtt).get(), Duration::from_nanos(1_562_500));
        tolerance.decay(secs(150));
        assert_eq!(tolerance.slack(&rtt).get(), Duration::ZERO);
    }

    #[test]
    fn the_threshold_halves_further_without_slack() {
        let mut rtt = RttEstimator::new(Duration::ZERO);
        rtt.on_sample(Duration::from_millis(8), Duration::ZERO);
        let mut tolerance = Tolerance::new();
        tolerance.on_spurious(secs(0), 63, &rtt);
        assert_eq!(tolerance.slack(&rtt).get(), Duration::from_millis(1));
        tolerance.decay(secs(30));
        assert_eq!(
            (tolerance.threshold, tolerance.slack(&rtt).get()),
            (32, Duration::ZERO)
        );
        tolerance.decay(secs(150));
        assert_eq!(tolerance.threshold, Tolerance::THRESHOLD_MIN);
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_gap_needs_a_packet_that_did_not_arrive_and_three_tenths_of_a_second() {
        let (mut gaps, mut run) = (Gaps::NONE, Run::default());
        let mut summary = Summary::default();
        gaps.on_acked(1, at(0), &mut run, &mut summary);
        // Numbers that were skipped, or asked for no answer.
        gaps.on_acked(9, at(1_000), &mut run, &mut summary);
        assert_eq!(summary, Summary::default());
        gaps.on_lost_at(10, at(1_100), &mut run, &mut summary);
        gaps.on_acked(11, at(1_299), &mut run, &mut summary);
        assert_eq!((summary.gap, summary.lost_in_gap), (None, 0));
        assert_eq!(summary.lost_sent_at, Some(at(1_100)));
        let mut summary = Summary::default();
        gaps.on_lost_at(12, at(1_400), &mut run, &mut summary);
        run.on_open();
        gaps.on_acked(15, at(1_599), &mut run, &mut summary);
        assert_eq!(summary.gap, Some((at(1_299), at(1_599))));
        assert_eq!((summary.lost_in_gap, summary.lost_sent_at), (1, None));
        // What counts as lost later, in the gap and behind it.
        let (mut summary, mut run) = (Summary::default(), Run::default());
        gaps.on_lost_at(13, at(1_500), &mut run, &mut summary);
        gaps.on_lost_at(16, at(1_610), &mut run, &mut summary);
        run.end(&mut summary);
        assert_eq!(summary.lost_in_gap, 1);
        assert_eq!(summary.gap_lost_sent_at, Some(at(1_500)));
        assert_eq!(summary.lost_sent_at, Some(at(1_610)));
    }
}
