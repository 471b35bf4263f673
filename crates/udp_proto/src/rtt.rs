//! Round-trip time of a path.

use core::time::Duration;

use crate::nanos::Nanos;

/// RTT estimation; RFC 9002, section 5. A peer's acknowledgement delay is at most the announced
/// one, and never reduces a sample below the minimum: false delays cannot move the estimate out of
/// range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttEstimator {
    /// Smoothed RTT in nanoseconds, as all `u64`s here: integer sums are cheaper for each packet.
    smoothed: u64,
    variation: u64,
    measured: Option<Measured>,
    max_ack_delay: u64,
    /// Derived with each sample, since each packet reads it.
    pto: Nanos,
    loss_delay: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measured {
    /// The latest, including the peer's delay.
    latest: u64,
    /// The latest without the peer's delay, as far as accepted.
    adjusted: u64,
    min: u64,
}

impl RttEstimator {
    /// Estimate before the first sample.
    pub const INITIAL: Duration = Duration::from_millis(200);
    /// Longer samples are ignored.
    pub const SAMPLE_MAX: Duration = Duration::from_secs(10);
    /// Timer granularity; RFC 9002, section 6.1.2.
    pub const GRANULARITY: Duration = Duration::from_millis(1);
    /// Least probe timeout.
    pub const PTO_MIN: Duration = Duration::from_millis(10);
    /// Greatest probe timeout, also with backoff.
    pub const PTO_MAX: Duration = Duration::from_secs(2);

    /// Creates an estimator at [`Self::INITIAL`] for a peer that acknowledges within
    /// `max_ack_delay`.
    #[must_use]
    pub fn new(max_ack_delay: Duration) -> Self {
        let mut rtt = Self {
            smoothed: nanos(Self::INITIAL),
            variation: nanos(Self::INITIAL) / 2,
            measured: None,
            max_ack_delay: nanos(max_ack_delay),
            pto: Nanos::ZERO,
            loss_delay: Nanos::ZERO,
        };
        rtt.derive();
        rtt
    }

    fn derive(&mut self) {
        let margin = self.variation.saturating_mul(4).max(GRANULARITY);
        let pto = self.smoothed.saturating_add(margin);
        let pto = pto.saturating_add(self.max_ack_delay);
        self.pto = Nanos::from_nanos(pto.clamp(nanos(Self::PTO_MIN), nanos(Self::PTO_MAX)));
        let latest = self.measured.map_or(0, |measured| measured.latest);
        let delay = self.smoothed.max(latest).saturating_mul(9) / 8;
        self.loss_delay = Nanos::from_nanos(delay.max(GRANULARITY));
    }

    /// Adds a sample with the peer's reported delay. Ignores samples over [`Self::SAMPLE_MAX`]. The
    /// first is the handshake's, with a delay of zero.
    pub fn on_sample(&mut self, sample: Duration, ack_delay: Duration) {
        let (sample, delay) = (nanos(sample), nanos(ack_delay).min(self.max_ack_delay));
        if sample > nanos(Self::SAMPLE_MAX) {
            return;
        }
        let Some(Measured { min, .. }) = self.measured else {
            self.measured = Some(Measured {
                latest: sample,
                adjusted: sample,
                min: sample,
            });
            self.smoothed = sample;
            self.variation = sample / 2;
            self.derive();
            return;
        };
        let min = min.min(sample);
        let adjusted = sample
            .checked_sub(delay)
            .filter(|adjusted| *adjusted >= min)
            .unwrap_or(sample);
        self.measured = Some(Measured {
            latest: sample,
            adjusted,
            min,
        });
        // Neither is above `SAMPLE_MAX` or `INITIAL`, so no product overflows.
        let deviation = self.smoothed.abs_diff(adjusted);
        self.variation = self.variation.saturating_mul(3).saturating_add(deviation) / 4;
        self.smoothed = self.smoothed.saturating_mul(7).saturating_add(adjusted) / 8;
        self.derive();
    }

