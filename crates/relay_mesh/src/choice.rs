//! Route choice: which route a flow takes, and when it changes.
//!
//! A flow keeps its route unless one of these holds:
//!
//! - The route died: the flow leaves at once, even right after a change.
//! - The route carries data worse than probes ([`DataHealth`]): the flow leaves at once.
//! - The route is degraded: in at least 3 consecutive windows of 200 ms it was worse than the best
//!   by over 20 ms, both in cost and in delay alone, or it lost over 5 % more than the best, which
//!   itself loses at most 5 %. The excess over these windows must reach 80 ms × s, or more after
//!   recent false alarms. Then the flow leaves at once.
//! - The route was worse than the best by over max(2 ms, 5 % of the best) for 3 s, and 5 s have
//!   passed since the last change. Then the flow leaves after a further delay of up to 15 s, which
//!   its hash determines.
//!
//! To avoid herds, a flow's hash selects two of the routes within 2 ms of the best, and the flow
//! takes the cheaper one. To avoid flapping, [`Penalties`] suppress a failed relay for a while.

mod penalty;

use core::time::Duration;

use wire::Instant;

use crate::cost::{Cost, Loss};
use crate::routes::Path;
use crate::splitmix;

pub use self::penalty::{Penalties, PenaltyConfig};

/// The route of one flow, or of all flows to one exit.
#[derive(Clone, Debug)]
pub struct Choice {
    config: ChoiceConfig,
    /// Spreads flows over equal routes, and over time.
    hash: u64,
    current: Option<Path>,
    changed_at: Instant,
    /// Since when another route has been better.
    worse_since: Option<Instant>,
    degradation: DegradationDetector,
}

/// When a flow leaves its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChoiceConfig {
    /// Minimum advantage to change for. Default 2 ms. `margin_percent` applies too. Measurement
    /// noise is as large, but does not last.
    pub margin: Cost,
    /// Minimum advantage to change for, in percent of the best route's cost. Default 5.
    pub margin_percent: u16,
    /// How long the advantage must last. Default 3 s.
    pub confirm: Duration,
    /// Maximum extra delay, set by the flow's hash, after both `confirm` and `hold` have passed.
    /// Default 15 s. If many flows have the same reason to change, a fifteenth of them changes per
    /// second.
    pub confirm_spread: Duration,
    /// Minimum time since the last change before changing for an advantage. Default 5 s.
    pub hold: Duration,
    /// Excess, both in cost and in delay alone, above which a window is bad. Default 20 ms.
    pub degraded_excess: Cost,
    /// Share lost, more than what the best loses, above which a window is bad. Default 5 %.
    pub degraded_loss: Loss,
    /// How much more the best may cost if the current route loses that much. Default 100 ms, which
    /// is the price of 5 %.
    pub degraded_loss_cost: Cost,
    /// Minimum number of consecutive bad windows before the flow leaves. Default 3.
    pub degraded_windows: u8,
    /// Minimum excess in them times seconds. Default 80 ms. A route that is 100 ms worse is left
    /// after 0.8 s, one that is 40 ms worse after 2 s.
    pub degraded_total: Cost,
    /// Increase of that threshold per false alarm, in thousandths of it. Default 2,000.
    pub false_alarm_increase: u32,
    /// Maximum total increase, in thousandths. Default 4,000.
    pub false_alarm_increase_max: u32,
    /// Time in which the increase halves; 15 min.
    pub false_alarm_half_life: Duration,
    /// Length of such a window. Default 200 ms.
    pub window: Duration,
    /// Routes that cost at most this much more than the best count as equal. Default 2 ms.
    pub equal: Cost,
    /// Whether to leave a route if its data does worse than its probes, and to back off relays that
    /// delay or drop data; yes. Use no for measurements that delay data or stop a relay on purpose.
    /// Then probes are short, and no padding is sent.
    pub judges_data: bool,
}

impl Default for ChoiceConfig {
    fn default() -> Self {
        Self {
            margin: Cost::from_millis(2),
            margin_percent: 5,
            confirm: Duration::from_secs(3),
            confirm_spread: Duration::from_secs(15),
            hold: Duration::from_secs(5),
            degraded_excess: Cost::from_millis(20),
            degraded_loss: Loss::from_ppm(50_000),
            degraded_loss_cost: Cost::from_millis(100),
            degraded_windows: 3,
            degraded_total: Cost::from_millis(80),
            false_alarm_increase: 2_000,
            false_alarm_increase_max: 4_000,
            false_alarm_half_life: Duration::from_secs(15 * 60),
            window: Duration::from_millis(200),
            equal: Cost::from_millis(2),
            judges_data: true,
        }
    }
}

/// A route that the flow may take.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The path.
    pub path: &'a Path,
    /// Cost by link state; unroutable if the path is dead.
    pub cost: Cost,
    /// Cost in the newest 200 ms if it was measured; otherwise the same as `cost`.
    pub recent: Cost,
    /// The part of both costs that is the price of loss, which is measured over many seconds.
    pub loss_price: Cost,
    /// Recent loss.
    pub loss: Loss,
    /// What its data shows.
    pub data_health: DataHealth,
}

