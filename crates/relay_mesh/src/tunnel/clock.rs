//! The clock of quinn-proto, which counts in the standard library's instants.
//!
//! No machine reads it. The driver passes one instant in, and all others are computed from it.

use wire::Instant;

/// An instant of quinn-proto.
pub type StdInstant = std::time::Instant;

/// Converts between the two clocks: `epoch` and `start` are the same moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    epoch: StdInstant,
    start: Instant,
}

impl Clock {
    /// Makes a clock in which `start` is `epoch`.
    pub(super) const fn new(epoch: StdInstant, start: Instant) -> Self {
        Self { epoch, start }
    }

    pub(super) fn to_std(self, now: Instant) -> StdInstant {
        let since = now.saturating_since(self.start);
        self.epoch.checked_add(since).unwrap_or(self.epoch)
    }

    pub(super) fn of_std(self, then: StdInstant) -> Instant {
        self.start + then.saturating_duration_since(self.epoch)
    }
}
