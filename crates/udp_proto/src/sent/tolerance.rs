//! Reordering tolerance: when a packet is declared lost.

use core::time::Duration;

use wire::Instant;

use crate::nanos::Nanos;
use crate::rtt::RttEstimator;

/// Starts at the thresholds of RFC 9002, section 6.1, grows with each spurious loss, and halves
/// every 30 s without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    /// Packet threshold.
    threshold: u64,
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

    /// Records a spurious loss of a packet that `overtaken` newer numbers passed.
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

    /// Returns the packet threshold.
    pub(super) const fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Returns the extra time beyond 9/8 of the RTT, at most one RTT.
    pub(super) fn slack(&self, rtt: &RttEstimator) -> Nanos {
        self.slack.min(Nanos::of(rtt.smoothed()))
    }

    fn is_raised(&self) -> bool {
        self.threshold > Self::THRESHOLD_MIN || self.slack > Nanos::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::from_millis(secs * 1_000)
    }

    #[test]
    fn grows_with_mistakes_and_halves_without() {
        let rtt = RttEstimator::new(Duration::ZERO);
        let mut tolerance = Tolerance::new();
        tolerance.decay(at(1_000_000));
        tolerance.on_spurious(at(1_000_000), 40, &rtt);
        assert_eq!(tolerance.threshold(), 41);
        assert_eq!(tolerance.slack(&rtt).get(), Duration::from_millis(25));
        for _ in 0..20 {
            tolerance.on_spurious(at(1_000_000), 5_000, &rtt);
        }
        assert_eq!(tolerance.threshold(), Tolerance::THRESHOLD_MAX);
        assert_eq!(tolerance.slack(&rtt).get(), rtt.smoothed());
        tolerance.decay(at(1_000_029));
        assert_eq!(tolerance.threshold(), 64);
        tolerance.decay(at(1_000_030));
        assert_eq!(tolerance.threshold(), 32);
        tolerance.decay(at(1_000_059));
        assert_eq!(tolerance.threshold(), 32);
        tolerance.decay(Instant::from_nanos(u64::MAX));
        assert_eq!(tolerance.threshold(), Tolerance::THRESHOLD_MIN);
        assert_eq!(tolerance.slack(&rtt).get(), Duration::ZERO);
    }

    #[test]
    fn slack_below_a_millisecond_is_dropped() {
        let rtt = RttEstimator::new(Duration::ZERO);
        let mut tolerance = Tolerance::new();
        tolerance.on_spurious(at(0), 1, &rtt);
        // An eighth of 200 ms, halved four times and once more.
        tolerance.decay(at(120));
        assert_eq!(tolerance.slack(&rtt).get(), Duration::from_nanos(1_562_500));
        tolerance.decay(at(150));
        assert_eq!(tolerance.slack(&rtt).get(), Duration::ZERO);
    }

    #[test]
    fn the_threshold_halves_further_without_slack() {
        let mut rtt = RttEstimator::new(Duration::ZERO);
        rtt.on_sample(Duration::from_millis(8), Duration::ZERO);
        let mut tolerance = Tolerance::new();
        tolerance.on_spurious(at(0), 63, &rtt);
        assert_eq!(tolerance.slack(&rtt).get(), Duration::from_millis(1));
        tolerance.decay(at(30));
        assert_eq!(
            (tolerance.threshold(), tolerance.slack(&rtt).get()),
            (32, Duration::ZERO)
        );
        tolerance.decay(at(150));
        assert_eq!(tolerance.threshold(), Tolerance::THRESHOLD_MIN);
    }
}
