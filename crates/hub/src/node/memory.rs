//! What a node holds.

use bytes::Bytes;
use wire::Instant;

use super::{Node, NodeEvent};
use crate::count::CountKey;
use crate::id::CallId;

/// What one entry of an ordered table takes besides its value, bytes.
const ENTRY: usize = 32;

impl Node {
    /// Returns about how many bytes the node holds: tables, queues and bodies.
    ///
    /// It looks at every player and event: for a report now and then, not for each turn.
    pub fn memory_bytes(&self) -> usize {
        // A call stands in two tables.
        const CALL: usize = 2 * (size_of::<(CallId, Instant)>() + ENTRY);
        const COUNT: usize = size_of::<(CountKey, u64)>() + ENTRY;
        let events: usize = self.events.iter().map(event_bytes).sum();
        let sums = [
            self.outbox_bytes,
            self.outbox.len().saturating_mul(size_of::<Bytes>()),
            self.outgoing.memory_bytes(),
            self.players.memory_bytes(),
            self.calls.len().saturating_mul(CALL),
            self.counter.len().saturating_mul(COUNT),
            events,
            self.closing.len().saturating_mul(4),
            self.commands.len().saturating_mul(128),
        ];
        sums.into_iter().fold(0, usize::saturating_add)
    }
}

const fn event_bytes(event: &NodeEvent) -> usize {
    let body = match event {
        NodeEvent::Reply {
            result: Ok(body), ..
        }
        | NodeEvent::Request { body, .. }
        | NodeEvent::Mail { body, .. }
        | NodeEvent::Broadcast { body, .. }
        | NodeEvent::PlayerPresence(_, Some((_, body))) => body.len(),
        NodeEvent::Reply { result: Err(_), .. }
        | NodeEvent::Joined { .. }
        | NodeEvent::HubDown
        | NodeEvent::Refused(_)
        | NodeEvent::MailStored(_)
        | NodeEvent::MailRefused(..)
        | NodeEvent::Claimed(_)
        | NodeEvent::ClaimLost(..)
        | NodeEvent::PresenceReset
        | NodeEvent::NodePresence(..)
        | NodeEvent::PlayerPresence(_, None)
        | NodeEvent::PresenceComplete => 0,
    };
    body.saturating_add(size_of::<NodeEvent>())
}
