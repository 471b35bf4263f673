//! Flows that were opened or ended here and that the remote end has not been sent yet.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use wire::Instant;

use crate::flow_key::FlowId;
use crate::flow_message::FlowEnd;

/// Flows with a pending open message.
#[derive(Debug)]
pub(super) struct OpenQueue {
    flows: BTreeSet<FlowId>,
    /// The earliest next message; flows that open together share one.
    send_at: Instant,
}

impl OpenQueue {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            flows: BTreeSet::new(),
            send_at: now,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.flows.len() < PENDING_OPENS_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn push(&mut self, flow: FlowId) {
        self.flows.insert(flow);
    }

    pub(super) fn contains(&self, flow: FlowId) -> bool {
        self.flows.contains(&flow)
    }

    /// The pending flows, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = FlowId> + use<'_> {
        self.flows.iter().copied()
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        !self.is_empty() && self.send_at <= now
    }

    /// Delays the next messages by [`OPENS_PAUSE`].
    pub(super) fn pause(&mut self, now: Instant) {
        self.send_at = now + OPENS_PAUSE;
    }

    /// Removes the `count` oldest flows after their messages were sent.
    pub(super) fn on_sent(&mut self, count: usize) {
        for _ in 0..count {
            self.flows.pop_first();
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.send_at)
    }
}

/// Ended flows with a close message that had no room in the session.
#[derive(Debug)]
pub(super) struct CloseQueue {
    flows: BTreeMap<FlowId, FlowEnd>,
    /// The earliest next attempt.
    retry_at: Instant,
}

impl CloseQueue {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            flows: BTreeMap::new(),
            retry_at: now,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Queues a close message; drops it if there are [`CLOSES_MAX`].
    pub(super) fn push(&mut self, flow: FlowId, reason: FlowEnd) {
        if self.flows.len() < CLOSES_MAX {
            self.flows.insert(flow, reason);
        }
    }

    /// The first message, if it may be sent now.
    pub(super) fn next(&self, now: Instant) -> Option<(FlowId, FlowEnd)> {
        let first = self.flows.first_key_value();
        let first = first.filter(|_| self.retry_at <= now);
        first.map(|(flow, reason)| (*flow, *reason))
    }

    pub(super) fn on_sent(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }

    /// Delays the next attempt, since the session has no room.
    pub(super) fn on_full(&mut self, now: Instant) {
        self.retry_at = now + CLOSES_RETRY;
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.retry_at)
    }
}

/// Flows that wait for their open message: 4 s at the default
/// [`open_rate`](crate::Config::open_rate).
const PENDING_OPENS_MAX: usize = 4_096;
/// Minimum time between two messages that open flows to one exit: 100 for 1,000 joins per second.
const OPENS_PAUSE: Duration = Duration::from_millis(10);
/// Delay before a close message is retried: a short round trip.
const CLOSES_RETRY: Duration = Duration::from_millis(20);
/// Queued close messages per session; 1.5 MiB. Dropping more costs only the flows of a slow peer.
const CLOSES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mesh_a1_flows_that_wait_to_be_announced_are_bounded() {
        let mut opens = OpenQueue::new(Instant::ZERO);
        for flow in (1..=10_000).map(FlowId) {
            if opens.has_room() {
                opens.push(flow);
            }
        }
        assert_eq!(opens.len(), PENDING_OPENS_MAX);
    }

    #[test]
    fn mesh_a1_pending_closes_are_bounded_and_retried() {
        let at = Instant::from_millis;
        let mut closes = CloseQueue::new(at(0));
        assert_eq!(closes.poll_timeout(), None);
        for flow in (1..=100_000).map(FlowId) {
            closes.push(flow, FlowEnd::Idle);
        }
        assert_eq!(closes.flows.len(), CLOSES_MAX);
        assert_eq!(closes.next(at(0)), Some((FlowId(1), FlowEnd::Idle)));
        closes.on_full(at(0));
        assert_eq!(closes.next(at(19)), None);
        assert_eq!(closes.poll_timeout(), Some(at(20)));
        closes.on_sent(FlowId(1));
        assert_eq!(closes.next(at(20)), Some((FlowId(2), FlowEnd::Idle)));
    }
}
