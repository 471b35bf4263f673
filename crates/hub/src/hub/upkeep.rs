//! Tasks of a hub that are no messages: the room of its store, its time of running, and access.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{ConnectionId, Instant, NodeId};

use super::access::Access;
use super::room::Room;
use super::table::Pending;
use super::{ENTRY_BYTES, Hub, HubEvent, HubHealth, HubStatus};
use crate::field::MailSeq;
use crate::record::ToNode;
use crate::store::{Completed, Outcome, StoreOp};

/// State of a hub's upkeep.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    pub(super) room: Room,
    pub(super) run: RunTime,
    pub(super) access: Access,
    /// Events of players that were taken over that are queued.
    takes_queued: usize,
    /// Nodes over their share: when that was reported, and mails not stored since.
    over_share: BTreeMap<NodeId, (Instant, u64)>,
    /// The highest number of a mail that the hub knows of.
    pub(super) newest_mail: MailSeq,
}

impl Upkeep {
    /// Returns whether an event may be queued beside those of its kind, and counts it then.
    pub(super) fn may_queue(&mut self, event: &HubEvent, events_max: usize) -> bool {
        let is_taken = matches!(event, HubEvent::PlayerTaken { .. });
        if is_taken && self.takes_queued >= events_max.div_ceil(8) {
            return false;
        }
        self.takes_queued = self.takes_queued.saturating_add(is_taken.into());
        true
    }

    pub(super) fn on_mail_number(&mut self, seq: MailSeq) {
        self.newest_mail = self.newest_mail.max(seq);
    }

    pub(super) const fn on_event_polled(&mut self, event: Option<&HubEvent>) {
        if let Some(HubEvent::PlayerTaken { .. }) = event {
            self.takes_queued = self.takes_queued.saturating_sub(1);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let room = self.room.memory_bytes();
        let over_share = self.over_share.len().saturating_mul(64 + ENTRY_BYTES);
        let access = self.access.memory_bytes();
        room.saturating_add(access).saturating_add(over_share)
    }
}

/// Reports that mail of a link was not stored since its sender exceeds its share.
pub(super) fn on_over_share(hub: &mut Hub, link: ConnectionId) {
    let Some(link) = hub.links.get(&link) else {
        return;
    };
    let (Some(member), node) = (link.member(), link.node) else {
        return;
    };
    let role = member.join.role;
    let known = hub.upkeep.over_share.get_mut(&node);
    let refused = match known {
        Some((reported, refused)) => {
            *refused = refused.saturating_add(1);
            if *reported + OVER_SHARE_REPORT > hub.now {
                return;
            }
            *refused
        }
        None => 1,
    };
    hub.upkeep.over_share.insert(node, (hub.now, 0));
    hub.event(HubEvent::SenderOverShare {
        node,
        role,
        refused,
    });
}

/// Interval of the events of a node that stays over its share.
const OVER_SHARE_REPORT: Duration = Duration::from_secs(60);

/// Requests the state of the store if that is due, and records how long the hub runs.
pub(super) fn on_tick(hub: &mut Hub) {
    if hub.upkeep.room.is_due(hub.now) {
        request_status(hub);
    }
    record_run(hub);
    let now = hub.now;
    let over_share = &mut hub.upkeep.over_share;
    over_share.retain(|_, (reported, _)| *reported + OVER_SHARE_REPORT.saturating_mul(2) > now);
}

/// Records how long the hub runs while mail does not expire by its clock, and reports that.
fn record_run(hub: &mut Hub) {
    if hub.has_failed() || hub.is_draining() {
        return;
    }
    let ran = hub.clock.ran(hub.now);
    let (record, report) = hub.upkeep.run.next(hub.now, ran);
    if let Some(ran) = record {
        hub.ops.push(StoreOp::Ran(ran), Pending::Part);
    }
    if report && let Some((read, newest)) = hub.clock.ahead(hub.now) {
        hub.event(HubEvent::ClockAhead { read, newest });
    }
}

/// Requests the state of the store.
pub(super) fn request_status(hub: &mut Hub) {
    if !hub.has_failed() && !hub.is_draining() {
        hub.upkeep.room.on_requested(hub.now);
        hub.ops.push(StoreOp::Status, Pending::Status);
    }
}

/// Takes the state of the store.
pub(super) fn on_status(hub: &mut Hub, outcome: &Outcome) {
    let status = match outcome {
        Ok(Completed::Status(status)) => Some(*status),
        Ok(_) | Err(_) => None,
    };
    let (events, waiting) = hub.upkeep.room.on_status(hub.now, status);
    for event in events {
        hub.event(event);
    }
    for id in waiting {
        hub.send(id, &ToNode::HasRoom);
    }
}

/// Returns the state for reports and health checks.
pub(super) fn health(hub: &Hub) -> HubHealth {
    let full = hub.upkeep.room.full();
    let store = hub.upkeep.room.status;
    let is_clock_doubted = hub.clock.is_doubted();
    let is_degraded = full.is_some() || store.corrupt > 0 || is_clock_doubted;
    HubHealth {
        status: if hub.has_failed() {
            HubStatus::Failed
        } else if is_degraded {
            HubStatus::Degraded
        } else {
            HubStatus::Ok
        },
        full: full.map(|(reason, _)| reason),
        refused: full.map_or(0, |(_, refused)| refused),
        is_clock_doubted,
        store,
    }
}

/// When the time of running is recorded, and reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RunTime {
    recorded: Option<Instant>,
    reported: Option<Instant>,
}

const RECORD: Duration = Duration::from_secs(60);

const REPORT: Duration = Duration::from_secs(600);

impl RunTime {
    /// Returns the time to record, if that is due, and whether to report.
    pub(super) fn next(&mut self, now: Instant, ran: Option<Duration>) -> (Option<Duration>, bool) {
        let Some(ran) = ran else {
            *self = Self::default();
            return (None, false);
        };
        let is_due = |last: Option<Instant>, pause| last.is_none_or(|last| last + pause <= now);
        let report = is_due(self.reported, REPORT);
        if report {
            self.reported = Some(now);
        }
        let record = is_due(self.recorded, RECORD);
        if record {
            self.recorded = Some(now);
        }
        (record.then_some(ran), report)
    }
}
