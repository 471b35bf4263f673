//! Backoff of label requests.

use core::time::Duration;

use wire::Instant;

/// When a flow may request labels again. The far end may not know the flow yet, or refuse more
/// labels for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelRetry {
    from: Instant,
    /// Refusals since the last label.
    refused: u8,
}

impl LabelRetry {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            from: now,
            refused: 0,
        }
    }

    /// Time before which the flow requests no label.
    pub(super) const fn from(&self) -> Instant {
        self.from
    }

    /// Records a refusal of the far end.
    pub(super) fn on_refused(&mut self, now: Instant) {
        self.from = now + wait(self.refused);
        self.refused = self.refused.saturating_add(1);
    }

    /// Records a granted label.
    pub(super) const fn on_label(&mut self) {
        self.refused = 0;
    }
}

/// Returns the backoff after `failures` earlier failures in a row: 250 ms, doubling to at most 4 s.
pub(super) fn wait(failures: u8) -> Duration {
    RETRY.saturating_mul(1 << failures.min(RETRY_DOUBLINGS))
}

/// Backoff after the first failure.
pub(super) const RETRY: Duration = Duration::from_millis(250);
/// Doublings until the maximum of 4 s.
const RETRY_DOUBLINGS: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_in_a_row_makes_a_flow_wait_longer_and_a_label_ends_the_row() {
        let mut label_retry = LabelRetry::new(Instant::ZERO);
        assert_eq!(label_retry.from(), Instant::ZERO);
        let waits = |label_retry: &mut LabelRetry, times| {
            let waits = (0..times).map(|_| {
                label_retry.on_refused(Instant::ZERO);
                label_retry
                    .from()
                    .saturating_since(Instant::ZERO)
                    .as_millis()
            });
            waits.collect::<Vec<_>>()
        };
        let row = [250, 500, 1_000, 2_000, 4_000, 4_000];
        assert_eq!(waits(&mut label_retry, 6), row);
        for _ in 0..300 {
            label_retry.on_refused(Instant::ZERO);
        }
        assert_eq!(waits(&mut label_retry, 1), [4_000]);
        label_retry.on_label();
        assert_eq!(waits(&mut label_retry, 6), row);
    }
}
