//! How what was missed is found and fetched.

use core::time::Duration;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::neighbour::{DigestState, Neighbour};
use super::wanted::Newer;
use super::{Gossip, GossipUpdate, OUTBOX_MAX};
use crate::link_state::ShortId;
use crate::message::{Digest, Message, Request};

impl<P: Provider> Gossip<P> {
    /// Notes what a neighbour has; the next `tend` asks for it. Such messages come by the hundred,
    /// and each look goes through all that is wanted.
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
        // What is on its way comes by itself.
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
            // What finds no room now is asked for again after the next digest.
            if !neighbour.may_reply(now, bytes.len()) || self.outbox.len() >= OUTBOX_MAX {
                self.stats.unanswered = self.stats.unanswered.saturating_add(1);
                break;
            }
            self.outbox.push_back((from, bytes.clone()));
        }
        GossipUpdate::None
    }

    /// Tells one neighbour, drawn by lot, what is held.
    pub(super) fn compare(&mut self, now: Instant) {
        let count = u64::try_from(self.neighbours.len()).unwrap_or(0);
        let drawn = usize::try_from(self.generator.below(count)).unwrap_or(0);
        if let Some(&node) = self.neighbours.keys().nth(drawn) {
            self.send_digest(now, node);
        }
    }

    /// Tells a neighbour what is held; later, and once, where it was told a moment ago, or had all
    /// that it may be told.
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

    /// Sends the digests that were put off and may leave now.
    pub(super) fn send_owed(&mut self, now: Instant) {
        let is_due =
            |held: &Neighbour| held.digest == DigestState::Pending && held.next_digest <= now;
        let owed = self.neighbours.iter().filter(|(_, held)| is_due(held));
        let owed: Vec<NodeId> = owed.map(|(id, _)| *id).collect();
        for node in owed {
            self.send_digest(now, node);
        }
    }

    /// Asks for what is due.
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

/// What a digest names and is missing is waited for so long.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// Between two digests to one neighbour: one of 1,000 nodes has 16 KB, and two bytes ask for it.
const DIGEST_SPACING: Duration = Duration::from_secs(1);

impl<P: Provider> Gossip<P> {
    /// Shows a neighbour the last records of an origin that counts from below: the neighbour is the
    /// origin, or passes them on to it as new.
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
