//! Results of set-ups: labels of a path, or failures.

use crypto::Provider;
use wire::Instant;

use super::Node;
use super::label_retry::{RETRY, wait};
use super::path_set::{Bound, PathEntry};
use crate::flow_key::FlowId;
use crate::hop_key::NextLabel;
use crate::link::LinkId;
use crate::path_setup::PathSetup;
use crate::shard::ShardId;

impl<P: Provider> Node<P> {
    /// Delays label requests for flows that the far end does not know: it refused them, or they
    /// ended.
    pub(super) fn defer(&mut self, now: Instant, far: LinkId, flows: &[FlowId]) {
        for flow in flows {
            let index = self.flows.of_id(far, *flow);
            if let Some(flow) = index.and_then(|index| self.flows.get_mut(index)) {
                flow.label_retry.on_refused(now);
            }
        }
    }

    /// Binds the labels that a set-up of a path was granted.
    pub(super) fn take_labels(
        &mut self,
        now: Instant,
        (far, id): (LinkId, u8),
        labels: Vec<(FlowId, NextLabel)>,
        setup: &mut PathSetup,
    ) {
        let is_it = |known: &PathEntry| known.id == id;
        let known = self.path_sets.get(&far).map(|path_set| &path_set.paths);
        let Some(first) =
            known.and_then(|paths| Some(paths.iter().find(|path| is_it(path))?.first))
        else {
            return;
        };
        let is_free = |label: &NextLabel| !self.is_bound_beside(first, label.name, ShardId::FIRST);
        let (labels, taken): (Vec<_>, Vec<_>) =
            labels.into_iter().partition(|(_, label)| is_free(label));
        let Some(path_set) = self.path_sets.get_mut(&far) else {
            return;
        };
        // There is room for another set-up.
        path_set.search_from(now);
        let Some(path) = path_set.paths.iter_mut().find(|path| is_it(path)) else {
            return;
        };
        let (Some(gate), Some(link)) = (
            self.gates.get(path.first),
            self.plane.links.get_mut(path.first),
        ) else {
            return;
        };
        let (mut ready, mut idle, mut unbound) = (Vec::new(), Vec::new(), taken.len());
        for (flow, label) in labels {
            if !self.flows.is_alive(far, flow) {
                let mut held = setup.take_held(flow);
                // The far end frees its own label when the flow ends.
                held.pop();
                idle.extend(held);
                continue;
            }
            let provider = self.endpoint.provider();
            // A label is not bound if the first hop granted it twice, or for a form of frames that
            // this node does not send.
            let sealer = link.sealer_to(provider, label.name.shard());
            let bound = sealer.filter(|_| gate.allows(&label.form));
            let bound = bound.map(|sealer| sealer.bind_origin(provider, now, label));
            let Some(Ok(binding)) = bound else {
                unbound = unbound.saturating_add(1);
                continue;
            };
            let bound = Bound {
                binding,
                sent_at: now,
                held: setup.take_held(flow),
            };
            if let Some(old) = path.bound.insert(flow, bound) {
                link.release(old.binding);
                idle.extend(old.held);
            }
            let index = self.flows.of_id(far, flow);
            if let Some(flow) = index.and_then(|index| self.flows.get_mut(index)) {
                flow.label_retry.on_label();
            }
            ready.push(flow);
        }
        let is_of_no_use = path.on_labels(now, ready.len(), unbound);
        self.give_back(now, idle);
        if is_of_no_use {
            self.on_setup_failed(now, far, id);
        }
        for flow in ready {
            self.send_early(now, far, flow);
        }
    }

    /// Backs off after a failed set-up; each wait is twice as long.
    ///
    /// A path without a probe label fails after [`TRIES`] set-ups. On a path with one, flows
    /// without a label wait, and other flows are not affected.
    pub(super) fn on_setup_failed(&mut self, now: Instant, far: LinkId, id: u8) {
        self.stats.setups_failed = self.stats.setups_failed.saturating_add(1);
        let Some(path_set) = self.path_sets.get_mut(&far) else {
            return;
        };
        path_set.search_from(now);
        let Some(path) = path_set.path_mut(id) else {
            return;
        };
        // Set-ups that were pending together fail one after the other, and count once.
        if path.retry_at <= now {
            path.retry_at = now + wait(path.failures);
            path.failures = path.failures.saturating_add(1);
        }
        if path.failures >= TRIES && !path.is_watched() {
            self.fail_path(now, far, id);
        }
    }
}

impl PathEntry {
    /// Whether it has a label for probes.
    pub(super) fn is_watched(&self) -> bool {
        self.bound.contains_key(&FlowId::PROBE)
    }

    /// Records how many labels of a set-up were bound, and how many could not be. Returns whether
    /// the set-up failed: most labels are unusable, or there is none to probe the path.
    pub(super) fn on_labels(&mut self, now: Instant, bound: usize, unbound: usize) -> bool {
        if has_failed(usize::from(self.is_watched()), (bound, unbound)) {
            return true;
        }
        if bound > 0 {
            self.failures = 0;
        }
        if unbound > 0 {
            self.retry_at = now + RETRY;
        }
        false
    }
}

/// Whether a set-up failed of which this many labels were bound, and this many could not be. The
/// path has `probes` labels for probes.
const fn has_failed(probes: usize, (bound, unbound): (usize, usize)) -> bool {
    unbound > 0 && (bound < unbound || probes == 0)
}

/// Failed set-ups after which a path without a probe label fails, and after which flows without a
/// label on the active path may use others.
pub(super) const TRIES: u8 = 3;

#[cfg(test)]
mod tests {
    use super::super::path_set::tests::{path, path_set};
    use super::*;
    use netsim::provider::SimProvider;
    use wire::Seed;

    #[test]
    fn of_a_path_that_is_probed_a_set_up_has_failed_where_most_of_its_labels_are_of_no_use() {
        for (labels, when_probed, when_not) in [
            ((64, 0), false, false),
            ((63, 1), false, true),
            ((32, 32), false, true),
            ((31, 33), true, true),
            ((0, 64), true, true),
            ((0, 0), false, false),
        ] {
            assert_eq!(has_failed(1, labels), when_probed, "{labels:?}");
            assert_eq!(has_failed(0, labels), when_not, "{labels:?}");
        }
    }

    #[test]
    fn mesh_a1_a_set_up_that_brings_no_label_of_use_has_failed() {
        let provider = SimProvider::new(Seed::from_number(1));
        let mut path_set = path_set(&provider);
        let added = path_set.add_path(Instant::ZERO, path(1), LinkId(1));
        added.expect("there is room");
        let path = &mut path_set.paths[0];
        path.failures = 2;
        assert!(path.on_labels(Instant::ZERO, 0, 64), "none can be bound");
        assert!(path.on_labels(Instant::ZERO, 63, 1), "none to try it by");
        assert_eq!(path.failures, 2);
        assert!(!path.on_labels(Instant::ZERO, 0, 0), "its flows ended");
        assert!(!path.on_labels(Instant::ZERO, 64, 0));
        assert_eq!(path.failures, 0);
    }
}
