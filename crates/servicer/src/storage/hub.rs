//! A hub's store as a storage.

use hub::Store;
use hub::log::SegmentFile;
use wire::CommandId;

use super::Storage;

/// One `Store` does all commands of a batch and syncs once.
impl<F: SegmentFile> Storage for Store<F> {
    type Job = (CommandId, hub::Command);
    type Outcome = (CommandId, hub::Outcome);

    fn execute(
        &mut self,
        jobs: impl Iterator<Item = Self::Job>,
        outcomes: &mut Vec<Self::Outcome>,
    ) {
        Self::execute(self, jobs, outcomes);
    }

    fn tidy(&mut self) -> bool {
        Self::tidy(self)
    }
}
