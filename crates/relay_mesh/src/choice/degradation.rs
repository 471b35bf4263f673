//! When a degraded route has cost so much that its flow leaves it at once.
//!
//! Most spells of delay are over in seconds, and who leaves for each of them changes routes for
//! nothing. So what counts is what the spell has cost so far: its excess times its length. A route
//! that is much worse is left soon, one that is a little worse later. And a flow learns: where the
//! route it left was as good as any a few seconds after, it waits for more the next time.

use core::time::Duration;

use wire::Instant;

use super::{Candidate, ChoiceConfig};
use crate::cost::Cost;
use crate::routes::Path;

/// What a flow knows of the spell that its route is in, and of those before.
#[derive(Clone, Debug)]
pub(super) struct DegradationDetector {
    /// When the window being judged began, and when it ends.
    window: (Instant, Instant),
    /// Bad windows in a row.
    windows: u8,
    /// What was missed in them, in 0.1 ms times milliseconds.
    accumulated_excess: u64,
    /// The route left last for being degraded, until when its return counts.
    left: Option<(Path, Instant)>,
    /// Times it was left for nothing, in thousandths, at this time; they fade.
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

    /// Judges the window that ended, if one did, by how much worse than the best the route was;
    /// `None` where it was good. Returns whether it is to be left.
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
        // 0.1 ms times seconds times thousandths are 0.1 ms times milliseconds.
        let worth = u64::from(config.escape_worth.units()).saturating_mul(factor);
        self.windows >= config.escape_windows && self.accumulated_excess >= worth
    }

    /// Forgets the spell: it is over, or its route was left.
    pub(super) const fn reset(&mut self) {
        self.windows = 0;
        self.accumulated_excess = 0;
    }

    /// Takes down that `path` was left for being degraded.
    pub(super) fn on_left(&mut self, now: Instant, path: Path) {
        self.left = Some((path, now + RETURN));
    }

    /// Looks whether the route that was left is as good as the best again.
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

    /// Times it was left for nothing, in thousandths.
    fn false_alarms(&self, now: Instant, config: &ChoiceConfig) -> u32 {
        let (sum, at) = self.false_alarms;
        super::faded(sum, now.saturating_since(at), config.regret_half_life)
    }
}

/// How soon a route must be good again for having been left for nothing.
const RETURN: Duration = Duration::from_secs(15);
/// Longest time that one look stands for: who was not asked for longer has seen nothing.
const WINDOW_MAX: Duration = Duration::from_secs(1);
