//! Stalls of this node's own process: what waited for it is nobody's fault.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::link::LinkId;

impl<P: Provider> Node<P> {
    /// Takes note that the driver is here at `now`, before the clock is set on: where it should
    /// have been here long ago, links and paths are not judged by what they seem to have kept silent.
    ///
    /// A stall is counted from what the driver missed, not from its last call: it sleeps until then.
    pub(super) fn watch_for_stalls(&mut self, now: Instant) {
        if now.saturating_since(self.now) <= LATE
            || now.saturating_since(self.wake_at.max(self.now)) <= LATE
        {
            return;
        }
        self.stats.stalls = self.stats.stalls.saturating_add(1);
        self.detours.on_stall(now);
        let links: Vec<LinkId> = self.peers.up().map(|(link, ..)| link).collect();
        for link in links {
            if let Some(up) = self.peers.up_mut(link) {
                up.prober.on_stall(now);
            }
        }
        let paths = self
            .courses
            .values_mut()
            .flat_map(|course| &mut course.paths);
        for path in paths {
            path.watch.on_stall(now);
            path.quality.reset();
        }
    }
}

/// How late a driver may be; as for sessions (TWP/1, section 11).
const LATE: Duration = Duration::from_millis(250);
