//! Detection of overload of this node.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::event::Event;
use crate::link::LinkId;
use crate::path_probe::DataReport;
use crate::peer_addr::SocketId;

/// Detects that the node runs late or drops datagrams in its own queues. While it is overloaded,
/// silence and delay do not count against links and paths.
#[derive(Debug)]
pub(super) struct OverloadDetector {
    window: Instant,
    late: Duration,
    /// Datagrams that the node's own queues dropped in the window.
    dropped: u64,
    until: Instant,
    /// Datagrams that they have dropped in total.
    drops: u64,
    unreported: OverloadFigure,
    reported_at: Option<Instant>,
    /// Datagrams that the kernel dropped in the window at sockets without path traffic.
    dropped_elsewhere: u64,
    /// Drops at such sockets are reported until then.
    report_until: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OverloadFigure {
    pub(super) late: Duration,
    pub(super) dropped: u64,
}

impl OverloadDetector {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            window: now,
            late: Duration::ZERO,
            dropped: 0,
            until: now,
            drops: 0,
            unreported: OverloadFigure::default(),
            reported_at: None,
            dropped_elsewhere: 0,
            report_until: now,
        }
    }

    pub(super) fn on_late(&mut self, now: Instant, late: Duration) {
        if late < LATE_MIN {
            return;
        }
        self.advance_window(now);
        self.late = self.late.saturating_add(late.min(LATE_MAX));
        self.unreported.late = self.unreported.late.saturating_add(late);
        self.update(now);
    }

    pub(super) fn on_dropped(&mut self, now: Instant, count: u64) {
        if count == 0 {
            return;
        }
        self.advance_window(now);
        self.dropped = self.dropped.saturating_add(count);
        self.unreported.dropped = self.unreported.dropped.saturating_add(count);
        self.update(now);
    }

    /// Records datagrams that the kernel dropped at a socket without path traffic. They are only
    /// reported; if they excused paths, flooding a game's port would prevent failover.
    pub(super) fn on_dropped_elsewhere(&mut self, now: Instant, count: u64) {
        if count == 0 {
            return;
        }
        self.advance_window(now);
        self.dropped_elsewhere = self.dropped_elsewhere.saturating_add(count);
        self.unreported.dropped = self.unreported.dropped.saturating_add(count);
        if self.dropped_elsewhere >= DROPPED_MIN {
            self.report_until = now + LASTS;
        }
    }

    /// Updates the total number of datagrams that the node's own queues dropped.
    pub(super) fn on_drops_so_far(&mut self, now: Instant, drops: u64) {
        let before = core::mem::replace(&mut self.drops, drops);
        self.on_dropped(now, drops.saturating_sub(before));
    }

    /// Whether the node is overloaded, or was within [`LASTS`].
    pub(super) fn is_overloaded(&self, now: Instant) -> bool {
        now < self.until
    }

    /// The figure since the last report, if a report is due.
    pub(super) fn take_report(&mut self, now: Instant) -> Option<OverloadFigure> {
        let may_report = self
            .reported_at
            .is_none_or(|at| at + REPORT_INTERVAL <= now);
        let has_report = self.is_overloaded(now) || now < self.report_until;
        if !has_report || !may_report {
            return None;
        }
        self.reported_at = Some(now);
        Some(core::mem::take(&mut self.unreported))
    }

    fn advance_window(&mut self, now: Instant) {
        if now.saturating_since(self.window) >= WINDOW {
            (self.window, self.late) = (now, Duration::ZERO);
            (self.dropped, self.dropped_elsewhere) = (0, 0);
        }
    }

    fn update(&mut self, now: Instant) {
        if self.late >= LATE_SHARE || self.dropped >= DROPPED_MIN {
            self.until = now + LASTS;
        }
    }
}

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
            .flat_map(|path_set| path_set.paths.iter_mut());
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
    pub fn record_receive_drops(&mut self, now: Instant, socket: Option<SocketId>, count: u64) {
        let now = self.now.max(now);
        if socket == Some(SocketId::MESH) {
            self.overload.on_dropped(now, count);
        } else {
            self.overload.on_dropped_elsewhere(now, count);
        }
    }

    /// Returns whether evidence against paths to a remote end is discounted: this node or the
    /// remote end is overloaded.
    pub(super) fn is_excused(&self, now: Instant, remote: LinkId) -> bool {
        let path_set = self.path_sets.get(&remote);
        self.overload.is_overloaded(now)
            || path_set.is_some_and(|path_set| path_set.is_remote_overloaded(now))
    }

    /// Records whether the remote end reported overload in its answer to a probe.
    pub(super) fn record_remote_report(
        &mut self,
        now: Instant,
        remote: LinkId,
        report: &DataReport,
    ) {
        if report.is_overloaded
            && let Some(path_set) = self.path_sets.get_mut(&remote)
        {
            path_set.on_remote_overload(now + LASTS);
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
        if let Some(figure) = self.overload.take_report(now) {
            self.stats.overloads = self.stats.overloads.saturating_add(1);
            self.emit(Event::Overloaded {
                late: figure.late,
                dropped: figure.dropped,
            });
        }
    }
}

