//! Muted sessions: their messages are no longer delivered to the game.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use udp_proto::SessionId;

use crate::Event;

/// The mute state of each session that the game knows.
///
/// The game's side checks it, so that events already in the queue when the game ends a session are
/// dropped too. Entries are removed when a session ends.
#[derive(Debug, Default)]
pub(crate) struct Hushed {
    /// Sessions from `Connected`, or from the handle's creation, to `Disconnected`, and whether
    /// each is muted.
    open: Mutex<BTreeMap<SessionId, bool>>,
}

impl Hushed {
    /// Adds sessions that the game may already know from before the thread was started.
    pub(crate) fn begin(&self, sessions: impl IntoIterator<Item = SessionId>) {
        let mut open = self.open();
        for session in sessions {
            open.entry(session).or_insert(false);
        }
    }

    /// Mutes a session if the game knows it.
    pub(crate) fn hush(&self, session: SessionId) {
        if let Some(is_hushed) = self.open().get_mut(&session) {
            *is_hushed = true;
        }
    }

    /// Returns whether an event that was taken is for the game.
    pub(crate) fn lets_pass(&self, event: &Event) -> bool {
        match event {
            // A session that was added before may have been muted since; `begin` keeps that.
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
        // No panic can happen under the lock.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
