//! A game's process that is its own entry: no program beside it, and no port that others reach.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use daemon::relay::sandbox::Sandbox;
use daemon::relay::{ProcessEvent, Relay};

/// A node on threads of this process, and what it tells.
pub(crate) struct OwnEntry {
    relay: Relay,
    news: Receiver<ProcessEvent>,
}

impl OwnEntry {
    /// Starts the node with this place in the sandbox.
    pub(crate) fn start(sandbox: &Sandbox, node: usize) -> io::Result<Self> {
        let config = sandbox.config(node).ok_or(io::ErrorKind::NotFound)?;
        let setup = config.setup(sandbox.directory());
        let (teller, news) = mpsc::channel();
        let relay = Relay::start(setup.map_err(io::Error::other)?, move |told| {
            if let Some(news) = ProcessEvent::of(told) {
                // Who does not listen any more is about to end the node.
                teller.send(news).ok();
            }
        });
        let relay = relay.map_err(io::Error::other)?;
        Ok(Self { relay, news })
    }

    /// What the node has told since.
    pub(crate) fn heard(&self) -> impl Iterator<Item = ProcessEvent> {
        self.news.try_iter()
    }

    /// What the game itself can show its player: packets that it sealed for its exit's way.
    pub(crate) fn sealed(&self) -> Option<u64> {
        let stats = self.relay.stats(PATIENCE)?;
        Some(stats.frames.sealed)
    }
}

const PATIENCE: Duration = Duration::from_secs(1);
