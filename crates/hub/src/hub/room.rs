//! Whether the store has room for mail: reports, and which nodes wait for it.

use core::time::Duration;
use std::collections::BTreeSet;

use wire::{ConnectionId, Instant};

use super::{EXPIRY, HubEvent, TICK};
use crate::store::{FullReason, StoreStatus};

/// The store's last known state.
#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) status: StoreStatus,
    full: Option<Full>,
    /// Links to notify once there is room.
    waiting: BTreeSet<ConnectionId>,
    in_flight: bool,
    /// When to request the state next.
    next: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Full {
    reason: FullReason,
    since: Instant,
    reported: Instant,
    /// Mails refused since then.
    refused: u64,
}

/// Interval of the events of a store that stays full.
const REPORT: Duration = Duration::from_secs(60);

impl Room {
    /// Records that a mail of `link` was not stored for lack of room; returns whether to request the
    /// state now.
    pub(super) fn on_full(&mut self, link: ConnectionId) -> bool {
        self.waiting.insert(link);
        if let Some(full) = &mut self.full {
            full.refused = full.refused.saturating_add(1);
        }
        self.full.is_none() && !self.in_flight
    }

    pub(super) fn forget(&mut self, link: ConnectionId) {
        self.waiting.remove(&link);
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        !self.in_flight && self.next.is_none_or(|next| next <= now)
    }

    pub(super) fn on_requested(&mut self, now: Instant) {
        self.in_flight = true;
        self.next = Some(now + EXPIRY);
    }

    /// Takes the state, `None` if the store did not report it; returns the events, and the links to
    /// notify.
    pub(super) fn on_status(
        &mut self,
        now: Instant,
        status: Option<StoreStatus>,
    ) -> (Vec<HubEvent>, BTreeSet<ConnectionId>) {
        self.in_flight = false;
        let mut events = Vec::new();
        let Some(status) = status else {
            return (events, BTreeSet::new());
        };
        if status.corrupt > self.status.corrupt {
            let mails = status.corrupt.saturating_sub(self.status.corrupt);
            events.push(HubEvent::MailCorrupt { mails });
        }
        self.status = status;
        let Some(reason) = status.full else {
            if let Some(full) = self.full.take() {
                events.push(HubEvent::StoreHasRoom {
                    refused: full.refused,
                    after: now.saturating_since(full.since),
                });
            }
            return (events, core::mem::take(&mut self.waiting));
        };
        // Asks again soon, so that mail flows soon after there is room.
        self.next = Some(now + TICK);
        let is_new = self.full.is_none_or(|full| full.reason != reason);
        let full = self.full.get_or_insert(Full {
            reason,
            since: now,
            reported: now,
            refused: 1,
        });
        full.reason = reason;
        if is_new || full.reported + REPORT <= now {
            full.reported = now;
            events.push(HubEvent::StoreFull {
                reason,
                refused: full.refused,
            });
        }
        (events, BTreeSet::new())
    }

    /// Returns the reason, and how many mails were refused since.
    pub(super) fn full(&self) -> Option<(FullReason, u64)> {
        self.full.map(|full| (full.reason, full.refused))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.waiting.len().saturating_mul(4 + super::ENTRY_BYTES)
    }
}
