//! How many datagrams one shard passes on to others.

use wire::Instant;

/// A bucket that fills by [`PER_SECOND`] up to [`BURST`].
#[derive(Debug)]
pub(super) struct Allowance {
    /// Nanoseconds of filling that it holds.
    held_nanos: u64,
    /// When it was looked at last; `None` before the first time.
    at: Option<Instant>,
}

/// Datagrams a second: those of 270 clients who have moved and send 60 a second, at a copy of some 0.5
/// microseconds for each of the others.
pub(super) const PER_SECOND: u64 = 16_384;

/// Datagrams at once: as many as may wait for one shard.
pub(super) const BURST: u64 = 1_024;

/// What one takes; what is left of a nanosecond is dropped.
const COST_NANOS: u64 = 1_000_000_000 / PER_SECOND;

const HELD_NANOS_MAX: u64 = BURST * COST_NANOS;

impl Default for Allowance {
    fn default() -> Self {
        Self {
            held_nanos: HELD_NANOS_MAX,
            at: None,
        }
    }
}

impl Allowance {
    /// Takes one datagram's worth; false where there is none.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let gained = self.at.map_or(0, |at| {
            let nanos = now.saturating_since(at).as_nanos();
            u64::try_from(nanos).unwrap_or(u64::MAX)
        });
        self.at = Some(now);
        self.held_nanos = self.held_nanos.saturating_add(gained).min(HELD_NANOS_MAX);
        let left = self.held_nanos.checked_sub(COST_NANOS);
        self.held_nanos = left.unwrap_or(self.held_nanos);
        left.is_some()
    }
}
