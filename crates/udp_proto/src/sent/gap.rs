//! Outages: runs of packets of which none arrived, between two that did.

use core::time::Duration;

use wire::Instant;

use super::Summary;

/// Finds gaps.
///
/// Congestion loses packets among others that arrive. Where none of 300 ms arrives, the path was
/// gone: its losses say nothing about its capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    /// The newest packet acknowledged, and when it was sent.
    newest: Option<(u64, Instant)>,
    /// The numbers on either side of the last gap, which arrived.
    last: (u64, u64),
}

/// What one pass counts as lost since the last packet that arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    lost: u32,
    sent_at: Option<Instant>,
}

/// The shortest gap.
const GAP_MIN: Duration = Duration::from_millis(300);

impl Gaps {
    /// Nothing was acknowledged.
    pub(super) const NONE: Self = Self {
        newest: None,
        last: (0, 0),
    };

    /// Takes note of a packet, sent at `at`, that is newly acknowledged.
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
        if number > before.saturating_add(1) && at.saturating_since(before_at) >= GAP_MIN {
            self.last = (before, number);
            summary.gap = Some((before_at, at));
            run.end_in_gap(summary);
        }
        run.end(summary);
        self.newest = Some((number, at));
    }

    /// Takes note of a packet, sent at `at`, that counts as lost.
    pub(super) fn on_lost(&self, number: u64, at: Instant, run: &mut Run, summary: &mut Summary) {
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
    /// Counts what it holds as lost among packets that arrived.
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
