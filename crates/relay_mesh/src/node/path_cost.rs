//! The cost of a path, from link state and from its own probes.

use core::time::Duration;

use crypto::Aead;
use wire::Instant;

use super::known_routes::Routed;
use super::path_set::PathSet;
use super::path_table::{PathEntry, PathTable};
use crate::choice::{Candidate, ChoiceConfig, DataHealth};
use crate::cost::{Cost, CostModel, Loss};
use crate::path_watch::PathState;
use crate::routes::Path;

pub(super) struct PathCost {
    pub(super) path: Path,
    pub(super) cost: Cost,
    pub(super) is_draining: bool,
    recent: Cost,
    loss_price: Cost,
    /// Loss by its own probes: the proved lower bound, and the observed value. `None` if too few.
    probed: Option<(Loss, Loss)>,
    advertised: Loss,
    pub(super) data_health: DataHealth,
}

#[derive(Clone, Copy)]
pub(super) struct LinkState {
    /// Unroutable if there is no route.
    cost: Cost,
    /// The part of `cost` that is the price of loss.
    loss_price: Cost,
    loss: Loss,
    /// Whether all its relays accept flows.
    may_pass: bool,
    /// Whether a relay drains.
    pub(super) is_draining: bool,
}

impl LinkState {
    pub(super) fn of(newest: Option<&Routed>, path: &Path, model: &CostModel) -> Self {
        let Some(Routed { graph, own, .. }) = newest else {
            return Self {
                cost: Cost::UNROUTABLE,
                loss_price: Cost::ZERO,
                loss: Loss::ALL,
                may_pass: false,
                is_draining: false,
            };
        };
        let may_relay = |relay| graph.index(relay).map(|index| graph.may_relay(index));
        let relays = || path.relays.iter().map(may_relay);
        let may_pass = relays().all(|may_relay| may_relay == Some(true));
        let is_draining = relays().any(|may_relay| may_relay == Some(false));
        let losses = || graph.path_losses(*own, path);
        let ppm = losses().map(|code| code.loss().ppm());
        Self {
            cost: graph.path_cost(*own, path, model.relay()),
            loss_price: losses().fold(Cost::ZERO, |sum, code| sum.plus(model.loss(code))),
            loss: Loss::from_ppm(ppm.fold(0, u32::saturating_add)),
            may_pass,
            is_draining,
        }
    }

    /// The cost without the price of loss.
    pub(super) const fn delay(&self) -> Cost {
        self.cost.less(self.loss_price)
    }
}

impl<A> PathSet<A> {
    /// Compares measured delays with `advertised` ones. Returns how many paths are refuted now.
    ///
    /// A path that never matched its advertised delay is refuted early, and its relays are backed
    /// off.
    pub(super) fn refute(&mut self, now: Instant, advertised: impl Fn(&Path) -> Cost) -> u64 {
        let mut count = 0_u64;
        for path in self.paths.iter_mut().filter(|path| path.is_watched()) {
            let measured = path.watch.round_trip().filter(|_| path.watch.is_proved());
            // Without answers the delay is unknown.
            if let Some(measured) = measured.filter(|_| path.watch.state(now) == PathState::Good) {
                let (advertised, measured) = (advertised(&path.path), from_span(measured));
                let is_new = self.audit.observe(now, &path.path, advertised, measured);
                let is_early = path.is_refuted_early(now, advertised, measured);
                if is_early {
                    path.failed_at = Some(now);
                    self.backoffs.on_bad_data(now, &path.path);
                }
                count = count.saturating_add(u64::from(is_new || is_early));
            }
        }
        count
    }
}

impl PathTable {
    /// Records each path's advertised delay while its probes are as fast as usual.
    pub(super) fn record_delays(&mut self, advertised: impl Fn(&Path) -> Cost) {
        let paths = self.iter_mut().filter(|path| path.is_watched());
        for path in paths.filter(|path| !path.watch.has_grown()) {
            path.advertised_delay.set_usual(advertised(&path.path));
        }
    }
}

impl PathEntry {
    /// The cost of the newest 200 ms: higher than by link state if probes are slower than usual, or
    /// data is slower than probes.
    fn recent(
        &self,
        now: Instant,
        (cost, loss_price): (Cost, Cost),
        choice: &ChoiceConfig,
    ) -> Cost {
        let usual = self.advertised_delay.usual;
        let usual = usual.map_or(cost, |delay| delay.plus(loss_price));
        let grown = usual.plus(from_span(self.watch.excess()));
        let data = self.quality.data_transit(now);
        let data = data.filter(|_| choice.judges_data);
        let data = data.map_or(Duration::ZERO, |data| self.watch.data_excess(data));
        cost.max(grown).plus(from_span(data))
    }

    /// Whether the path has not matched its advertised delay for [`EARLY_PROOF`]. Returns true once
    /// while it counts as failing.
    fn is_refuted_early(&mut self, now: Instant, advertised: Cost, measured: Cost) -> bool {
        let is_refuted = self.advertised_delay.is_refuted(now, advertised, measured);
        is_refuted && !self.is_failing(now)
    }
}

