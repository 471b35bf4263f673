//! What is too old to be sent.

use wire::Instant;

use super::OutboxCounts;
use super::tracker::Tracker;
use crate::channel::{ChannelId, unreliable};
use crate::outcome::MessageOutcome;

/// Gives up what is too old, and has it counted and told.
pub(super) struct Expiry<'a> {
    /// The time.
    pub(super) now: Instant,
    /// What was given up so far.
    pub(super) counts: &'a mut OutboxCounts,
    /// Who wants to know.
    pub(super) tracker: Option<&'a mut Tracker>,
}

impl Expiry<'_> {
    /// Gives up what of channel `id` is too old.
    pub(super) fn run(&mut self, id: ChannelId, outbound: &mut unreliable::Outbound) {
        outbound.expire(self.now, |message, outcome| {
            if outcome == MessageOutcome::Expired {
                self.counts.expired = self.counts.expired.saturating_add(1);
            }
            if let Some(tracker) = &mut self.tracker {
                tracker.settle(id, message, outcome);
            }
        });
    }

    /// Looks at the message that has come to the front of channel `id`, whose time may be over though
    /// it was not that of the one before.
    #[inline]
    pub(super) fn look_at_front(&mut self, id: ChannelId, outbound: &mut unreliable::Outbound) {
        if outbound.expires().is_some_and(|at| at <= self.now) {
            self.run(id, outbound);
        }
    }
}
