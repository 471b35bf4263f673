//! Stalls of this node's own process: what waited for it is nobody's fault.

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
            .path_sets
            .values_mut()
            .flat_map(|path_set| &mut path_set.paths);
        for path in paths {
            path.watch.on_stall(now);
            path.quality.reset();
        }
    }

    /// Takes that the system dropped `count` datagrams since the last time because the receive buffer of a socket
    /// was full; `None` for the socket of another shard. Drivers tell on systems that count them.
    ///
    /// What is lost at the mesh's own socket is no path's fault. What is lost at others is only told.
    pub fn note_receive_drops(&mut self, now: Instant, socket: Option<SocketId>, count: u64) {
        let now = self.now.max(now);
        if socket == Some(SocketId::MESH) {
            self.overload.on_dropped(now, count);
        } else {
            self.overload.on_dropped_elsewhere(now, count);
        }
    }

    /// Whether evidence against paths to a far end counts for less: this node does not keep up, or the far end says
    /// that it does not.
    pub(super) fn is_excused(&self, now: Instant, far: LinkId) -> bool {
        let path_set = self.path_sets.get(&far);
        self.overload.is_overloaded(now)
            || path_set.is_some_and(|path_set| now < path_set.far_overloaded_until)
    }

    /// Takes what the far end said with an answer to a probe: maybe that it does not keep up.
    pub(super) fn note_far_report(&mut self, now: Instant, far: LinkId, report: &DataReport) {
        if report.is_overloaded
            && let Some(path_set) = self.path_sets.get_mut(&far)
        {
            path_set.far_overloaded_until = now + LASTS;
        }
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
            self.emit(Event::Overloaded {
                late: figure.late,
                dropped: figure.dropped,
            });
        }
    }
}

/// How late a driver may be; as for sessions (TWP/1, section 11).
const LATE: Duration = Duration::from_millis(250);
