//! What is shown of an origin whose records have expired.

use crypto::Provider;
use wire::{Instant, NodeId};

use super::{Gossip, OUTBOX_MAX};
use crate::link_state::ShortId;
use crate::message::Message;

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
