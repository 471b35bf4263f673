//! Subscriptions of nodes to topics.

use std::collections::{BTreeMap, BTreeSet};

use wire::ConnectionId;

use super::ENTRY_BYTES;
use crate::field::Name;

/// The links that subscribe to each topic. A topic without a subscriber has no entry.
#[derive(Debug, Default)]
pub(super) struct Topics {
    links: BTreeMap<Name, BTreeSet<ConnectionId>>,
    /// Number of all subscriptions.
    len: usize,
}

impl Topics {
    pub(super) fn subscribe(&mut self, link: ConnectionId, topic: Name) {
        if self.links.entry(topic).or_default().insert(link) {
            self.len = self.len.saturating_add(1);
        }
    }

    pub(super) fn unsubscribe(&mut self, link: ConnectionId, topic: Name) {
        let Some(links) = self.links.get_mut(&topic) else {
            return;
        };
        if links.remove(&link) {
            self.len = self.len.saturating_sub(1);
        }
        if links.is_empty() {
            self.links.remove(&topic);
        }
    }

    pub(super) fn subscribers(&self, topic: Name) -> impl Iterator<Item = ConnectionId> {
        self.links.get(&topic).into_iter().flatten().copied()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let topics = self.links.len().saturating_mul(64 + ENTRY_BYTES);
        let subscriptions = self.len.saturating_mul(SUBSCRIPTION_BYTES);
        subscriptions.saturating_add(topics)
    }
}

/// Size of a subscription, which is in the table of its link, too, bytes.
const SUBSCRIPTION_BYTES: usize = size_of::<ConnectionId>() + size_of::<Name>() + 2 * ENTRY_BYTES;
