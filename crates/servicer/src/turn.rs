//! What the turns of both drivers have in common.

use std::time::Duration;

use wire::Instant;

/// The work that a turn left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Nothing to do until the next event.
    Nothing,
    /// A bound was reached. The next turn follows at once.
    Work,
    /// A timer is still due after it has run. The next turn follows after a pause.
    StuckTimer,
}

/// Returns whether the gap since the last turn is so long that much data may be queued.
pub(crate) fn is_stall(last: Option<Instant>, began: Instant) -> bool {
    last.is_none_or(|last| began.saturating_since(last) > STALL)
}

/// Gap between turns that counts as a pause. `udp_proto`'s stall guard uses the same value.
pub(crate) const STALL: Duration = Duration::from_millis(250);
/// Batches received after a pause. With the default batch these are 16,384 datagrams. A receive
/// buffer of 4 MiB holds fewer, since the kernel charges at least 512 bytes for each.
pub(crate) const STALL_BATCHES: usize = 16;
/// Interval at which a machine receives the wall-clock time.
pub(crate) const WALL_CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a timer that is still due after it has run.
pub(crate) const STUCK_TIMER_PAUSE: Duration = Duration::from_millis(1);
