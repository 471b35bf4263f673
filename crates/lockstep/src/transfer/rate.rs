//! The rate at which chunks go out.

use core::time::Duration;

use wire::Instant;

use super::after;

/// Billionths in a byte: nanoseconds in a second.
const SCALE: u64 = 1_000_000_000;

/// A bucket that fills at a rate up to a burst, in billionths of a byte: exact, in whole numbers.
#[derive(Debug)]
pub(crate) struct Rate {
    bytes_per_s: u32,
    /// Most that it holds.
    burst: u64,
    /// What it held at `at`.
    level: u64,
    at: Instant,
}

impl Rate {
    /// Makes a full one.
    pub(crate) fn new(bytes_per_s: u32, burst_bytes: u32, now: Instant) -> Self {
        let burst = scaled(burst_bytes);
        Self {
            bytes_per_s,
            burst,
            level: burst,
            at: now,
        }
    }

    /// Adds what was gained since.
    pub(crate) fn refill(&mut self, now: Instant) {
        let nanos = now.as_nanos().saturating_sub(self.at.as_nanos());
        let gained = nanos.saturating_mul(self.bytes_per_s.into());
        self.level = self.level.saturating_add(gained).min(self.burst);
        self.at = self.at.max(now);
    }

    pub(crate) fn holds(&self, bytes: u32) -> bool {
        self.level >= scaled(bytes)
    }

    pub(crate) fn spend(&mut self, bytes: u32) {
        self.level = self.level.saturating_sub(scaled(bytes));
    }

    /// Returns when it holds `bytes`, if nothing is spent before; `None` for never.
    pub(crate) fn holds_at(&self, bytes: u32) -> Option<Instant> {
        let missing = scaled(bytes).saturating_sub(self.level);
        if missing == 0 {
            return Some(self.at);
        }
        if scaled(bytes) > self.burst || self.bytes_per_s == 0 {
            return None;
        }
        let nanos = missing.div_ceil(self.bytes_per_s.into());
        Some(after(self.at, Duration::from_nanos(nanos)))
    }
}

fn scaled(bytes: u32) -> u64 {
    u64::from(bytes).saturating_mul(SCALE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_exact_and_holds_no_more_than_its_burst() {
        let mut rate = Rate::new(3, 10, Instant::ZERO);
        rate.spend(10);
        assert_eq!(rate.holds_at(1), Some(Instant::from_nanos(333_333_334)));
        rate.refill(Instant::from_nanos(333_333_333));
        assert!(!rate.holds(1));
        rate.refill(Instant::from_nanos(333_333_334));
        assert!(rate.holds(1));
        // A clock that goes back brings nothing, and nothing twice.
        rate.refill(Instant::ZERO);
        rate.refill(Instant::from_nanos(333_333_334));
        assert!(!rate.holds(2));
        rate.refill(Instant::from_nanos(u64::MAX));
        assert!(rate.holds(10) && !rate.holds(11));
        assert_eq!(rate.holds_at(11), None);
        assert_eq!(Rate::new(0, 0, Instant::ZERO).holds_at(1), None);
    }
}
