//! The stall guard: a process that was paused gives nobody up for its own silence.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::{Endpoint, Slot};
use crate::slots::SessionId;

/// How late a driver may be; TWP/1, section 11.
const LATE: Duration = Duration::from_millis(250);
/// What one stall is worth at most, and all of them while nothing is heard of a peer.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(10);

impl<P: Provider> Endpoint<P> {
    /// Takes note that the driver is here, at `now`, before the clock is set on: where it should have
    /// been here more than 250 ms ago, idle deadlines move by what is over that.
    ///
    /// A driver sleeps until a deadline; so a stall is counted from the earliest that it missed, and
    /// not from its last call. The next call at the same time finds the clock set, and counts nothing.
    pub(super) fn watch_for_stalls(&mut self, now: Instant) {
        let Some(due) = self.timers.next() else {
            return;
        };
        let late = now.saturating_since(due.max(self.now));
        let Some(over) = late.checked_sub(LATE).filter(|over| !over.is_zero()) else {
            return;
        };
        self.stats.stalls = self.stats.stalls.saturating_add(1);
        let over = over.min(STALL_MAX);
        let ids: Vec<SessionId> = self.slots.ids().collect();
        for id in ids {
            if let Some(Slot::Session(session)) = self.slots.get_mut(id) {
                session.on_stall(over);
            }
        }
    }
}
