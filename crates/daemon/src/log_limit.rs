//! A limit for log lines that peers can cause.

use std::time::Duration;

use wire::Instant;

/// Admits a log line each 10 s, and one with the same subject each 60 s.
#[derive(Debug)]
pub(crate) struct LogLimiter<K> {
    last: Option<(K, Instant)>,
    suppressed: u64,
}

impl<K> Default for LogLimiter<K> {
    fn default() -> Self {
        Self {
            last: None,
            suppressed: 0,
        }
    }
}

impl<K: PartialEq> LogLimiter<K> {
    /// Returns how many lines were suppressed since the last one, if this one is to be logged.
    pub(crate) fn admit(&mut self, now: Instant, subject: K) -> Option<u64> {
        if let Some((last, at)) = &self.last {
            let pause = if *last == subject {
                REPEAT_INTERVAL
            } else {
                INTERVAL
            };
            if now.saturating_since(*at) < pause {
                self.suppressed = self.suppressed.saturating_add(1);
                return None;
            }
        }
        self.last = Some((subject, now));
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Admits a few log lines at once and then one each 10 s: all nodes of a network that join together
/// are logged, and one that reconnects without end is not.
#[derive(Debug)]
pub(crate) struct LineBudget {
    left: u32,
    refilled: Instant,
    suppressed: u64,
}

impl Default for LineBudget {
    fn default() -> Self {
        Self {
            left: LINES_MAX,
            refilled: Instant::ZERO,
            suppressed: 0,
        }
    }
}

impl LineBudget {
    /// Returns how many lines were suppressed since the last one, if this one is to be logged.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_since(self.refilled).as_secs();
        let passed = passed.checked_div(INTERVAL.as_secs()).unwrap_or(0);
        if passed > 0 {
            self.refilled = now;
            let added = u32::try_from(passed).unwrap_or(LINES_MAX);
            self.left = self.left.saturating_add(added).min(LINES_MAX);
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        };
        self.left = left;
        Some(std::mem::take(&mut self.suppressed))
    }
}

const LINES_MAX: u32 = 64;

const INTERVAL: Duration = Duration::from_secs(10);

const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use hub::record::DownReason;
    use wire::NodeId;

    use super::*;

    #[test]
    fn a_node_that_is_refused_all_the_time_logs_a_line_a_minute() {
        let mut refused = LogLimiter::default();
        let subject = (Some(NodeId([1; 32])), DownReason::Protocol);
        let lines = (0..15_000_u64).filter(|step| {
            let now = Instant::from_millis(step * 50);
            refused.admit(now, subject).is_some()
        });
        assert_eq!(lines.count(), 13, "750 s");
    }

    #[test]
    fn joins_are_logged_in_a_burst_and_then_at_a_bounded_rate() {
        let mut joined = LineBudget::default();
        let burst = (0..1_000).filter(|_| joined.admit(Instant::ZERO).is_some());
        assert_eq!(burst.count(), 64);
        let later =
            (1..=3_600).filter_map(|second| joined.admit(Instant::from_millis(second * 1_000)));
        let suppressed: Vec<_> = later.collect();
        assert_eq!(suppressed.len(), 360, "ten seconds between any two");
        assert_eq!(suppressed[0], 936 + 9);
    }

    #[test]
    fn unlisted_nodes_are_logged_at_a_bounded_rate() {
        let mut unlisted = LogLimiter::default();
        let [one, other] = [1, 2].map(|byte| NodeId([byte; 32]));
        let mut at =
            |seconds, node| unlisted.admit(Instant::ZERO + Duration::from_secs(seconds), node);
        assert_eq!(at(0, one), Some(0));
        assert_eq!(at(59, one), None);
        assert_eq!(at(60, one), Some(1));
        assert_eq!(at(69, other), None);
        assert_eq!(at(69, one), None);
        assert_eq!(at(70, other), Some(2));
        let lines = (71..3_671).filter_map(|second| {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&u64::to_be_bytes(second));
            at(second, NodeId(id))
        });
        assert_eq!(lines.count(), 360, "ten seconds between any two");
    }
}
