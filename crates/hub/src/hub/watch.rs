//! Presence updates for one watcher.

use std::collections::BTreeSet;

use wire::{ClientId, ConnectionId, NodeId};

use crate::record::Join;

/// Presence updates for one watcher.
///
/// A watcher gets a reset, a snapshot of all keys, an end marker, and then each key that changes.
/// Each record holds the state at the time it is sent, so changes faster than the watcher reads are
/// merged. If too many changes are queued, the stream restarts with a reset: memory is bounded, and
/// a watcher always knows if it missed something.
#[derive(Debug)]
pub(super) struct Watch {
    /// What to include; bits of [`Join`].
    mask: u8,
    stage: Stage,
    changed: BTreeSet<Key>,
    changes_max: usize,
}

/// Links of watchers, by what they watch.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    nodes: BTreeSet<ConnectionId>,
    players: BTreeSet<ConnectionId>,
}

impl Watchers {
    /// Adds `link` as a watcher of `mask`; bits of [`Join`].
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

    /// Returns the watchers of keys of this kind.
    pub(super) fn of(&self, key: Key) -> impl Iterator<Item = ConnectionId> {
        match key {
            Key::Node(_) => &self.nodes,
            Key::Player(_) => &self.players,
        }
        .iter()
        .copied()
    }
}

/// A key with a presence that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Node(NodeId),
    Player(ClientId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A reset is next.
    Reset,
    /// The snapshot continues after this key; `None`: from the start.
    Snapshot(Option<Key>),
    /// Changes are next.
    Changes,
}

/// The next update for a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresenceUpdate {
    Reset,
    /// The first key after this one that the watcher [includes](Watch::includes), or the end
    /// marker.
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

    /// Returns whether keys of this kind are included.
    pub(super) const fn includes(&self, key: Key) -> bool {
        let bit = match key {
            Key::Node(_) => Join::WATCH_NODES,
            Key::Player(_) => Join::WATCH_PLAYERS,
        };
        self.mask & bit != 0
    }

    /// Queues a change of `key`; returns whether there is something new to send.
    pub(super) fn note(&mut self, key: Key) -> bool {
        // The snapshot will reach this key and send its state then.
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

    /// Returns the number of queued changes.
    pub(super) fn len(&self) -> usize {
        self.changed.len()
    }

    /// Returns the next update; [`advance`](Self::advance) marks it as sent.
    pub(super) fn next(&self) -> Option<PresenceUpdate> {
        match self.stage {
            Stage::Reset => Some(PresenceUpdate::Reset),
            Stage::Snapshot(last) => Some(PresenceUpdate::After(last)),
            Stage::Changes => self.changed.first().copied().map(PresenceUpdate::Changed),
        }
    }

    /// Marks `update` as sent; `reached` is the key sent, `None` at the end of the snapshot.
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