const WINDOW: Duration = Duration::from_secs(1);
/// Lateness below this is ignored: any host has it at times.
const LATE_MIN: Duration = Duration::from_millis(20);
/// Maximum that one stall adds to the sum.
const LATE_MAX: Duration = Duration::from_millis(100);
/// Summed lateness per window that means overload.
const LATE_SHARE: Duration = Duration::from_millis(150);
/// Dropped datagrams per window that mean overload.
const DROPPED_MIN: u64 = 50;
/// How long overload lasts after its last sign: answers to earlier probes are still in flight.
pub(super) const LASTS: Duration = Duration::from_secs(2);
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Lateness that counts as a stall; the same as for sessions (TWP/1, section 11).
const LATE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_node_that_is_always_late_or_drops_is_overloaded_unlike_one_stall() {
        let mut detector = OverloadDetector::new(at(0));
        detector.on_late(at(0), Duration::from_secs(3));
        assert!(!detector.is_overloaded(at(0)));
        for round in 0..100 {
            detector.on_late(at(2_000 + round * 10), Duration::from_millis(19));
        }
        assert!(!detector.is_overloaded(at(3_000)), "as any host");
        detector.on_late(at(5_000), Duration::from_millis(100));
        detector.on_late(at(5_200), Duration::from_millis(100));
        assert!(detector.is_overloaded(at(5_200)));
        let report = detector.take_report(at(5_200)).unwrap();
        assert_eq!(report.late, Duration::from_millis(3_200));
        assert_eq!(detector.take_report(at(5_300)), None, "once a minute");
        assert!(!detector.is_overloaded(at(7_200)));
        detector.on_dropped(at(9_000), 49);
        assert!(!detector.is_overloaded(at(9_000)));
        detector.on_dropped(at(9_100), 1);
        assert!(detector.is_overloaded(at(9_100)));
        detector.on_dropped(at(66_000), 500);
        let dropped = detector.take_report(at(66_000)).unwrap().dropped;
        assert_eq!(dropped, 550);
    }

    #[test]
    fn drops_at_a_game_port_are_reported_and_excuse_nothing() {
        let mut detector = OverloadDetector::new(at(0));
        detector.on_dropped_elsewhere(at(10), 49);
        assert_eq!(detector.take_report(at(10)), None);
        detector.on_dropped_elsewhere(at(20), 10_000);
        assert!(!detector.is_overloaded(at(20)));
        let report = detector.take_report(at(20)).unwrap();
        assert_eq!(report.dropped, 10_049);
        detector.on_dropped_elsewhere(at(30), 10_000);
        assert_eq!(detector.take_report(at(30)), None, "once a minute");
    }
}