/// What link state says about the delay of one path.
#[derive(Debug, Default)]
pub(super) struct AdvertisedDelay {
    /// The advertised delay when its probes were last as fast as usual.
    usual: Option<Cost>,
    /// When its delay was first measured.
    measured_since: Option<Instant>,
    /// Whether the measured delay ever matched the advertised one.
    has_matched: bool,
}

impl AdvertisedDelay {
    fn set_usual(&mut self, advertised: Cost) {
        self.usual = Some(advertised).filter(|cost| cost.is_routable());
    }

    /// Compares a measured delay. Returns whether none has matched for [`EARLY_PROOF`].
    fn is_refuted(&mut self, now: Instant, advertised: Cost, measured: Cost) -> bool {
        let since = *self.measured_since.get_or_insert(now);
        if self.has_matched || !advertised.is_routable() {
            return false;
        }
        self.has_matched = !is_far_over(advertised, measured);
        !self.has_matched && now.saturating_since(since) >= EARLY_PROOF
    }
}

/// The advertised delay of a path's probes; their answers may take a longer direct path.
pub(super) fn expected(newest: Option<&Routed>, path: &Path, model: &CostModel) -> Cost {
    let direct = Path {
        relays: Vec::new(),
        destination: path.destination,
    };
    let advertised = LinkState::of(newest, path, model).delay();
    let back = LinkState::of(newest, &direct, model).delay();
    if back.is_routable() {
        advertised.plus(back.less(advertised).percent(50))
    } else {
        advertised
    }
}

/// Whether the excess is too large to be explained by late link state.
pub(super) fn is_far_over(advertised: Cost, measured: Cost) -> bool {
    measured > advertised.plus(EARLY_MARGIN.max(advertised.percent(EARLY_MARGIN_PERCENT)))
}

impl PathCost {
    /// Combines link state with the path's own probes.
    ///
    /// Link state marks a link as dead as soon as answers are missing. For the active path it is
    /// ignored until the path's own probes are dead, unless a relay no longer accepts flows.
    pub(super) fn new<A: Aead>(
        now: Instant,
        path_set: &PathSet<A>,
        path: Path,
        advertised: LinkState,
    ) -> Self {
        let watched = path_set.paths.find(&path).filter(|path| path.is_watched());
        let lives = watched.filter(|path| {
            advertised.may_pass
                && Some(path.id) == path_set.paths.current()
                && path.watch.state(now) < PathState::Dead
        });
        let (cost, loss_price) = match lives.and_then(|path| path.watch.round_trip()) {
            Some(round_trip) if !advertised.cost.is_routable() => {
                (from_span(round_trip), Cost::ZERO)
            }
            _ if path_set.backoffs.is_blocked(now, &path) => (Cost::UNROUTABLE, Cost::ZERO),
            // Link state may have been refuted for it.
            _ => {
                let excess = path_set.audit.excess(now, &path);
                (advertised.cost.plus(excess), advertised.loss_price)
            }
        };
        let choice = path_set.selector.config();
        let recent = watched.map_or(cost, |path| path.recent(now, (cost, loss_price), choice));
        let data_health = if watched.is_some_and(|path| path.is_failing(now)) {
            DataHealth::Failing
        } else if path_set.backoffs.holds_relay_of(now, &path) {
            DataHealth::BackedOff
        } else {
            DataHealth::Good
        };
        let probed = watched.and_then(|path| {
            let (lost, decided) = path.watch.lost(now);
            let shown = Loss::of(lost, decided);
            (decided >= DECIDED_MIN).then(|| (Loss::lower_bound(lost, decided), shown))
        });
        Self {
            path,
            cost,
            is_draining: advertised.is_draining,
            recent,
            loss_price,
            probed,
            advertised: advertised.loss,
            data_health,
        }
    }

    /// The path as a candidate of the choice.
    ///
    /// The active path counts with its proved loss, any other with its observed loss. With too few
    /// probes, another path counts with the active one's loss, unless link state has less.
    pub(super) fn offer(&self, in_use: Option<&Self>) -> Candidate<'_> {
        let proved = in_use.map_or(Loss::NONE, Self::proved);
        let is_in_use = in_use.is_some_and(|in_use| in_use.path == self.path);
        let loss = match self.probed {
            _ if is_in_use => proved,
            Some((_, shown)) => shown,
            None => proved.min(self.advertised),
        };
        Candidate {
            path: &self.path,
            cost: self.cost,
            recent: self.recent,
            loss_price: self.loss_price,
            loss,
            data_health: self.data_health,
        }
    }

    fn proved(&self) -> Loss {
        self.probed.map_or(Loss::NONE, |(proved, _)| proved)
    }
}

pub(super) fn from_span(span: Duration) -> Cost {
    Cost::from_micros(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

/// How long a new path must be too slow, so that colluding nodes are left within 3 s.
const EARLY_PROOF: Duration = Duration::from_millis(1_500);
/// Excess at which a path is refuted early, or not moved to; also in percent.
const EARLY_MARGIN: Cost = Cost::from_millis(40);
const EARLY_MARGIN_PERCENT: u16 = 50;
/// Probes needed before their loss counts.
const DECIDED_MIN: u32 = 50;