/// What the data that a route carried shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataHealth {
    /// Data does no worse than probes.
    #[default]
    Good,
    /// The route, or a relay of it, recently did worse than its probes. It is taken only if all
    /// other routes have failed too, but a flow on it stays.
    BackedOff,
    /// It does worse than its probes now: a flow on it leaves at once if any other route is good.
    Failing,
}

impl Candidate<'_> {
    /// Returns whether a flow may change to it.
    fn is_fit(&self, now: Instant, penalties: &Penalties) -> bool {
        self.data_health == DataHealth::Good && !penalties.is_suppressed(now, self.path)
    }

    /// The larger of the link state's cost and the newest measurement.
    fn worse(&self) -> Cost {
        self.cost.max(self.recent)
    }

    /// Returns whether it is worse than `best` by over `margin`, also without the price of loss.
    fn is_later(&self, best: &Self, margin: Cost) -> bool {
        let (ours, theirs) = (self.recent, best.worse().plus(margin));
        ours > theirs && ours.less(self.loss_price) > theirs.less(best.loss_price)
    }
}

/// A change of a flow's route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The new route.
    pub to: Path,
    /// The reason.
    pub reason: Reason,
}

/// Why a flow changes its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It had no route.
    First,
    /// Its route died.
    Dead,
    /// Its route was degraded.
    Degraded,
    /// Another route was better for long enough.
    Better,
}

impl Choice {
    /// Starts without a route. `hash` identifies the flow and must not change.
    #[must_use]
    pub const fn new(now: Instant, config: ChoiceConfig, hash: u64) -> Self {
        Self {
            config,
            hash,
            current: None,
            changed_at: now,
            worse_since: None,
            degradation: DegradationDetector::new(now),
        }
    }

    pub(crate) const fn config(&self) -> &ChoiceConfig {
        &self.config
    }

    /// Returns the current route.
    #[must_use]
    pub const fn current(&self) -> Option<&Path> {
        self.current.as_ref()
    }

