//! Detects when a degraded route has cost so much that its flow leaves it at once.
//!
//! Most delay spikes end within seconds, so leaving at each would cause needless route changes. The
//! detector accumulates the excess delay over time: a much worse route is left soon, a slightly
//! worse one later. If an abandoned route recovers within seconds, the threshold rises for the next
//! time.

use core::time::Duration;

use wire::Instant;

use super::{Candidate, ChoiceConfig};
use crate::cost::Cost;
use crate::routes::Path;

/// The excess of the current degradation, and the false alarms before it.
#[derive(Clone, Debug)]
pub(super) struct DegradationDetector {
    /// Begin and end of the current window.
    window: (Instant, Instant),
    /// Bad windows in a row.
    windows: u8,
    /// Excess of those windows, in 0.1 ms × ms.
    accumulated_excess: u64,
    /// The last abandoned route, and until when its recovery counts as a false alarm.
    left: Option<(Path, Instant)>,
    /// False alarms in thousandths at this time; they decay.
    false_alarms: (u32, Instant),
}

impl DegradationDetector {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            window: (now, now),
            windows: 0,
            accumulated_excess: 0,
            left: None,
            false_alarms: (0, now),
        }
    }

    /// Evaluates a finished window by how much worse than the best the route was; `None` if it was
    /// good. Returns whether to leave the route.
    pub(super) fn is_due(
        &mut self,
        now: Instant,
        config: &ChoiceConfig,
        excess: Option<Cost>,
    ) -> bool {
        let (start, end) = self.window;
        if now < end {
            return false;
        }
        self.window = (now, now + config.window);
        let Some(excess) = excess else {
            self.reset();
            return false;
        };
        let elapsed = now.saturating_since(start).min(WINDOW_MAX);
        let millis = u64::try_from(elapsed.as_millis()).unwrap_or(0);
        let more = millis.saturating_mul(excess.units().into());
        self.windows = self.windows.saturating_add(1);
        self.accumulated_excess = self.accumulated_excess.saturating_add(more);
        let factor = u64::from(self.false_alarms(now, config)).saturating_add(1_000);
        // 0.1 ms × s × thousandths is 0.1 ms × ms.
        let worth = u64::from(config.escape_worth.units()).saturating_mul(factor);
        self.windows >= config.escape_windows && self.accumulated_excess >= worth
    }

    /// Ends the current degradation: it is over, or the route was left.
    pub(super) const fn reset(&mut self) {
        self.windows = 0;
        self.accumulated_excess = 0;
    }

    /// Records that `path` was left because it was degraded.
    pub(super) fn on_left(&mut self, now: Instant, path: Path) {
        self.left = Some((path, now + RETURN));
    }

    /// Checks whether the abandoned route is as good as the best again.
    pub(super) fn check_abandoned(
        &mut self,
        now: Instant,
        config: &ChoiceConfig,
        (candidates, best): (&[Candidate<'_>], &Candidate<'_>),
    ) {
        let Some((path, until)) = &self.left else {
            return;
        };
        if now > *until {
            self.left = None;
            return;
        }
        let left = candidates.iter().find(|route| route.path == path);
        let limit = best.worse().plus(config.margin);
        let is_back = left.is_some_and(|left| left.worse() <= limit && left.loss <= best.loss);
        if is_back {
            self.left = None;
            let sum = self.false_alarms(now, config).saturating_add(config.regret);
            self.false_alarms = (sum.min(config.regret_max), now);
        }
    }

    /// The decayed number of false alarms, in thousandths.
    fn false_alarms(&self, now: Instant, config: &ChoiceConfig) -> u32 {
        let (sum, at) = self.false_alarms;
        super::faded(sum, now.saturating_since(at), config.regret_half_life)
    }
}

/// How soon an abandoned route must recover to count as a false alarm.
const RETURN: Duration = Duration::from_secs(15);
/// Maximum length of a window; a longer gap has no observations.
const WINDOW_MAX: Duration = Duration::from_secs(1);
