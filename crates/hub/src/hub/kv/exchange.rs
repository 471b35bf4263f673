//! Connects the key-value store to the links and to the commands of its hub.

use wire::ConnectionId;

use super::{KvPending, Room, RunState};
use crate::hub::link::Link;
use crate::hub::table::Pending;
use crate::hub::{Hub, HubEvent};
use crate::kv::KvLease;
use crate::record::{DownReason, KvToHub};
use crate::store::{Completed, Outcome, StoreError, StoreOp};

/// Returns whether the store may get another operation on keys: they use at most a quarter of the
/// commands in flight, so that mail and acknowledgements keep their share.
pub(in crate::hub) fn has_room(hub: &Hub) -> bool {
    let max = hub.config.ops_in_flight;
    hub.ops.len() < max && hub.kv.outcomes.len() < max.div_ceil(4) && !hub.is_draining()
}

pub(in crate::hub) fn on_record(hub: &mut Hub, id: ConnectionId, record: KvToHub<'_>) {
    let Some((link, member)) = hub
        .links
        .get(&id)
        .and_then(|link| Some((link, link.member()?)))
    else {
        return;
    };
    let run = KvLease {
        node: link.node,
        epoch: member.epoch,
    };
    let room = Room {
        store: has_room(hub),
        outbox: link.outbox_bytes() < hub.config.link_bytes_max,
    };
    let role = member.join.role;
    let is_valid = hub.kv.on_record((id, run, role), record, room);
    flush(hub);
    if !is_valid {
        hub.close(id, DownReason::Protocol);
    }
}

pub(in crate::hub) fn on_outcome(hub: &mut Hub, pending: KvPending, outcome: Outcome) {
    let outcome = match outcome {
        Ok(Completed::Kv(outcome)) => Ok(outcome),
        Ok(_) => Err(StoreError::Busy),
        Err(error) => Err(error),
    };
    // After a start, the nodes have time to join again.
    let times = (hub.now, hub.now + hub.config.lease);
    let (joined, links, ends) = (&hub.joined, &hub.links, &hub.lease_ends);
    let state_of = |lease: KvLease| {
        let link = joined.get(&lease.node).and_then(|id| links.get(id));
        match link.and_then(Link::member) {
            Some(member) if member.epoch == lease.epoch => RunState::Connected,
            Some(_) => RunState::Superseded,
            None => match ends.get(&lease.node) {
                Some(at) => RunState::Until(*at),
                None => RunState::Unknown,
            },
        }
    };
    hub.kv.on_outcome(pending, outcome, times, &state_of);
    flush(hub);
}

/// Passes on what the key-value store has to do and to send.
pub(in crate::hub) fn flush(hub: &mut Hub) {
    let output = hub.kv.take_output();
    for (op, pending) in output.ops {
        hub.ops.push(StoreOp::Kv(op), Pending::Kv(pending));
    }
    for (id, record) in output.answers {
        hub.send_encoded(id, record);
    }
    let done = output.results.into_iter();
    hub.events
        .extend(done.map(|(ticket, result)| HubEvent::KvDone { ticket, result }));
    hub.ready.extend(output.woken);
}

/// Queues the next change for the watches of a link, if it has sent the last one.
pub(in crate::hub) fn queue(hub: &mut Hub, id: ConnectionId) {
    if let Some(link) = hub.links.get_mut(&id).filter(|link| link.has_kv_slot())
        && let Some(record) = hub.kv.next_record(id)
    {
        link.push_kv(record);
    }
}
