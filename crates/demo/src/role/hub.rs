//! The hub: switches messages, and stores mail and counts in a folder.

use std::path::Path;
use std::time::Duration;

use super::{EventWriter, Failure};
use crate::keyring;
use crate::message::{ChildCommand, ChildEvent};
use daemon::control::ParentPipe;
use daemon::role::hub::{HubOptions, HubProcess};

/// Serves until the parent closes the pipe.
pub(super) fn run(directory: &Path) -> Result<(), Failure> {
    let parent: ParentPipe<ChildCommand> = ParentPipe::open()?;
    let (events, writer) = EventWriter::start()?;
    let identity = keyring::identity(directory, "hub")?;
    let join_file = keyring::join_file(directory)?;
    let folder = keyring::store_path(directory);
    let hub = HubProcess::start(HubOptions::new(&identity, join_file, &folder))?;
    events.send(ChildEvent::Ready);
    while parent.next(Duration::ZERO).is_ok() {
        hub.wait(PATIENCE)?;
    }
    hub.shutdown(LINGER);
    drop(events);
    // Nothing is left to write, or the pipe is closed.
    drop(writer.join());
    Ok(())
}

/// Interval of checks that the parent is there.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time to close links, and again to finish stores in progress.
const LINGER: Duration = Duration::from_millis(400);
