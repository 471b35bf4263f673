//! Set-ups of paths: label requests, their replies, and the backoff after failures. Keeps labels
//! alive.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::Instant;

use super::flow_table::FlowTable;
use super::label_scheduler::LabelRequest;
use super::path_set::PathSet;
use super::path_table::{Bound, KEEP_ALIVE};
use super::{Node, RELIABLE};
use crate::flow_key::FlowId;
use crate::game::Mode;
use crate::hop::{NextLabel, Piece, ShardId};
use crate::link::LinkId;
use crate::path_setup::{NodeRequest, PathSetup, Progress, held};
use crate::route_request::RouteReply;

impl<P: Provider> Node<P> {
    /// Delays label requests for flows that the remote end refused.
    pub(super) fn defer(&mut self, now: Instant, remote: LinkId, flows: &[FlowId]) {
        for flow in flows {
            if let Some(flow) = self.flows.by_id_mut(remote, *flow) {
                flow.label_retry.on_refused(now);
            }
        }
    }

    pub(super) fn take_labels(
        &mut self,
        now: Instant,
        (remote, id): (LinkId, u8),
        labels: Vec<(FlowId, NextLabel)>,
        setup: &mut PathSetup,
    ) {
        let Some(first) = self.path_mut((remote, id)).map(|path| path.first) else {
            return;
        };
        let is_free =
            |label: &NextLabel| !self.is_bound_on_other_shard(first, label.name, ShardId::FIRST);
        let (labels, taken): (Vec<_>, Vec<_>) =
            labels.into_iter().partition(|(_, label)| is_free(label));
        let Some(path_set) = self.path_sets.get_mut(&remote) else {
            return;
        };
        path_set.label_search.schedule(now);
        let Some(path) = path_set.paths.get_mut(id) else {
            return;
        };
        let links = &mut self.plane.links;
        let (Some(gate), Some(link)) = (self.gates.get(first), links.get_mut(first)) else {
            return;
        };
        let (mut ready, mut idle, mut unbound) = (Vec::new(), Vec::new(), taken.len());
        for (flow, label) in labels {
            if !self.flows.is_alive(remote, flow) {
                let mut held = setup.take_held(flow);
                held.pop();
                idle.extend(held);
                continue;
            }
            let provider = self.endpoint.provider();
            // Unbound if the first hop granted it twice, or for a form that this node does not
            // send.
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
            if let Some(flow) = self.flows.by_id_mut(remote, flow) {
                flow.label_retry.on_label();
            }
            ready.push(flow);
        }
        let has_failed = path.on_labels(now, ready.len(), unbound);
        self.queue_releases(now, idle);
        if has_failed {
            self.on_setup_failed(now, remote, id);
        }
        for flow in ready {
            self.send_early(now, remote, flow);
        }
    }

    /// Backs off after a failed set-up; each wait is twice as long.
    ///
    /// A path without a probe label fails after [`TRIES`] set-ups.
    pub(super) fn on_setup_failed(&mut self, now: Instant, remote: LinkId, id: u8) {
        self.stats.setups_failed = self.stats.setups_failed.saturating_add(1);
        let Some(path_set) = self.path_sets.get_mut(&remote) else {
            return;
        };
        path_set.label_search.schedule(now);
        let Some(path) = path_set.paths.get_mut(id) else {
            return;
        };
        path.setups.on_failure(now);
        if path.setups.has_failed_often() && !path.is_watched() {
            self.fail_path(now, remote, id);
        }
    }

    /// Starts set-ups for flows without a label on a path, as many as may be pending. Unproved
    /// flows get labels only on the active path, or as stranded flows on the spare.
    pub(super) fn set_up_missing(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        self.stats.label_searches = self.stats.label_searches.saturating_add(1);
        let requests = Self::label_requests(now, path_set, &self.flows, link);
        path_set.label_search.on_searched(now, requests.len());
        let mut outgoing = Vec::new();
        let mut ids = || self.last_request.advance();
        // After a failure, the path that takes over gets its labels first.
        let proved = requests.iter().filter(|wanted| wanted.is_proved);
        let priority_path = path_set.priority_path(now, proved.map(|wanted| wanted.flow));
        if priority_path.is_some() {
            path_set.label_search.schedule_after_failover();
        }
        let stranded = path_set.update_unbound_flows(now, &requests);
        let exclusive = path_set.exclusive_path(now, priority_path);
        // Flows without any label come before those that want a second one.
        let waiting = path_set.deferred_spares(&stranded);
        let paths = path_set.paths.iter();
        let retry_at = paths.filter_map(|path| path.setups.poll_timeout(now)).min();
        let open = path_set.paths.iter().filter(|path| {
            let is_allowed = exclusive.is_none_or(|exclusive| exclusive == path.id);
            is_allowed && path.setups.is_ready(now) && path.setup_room() > 0
        });
        let flows = |path| path_set.missing(path, &requests, (priority_path, &stranded));
        let missing: Vec<_> = open.map(|path| (path.id, flows(path))).collect();
        for (id, missing) in missing {
            let Some(path) = path_set.paths.get_mut(id) else {
                continue;
            };
            let is_waiting = waiting.contains(&id);
            let most = if is_waiting { SPARE_SETUPS } else { usize::MAX };
            let room = path.setup_room().min(path.setups.room(most));
            // The end of a set-up starts the next search.
            for flows in path.batches(&missing).take(room) {
                let way = (path.path.relays.as_slice(), path.path.destination, id);
                let (setup, first) = PathSetup::start(now, self.own, way, flows.to_vec(), &mut ids);
                path.setups.push(setup);
                outgoing.extend(first);
            }
        }
        if let Some(at) = retry_at {
            path_set.label_search.schedule(at);
        }
        self.send_requests(now, outgoing);
    }

