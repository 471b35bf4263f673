//! How many packets in a time are opened from addresses that are not the session's.

use core::time::Duration;

use wire::Instant;

/// A bucket of packets in 8 bytes, as the time when it is full; ITU-T I.371, the generic cell rate
/// algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    full_at: Instant,
}

/// Rate and depth of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Time that earns one packet.
    interval: Duration,
    /// Packets at once.
    burst: u32,
}

/// All addresses that nobody of the session was heard at, together; TWP/1, section 8.
pub(super) const STRANGERS: Rate = Rate::per_second(32, 32);
/// The address that is challenged, and the one that the session may return to, each: as much as a
/// player sends. TWP/1, section 8.
pub(super) const KNOWN: Rate = Rate::per_second(600, 300);

impl Rate {
    const fn per_second(count: u32, burst: u32) -> Self {
        let nanos = match 1_000_000_000_u64.checked_div(count as u64) {
            Some(nanos) => nanos,
            None => u64::MAX,
        };
        Self {
            interval: Duration::from_nanos(nanos),
            burst,
        }
    }
}

impl Pace {
    /// A full bucket.
    pub(super) const IDLE: Self = Self {
        full_at: Instant::ZERO,
    };

    /// Takes one packet where there is one left.
    pub(super) fn take(&mut self, now: Instant, rate: Rate) -> bool {
        let after = self.full_at.max(now) + rate.interval;
        if after.saturating_since(now) > rate.interval.saturating_mul(rate.burst) {
            return false;
        }
        self.full_at = after;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twp_f2_strangers_get_32_at_once_and_32_a_second() {
        let mut pace = Pace::IDLE;
        let mut now = Instant::from_millis(5_000);
        let mut granted = 0;
        for _ in 0..1_000 {
            granted += u32::from(pace.take(now, STRANGERS));
        }
        assert_eq!(granted, 32);
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            granted += u32::from(pace.take(now, STRANGERS));
        }
        assert_eq!(granted, 32 + 320);
    }
}
