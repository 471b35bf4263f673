//! Stalls of this node's own process: what waited for it is nobody's fault.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::event::Event;
use crate::link::LinkId;

impl<P: Provider> Node<P> {
    /// Takes note that the driver is here at `now`, before the clock is set on: where it should
    /// have been here long ago, links and paths are not judged by what they seem to have kept silent.
    ///
    /// A stall is counted from what the driver missed, not from its last call: it sleeps until then.
    pub(super) fn watch_for_stalls(&mut self, now: Instant) {
        let late = now.saturating_since(self.wake_at.max(self.now));
        self.overload.on_late(now, late);
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

    /// Takes how many datagrams for this node its driver knows that the system dropped since the last time, as its
    /// receive queue was full.
    pub fn note_receive_drops(&mut self, now: Instant, count: u64) {
        self.overload.on_dropped(now, count);
    }

    /// Looks how many datagrams the node's own queues dropped, and tells if it does not keep up.
    pub(super) fn watch_queues(&mut self, now: Instant) {
        let drops = self
            .plane
            .stats
            .outbox_full
            .saturating_add(self.stats.outbox_full);
        self.overload.on_drops_so_far(now, drops);
        if let Some(figure) = self.overload.take_news(now) {
            self.stats.overloads = self.stats.overloads.saturating_add(1);
            self.tell(Event::Overloaded {
                late: figure.late,
                dropped: figure.dropped,
            });
        }
    }
}

/// How late a driver may be; as for sessions (TWP/1, section 11).
const LATE: Duration = Duration::from_millis(250);
