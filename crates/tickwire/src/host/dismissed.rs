//! Sessions that the game has kicked or disconnected.

use std::collections::{BTreeMap, BTreeSet};

use udp_proto::SessionId;

/// Muted sessions: their messages are no longer delivered to the game.
///
/// A game that is called for one event after another can kick a player whose `Disconnected` event
/// is already in the same batch. This set covers that case too.
#[derive(Debug, Default)]
pub(super) struct Dismissed {
    /// Muted sessions that have not ended.
    open: BTreeSet<SessionId>,
    /// Sessions that end within the batch of events last given to the game, and whether each is
    /// muted.
    parting: BTreeMap<SessionId, bool>,
}

impl Dismissed {
    /// Adds an open session; returns whether it is new.
    pub(super) fn add(&mut self, session: SessionId) -> bool {
        self.open.insert(session)
    }

    /// Mutes a session that has ended, if its end is in the current batch.
    pub(super) fn add_parting(&mut self, session: SessionId) {
        if let Some(is_dismissed) = self.parting.get_mut(&session) {
            *is_dismissed = true;
        }
    }

    /// Returns whether a session is muted.
    pub(super) fn has(&self, session: SessionId) -> bool {
        self.open.contains(&session) || self.parting.get(&session) == Some(&true)
    }

    /// Removes a session that has ended; returns whether it was muted.
    pub(super) fn end(&mut self, session: SessionId) -> bool {
        self.open.remove(&session)
    }

    /// Starts a new batch that contains the ends of these sessions. Forgets the batch before.
    pub(super) fn give(&mut self, ends: impl Iterator<Item = SessionId>) {
        self.parting = ends.map(|session| (session, false)).collect();
    }
}
