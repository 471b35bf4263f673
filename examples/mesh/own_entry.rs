//! A game process which is its own entry: no extra program, and no port that others can reach.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use daemon::relay::sandbox::Sandbox;
use daemon::relay::{ProcessEvent, Relay};

/// A node on threads of this process, and its events.
pub(crate) struct OwnEntry {
    relay: Relay,
    news: Receiver<ProcessEvent>,
}

impl OwnEntry {
    /// Starts the node with this index in the sandbox.
    pub(crate) fn start(sandbox: &Sandbox, node: usize) -> io::Result<Self> {
        let config = sandbox.config(node).ok_or(io::ErrorKind::NotFound)?;
        let setup = config.setup(sandbox.directory());
        let (teller, news) = mpsc::channel();
        let relay = Relay::start(setup.map_err(io::Error::other)?, move |reported| {
            if let Some(news) = ProcessEvent::of(reported) {
                // If the receiver is gone, the node is about to stop.
                teller.send(news).ok();
            }
        });
        let relay = relay.map_err(io::Error::other)?;
        Ok(Self { relay, news })
    }

    /// Returns the node's new events.
    pub(crate) fn incoming(&self) -> impl Iterator<Item = ProcessEvent> {
        self.news.try_iter()
    }

    /// Returns the number of packets that the entry has sealed, which a game can show its player.
    pub(crate) fn sealed(&self) -> Option<u64> {
        let stats = self.relay.stats(PATIENCE)?;
        Some(stats.frames.sealed)
    }
}

const PATIENCE: Duration = Duration::from_secs(1);
