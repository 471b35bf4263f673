//! Sessions whose messages the game does not get any more.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use udp_proto::SessionId;

use crate::Event;

/// What the game has heard of each session, so that nothing is kept of one that has ended.
///
/// It is the game's side that asks: what its thread has put into the queue before the game sends somebody
/// away is not handed over either.
#[derive(Debug, Default)]
pub(crate) struct Hushed {
    /// Sessions from `Connected`, or the handle's making, to `Disconnected`, and whether each is hushed.
    open: Mutex<BTreeMap<SessionId, bool>>,
}

impl Hushed {
    /// Takes note of sessions that the game may know of already, from before there was a queue.
    pub(crate) fn begin(&self, sessions: impl IntoIterator<Item = SessionId>) {
        let mut open = self.open();
        for session in sessions {
            open.entry(session).or_insert(false);
        }
    }

    /// Lets no more messages of a session pass, where the game knows of one.
    pub(crate) fn hush(&self, session: SessionId) {
        if let Some(is_hushed) = self.open().get_mut(&session) {
            *is_hushed = true;
        }
    }

    /// Returns whether an event that was taken is for the game.
    pub(crate) fn lets_pass(&self, event: &Event) -> bool {
        match event {
            // One that was known before may have been hushed since.
            Event::Connected { session, .. } => self.begin([*session]),
            Event::Disconnected { session, .. } => drop(self.open().remove(session)),
            Event::Message { session, .. } => {
                return self.open().get(session) != Some(&true);
            }
            Event::Settled { .. } | Event::Unreachable { .. } => {}
        }
        true
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<SessionId, bool>> {
        // Nothing in between panics.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
