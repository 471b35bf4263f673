//! Which route a flow takes, and when it leaves it.
//!
//! A flow stays where it is unless
//!
//! - its route died: it leaves at once, however long ago it came;
//! - its route carries data worse than probes: it leaves at once ([`DataHealth`]);
//! - its route is degraded: in 3 windows of 200 ms in a row or more it was worse than the best by
//!   over 20 ms, and so in delay alone, or lost 5 % more than the best, which loses less than that;
//!   and this has cost 80 ms times seconds, or more where it was left for nothing of late: it
//!   leaves at once;
//! - its route is worse than the best by max(2 ms, 5 % of the best) for 3 s, it came at least 5 s
//!   ago, and since then up to 15 s passed, how many its hash decides.
//!
//! Against herds: among the routes within 2 ms of the best, a flow's hash names two, and it takes
//! the cheaper; so flows that leave one relay spread over all that are as good, and flows that
//! could do better leave one after the other, a fifteenth of them in a second. Against flapping:
//! [`Penalties`] keep a relay that failed out for a while.

mod degradation;
mod penalty;

use core::time::Duration;

use wire::Instant;

use crate::cost::{Cost, Loss};
use crate::routes::Path;
use crate::splitmix;

use self::degradation::DegradationDetector;
pub use self::penalty::{Penalties, PenaltyConfig};

/// The route of one flow, or of all flows to one exit.
#[derive(Clone, Debug)]
pub struct Choice {
    config: ChoiceConfig,
    /// Spreads flows over equal routes and moments.
    hash: u64,
    /// Where the flow goes.
    current: Option<Path>,
    /// Since when.
    changed_at: Instant,
    /// Since when it could do better.
    worse_since: Option<Instant>,
    /// Whether the route is degraded.
    degradation: DegradationDetector,
}

/// When a flow leaves its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChoiceConfig {
    /// Least advantage to leave for, also in percent; 2 ms and 5 %. Noise is as large, but does not
    /// last.
    pub margin: Cost,
    /// Least advantage to leave for, in percent of the best route's cost; 5.
    pub margin_percent: u16,
    /// How long the advantage must last; 3 s.
    pub confirm: Duration,
    /// Longest addition, which the flow's hash decides, to the later of `confirm` and `hold`; 15 s, so that of flows
    /// with the same reason a fifteenth leaves in a second.
    pub confirm_spread: Duration,
    /// Least time between two changes for an advantage; 5 s.
    pub hold: Duration,
    /// Advantage, of which as much must be delay, at which a window is bad; 20 ms.
    pub escape: Cost,
    /// Share lost, beyond what the best loses, at which a window is bad; 5 %.
    pub escape_loss: Loss,
    /// How much dearer the best may be where the current route loses that much; 100 ms, which is
    /// the price of 5 %.
    pub escape_loss_worth: Cost,
    /// Least number of bad windows in a row until the flow leaves; 3.
    pub escape_windows: u8,
    /// Least advantage that was missed in them, times seconds; 80 ms. A route that is 100 ms worse
    /// is left after 0.8 s, one that is 40 ms worse after 2 s.
    pub escape_worth: Cost,
    /// What is added to that, in thousandths of it, each time a route was left for nothing; 2,000.
    pub regret: u32,
    /// Most that is added, in thousandths; 4,000.
    pub regret_max: u32,
    /// Time in which what is added halves; 15 min.
    pub regret_half_life: Duration,
    /// Length of such a window; 200 ms.
    pub window: Duration,
    /// How near to the best a route is as good; 2 ms.
    pub equal: Cost,
    /// Whether a route is left if its data does worse than its probes, and relays are backed off that delay or drop
    /// what they carry; yes. No is for measurements that hold data back or stop a relay on purpose: probes are short
    /// then, and no padding is sent.
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
            escape: Cost::from_millis(20),
            escape_loss: Loss::from_ppm(50_000),
            escape_loss_worth: Cost::from_millis(100),
            escape_windows: 3,
            escape_worth: Cost::from_millis(80),
            regret: 2_000,
            regret_max: 4_000,
            regret_half_life: Duration::from_secs(15 * 60),
            window: Duration::from_millis(200),
            equal: Cost::from_millis(2),
            judges_data: true,
        }
    }
}

/// A route that the flow may take.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The way.
    pub path: &'a Path,
    /// What it costs, by link state; unroutable where it is dead.
    pub cost: Cost,
    /// What it cost in the newest 200 ms, where something measured that; else the same as `cost`.
    pub recent: Cost,
    /// What of both is the price of loss.
    ///
    /// Loss is known by counting over many seconds: a probe lost by chance shows as a jump that
    /// stays for as long, and nothing was late.
    pub loss_price: Cost,
    /// What it lost lately.
    pub loss: Loss,
    /// What the data that it carried says of it.
    pub standing: DataHealth,
}

