//! What a link has in addition if the node has links to several hubs.

use std::collections::BTreeSet;

use bytes::Bytes;
use wire::NodeId;

use crate::field::{Name, Redacted};
use crate::shard::ShardView;

/// The hub's part, and the topics that this hub forwards: the players that subscribe to them may belong to
/// other hubs.
#[derive(Debug)]
pub(super) struct ShardLink {
    view: ShardView,
    is_view_sent: bool,
    /// Topics that this node subscribes to at this hub.
    topics: BTreeSet<Name>,
    /// Topics without a subscriber among the players of this link.
    ended: Vec<Name>,
    casts: Vec<Cast>,
}

/// A message to a topic, for the players of all links: the sending node, the topic and the payload.
pub(super) type Cast = (NodeId, Name, Redacted<Bytes>);

impl ShardLink {
    /// Returns `None` for the only hub.
    pub(super) fn of(view: ShardView) -> Option<Self> {
        view.shard.is_partial().then(|| Self {
            view,
            is_view_sent: false,
            topics: BTreeSet::new(),
            ended: Vec::new(),
            casts: Vec::new(),
        })
    }

    pub(super) const fn on_opened(&mut self) {
        self.is_view_sent = false;
    }

    /// Returns what to send before the join.
    pub(super) fn unsent(&self) -> Option<ShardView> {
        (!self.is_view_sent).then_some(self.view)
    }

    pub(super) const fn on_sent(&mut self) {
        self.is_view_sent = true;
    }

    pub(super) fn subscribe(&mut self, topic: Name) {
        self.topics.insert(topic);
    }

    pub(super) fn unsubscribe(&mut self, topic: Name) {
        self.topics.remove(&topic);
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = Name> {
        self.topics.iter().copied()
    }

    pub(super) fn on_topic_ended(&mut self, topic: Name) {
        self.ended.push(topic);
    }

    pub(super) fn on_cast(&mut self, from: NodeId, topic: Name, body: Redacted<Bytes>) {
        self.casts.push((from, topic, body));
    }

    /// Returns the topics that have ended, and the messages to topics, since the last call. Call it after
    /// each record of the hub.
    pub(super) fn take(&mut self) -> (Vec<Name>, Vec<Cast>) {
        (
            core::mem::take(&mut self.ended),
            core::mem::take(&mut self.casts),
        )
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.topics
            .len()
            .saturating_mul(size_of::<Name>().saturating_add(super::ENTRY))
    }
}
