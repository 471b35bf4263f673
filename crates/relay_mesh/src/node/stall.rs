//! Stalls of this node's own process, which must not count against links or paths.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::Node;
use super::overload::LASTS;
use crate::event::Event;
use crate::leg::SocketId;
use crate::link::LinkId;
use crate::path_probe::DataReport;

impl<P: Provider> Node<P> {
    /// Detects a stall; called with the driver's time before the node's clock advances. If the
    /// driver is late by more than 250 ms, the apparent silence of links and paths does not count.
    ///
    /// A stall is measured from the deadline that the driver missed, not from its last call, since
    /// it sleeps until then.
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
            .path_sets
            .values_mut()
            .flat_map(|path_set| &mut path_set.paths);
        for path in paths {
            path.watch.on_stall(now);
            path.quality.reset();
        }
    }

    /// Reports that the kernel dropped `count` datagrams since the last call because a socket's
    /// receive buffer was full. `socket` is `None` for the socket of another shard. Drivers call it
    /// on systems that count such drops.
    ///
    /// Drops at the mesh's own socket count as overload, so paths are not blamed. Drops at other
    /// sockets are only reported.
    pub fn note_receive_drops(&mut self, now: Instant, socket: Option<SocketId>, count: u64) {
        let now = self.now.max(now);
        if socket == Some(SocketId::MESH) {
            self.overload.on_dropped(now, count);
        } else {
            self.overload.on_dropped_elsewhere(now, count);
        }
    }

    /// Returns whether evidence against paths to a far end is discounted: this node or the far end
    /// is overloaded.
    pub(super) fn is_excused(&self, now: Instant, far: LinkId) -> bool {
        let path_set = self.path_sets.get(&far);
        self.overload.is_overloaded(now)
            || path_set.is_some_and(|path_set| now < path_set.far_overloaded_until)
    }

    /// Records whether the far end reported overload in its answer to a probe.
    pub(super) fn note_far_report(&mut self, now: Instant, far: LinkId, report: &DataReport) {
        if report.is_overloaded
            && let Some(path_set) = self.path_sets.get_mut(&far)
        {
            path_set.far_overloaded_until = now + LASTS;
        }
    }

    /// Checks the drop counters of the node's own queues, and emits [`Event::Overloaded`] if it is
    /// due.
    pub(super) fn watch_queues(&mut self, now: Instant) {
        let drops = self
            .plane
            .stats
            .outbox_full
            .saturating_add(self.stats.outbox_full);
        self.overload.on_drops_so_far(now, drops);
        if let Some(figure) = self.overload.take_news(now) {
            self.stats.overloads = self.stats.overloads.saturating_add(1);
            self.emit(Event::Overloaded {
                late: figure.late,
                dropped: figure.dropped,
            });
        }
    }
}

/// Lateness that counts as a stall; the same as for sessions (TWP/1, section 11).
const LATE: Duration = Duration::from_millis(250);