    /// Evaluates all routes. Returns the change to make, if any.
    ///
    /// Call it every 200 ms, and at once when a route dies. A current route that is not among the
    /// candidates is dead. If no candidate is routable, the flow keeps its route.
    pub fn decide(
        &mut self,
        now: Instant,
        candidates: &[Candidate<'_>],
        penalties: &Penalties,
    ) -> Option<Change> {
        let routable = || candidates.iter().filter(|route| route.cost.is_routable());
        let current = routable().find(|route| Some(route.path) == self.current.as_ref());
        let others = || routable().filter(|route| Some(route.path) != self.current.as_ref());
        // A relay that failed recently is used only if no other route works.
        let is_any_fit = others().any(|route| route.is_fit(now, penalties));
        let fit = others().filter(|route| !is_any_fit || route.is_fit(now, penalties));
        let fit: Vec<&Candidate<'_>> = fit.collect();
        if !is_any_fit && current.is_some() {
            self.worse_since = None;
            self.degradation.reset();
            return None;
        }
        let best = fit
            .iter()
            .min_by_key(|route| (route.worse(), &route.path.relays))?;
        let least = current.filter(|current| current.worse() <= best.worse());
        let seen = (candidates, least.unwrap_or(best));
        self.degradation.check_abandoned(now, &self.config, seen);
        let reason = match (current, &self.current) {
            (Some(current), _) => self.reason_to_leave(now, current, best)?,
            (None, Some(_)) => Reason::Dead,
            (None, None) => Reason::First,
        };
        let to = self.pick(&fit, best).path.clone();
        self.changed_at = now;
        self.worse_since = None;
        self.degradation.reset();
        let left = self.current.replace(to.clone());
        if let Some(left) = left.filter(|_| reason == Reason::Degraded) {
            self.degradation.on_left(now, left);
        }
        Some(Change { to, reason })
    }

    fn reason_to_leave(
        &mut self,
        now: Instant,
        current: &Candidate<'_>,
        best: &Candidate<'_>,
    ) -> Option<Reason> {
        if current.data_health == DataHealth::Failing || self.is_degraded(now, current, best) {
            return Some(Reason::Degraded);
        }
        let percent = best.worse().percent(self.config.margin_percent);
        let margin = self.config.margin.max(percent);
        if current.cost <= best.worse().plus(margin) {
            self.worse_since = None;
            return None;
        }
        let since = *self.worse_since.get_or_insert(now);
        // Flows that started together become eligible together.
        let may_go = (since + self.config.confirm).max(self.changed_at + self.config.hold);
        (may_go + self.turn() <= now).then_some(Reason::Better)
    }

    /// Evaluates the window if it has ended, by the newest measurements.
    fn is_degraded(&mut self, now: Instant, current: &Candidate<'_>, best: &Candidate<'_>) -> bool {
        let is_late = current.is_later(best, self.config.degraded_excess);
        let more = current.loss.ppm().saturating_sub(best.loss.ppm());
        let is_lossy = more > self.config.degraded_loss.ppm()
            && best.loss <= self.config.degraded_loss
            && best.worse() <= current.recent.plus(self.config.degraded_loss_cost);
        let late = is_late.then(|| current.recent.less(best.worse()));
        let lossy = is_lossy.then_some(self.config.degraded_loss_cost);
        self.degradation.is_due(now, &self.config, late.max(lossy))
    }

    fn turn(&self) -> Duration {
        let spread = u64::try_from(self.config.confirm_spread.as_nanos()).unwrap_or(u64::MAX);
        // Differs after each change, so that no flow is always first.
        let moment = self.changed_at.saturating_since(Instant::ZERO).as_nanos();
        let draw = splitmix::first(self.hash ^ u64::try_from(moment).unwrap_or(u64::MAX));
        let share = u128::from(draw).saturating_mul(spread.into());
        Duration::from_nanos(u64::try_from(share >> 64).unwrap_or(0))
    }

    /// Returns the cheaper of the two routes that the hash selects among those equal to `best`.
    fn pick<'c, 'p>(
        &self,
        fit: &[&'c Candidate<'p>],
        best: &'c Candidate<'p>,
    ) -> &'c Candidate<'p> {
        let limit = best.worse().plus(self.config.equal);
        let mut named: [Option<(u64, &Candidate<'_>)>; 2] = [None, None];
        for &route in fit.iter().filter(|route| route.worse() <= limit) {
            let rank = self.rank(route.path);
            let [first, second] = named;
            if first.is_none_or(|(lowest, _)| rank < lowest) {
                named = [Some((rank, route)), first];
            } else if second.is_none_or(|(lowest, _)| rank < lowest) {
                named = [first, Some((rank, route))];
            }
        }
        let named = named.into_iter().flatten();
        let cheaper = named.min_by_key(|(rank, route)| (route.worse(), *rank));
        cheaper.map_or(best, |(_, route)| route)
    }

    /// Rank of a route for this flow (rendezvous hashing).
    fn rank(&self, path: &Path) -> u64 {
        let nodes = path.relays.iter().chain([&path.destination]);
        nodes.fold(splitmix::first(self.hash), |hash, node| {
            let (words, _) = node.0.as_chunks::<8>();
            words.iter().fold(hash, |hash, word| {
                splitmix::first(hash ^ u64::from_le_bytes(*word))
            })
        })
    }
}

/// Halves `sum` every `half_life`, linearly interpolated between halvings.
fn faded(sum: u32, elapsed: Duration, half_life: Duration) -> u32 {
    let (elapsed, half_life) = (elapsed.as_nanos(), half_life.as_nanos().max(1));
    let halvings = elapsed.checked_div(half_life).unwrap_or(u128::MAX);
    let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
    let whole = sum.checked_shr(halvings).unwrap_or(0);
    let since = elapsed.checked_rem(half_life).unwrap_or(0);
    let part = u128::from(whole).saturating_mul(since);
    let part = part.checked_div(half_life).unwrap_or(0) / 2;
    whole.saturating_sub(u32::try_from(part).unwrap_or(u32::MAX))
}

/// Detects when a degraded route has cost so much that its flow leaves it at once.
///
/// Most delay spikes end within seconds, so the detector accumulates the excess delay over time. If
/// an abandoned route recovers within seconds, the threshold rises for the next time.
#[derive(Clone, Debug)]
struct DegradationDetector {
    /// Begin and end of the current window.
    window: (Instant, Instant),
    windows: u8,
    /// Excess of those windows, in 0.1 ms × ms.
    accumulated_excess: u64,
    /// The last abandoned route, and until when its recovery counts as a false alarm.
    left: Option<(Path, Instant)>,
    /// False alarms in thousandths at this time; they decay.
    false_alarms: (u32, Instant),
}

impl DegradationDetector {
    const fn new(now: Instant) -> Self {
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
    fn is_due(&mut self, now: Instant, config: &ChoiceConfig, excess: Option<Cost>) -> bool {
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
        let total = u64::from(config.degraded_total.units()).saturating_mul(factor);
        self.windows >= config.degraded_windows && self.accumulated_excess >= total
    }

    const fn reset(&mut self) {
        self.windows = 0;
        self.accumulated_excess = 0;
    }

    fn on_left(&mut self, now: Instant, path: Path) {
        self.left = Some((path, now + RETURN));
    }

    /// Checks whether the abandoned route is as good as the best again.
    fn check_abandoned(
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
            let sum = self
                .false_alarms(now, config)
                .saturating_add(config.false_alarm_increase);
            self.false_alarms = (sum.min(config.false_alarm_increase_max), now);
        }
    }

    /// The decayed number of false alarms, in thousandths.
    fn false_alarms(&self, now: Instant, config: &ChoiceConfig) -> u32 {
        let (sum, at) = self.false_alarms;
        faded(sum, now.saturating_since(at), config.false_alarm_half_life)
    }
}

/// How soon an abandoned route must recover to count as a false alarm.
const RETURN: Duration = Duration::from_secs(15);
/// Maximum length of a window; a longer gap has no observations.
const WINDOW_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
