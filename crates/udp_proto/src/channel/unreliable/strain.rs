//! What a peer is asked to keep of unreliable messages whose parts have not all come.

use core::time::Duration;

use wire::Instant;

use super::STRAGGLERS;
use crate::fragment::{
    REASSEMBLY_LIFE, UNRELIABLE_BUDGET, UNRELIABLE_MESSAGES_MAX, unreliable_cost,
};

/// The time, and how much the peer may have begun to put together since the session's start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strain {
    /// The time of the packet at hand.
    pub(crate) now: Instant,
    /// Messages that it may have begun.
    begun: u64,
    /// What they cost it at most, bytes.
    cost: u64,
}

/// Time from the first part to the last in which the peer gives no part up: less than its own
/// patience by what one part may be longer under way than another.
const SPREAD_MAX: Duration = REASSEMBLY_LIFE.saturating_sub(STRAGGLERS);

/// Messages that the peer may begin after one without giving that up. One of those before it may
/// come to it later.
const BEGUN_MAX: u64 = (UNRELIABLE_MESSAGES_MAX as u64).saturating_sub(2);

impl Strain {
    /// Takes note that the peer may begin a message of `len` bytes and so many fragments.
    pub(crate) const fn on_begun(&mut self, split: u16, len: usize) {
        if split > 1 {
            self.begun = self.begun.saturating_add(1);
            let cost = unreliable_cost(split, len) as u64;
            self.cost = self.cost.saturating_add(cost);
        }
    }

    /// Returns whether the peer still had the first part of a message when the last came, which left
    /// at `last`. `self` was the strain as the message began, itself included, and `now` is that of
    /// now; `cost` is what the message costs.
    pub(crate) fn bears(&self, now: &Self, last: Instant, cost: usize) -> bool {
        let (begun, others) = (
            now.begun.saturating_sub(self.begun),
            now.cost.saturating_sub(self.cost),
        );
        last.saturating_since(self.now) <= SPREAD_MAX
            && begun <= BEGUN_MAX
            && others.saturating_add(cost as u64) <= UNRELIABLE_BUDGET as u64
    }
}
