//! [`Storage`] for a hub's store.

use hub::Store;
use hub::log::SegmentFile;
use wire::CommandId;

use super::Storage;

/// Executes all commands of a batch with one sync.
impl<F: SegmentFile> Storage for Store<F> {
    type Job = (CommandId, hub::Command);
    type Outcome = (CommandId, hub::Outcome);

    fn execute(
        &mut self,
        jobs: impl Iterator<Item = Self::Job>,
        outcomes: &mut Vec<Self::Outcome>,
    ) {
        let before = self.stats();
        Self::execute(self, jobs, outcomes);
        let after = self.stats();
        if after.rotten > before.rotten {
            let mails = after.rotten.saturating_sub(before.rotten);
            let all = after.rotten;
            tracing::error!(
                mails,
                all,
                "the disk has lost mail that was acknowledged to its sender"
            );
        }
        if after.unreadable > before.unreadable {
            let reads = after.unreadable;
            tracing::warn!(reads, "a mailbox cannot be read now; it is tried again");
        }
    }

    fn tidy(&mut self) -> bool {
        Self::tidy(self)
    }

    fn keep_up(&mut self) -> bool {
        Self::keep_up(self)
    }
}
