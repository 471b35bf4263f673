//! Repetition of datagrams that are not acknowledged otherwise.

use core::time::Duration;

use wire::Generator;

/// Copies of a leave: at 5 % loss, all are lost once in 8,000.
pub(crate) const LEAVE_COPIES: u8 = 3;

/// Returns `millis` with 25 % jitter, so that peers do not synchronise.
pub(crate) fn jittered(generator: &mut Generator, millis: u64) -> Duration {
    let quarter = millis / 4;
    let (low, high) = (
        millis.saturating_sub(quarter),
        millis.saturating_add(quarter),
    );
    Duration::from_millis(generator.between(low, high))
}
