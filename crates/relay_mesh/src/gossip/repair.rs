//! Finds and fetches missed records.

use core::time::Duration;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::neighbour::{DigestState, Neighbour};
use super::wanted::Newer;
use super::{Gossip, GossipUpdate, OUTBOX_MAX};
use crate::link_state::ShortId;
use crate::message::{Digest, Message, Request};

impl<P: Provider> Gossip<P> {
    /// Notes which records a neighbour has. The next `on_tick` requests them: digests may arrive by
    /// the hundred, and each search covers all missing records.
    pub(super) fn on_digest(
        &mut self,
        now: Instant,
        from: NodeId,
        digest: &Digest,
    ) -> GossipUpdate {
        let is_first = self
            .neighbours
            .get_mut(&from)
            .is_some_and(Neighbour::is_first_digest);
        // Records in flight arrive without a request.
        let due = if is_first { now } else { now + ON_ITS_WAY };
        for &(origin, state) in digest.entries() {
            if self.table.lacks(origin, state) {
                self.wanted.add(origin, from, Newer::State(state), due);
            }
        }
        GossipUpdate::None
    }

    pub(super) fn on_request(
        &mut self,
        now: Instant,
        from: NodeId,
        request: &Request,
    ) -> GossipUpdate {
        let Some(neighbour) = self.neighbours.get_mut(&from) else {
            return GossipUpdate::None;
        };
        let mut bytes = Vec::new();
        for message in self.table.answer(request) {
            bytes.clear();
            message.encode(&mut bytes);
            // What exceeds the limit is requested again after the next digest.
            if !neighbour.may_reply(now, bytes.len()) || self.outbox.len() >= OUTBOX_MAX {
                self.stats.unanswered = self.stats.unanswered.saturating_add(1);
                break;
            }
            self.outbox.push_back((from, bytes.clone()));
        }
        GossipUpdate::None
    }

    /// Sends a digest to one random neighbour.
    pub(super) fn compare(&mut self, now: Instant) {
        let count = u64::try_from(self.neighbours.len()).unwrap_or(0);
        let drawn = usize::try_from(self.generator.below(count)).unwrap_or(0);
        if let Some(&node) = self.neighbours.keys().nth(drawn) {
            self.send_digest(now, node);
        }
    }

    /// Sends a digest, or defers it if one was sent recently or the reply limit is reached.
    pub(super) fn send_digest(&mut self, now: Instant, to: NodeId) {
        let Some(neighbour) = self.neighbours.get_mut(&to) else {
            return;
        };
        neighbour.digest = DigestState::Pending;
        if neighbour.next_digest > now {
            return;
        }
        let mut bytes = Vec::new();
        Message::Digest(self.table.digest()).encode(&mut bytes);
        if !neighbour.may_reply(now, bytes.len()) || self.outbox.len() >= OUTBOX_MAX {
            return;
        }
        neighbour.digest = DigestState::Sent;
        neighbour.next_digest = now + DIGEST_SPACING;
        self.outbox.push_back((to, bytes));
    }

    /// Sends deferred digests that are now allowed.
    pub(super) fn send_owed(&mut self, now: Instant) {
        let is_due =
            |held: &Neighbour| held.digest == DigestState::Pending && held.next_digest <= now;
        let owed = self.neighbours.iter().filter(|(_, held)| is_due(held));
        let owed: Vec<NodeId> = owed.map(|(id, _)| *id).collect();
        for node in owed {
            self.send_digest(now, node);
        }
    }

    /// Sends due requests.
    pub(super) fn fetch(&mut self, now: Instant) {
        self.stats.looks = self.stats.looks.saturating_add(1);
        let (neighbours, generator) = (&mut self.neighbours, &mut self.generator);
        let due = self.wanted.due(now, &self.table, neighbours, generator);
        for (node, request, does_graft) in due {
            if does_graft {
                self.graft(node);
            }
            self.send(node, &Message::Request(request));
        }
    }
}

/// Delay before a record that a digest names is requested.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// Interval of digests to one neighbour: one of 1,000 nodes has 16 KB, and two bytes request it.
const DIGEST_SPACING: Duration = Duration::from_secs(1);

impl<P: Provider> Gossip<P> {
    /// Sends the last records of an expired origin to a neighbour that sent an older one: it is the
    /// origin, or forwards them to it.
    pub(super) fn send_expired(&mut self, now: Instant, to: NodeId, origin: ShortId) {
        let Some(neighbour) = self.neighbours.get_mut(&to) else {
            return;
        };
        let Some((node, links)) = self.table.last_records(origin) else {
            return;
        };
        if !neighbour.may_send_expired(now) {
            return;
        }
        let links = links.map(Message::LinkRecord);
        for message in [Some(Message::NodeRecord(node)), links]
            .into_iter()
            .flatten()
        {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            if !neighbour.may_reply(now, bytes.len()) || self.outbox.len() >= OUTBOX_MAX {
                self.stats.unanswered = self.stats.unanswered.saturating_add(1);
                return;
            }
            self.outbox.push_back((to, bytes));
        }
    }
}
