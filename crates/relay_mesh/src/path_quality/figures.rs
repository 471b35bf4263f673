//! Recent loss and lateness of a path's data, for the operator.

use core::time::Duration;

/// Figures from the far end's reports, dominated by about the newest 1,000 packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataFigures {
    /// Packets sent and lost, in 1,024ths. Each report with data decays both by 1/64.
    sent: u64,
    lost: u64,
    /// How much later than the median probe sampled packets were, in nanoseconds, smoothed.
    later: Option<i64>,
}

impl DataFigures {
    pub(super) const NEW: Self = Self {
        sent: 0,
        lost: 0,
        later: None,
    };

    pub(super) fn on_report(&mut self, lost: u32, sent: u32) {
        if sent == 0 {
            return;
        }
        for (sum, more) in [(&mut self.sent, sent), (&mut self.lost, lost)] {
            let more = u64::from(more).saturating_mul(SCALE);
            *sum = sum.saturating_sub(*sum / FADING).saturating_add(more);
        }
    }

    pub(super) fn on_sample(&mut self, later: i64) {
        self.later = Some(self.later.map_or(later, |before| {
            before.saturating_add(later.saturating_sub(before) / 8)
        }));
    }

    /// Returns the share lost, in thousandths; `None` if there was too little data.
    pub(crate) fn lost_thousandths(&self) -> Option<u32> {
        if self.sent < SENT_MIN.saturating_mul(SCALE) {
            return None;
        }
        let share = self.lost.saturating_mul(1_000).checked_div(self.sent)?;
        u32::try_from(share).ok()
    }

    /// Returns how much later than probes data arrives; `None` before the first sample.
    pub(crate) fn later(&self) -> Option<Duration> {
        let later = u64::try_from(self.later?.max(0)).ok()?;
        Some(Duration::from_nanos(later))
    }
}

const SCALE: u64 = 1_024;
/// Number of reports after which an older one counts for about a third.
const FADING: u64 = 64;
/// Minimum number of packets before a share is returned.
const SENT_MIN: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_what_is_reported_and_wait_for_enough_of_it() {
        let mut figures = DataFigures::NEW;
        figures.on_report(0, 0);
        figures.on_report(1, 10);
        assert_eq!((figures.lost_thousandths(), figures.later()), (None, None));
        for _ in 0..1_000 {
            figures.on_report(3, 10);
            figures.on_sample(40_000_000);
        }
        let lost = figures.lost_thousandths().unwrap();
        assert!((295..=300).contains(&lost), "{lost}");
        assert_eq!(figures.later(), Some(Duration::from_millis(40)));
        for _ in 0..500 {
            figures.on_report(0, 10);
            figures.on_sample(-3_000_000);
        }
        assert_eq!(figures.lost_thousandths(), Some(0));
        assert_eq!(figures.later(), Some(Duration::ZERO), "not later");
    }
}
