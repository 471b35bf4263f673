//! Detects that this node is overloaded.

use core::time::Duration;

use wire::Instant;

/// Detects that the node runs late or drops datagrams in its own queues.
///
/// While it is overloaded, silence and delay do not count against links and paths.
#[derive(Debug)]
pub(super) struct OverloadDetector {
    /// Start of the current window.
    window: Instant,
    /// Summed lateness in the window.
    late: Duration,
    /// Datagrams that the node's own queues dropped in the window.
    dropped: u64,
    until: Instant,
    /// Datagrams that the node's own queues have dropped in total.
    drops: u64,
    /// Figure since the last report.
    untold: OverloadFigure,
    told_at: Option<Instant>,
    /// Datagrams that the kernel dropped in the window at sockets which carry no path traffic.
    elsewhere: u64,
    /// Drops at such sockets are reported until then; they do not excuse paths.
    tell_until: Instant,
}

/// How far a node was behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OverloadFigure {
    pub(super) late: Duration,
    pub(super) dropped: u64,
}

impl OverloadDetector {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            window: now,
            late: Duration::ZERO,
            dropped: 0,
            until: now,
            drops: 0,
            untold: OverloadFigure {
                late: Duration::ZERO,
                dropped: 0,
            },
            told_at: None,
            elsewhere: 0,
            tell_until: now,
        }
    }

    /// Records how late the driver was.
    pub(super) fn on_late(&mut self, now: Instant, late: Duration) {
        if late < LATE_MIN {
            return;
        }
        self.roll(now);
        self.late = self.late.saturating_add(late.min(LATE_MAX));
        self.untold.late = self.untold.late.saturating_add(late);
        self.judge(now);
    }

    /// Records datagrams that the node's own queues dropped.
    pub(super) fn on_dropped(&mut self, now: Instant, count: u64) {
        if count == 0 {
            return;
        }
        self.roll(now);
        self.dropped = self.dropped.saturating_add(count);
        self.untold.dropped = self.untold.dropped.saturating_add(count);
        self.judge(now);
    }

    /// Records datagrams that the kernel dropped at a socket which carries no path traffic. They
    /// are reported, but paths are judged as usual. Otherwise flooding a game's port would prevent
    /// failover.
    pub(super) fn on_dropped_elsewhere(&mut self, now: Instant, count: u64) {
        if count == 0 {
            return;
        }
        self.roll(now);
        self.elsewhere = self.elsewhere.saturating_add(count);
        self.untold.dropped = self.untold.dropped.saturating_add(count);
        if self.elsewhere >= DROPPED_MIN {
            self.tell_until = now + LASTS;
        }
    }

    /// Updates the total number of datagrams that the node's own queues dropped.
    pub(super) fn on_drops_so_far(&mut self, now: Instant, drops: u64) {
        let before = core::mem::replace(&mut self.drops, drops);
        self.on_dropped(now, drops.saturating_sub(before));
    }

    /// Returns whether the node is overloaded, or was within [`LASTS`].
    pub(super) fn is_overloaded(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Returns the figure since the last report if a report is due.
    pub(super) fn take_news(&mut self, now: Instant) -> Option<OverloadFigure> {
        let may_tell = self.told_at.is_none_or(|at| at + TOLD_AGAIN <= now);
        let is_news = self.is_overloaded(now) || now < self.tell_until;
        if !is_news || !may_tell {
            return None;
        }
        self.told_at = Some(now);
        Some(core::mem::take(&mut self.untold))
    }

    fn roll(&mut self, now: Instant) {
        if now.saturating_since(self.window) >= WINDOW {
            (self.window, self.late) = (now, Duration::ZERO);
            (self.dropped, self.elsewhere) = (0, 0);
        }
    }

    fn judge(&mut self, now: Instant) {
        if self.late >= LATE_SHARE || self.dropped >= DROPPED_MIN {
            self.until = now + LASTS;
        }
    }
}

/// Window over which lateness and drops are summed.
const WINDOW: Duration = Duration::from_secs(1);
/// Lateness below this is ignored: any host has it at times.
const LATE_MIN: Duration = Duration::from_millis(20);
/// Maximum that one stall adds to the sum.
const LATE_MAX: Duration = Duration::from_millis(100);
/// Summed lateness per window that means overload.
const LATE_SHARE: Duration = Duration::from_millis(150);
/// Dropped datagrams per window that mean overload.
const DROPPED_MIN: u64 = 50;
/// How long overload lasts after its last sign: answers to probes of a second ago are still in
/// flight.
pub(super) const LASTS: Duration = Duration::from_secs(2);
/// Minimum time between two reports.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_node_that_is_late_all_the_time_or_drops_is_overloaded_and_one_stall_is_not() {
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
        let told = detector.take_news(at(5_200)).unwrap();
        assert_eq!(told.late, Duration::from_millis(3_200));
        assert_eq!(detector.take_news(at(5_300)), None, "once a minute");
        assert!(!detector.is_overloaded(at(7_200)));
        detector.on_dropped(at(9_000), 49);
        assert!(!detector.is_overloaded(at(9_000)));
        detector.on_dropped(at(9_100), 1);
        assert!(detector.is_overloaded(at(9_100)));
        detector.on_dropped(at(66_000), 500);
        let dropped = detector.take_news(at(66_000)).unwrap().dropped;
        assert_eq!(dropped, 550);
    }

    #[test]
    fn drops_at_the_port_of_a_game_are_told_and_excuse_nothing() {
        let mut detector = OverloadDetector::new(at(0));
        detector.on_dropped_elsewhere(at(10), 49);
        assert_eq!(detector.take_news(at(10)), None);
        detector.on_dropped_elsewhere(at(20), 10_000);
        assert!(!detector.is_overloaded(at(20)));
        let told = detector.take_news(at(20)).unwrap();
        assert_eq!(told.dropped, 10_049);
        detector.on_dropped_elsewhere(at(30), 10_000);
        assert_eq!(detector.take_news(at(30)), None, "once a minute");
    }
}
