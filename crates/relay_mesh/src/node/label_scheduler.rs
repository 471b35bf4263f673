//! Which flows a path requests labels for, and in which order.

use core::time::Duration;
use std::collections::BTreeSet;

use wire::Instant;

use super::path_set::PathSet;
use super::path_table::PathEntry;
use crate::flow_key::FlowId;
use crate::path_watch::PathState;
use crate::route_request::FLOWS_MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct LabelRequest {
    pub(super) flow: FlowId,
    /// Whether its player's address is proved.
    pub(super) is_proved: bool,
    /// Whether its mode keeps a second path ready.
    pub(super) is_warm: bool,
}

impl LabelRequest {
    pub(super) const PROBE: Self = Self {
        flow: FlowId::PROBE,
        is_proved: true,
        is_warm: false,
    };
}

impl<A> PathSet<A> {
    /// The path that gets its labels first after a failure, if one of `flows` has none there. Not
    /// if one of its set-ups failed, or if another path is proved and it has no probe label yet.
    pub(super) fn priority_path(
        &self,
        now: Instant,
        mut flows: impl Iterator<Item = FlowId>,
    ) -> Option<u8> {
        let path = self.paths.active().or_else(|| self.chosen())?;
        let is_open = path.setups.failures() == 0 && path.setups.is_ready(now);
        let is_first = path.is_watched() || !self.paths.iter().any(|path| path.is_proved(now));
        let is_wanted = self.label_search.is_after_failover(now) && is_open && is_first;
        (is_wanted && flows.any(|flow| !path.bound.contains_key(&flow))).then_some(path.id)
    }

    /// The path that alone may request labels, if it answers probes, until it has all of them.
    pub(super) fn exclusive_path(&self, now: Instant, priority_path: Option<u8>) -> Option<u8> {
        let path = self.paths.get(priority_path?)?;
        let answers = path.is_watched() && path.watch.state(now) == PathState::Good;
        answers.then_some(path.id)
    }

    /// Updates since when the oldest flow has no label on the active path. Returns the stranded
    /// flows, which may use other paths: all without a label if the path [is short](
    /// PathEntry::is_short), else none.
    pub(super) fn update_unbound_flows(
        &mut self,
        now: Instant,
        requests: &[LabelRequest],
    ) -> BTreeSet<FlowId> {
        let Some(path) = self.paths.active_mut() else {
            return BTreeSet::new();
        };
        let bound = &path.bound;
        let flows = requests.iter().map(|request| request.flow);
        let unbound = flows.filter(|flow| !bound.contains_key(flow));
        let still = path.unbound_since;
        let still = still.filter(|(oldest, _)| unbound.clone().any(|flow| flow == *oldest));
        path.unbound_since = still.or_else(|| unbound.clone().next().map(|flow| (flow, now)));
        if path.unbound_since.is_none() {
            path.setups.reset_failures();
        }
        let stranded = if path.is_short(now) {
            unbound.collect()
        } else {
            BTreeSet::new()
        };
        if let Some((_, since)) = path.unbound_since.filter(|_| stranded.is_empty()) {
            self.label_search.schedule(since + UNBOUND_MAX);
        }
        stranded
    }

    /// Flows to request labels for on `path` now, those without another path first.
    ///
    /// The active path requests labels for all flows. Any other path requests them for stranded
    /// flows, but for unproved ones only if it is the spare. Proved flows also get labels on warm
    /// paths.
    pub(super) fn missing(
        &self,
        path: &PathEntry,
        requests: &[LabelRequest],
        (priority_path, stranded): (Option<u8>, &BTreeSet<FlowId>),
    ) -> Vec<FlowId> {
        let is_current = self
            .paths
            .current()
            .is_none_or(|current| current == path.id);
        let waits = priority_path.is_some_and(|priority_path| priority_path != path.id);
        let is_warm = requests.iter().any(|request| request.is_warm)
            || path.path.relays.is_empty()
            || self.selector.chosen() == Some(&path.path);
        let is_standby = self.paths.standby().is_some_and(|of| of.id == path.id);
        let is_spare = is_standby || self.selector.spare() == Some(&path.path);
        let asked: BTreeSet<FlowId> = path.setups.flows().collect();
        let is_first = |request: &LabelRequest| {
            let is_stranded = !waits && stranded.contains(&request.flow);
            request.flow == FlowId::PROBE || (is_stranded && (request.is_proved || is_spare))
        };
        let is_next =
            |request: &LabelRequest| !waits && (is_current || (request.is_proved && is_warm));
        let is_missing = |request: &&LabelRequest| {
            !path.bound.contains_key(&request.flow) && !asked.contains(&request.flow)
        };
        let missing = || requests.iter().filter(is_missing);
        let first = missing().filter(|request| is_first(request));
        let next = missing().filter(|request| !is_first(request) && is_next(request));
        first.chain(next).map(|request| request.flow).collect()
    }

    /// Spare paths that wait, while flows wait for labels on the active path and none is stranded.
    pub(super) fn deferred_spares(&self, stranded: &BTreeSet<FlowId>) -> Vec<u8> {
        let is_awaited = self
            .paths
            .active()
            .is_some_and(|path| path.unbound_since.is_some());
        if !is_awaited || !stranded.is_empty() {
            return Vec::new();
        }
        let spares = self.paths.iter().filter(|path| {
            Some(path.id) != self.paths.current() && Some(&path.path) != self.selector.chosen()
        });
        spares.map(|path| path.id).collect()
    }
}

impl PathEntry {
    /// Whether flows without a label may use other paths: if [`TRIES`](super::path_labels::TRIES) set-ups failed in a row, or
    /// one has waited for [`UNBOUND_MAX`].
    pub(super) fn is_short(&self, now: Instant) -> bool {
        self.unbound_since.is_some_and(|(_, since)| {
            self.setups.has_failed_often() || now.saturating_since(since) >= UNBOUND_MAX
        })
    }

    /// Divides `flows` into requests, of half as many flows after each failure, so that a node with
    /// little room can grant some. After a failure the probe label is requested alone.
    pub(super) fn batches<'a>(
        &self,
        mut flows: &'a [FlowId],
    ) -> impl Iterator<Item = &'a [FlowId]> + use<'a> {
        let failures = self.setups.failures();
        let most = (FLOWS_MAX >> failures.min(15)).max(1);
        let is_tried = failures > 0 && !self.is_watched();
        core::iter::from_fn(move || {
            let probes = is_tried && flows.first() == Some(&FlowId::PROBE);
            let count = if probes { 1 } else { most.min(flows.len()) };
            let (batch, rest) = flows.split_at_checked(count)?;
            flows = rest;
            (!batch.is_empty()).then_some(batch)
        })
    }
}

/// How long a spare path waits before it is set up, if no flow keeps a second path ready.
pub(super) const SPARE_AFTER: Duration = Duration::from_millis(500);
/// How long a flow waits for a label on the active path before it is stranded: four round trips of
/// 500 ms.
const UNBOUND_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
