//! Release of labels: to the nodes that granted them, and by others to this node.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crypto::Provider;
use udp_proto::SessionId;
use wire::Instant;

use super::flow_table::probe_link;
use super::{Node, RELIABLE};
use crate::flow_key::FlowId;
use crate::hop::LabelName;
use crate::label::Owned;
use crate::link::LinkId;
use crate::path_setup::HeldLabel;
use crate::route_request::RouteRelease;

#[derive(Debug, Default)]
pub(super) struct Releases {
    /// With their release times, in that order.
    waiting: BTreeMap<SessionId, VecDeque<(Instant, LabelName)>>,
}

impl Releases {
    /// Queues a label for release at `due`; if the queue is full, the label expires.
    fn push(&mut self, due: Instant, HeldLabel { session, label }: HeldLabel) {
        let waiting = self.waiting.entry(session).or_default();
        if waiting.len() < WAITING_MAX {
            waiting.push_back((due, label));
        }
    }

    fn take_due(&mut self, now: Instant, session: SessionId) -> Option<RouteRelease> {
        let waiting = self.waiting.get_mut(&session)?;
        let due = waiting.iter().take_while(|(due, _)| *due <= now).count();
        let labels = waiting.drain(..due.min(RouteRelease::COUNT_MAX));
        let release = RouteRelease::new(labels.map(|(_, label)| label));
        if waiting.is_empty() {
            self.waiting.remove(&session);
        }
        release
    }

    pub(super) fn memory(&self) -> usize {
        let waiting = self.waiting.values().map(VecDeque::capacity);
        waiting
            .sum::<usize>()
            .saturating_mul(size_of::<(Instant, LabelName)>())
    }
}

impl<P: Provider> Node<P> {
    /// Releases unused labels after [`LINGER`], so that packets in flight still arrive.
    pub(super) fn queue_releases(
        &mut self,
        now: Instant,
        held: impl IntoIterator<Item = HeldLabel>,
    ) {
        for held in held {
            if self.peers.of_session(held.session).is_some() {
                self.releases.push(now + LINGER, held);
            }
        }
    }

    /// Releases the labels of an ended flow on all paths, except each path's last one, which the
    /// remote end frees itself.
    pub(super) fn release_flow(&mut self, now: Instant, remote: LinkId, flow: FlowId) {
        let Some(path_set) = self.path_sets.get_mut(&remote) else {
            return;
        };
        let mut idle = Vec::new();
        for path in path_set.paths.iter_mut() {
            let Some(mut bound) = path.bound.remove(&flow) else {
                continue;
            };
            bound.held.pop();
            idle.append(&mut bound.held);
            if let Some(link) = self.plane.links.get_mut(path.first) {
                link.release(bound.binding);
            }
        }
        self.queue_releases(now, idle);
    }

    /// Sends due releases, at most [`MESSAGES_PER_TICK`] messages per session.
    pub(super) fn send_releases(&mut self, now: Instant) {
        let peers = &self.peers;
        self.releases
            .waiting
            .retain(|session, _| peers.of_session(*session).is_some());
        let sessions: Vec<SessionId> = self.releases.waiting.keys().copied().collect();
        for session in sessions {
            let Some(link) = self.peers.of_session(session) else {
                continue;
            };
            for _ in 0..MESSAGES_PER_TICK {
                let Some(release) = self.releases.take_due(now, session) else {
                    break;
                };
                self.send_with(now, link, RELIABLE, |message| release.encode(message));
            }
        }
    }

    /// Frees the labels that a neighbour releases, if it owns them.
    pub(super) fn on_route_release(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Ok(release) = RouteRelease::decode(message) else {
            self.count_malformed();
            return;
        };
        let Some(peer) = self.peers.get_mut(link) else {
            return;
        };
        let count = u64::from(release.count());
        let mut freed = 0_u64;
        if peer.limits.releases.take(now, release.count().into()) {
            for label in release.labels() {
                freed = freed.saturating_add(self.free_owned(link, *label).into());
            }
        }
        let stats = &mut self.stats;
        stats.labels_given_back = stats.labels_given_back.saturating_add(freed);
        let refused = count.saturating_sub(freed);
        stats.releases_refused = stats.releases_refused.saturating_add(refused);
    }

    /// Frees a label that `owner` requested; returns false if there is none.
    pub(super) fn free_owned(&mut self, owner: LinkId, label: LabelName) -> bool {
        let owned = self.with_plane(label.shard(), |_, plane| plane.labels.owned(label, owner));
        match owned.flatten() {
            None => return false,
            Some(Owned::Elsewhere) => {}
            Some(Owned::Flow(index)) => {
                let labels = match probe_link(index) {
                    Some(remote) => self
                        .path_sets
                        .get_mut(&remote)
                        .map(|path_set| path_set.probe_flow.labels_mut()),
                    None => self.flows.get_mut(index).map(|flow| &mut flow.labels),
                };
                if let Some(labels) = labels {
                    labels.retain(|known| *known != label);
                }
            }
        }
        self.free_label(label);
        true
    }
}

/// Longer than packets are in flight on the slowest usable path.
const LINGER: Duration = Duration::from_millis(500);
/// They hold more labels than are requested at the default
/// [`request_rate`](crate::Config::request_rate).
const MESSAGES_PER_TICK: usize = 2;
/// Queued labels per session: the burst that a node accepts at the default rate.
const WAITING_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_setup::tests::sessions;

    fn held(session: SessionId, slot: u32) -> HeldLabel {
        let label = LabelName {
            slot,
            generation: 0,
        };
        HeldLabel { session, label }
    }

    #[test]
    fn waiting_items_are_sent_when_due_and_bounded() {
        let (mut releases, [one, other]) = (Releases::default(), sessions());
        let slots = u32::try_from(WAITING_MAX).unwrap();
        for slot in 0..slots + 100 {
            let due = Instant::from_millis(u64::from(slot / 100));
            releases.push(due, held(one, slot));
        }
        releases.push(Instant::ZERO, held(other, 7));
        assert_eq!(releases.waiting[&one].len(), WAITING_MAX);
        assert!(releases.memory() <= 2 * WAITING_MAX * size_of::<(Instant, LabelName)>());
        let mut take = |at, session| {
            let release = releases.take_due(Instant::from_millis(at), session);
            release.map(|release| {
                let slots = release.labels().iter().map(|label| label.slot);
                slots.collect::<Vec<_>>()
            })
        };
        assert_eq!(take(0, other), Some(vec![7]));
        assert_eq!(take(0, one), Some((0..64).collect()));
        assert_eq!(take(0, one), Some((64..100).collect()));
        assert_eq!(take(0, one), None);
        let mut last = Vec::new();
        while let Some(slots) = take(60_000, one) {
            last = slots;
        }
        assert_eq!(last.last(), Some(&(slots - 1)), "the latest were left out");
        assert!(releases.waiting.is_empty());
    }
}
