//! The round trip of chunks, from which patience follows.

use core::time::Duration;

use wire::Instant;

/// Longest that a receiver waits before it acknowledges.
pub(crate) const ACK_WAIT: Duration = Duration::from_millis(20);

/// Round trip assumed before one was seen; RFC 9002, section 6.2.2.
const INITIAL_NANOS: u64 = 333_000_000;

/// Least allowance for variation; `kGranularity` of RFC 9002, section 6.1.2.
const GRANULARITY_NANOS: u64 = 1_000_000;

/// Smoothed round trip and its variation, RFC 6298, section 2; the receiver's wait included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    smoothed_nanos: u64,
    variation_nanos: u64,
    is_seen: bool,
}

impl RoundTrip {
    pub(crate) const fn new() -> Self {
        Self {
            smoothed_nanos: INITIAL_NANOS,
            variation_nanos: INITIAL_NANOS / 2,
            is_seen: false,
        }
    }

    /// Takes the trip of a transmission sent at `sent_at` that is acknowledged at `now`.
    pub(crate) const fn on_sample(&mut self, now: Instant, sent_at: Instant) {
        let sample = now.as_nanos().saturating_sub(sent_at.as_nanos());
        if self.is_seen {
            let change = self.smoothed_nanos.abs_diff(sample);
            self.variation_nanos = self
                .variation_nanos
                .saturating_mul(3)
                .saturating_add(change)
                / 4;
            self.smoothed_nanos = self.smoothed_nanos.saturating_mul(7).saturating_add(sample) / 8;
        } else {
            self.is_seen = true;
            self.smoothed_nanos = sample;
            self.variation_nanos = sample / 2;
        }
    }

    /// Returns how much later than a lost transmission another was sent, for its arrival to tell.
    ///
    /// An eighth of the round trip (RFC 9002, section 6.1.2), more where the path was seen to let
    /// transmissions be `overtaken` by more, and at most the round trip (RFC 8985, section 6.2):
    /// paced chunks are reordered by time, and three of them may be less than a millisecond.
    pub(crate) fn reorder_window(&self, overtaken: Duration) -> Duration {
        let overtaken = u64::try_from(overtaken.as_nanos()).unwrap_or(u64::MAX);
        // And an eighth, for the next to be overtaken may be so by a little more.
        let seen = overtaken.saturating_add(overtaken / 8);
        let window = seen.max(self.smoothed_nanos / 8);
        Duration::from_nanos(window.min(self.smoothed_nanos))
    }

    /// Returns how long an answer may take; RFC 9002, section 6.2.1.
    ///
    /// Twice the receiver's wait, for an acknowledgement is itself lost now and then, and the next
    /// says the same.
    pub(crate) fn patience(&self) -> Duration {
        let variation = self.variation_nanos.saturating_mul(4);
        let nanos = self
            .smoothed_nanos
            .saturating_add(variation.max(GRANULARITY_NANOS));
        Duration::from_nanos(nanos).saturating_add(ACK_WAIT.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_round_trip() {
        let mut trip = RoundTrip::new();
        assert_eq!(trip.patience(), Duration::from_millis(333 + 666 + 40));
        let start = Instant::from_millis(5);
        let at = |millis| start + Duration::from_millis(millis);
        trip.on_sample(at(100), start);
        assert_eq!(trip.patience(), Duration::from_millis(100 + 200 + 40));
        (0..100).for_each(|_| trip.on_sample(at(100), start));
        assert_eq!(trip.patience(), Duration::from_millis(100 + 1 + 40));
        // An answer from before the question, and one after centuries.
        trip.on_sample(Instant::ZERO, start);
        trip.on_sample(Instant::from_nanos(u64::MAX), start);
        trip.on_sample(Instant::from_nanos(u64::MAX), start);
        assert!(trip.patience() > Duration::from_secs(1 << 30));
    }
}
