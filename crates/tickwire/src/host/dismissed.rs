//! Sessions that the game has sent away.

use std::collections::{BTreeMap, BTreeSet};

use udp_proto::SessionId;

/// Those whose messages the game does not get any more.
///
/// Where a game is called for one event after the other, a player may have left before it is called
/// for what he said, and the game can send him away all the same.
#[derive(Debug, Default)]
pub(super) struct Dismissed {
    /// Of the sessions that have not ended.
    open: BTreeSet<SessionId>,
    /// All whose ends are among the events that the game was given last, and whether each is one.
    parting: BTreeMap<SessionId, bool>,
}

impl Dismissed {
    /// Takes a session in that is open; returns whether it is new.
    pub(super) fn add(&mut self, session: SessionId) -> bool {
        self.open.insert(session)
    }

    /// Takes one in that has ended, where the game may hear of it still.
    pub(super) fn add_parting(&mut self, session: SessionId) {
        if let Some(is_dismissed) = self.parting.get_mut(&session) {
            *is_dismissed = true;
        }
    }

    /// Returns whether a session is one.
    pub(super) fn has(&self, session: SessionId) -> bool {
        self.open.contains(&session) || self.parting.get(&session) == Some(&true)
    }

    /// Takes note that a session has ended; returns whether it was one.
    pub(super) fn end(&mut self, session: SessionId) -> bool {
        self.open.remove(&session)
    }

    /// Takes note that the game is given the ends of these, and is through with what it was given before.
    pub(super) fn give(&mut self, ends: impl Iterator<Item = SessionId>) {
        self.parting = ends.map(|session| (session, false)).collect();
    }
}