    /// The flows with a remote end for which labels may be requested, the probe flow first. The far
    /// end does not know a flow before its open message.
    fn label_requests(
        now: Instant,
        path_set: &mut PathSet<P::Aead>,
        flows: &FlowTable<P::Aead>,
        remote: LinkId,
    ) -> Vec<LabelRequest> {
        let mut requests = vec![LabelRequest::PROBE];
        for (_, flow) in flows.with(remote) {
            if path_set.opens.contains(flow.id) {
                continue;
            }
            if flow.label_retry.from() <= now {
                requests.push(LabelRequest {
                    flow: flow.id,
                    is_proved: flow.is_proved(),
                    is_warm: flow.mode != Mode::Single,
                });
            } else {
                path_set.label_search.schedule(flow.label_retry.from());
            }
        }
        requests
    }

    /// Handles the reply to a route request of this node.
    pub(super) fn on_route_reply(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Ok((id, reply)) = RouteReply::decode(message) else {
            self.count_malformed();
            return;
        };
        let Some(node) = self.node_of(link) else {
            return;
        };
        let mut ids = || self.last_request.advance();
        let session = self.peers.session(link);
        let found = self.path_sets.iter_mut().find_map(|(&remote, path_set)| {
            path_set.paths.iter_mut().find_map(|path| {
                let setups = &mut path.setups;
                let (progress, ended) = setups.on_reply((node, id), session, &reply, &mut ids)?;
                Some((remote, path.id, progress, ended))
            })
        });
        let mut idle = Vec::new();
        match found {
            Some((_, _, Progress::Pending(outgoing), _)) => self.send_requests(now, outgoing),
            Some((remote, path, progress, Some(mut setup))) => {
                if let Progress::Ready { labels, refused } = progress {
                    self.take_labels(now, (remote, path), labels, &mut setup);
                    self.defer(now, remote, &refused);
                } else {
                    self.on_setup_failed(now, remote, path);
                }
                idle = setup.into_held();
            }
            Some((_, _, _, None)) | None => {
                self.stats.stray_replies = self.stats.stray_replies.saturating_add(1);
                if let RouteReply::Done(granted) = reply {
                    idle.extend(held(session, granted));
                }
            }
        }
        self.queue_releases(now, idle);
        self.paths_dirty = true;
    }

    pub(super) fn end_overdue_setups(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let (mut failed, mut ended) = (Vec::new(), Vec::new());
        for path in path_set.paths.iter_mut() {
            let overdue = path.setups.take_overdue(now);
            if !overdue.is_empty() {
                failed.push(path.id);
            }
            ended.extend(overdue);
        }
        self.queue_releases(now, ended.into_iter().flat_map(PathSetup::into_held));
        for path in failed {
            self.on_setup_failed(now, link, path);
        }
    }

    /// Sends an empty frame for each label that was silent for [`KEEP_ALIVE`].
    pub(super) fn keep_labels_alive(&mut self, now: Instant) {
        let mut silent = Vec::new();
        for (&link, path_set) in &self.path_sets {
            for path in path_set.paths.iter() {
                let is_silent = |bound: &Bound| now.saturating_since(bound.sent_at) >= KEEP_ALIVE;
                let flows = path.bound.iter().filter(|(_, bound)| is_silent(bound));
                let indices = flows.filter_map(|(flow, _)| self.flows.of_id(link, *flow));
                silent.extend(indices.map(|index| (index, path.id)));
            }
        }
        for (index, path) in silent {
            self.send_pieces(now, index, (Piece::First, &[]), [Some(path), None]);
        }
    }

