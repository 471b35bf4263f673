//! The pending set-ups of one path, and the backoff after failed ones.

use udp_proto::SessionId;
use wire::{Instant, NodeId};

use super::path_labels::{RETRY, TRIES, wait};
use crate::flow_key::FlowId;
use crate::path_setup::{HeldLabel, PathSetup, Progress};
use crate::route_request::{RequestId, RouteReply};

#[derive(Debug)]
pub(super) struct PathSetups {
    pending: Vec<PathSetup>,
    /// When the next one may start.
    retry_at: Instant,
    /// Failures since the last success.
    failures: u8,
}

impl PathSetups {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            pending: Vec::new(),
            retry_at: now,
            failures: 0,
        }
    }

    /// Whether none is pending or has failed.
    pub(super) const fn is_unused(&self) -> bool {
        self.failures == 0 && self.pending.is_empty()
    }

    /// How many more may be pending, if `most` may be in total.
    pub(super) const fn room(&self, most: usize) -> usize {
        most.saturating_sub(self.pending.len())
    }

    pub(super) fn push(&mut self, setup: PathSetup) {
        self.pending.push(setup);
    }

    /// The flows that labels were requested for.
    pub(super) fn flows(&self) -> impl Iterator<Item = FlowId> + use<'_> {
        let flows = self.pending.iter().flat_map(PathSetup::flows);
        flows.copied()
    }

    /// Whether `node` is asked for labels.
    pub(super) fn pass(&self, node: NodeId) -> bool {
        self.pending.iter().any(|setup| setup.passes(node))
    }

    /// Handles the reply to the request `id` of a node, which `session` leads to. Returns the
    /// progress, and the set-up if it is over; `None` if none waits for this reply.
    pub(super) fn on_reply(
        &mut self,
        (node, id): (NodeId, RequestId),
        session: Option<SessionId>,
        reply: &RouteReply,
        ids: &mut impl FnMut() -> RequestId,
    ) -> Option<(Progress, Option<PathSetup>)> {
        let mut pending = self.pending.iter();
        let place = pending.position(|setup| setup.waits_for(node, id))?;
        let setup = self.pending.get_mut(place)?;
        setup.record_session(id, session);
        let progress = setup.on_reply(id, reply.clone(), ids);
        let is_over = !matches!(progress, Progress::Pending(_));
        let ended = is_over.then(|| self.pending.swap_remove(place));
        Some((progress, ended))
    }

    /// Removes those with a deadline that has passed.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Vec<PathSetup> {
        let overdue = self.pending.extract_if(.., |setup| setup.deadline() <= now);
        overdue.collect()
    }

    /// Removes the one that waits for a reply to the request `id` of a node.
    pub(super) fn take_waiting_for(&mut self, node: NodeId, id: RequestId) -> Vec<PathSetup> {
        let waits = |setup: &mut PathSetup| setup.waits_for(node, id);
        self.pending.extract_if(.., waits).collect()
    }

    /// The labels that were granted so far, which are to be released.
    pub(super) fn into_held(self) -> impl Iterator<Item = HeldLabel> {
        self.pending.into_iter().flat_map(PathSetup::into_held)
    }

    pub(super) const fn failures(&self) -> u8 {
        self.failures
    }

    /// Whether [`TRIES`] failed in a row.
    pub(super) const fn has_failed_often(&self) -> bool {
        self.failures >= TRIES
    }

    pub(super) const fn reset_failures(&mut self) {
        self.failures = 0;
    }

    /// Backs off; each wait is twice as long.
    pub(super) fn on_failure(&mut self, now: Instant) {
        // Those that were pending together fail one after the other, and count once.
        if self.is_ready(now) {
            self.retry_at = now + wait(self.failures);
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// Pauses after an answer without a failure of the path.
    pub(super) fn pause(&mut self, now: Instant) {
        self.pause_until(now + RETRY);
    }

    pub(super) const fn pause_until(&mut self, at: Instant) {
        self.retry_at = at;
    }

    /// Whether one may start now.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.retry_at <= now
    }

    /// When one may start, unless that is now.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        Some(self.retry_at).filter(|at| *at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn set_ups_that_fail_together_count_once_and_each_wait_is_twice_as_long() {
        let mut setups = PathSetups::new(Instant::ZERO);
        let mut now = Instant::ZERO;
        for (failures, millis) in [(1, 250), (2, 500), (3, 1_000), (4, 2_000)] {
            for _ in 0..3 {
                setups.on_failure(now);
            }
            assert_eq!(setups.failures(), failures);
            assert_eq!(setups.has_failed_often(), failures >= TRIES);
            now += Duration::from_millis(millis);
            assert_eq!(setups.poll_timeout(Instant::ZERO), Some(now));
            assert!(setups.is_ready(now) && setups.poll_timeout(now).is_none());
        }
        setups.reset_failures();
        assert!(setups.is_unused());
    }
}
