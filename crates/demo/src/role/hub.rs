//! The hub: switches messages, keeps mail and counts in a folder.

use std::path::Path;
use std::time::Duration;

use super::{Failure, Voice};
use crate::keyring;
use crate::message::{News, Order};
use daemon::control::ParentPipe;
use daemon::role::hub::{HubOptions, HubProcess};

/// Serves until the parent lets go.
pub(super) fn run(directory: &Path) -> Result<(), Failure> {
    let leash: ParentPipe<Order> = ParentPipe::open()?;
    let (voice, writer) = Voice::raise()?;
    let identity = keyring::identity(directory, "hub")?;
    let join_file = keyring::join_file(directory)?;
    let folder = keyring::store_path(directory);
    let hub = HubProcess::start(HubOptions::new(&identity, join_file, &folder))?;
    voice.say(News::Ready);
    while leash.next(Duration::ZERO).is_ok() {
        hub.wait(PATIENCE)?;
    }
    hub.shutdown(LINGER);
    drop(voice);
    // The writer has nothing left to write, or nobody to write to.
    drop(writer.join());
    Ok(())
}

/// How often to look whether the parent has let go.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time to take leave of nodes, and again to finish what is being stored.
const LINGER: Duration = Duration::from_millis(400);