/// What the data that a route carried says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataHealth {
    /// Nothing against it.
    #[default]
    Good,
    /// It, or a relay of it, did worse than its probes not long ago: it is taken only if all others have failed too,
    /// and not left for that.
    BackedOff,
    /// It does worse than its probes now: it is left at once for any that is good.
    Failing,
}

impl Candidate<'_> {
    /// Whether a flow may come to it.
    fn is_fit(&self, now: Instant, penalties: &Penalties) -> bool {
        self.standing == DataHealth::Good && !penalties.is_suppressed(now, self.path)
    }

    /// The dearer of what link state says and what was measured last.
    fn worse(&self) -> Cost {
        self.cost.max(self.recent)
    }

    /// Returns whether it is worse than `best` by more than `margin`, and so in delay alone.
    fn is_later(&self, best: &Self, margin: Cost) -> bool {
        let (ours, theirs) = (self.recent, best.worse().plus(margin));
        ours > theirs && ours.less(self.loss_price) > theirs.less(best.loss_price)
    }
}

/// A flow changes its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where it goes now.
    pub to: Path,
    /// Why.
    pub reason: Reason,
}

/// Why a flow changes its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It had none.
    First,
    /// Its route died.
    Dead,
    /// Its route was degraded.
    Degraded,
    /// Another was better for long enough.
    Better,
}

impl Choice {
    /// Starts without a route; `hash` is the flow's, the same as long as it lives.
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

    /// Returns what it goes by.
    pub(crate) const fn config(&self) -> &ChoiceConfig {
        &self.config
    }

    /// Returns the route taken.
    #[must_use]
    pub const fn current(&self) -> Option<&Path> {
        self.current.as_ref()
    }

    /// Looks at all routes; returns the change to make, if one is to be made.
    ///
    /// Call it each 200 ms, and at once when a route dies. A current route that is not among the
    /// candidates is dead. Where nothing is routable the flow stays. Cost is linear in candidates.
    pub fn decide(
        &mut self,
        now: Instant,
        candidates: &[Candidate<'_>],
        penalties: &Penalties,
    ) -> Option<Change> {
        let routable = || candidates.iter().filter(|route| route.cost.is_routable());
        let current = routable().find(|route| Some(route.path) == self.current.as_ref());
        let others = || routable().filter(|route| Some(route.path) != self.current.as_ref());
        // A relay that failed lately is better than none, and worse than any that works.
        let is_any_fit = others().any(|route| route.is_fit(now, penalties));
        let fit: Vec<&Candidate<'_>> = others()
            .filter(|route| !is_any_fit || route.is_fit(now, penalties))
            .collect();
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
        if current.standing == DataHealth::Failing || self.is_degraded(now, current, best) {
            return Some(Reason::Degraded);
        }
        let percent = best.worse().percent(self.config.margin_percent);
        let margin = self.config.margin.max(percent);
        if current.cost <= best.worse().plus(margin) {
            self.worse_since = None;
            return None;
        }
        let since = *self.worse_since.get_or_insert(now);
        // Flows that came together may go at the same moment at the earliest, and do not go together.
        let may_go = (since + self.config.confirm).max(self.changed_at + self.config.hold);
        (may_go + self.turn() <= now).then_some(Reason::Better)
    }

    /// Judges the window that ended, if one did.
    ///
    /// It goes by what was measured last: link state may not have said so yet.
    fn is_degraded(&mut self, now: Instant, current: &Candidate<'_>, best: &Candidate<'_>) -> bool {
        let is_late = current.is_later(best, self.config.escape);
        let more = current.loss.ppm().saturating_sub(best.loss.ppm());
        let is_lossy = more > self.config.escape_loss.ppm()
            && best.loss <= self.config.escape_loss
            && best.worse() <= current.recent.plus(self.config.escape_loss_worth);
        let late = is_late.then(|| current.recent.less(best.worse()));
        let lossy = is_lossy.then_some(self.config.escape_loss_worth);
        self.degradation.is_due(now, &self.config, late.max(lossy))
    }

    /// How long this flow lets others go first.
    fn turn(&self) -> Duration {
        let spread = u64::try_from(self.config.confirm_spread.as_nanos()).unwrap_or(u64::MAX);
        // Another each time, so that none is always the first to go.
        let moment = self.changed_at.saturating_since(Instant::ZERO).as_nanos();
        let draw = splitmix::first(self.hash ^ u64::try_from(moment).unwrap_or(u64::MAX));
        let share = u128::from(draw).saturating_mul(spread.into());
        Duration::from_nanos(u64::try_from(share >> 64).unwrap_or(0))
    }

    /// Returns the cheaper of two that the hash names among the routes as good as `best`.
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
        named
            .min_by_key(|(rank, route)| (route.worse(), *rank))
            .map_or(best, |(_, route)| route)
    }

    /// The flow's own order of routes (rendezvous hashing).
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

/// What is left of `sum` after a time, by straight lines between the halvings: at most 6 % over the
/// exponential.
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

#[cfg(test)]
mod tests;
