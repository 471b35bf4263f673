//! The seam between a hub's machine and what executes its commands.

use wire::CommandId;

use crate::log::SegmentFile;
use crate::store::{Command, Outcome, Store, StoreStats};

/// Executes the commands of a hub.
///
/// Each submitted command is completed exactly once, in any order. An outcome is reported only
/// after its data is durable, and a read sees all writes that were submitted before it. After
/// [`StoreError::Failed`](crate::StoreError::Failed) every later command fails alike: start again
/// from what is stored.
///
/// [`Store`] is one on any [`SegmentFile`]: files, memory, a simulated disk, a JetStream stream.
/// The module `conformance` (feature `conformance`) checks an implementation.
pub trait Backend {
    /// Takes a batch of commands, which may share one sync. May block as long as that sync takes.
    fn submit(&mut self, batch: &mut dyn Iterator<Item = (CommandId, Command)>);

    /// Returns the next outcome that is known; never blocks.
    fn poll_completed(&mut self) -> Option<(CommandId, Outcome)>;

    /// Waits for a bounded time until another outcome is known. Returns whether any command is
    /// outstanding.
    fn wait(&mut self) -> bool {
        false
    }

    /// Does one bounded step of housekeeping; returns whether there is more. Call it while no
    /// command is queued.
    fn tidy(&mut self) -> bool {
        false
    }

    /// Does one bounded step of urgent housekeeping; returns whether to call again. Call it after
    /// each batch.
    fn keep_up(&mut self) -> bool {
        false
    }

    /// Returns the counters.
    fn stats(&self) -> StoreStats;
}

impl<F: SegmentFile> Backend for Store<F> {
    fn submit(&mut self, batch: &mut dyn Iterator<Item = (CommandId, Command)>) {
        let mut outcomes = Vec::new();
        self.execute(batch, &mut outcomes);
        self.completed.extend(outcomes);
    }

    fn poll_completed(&mut self) -> Option<(CommandId, Outcome)> {
        self.completed.pop_front()
    }

    fn tidy(&mut self) -> bool {
        Self::tidy(self)
    }

    fn keep_up(&mut self) -> bool {
        Self::keep_up(self)
    }

    fn stats(&self) -> StoreStats {
        Self::stats(self)
    }
}