    /// Resets for a new path with at most one known sample; RFC 9000, section 9.4.
    pub fn reset(&mut self, round_trip: Option<Duration>) {
        *self = Self::new(Duration::from_nanos(self.max_ack_delay));
        if let Some(round_trip) = round_trip {
            self.on_sample(round_trip, Duration::ZERO);
        }
    }

    /// Returns the smoothed RTT; [`Self::INITIAL`] before the first sample.
    #[must_use]
    pub const fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed)
    }

    /// Returns the RTT variation.
    #[must_use]
    pub const fn variation(&self) -> Duration {
        Duration::from_nanos(self.variation)
    }

    /// Returns the latest sample; `None` before the first.
    #[must_use]
    pub fn latest(&self) -> Option<Duration> {
        self.measured
            .map(|measured| Duration::from_nanos(measured.latest))
    }

    /// Returns the latest sample without the peer's delay; `None` before the first.
    #[must_use]
    pub fn adjusted(&self) -> Option<Duration> {
        self.measured
            .map(|measured| Duration::from_nanos(measured.adjusted))
    }

    /// Returns the minimum RTT; `None` before the first sample.
    #[must_use]
    pub fn min(&self) -> Option<Duration> {
        self.measured
            .map(|measured| Duration::from_nanos(measured.min))
    }

    /// Returns the probe timeout, [`Self::PTO_MIN`] to [`Self::PTO_MAX`]; RFC 9002, section 6.2.1.
    #[must_use]
    pub const fn pto(&self) -> Duration {
        self.pto.get()
    }

    pub(crate) const fn ptos(&self, count: u64) -> Nanos {
        self.pto.saturating_mul(count)
    }

    /// Longest backoff. A longer one would detect a recovered path or a dead peer late.
    pub const BACKOFF_MAX: Duration = Duration::from_millis(500);

    /// Returns the probe timeout after `count` unanswered probes: doubled for each, up to
    /// [`Self::BACKOFF_MAX`] or the plain one.
    pub(crate) fn pto_after(&self, count: u32) -> Nanos {
        if count == 0 {
            return self.pto;
        }
        let factor = 1_u64.checked_shl(count).unwrap_or(u64::MAX);
        self.ptos(factor)
            .min(Nanos::of(Self::BACKOFF_MAX).max(self.pto))
    }

    /// Returns the time threshold for loss: 9/8 of the RTT; RFC 9002, section 6.1.2.
    pub(crate) const fn loss_delay(&self) -> Nanos {
        self.loss_delay
    }
}

/// [`RttEstimator::GRANULARITY`] in nanoseconds.
const GRANULARITY: u64 = nanos(RttEstimator::GRANULARITY);

