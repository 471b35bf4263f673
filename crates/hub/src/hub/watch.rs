//! What one watcher has yet to hear of presence.

use std::collections::BTreeSet;

use wire::{ClientId, ConnectionId, NodeId};

use crate::record::Join;

/// What one watcher has yet to hear of presence.
///
/// It hears a reset, every key as it is when its turn comes, the word that this was all, and from
/// then on each key that changed, as it is when advance. Keys that change faster than it reads are
/// advance once. Where more than a bounded number of keys wait, it starts over with a reset: a watcher
/// never misses a change unknowingly, and costs bounded memory.
#[derive(Debug)]
pub(super) struct Watch {
    /// What it wants to hear of; bits of [`Join`].
    mask: u8,
    stage: Stage,
    changed: BTreeSet<Key>,
    changes_max: usize,
}

/// The links of those who watch, by what they watch.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    nodes: BTreeSet<ConnectionId>,
    players: BTreeSet<ConnectionId>,
}

impl Watchers {
    /// Notes that `link` wants to hear of what `mask` says; bits of [`Join`].
    pub(super) fn insert(&mut self, link: ConnectionId, mask: u8) {
        for (bit, links) in [
            (Join::WATCH_NODES, &mut self.nodes),
            (Join::WATCH_PLAYERS, &mut self.players),
        ] {
            if mask & bit != 0 {
                links.insert(link);
            }
        }
    }

    pub(super) fn remove(&mut self, link: ConnectionId) {
        self.nodes.remove(&link);
        self.players.remove(&link);
    }

    /// Returns who wants to hear of keys like this.
    pub(super) fn of(&self, key: Key) -> impl Iterator<Item = ConnectionId> {
        match key {
            Key::Node(_) => &self.nodes,
            Key::Player(_) => &self.players,
        }
        .iter()
        .copied()
    }
}

/// Something whose presence can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Node(NodeId),
    Player(ClientId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A reset comes next.
    Reset,
    /// The key after this one comes next; `None`: the first.
    Snapshot(Option<Key>),
    /// Changes come next.
    Changes,
}

/// What a watcher hears next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresenceUpdate {
    Reset,
    /// The first key after this one that it [wants](Watch::wants), or that there is none.
    After(Option<Key>),
    Changed(Key),
}

impl Watch {
    pub(super) const fn new(mask: u8, changes_max: usize) -> Self {
        Self {
            mask,
            stage: if mask == 0 {
                Stage::Changes
            } else {
                Stage::Reset
            },
            changed: BTreeSet::new(),
            changes_max,
        }
    }

    /// Returns whether it wants to hear of keys like this.
    pub(super) const fn includes(&self, key: Key) -> bool {
        let bit = match key {
            Key::Node(_) => Join::WATCH_NODES,
            Key::Player(_) => Join::WATCH_PLAYERS,
        };
        self.mask & bit != 0
    }

    /// Notes that `key` has changed; returns whether there is something new to tell.
    pub(super) fn note(&mut self, key: Key) -> bool {
        // A key that the walk has yet to reach is advance as it is then.
        let ahead = match self.stage {
            Stage::Reset => true,
            Stage::Snapshot(last) => last.is_none_or(|last| key > last),
            Stage::Changes => false,
        };
        if ahead || !self.includes(key) {
            return false;
        }
        self.changed.insert(key);
        if self.changed.len() > self.changes_max {
            self.changed.clear();
            self.stage = Stage::Reset;
        }
        true
    }

    /// Returns how many changes wait.
    pub(super) fn len(&self) -> usize {
        self.changed.len()
    }

    /// Returns what to tell next; [`advance`](Self::advance) takes it as advance.
    pub(super) fn next(&self) -> Option<PresenceUpdate> {
        match self.stage {
            Stage::Reset => Some(PresenceUpdate::Reset),
            Stage::Snapshot(last) => Some(PresenceUpdate::After(last)),
            Stage::Changes => self.changed.first().copied().map(PresenceUpdate::Changed),
        }
    }

    /// Goes on behind `update`; `reached` is the key that was advance, none where the walk is over.
    pub(super) fn advance(&mut self, update: PresenceUpdate, reached: Option<Key>) {
        match update {
            PresenceUpdate::Reset => self.stage = Stage::Snapshot(None),
            PresenceUpdate::After(_) => {
                self.stage = reached.map_or(Stage::Changes, |key| Stage::Snapshot(Some(key)));
            }
            PresenceUpdate::Changed(key) => {
                self.changed.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn player(id: u64) -> Key {
        Key::Player(ClientId(id))
    }

    #[test]
    fn hub_6_a_watcher_that_reads_nothing_starts_over() {
        let mut watch = Watch::new(Join::WATCH_PLAYERS, 3);
        watch.advance(PresenceUpdate::Reset, None);
        watch.advance(PresenceUpdate::After(None), Some(player(10)));
        assert!(!watch.note(player(11)), "the walk comes there");
        assert!(!watch.note(Key::Node(NodeId([0; 32]))), "not wanted");
        for id in 0..3 {
            assert!(watch.note(player(id)));
        }
        assert_eq!(watch.next(), Some(PresenceUpdate::After(Some(player(10)))));
        watch.note(player(4));
        assert_eq!(watch.next(), Some(PresenceUpdate::Reset));
        assert!(watch.changed.is_empty());
    }

    #[test]
    fn changes_are_told_once_each() {
        let mut watch = Watch::new(Join::WATCH_PLAYERS, 3);
        watch.advance(PresenceUpdate::Reset, None);
        watch.advance(PresenceUpdate::After(None), None);
        assert_eq!(watch.next(), None);
        watch.note(player(2));
        watch.note(player(2));
        assert_eq!(watch.next(), Some(PresenceUpdate::Changed(player(2))));
        watch.advance(PresenceUpdate::Changed(player(2)), Some(player(2)));
        assert_eq!(watch.next(), None);
    }
}