    /// Sends requests. If a request cannot be sent, its set-up ends, and its path backs off once.
    fn send_requests(&mut self, now: Instant, outgoing: Vec<NodeRequest>) {
        let mut unsent = Vec::new();
        for NodeRequest { node, id, request } in outgoing {
            let mut message = Vec::new();
            request.encode(id, &mut message);
            let link = self.peers.find(&node);
            let link = link.filter(|link| self.peers.session(*link).is_some());
            if link.is_some_and(|link| self.send(now, link, RELIABLE, &message)) {
                self.stats.label_requests = self.stats.label_requests.saturating_add(1);
            } else {
                unsent.push((node, id, link.is_some()));
            }
        }
        let (mut stuck, mut ended) = (BTreeMap::new(), Vec::new());
        for (node, id, is_only_full) in unsent {
            for (&remote, path_set) in &mut self.path_sets {
                let mut is_stuck = false;
                for path in path_set.paths.iter_mut() {
                    let waiting = path.setups.take_waiting_for(node, id);
                    if !waiting.is_empty() {
                        let is_full = stuck.entry((remote, path.id)).or_insert(true);
                        *is_full &= is_only_full;
                        is_stuck = true;
                    }
                    ended.extend(waiting);
                }
                if is_stuck {
                    path_set.label_search.schedule(now + RETRY);
                }
            }
        }
        self.queue_releases(now, ended.into_iter().flat_map(PathSetup::into_held));
        for ((remote, id), is_only_full) in stuck {
            if !is_only_full {
                self.on_setup_failed(now, remote, id);
                continue;
            }
            if let Some(path) = self.path_mut((remote, id)) {
                path.setups.pause(now);
            }
        }
    }
}

/// Whether a set-up failed with `bound` usable labels and `unbound` unusable ones, on a path with
/// `probes` labels for probes.
pub(super) const fn has_failed(probes: usize, (bound, unbound): (usize, usize)) -> bool {
    unbound > 0 && (bound < unbound || probes == 0)
}

/// When a flow may request labels again.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelRetry {
    from: Instant,
    /// Refusals since the last label.
    refused: u8,
}

impl LabelRetry {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            from: now,
            refused: 0,
        }
    }

    pub(super) const fn from(&self) -> Instant {
        self.from
    }

    pub(super) fn on_refused(&mut self, now: Instant) {
        self.from = now + wait(self.refused);
        self.refused = self.refused.saturating_add(1);
    }

    pub(super) const fn on_label(&mut self) {
        self.refused = 0;
    }
}

/// The backoff after `failures` failures in a row: 250 ms, doubling to at most 4 s.
pub(super) fn wait(failures: u8) -> Duration {
    RETRY.saturating_mul(1 << failures.min(RETRY_DOUBLINGS))
}

/// Failed set-ups after which a path without a probe label fails, and flows without a label on the
/// active path may use others.
pub(super) const TRIES: u8 = 3;
/// Backoff after the first failure.
pub(super) const RETRY: Duration = Duration::from_millis(250);
const RETRY_DOUBLINGS: u8 = 4;
/// Pending set-ups of each spare path, while flows wait for labels on the active path.
const SPARE_SETUPS: usize = 2;

#[cfg(test)]
mod tests {
    use super::super::path_table::{PathTable, tests::path};
    use super::*;

    #[test]
    fn a_set_up_of_a_probed_path_fails_if_most_of_its_labels_are_unusable() {
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
        let mut paths = PathTable::default();
        let added = paths.add(Instant::ZERO, path(1), LinkId(1), 0);
        let path = added.and_then(|id| paths.get_mut(id));
        let path = path.expect("there is room");
        path.setups.on_failure(Instant::ZERO);
        assert!(path.on_labels(Instant::ZERO, 0, 64), "none can be bound");
        assert!(path.on_labels(Instant::ZERO, 63, 1), "none to try it by");
        assert_eq!(path.setups.failures(), 1);
        assert!(!path.on_labels(Instant::ZERO, 0, 0), "its flows ended");
        assert!(!path.on_labels(Instant::ZERO, 64, 0));
        assert_eq!(path.setups.failures(), 0);
    }

    #[test]
    fn each_refusal_makes_a_flow_wait_longer_until_it_gets_a_label() {
        let mut label_retry = LabelRetry::new(Instant::ZERO);
        assert_eq!(label_retry.from(), Instant::ZERO);
        let waits = |label_retry: &mut LabelRetry, times| {
            let waits = (0..times).map(|_| {
                label_retry.on_refused(Instant::ZERO);
                label_retry
                    .from()
                    .saturating_since(Instant::ZERO)
                    .as_millis()
            });
            waits.collect::<Vec<_>>()
        };
        let row = [250, 500, 1_000, 2_000, 4_000, 4_000];
        assert_eq!(waits(&mut label_retry, 6), row);
        for _ in 0..300 {
            label_retry.on_refused(Instant::ZERO);
        }
        assert_eq!(waits(&mut label_retry, 1), [4_000]);
        label_retry.on_label();
        assert_eq!(waits(&mut label_retry, 6), row);
    }
}