/// `span` in nanoseconds, saturating at 584 years.
const fn nanos(span: Duration) -> u64 {
    span.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(span.subsec_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_first_sample_replaces_the_initial_estimate() {
        let mut rtt = RttEstimator::new(MAX_ACK_DELAY);
        assert_eq!((rtt.smoothed(), rtt.min()), (ms(200), None));
        rtt.on_sample(ms(80), Duration::ZERO);
        assert_eq!((rtt.smoothed(), rtt.variation()), (ms(80), ms(40)));
        assert_eq!((rtt.latest(), rtt.min()), (Some(ms(80)), Some(ms(80))));
    }

    #[test]
    fn later_samples_weigh_an_eighth_and_a_quarter() {
        let mut rtt = RttEstimator::new(MAX_ACK_DELAY);
        rtt.on_sample(ms(80), Duration::ZERO);
        rtt.on_sample(ms(170), ms(10));
        // 160 after the delay: 80 + 80 / 8, and 40 + (80 - 40) / 4.
        assert_eq!((rtt.smoothed(), rtt.variation()), (ms(90), ms(50)));
        assert_eq!(
            (rtt.latest(), rtt.adjusted()),
            (Some(ms(170)), Some(ms(160)))
        );
    }

    #[test]
    fn the_ack_delay_is_bounded_by_the_announced_one_and_the_minimum_rtt() {
        let mut rtt = RttEstimator::new(MAX_ACK_DELAY);
        rtt.on_sample(ms(80), Duration::ZERO);
        // 185 less 25, not less 100.
        rtt.on_sample(ms(185), ms(100));
        assert_eq!(rtt.smoothed(), ms(90));
        // 90 less 20 would be under the smallest sample.
        rtt.on_sample(ms(90), ms(20));
        assert_eq!(rtt.smoothed(), ms(90));
    }

    #[test]
    fn samples_over_ten_seconds_are_dropped() {
        let mut rtt = RttEstimator::new(MAX_ACK_DELAY);
        rtt.on_sample(Duration::from_millis(10_001), Duration::ZERO);
        assert_eq!(rtt, RttEstimator::new(MAX_ACK_DELAY));
        rtt.on_sample(ms(10_000), Duration::ZERO);
        assert_eq!(rtt.smoothed(), ms(10_000));
    }

    #[test]
    fn the_probe_timeout_doubles_between_its_bounds() {
        let mut rtt = RttEstimator::new(Duration::ZERO);
        rtt.on_sample(Duration::from_micros(100), Duration::ZERO);
        assert_eq!(rtt.pto(), RttEstimator::PTO_MIN);
        let mut rtt = RttEstimator::new(MAX_ACK_DELAY);
        rtt.on_sample(ms(100), Duration::ZERO);
        assert_eq!(rtt.pto(), ms(100 + 200 + 25));
        for count in [1, 2, 31, 32, 64, u32::MAX] {
            assert_eq!(rtt.pto_after(count).get(), RttEstimator::BACKOFF_MAX);
        }
        let mut rtt = RttEstimator::new(MAX_ACK_DELAY);
        rtt.on_sample(ms(20), Duration::ZERO);
        let waits = [0, 1, 2, 3].map(|count| rtt.pto_after(count).get());
        assert_eq!(waits, [ms(85), ms(170), ms(340), ms(500)]);
        let mut rtt = RttEstimator::new(MAX_ACK_DELAY);
        rtt.on_sample(ms(400), Duration::ZERO);
        assert_eq!(rtt.pto_after(9).get(), rtt.pto());
    }

    #[test]
    fn loss_waits_nine_eighths_and_at_least_a_millisecond() {
        let mut rtt = RttEstimator::new(MAX_ACK_DELAY);
        rtt.on_sample(ms(80), Duration::ZERO);
        assert_eq!(rtt.loss_delay().get(), ms(90));
        rtt.on_sample(ms(160), Duration::ZERO);
        assert_eq!(rtt.loss_delay().get(), ms(180));
        let mut rtt = RttEstimator::new(MAX_ACK_DELAY);
        rtt.on_sample(Duration::ZERO, Duration::ZERO);
        assert_eq!(rtt.loss_delay().get(), ms(1));
    }

    proptest! {
        #[test]
        fn twp_a7_lies_about_the_delay_keep_the_estimate_in_range(
            low in 0_u64..300_000,
            spread in 0_u64..300_000,
            samples in prop::collection::vec((any::<u32>(), 0_u64..25_000, any::<u64>()), 1..200),
        ) {
            let mut rtt = RttEstimator::new(MAX_ACK_DELAY);
            for (draw, held, lie) in samples {
                // The true RTT and delay; the peer claims any delay.
                let truth = low + u64::from(draw) % (spread + 1);
                let sample = Duration::from_micros(truth + held);
                rtt.on_sample(sample, Duration::from_micros(lie));
                prop_assert!(rtt.smoothed() >= Duration::from_micros(low));
                let highest = Duration::from_micros(low + spread) + MAX_ACK_DELAY;
                prop_assert!(rtt.smoothed() <= highest);
            }
        }
    }
}
