//! What a path costs: by link state, and by its own probes.

use core::time::Duration;

use crypto::Aead;
use wire::Instant;

use super::course::Course;
use crate::choice::Candidate;
use crate::cost::{Cost, Loss};
use crate::path_watch::PathState;
use crate::routes::{Graph, NodeIndex, Path};

/// A path and its prices.
pub(super) struct Priced {
    pub(super) path: Path,
    pub(super) cost: Cost,
    recent: Cost,
    loss_price: Cost,
    /// What its probes say; `None` where they say too little.
    pub(super) loss: Option<Loss>,
}

/// What link state says of a path.
#[derive(Clone, Copy)]
pub(super) struct LinkState {
    /// Unroutable where there is no way.
    cost: Cost,
    /// What of it is the price of loss.
    loss_price: Cost,
    /// Whether all its relays may be passed.
    may_pass: bool,
}

impl LinkState {
    /// Looks a path from `own` up.
    pub(super) fn of(graph: &Graph, own: Option<NodeIndex>, path: &Path, relay_cost: Cost) -> Self {
        let mut relays = path.relays.iter();
        Self {
            cost: own.map_or(Cost::UNROUTABLE, |own| {
                graph.path_cost(own, path, relay_cost)
            }),
            loss_price: own.map_or(Cost::ZERO, |own| graph.path_loss(own, path)),
            may_pass: relays.all(|relay| {
                let index = graph.index(relay);
                index.is_some_and(|index| graph.may_relay(index))
            }),
        }
    }
}

impl Priced {
    /// Adds what the path's own probes say to what link state says.
    ///
    /// Link state calls a link dead as soon as answers stay away. Where they still come over the
    /// path in use, or have not stayed away for long, that path is late and not dead; unless a
    /// relay on it may no longer be passed.
    pub(super) fn new<A: Aead>(
        now: Instant,
        course: &Course<A>,
        path: Path,
        said: LinkState,
    ) -> Self {
        let watched = course.find(&path).filter(|path| path.is_watched());
        let lives = watched.filter(|path| {
            said.may_pass
                && Some(path.id) == course.current
                && path.watch.state(now) < PathState::Dead
        });
        let (cost, loss_price) = match lives.and_then(|path| path.watch.round_trip()) {
            Some(round_trip) if !said.cost.is_routable() => (from_span(round_trip), Cost::ZERO),
            _ if course.barred.holds(now, &path) => (Cost::UNROUTABLE, Cost::ZERO),
            _ => (said.cost, said.loss_price),
        };
        let (excess, loss) = watched.map_or((Duration::ZERO, None), |path| {
            let (thousandths, decided) = path.watch.lost(now);
            let loss = Loss::from_ppm(thousandths.saturating_mul(1_000));
            let loss = (decided >= DECIDED_MIN).then_some(loss);
            (path.watch.excess(), loss)
        });
        Self {
            path,
            cost,
            recent: cost.plus(from_span(excess)),
            loss_price,
            loss,
        }
    }

    /// The path as the choice sees it, where the one in use loses `in_use`: of a path that was not
    /// measured nobody knows that it loses less.
    pub(super) fn offer(&self, in_use: Loss) -> Candidate<'_> {
        Candidate {
            path: &self.path,
            cost: self.cost,
            recent: self.recent,
            loss_price: self.loss_price,
            loss: self.loss.unwrap_or(in_use),
        }
    }
}

fn from_span(span: Duration) -> Cost {
    Cost::from_micros(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

/// Probes decided before their loss counts.
const DECIDED_MIN: u32 = 50;
