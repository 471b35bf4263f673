//! What one watcher has yet to hear of presence.

use std::collections::BTreeSet;

use wire::{ClientId, ConnectionId, NodeId};

use crate::record::Join;

/// What one watcher has yet to hear of presence.
///
/// It hears a reset, every key as it is when its turn comes, the word that this was all, and from
/// then on each key that changed, as it is when told. Keys that change faster than it reads are
/// told once. Where more than a bounded number of keys wait, it starts over with a reset: a watcher
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
    Walk(Option<Key>),
    /// Changes come next.
    Follow,
}

/// What a watcher hears next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tale {
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
                Stage::Follow
            } else {
                Stage::Reset
            },
            changed: BTreeSet::new(),
            changes_max,
        }
    }

    /// Returns whether it wants to hear of keys like this.
    pub(super) const fn wants(&self, key: Key) -> bool {
        let bit = match key {
            Key::Node(_) => Join::WATCH_NODES,
            Key::Player(_) => Join::WATCH_PLAYERS,
        };
        self.mask & bit != 0
    }

    /// Notes that `key` has changed; returns whether there is something new to tell.
    pub(super) fn note(&mut self, key: Key) -> bool {
        // A key that the walk has yet to reach is told as it is then.
        let ahead = match self.stage {
            Stage::Reset => true,
            Stage::Walk(told) => told.is_none_or(|told| key > told),
            Stage::Follow => false,
        };
        if ahead || !self.wants(key) {
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

    /// Returns what to tell next; [`told`](Self::told) takes it as told.
    pub(super) fn next(&self) -> Option<Tale> {
        match self.stage {
            Stage::Reset => Some(Tale::Reset),
            Stage::Walk(told) => Some(Tale::After(told)),
            Stage::Follow => self.changed.first().copied().map(Tale::Changed),
        }
    }

    /// Goes on behind `tale`; `reached` is the key that was told, none where the walk is over.
    pub(super) fn told(&mut self, tale: Tale, reached: Option<Key>) {
        match tale {
            Tale::Reset => self.stage = Stage::Walk(None),
            Tale::After(_) => {
                self.stage = reached.map_or(Stage::Follow, |key| Stage::Walk(Some(key)));
            }
            Tale::Changed(key) => {
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
        watch.told(Tale::Reset, None);
        watch.told(Tale::After(None), Some(player(10)));
        assert!(!watch.note(player(11)), "the walk comes there");
        assert!(!watch.note(Key::Node(NodeId([0; 32]))), "not wanted");
        for id in 0..3 {
            assert!(watch.note(player(id)));
        }
        assert_eq!(watch.next(), Some(Tale::After(Some(player(10)))));
        watch.note(player(4));
        assert_eq!(watch.next(), Some(Tale::Reset));
        assert!(watch.changed.is_empty());
    }

    #[test]
    fn changes_are_told_once_each() {
        let mut watch = Watch::new(Join::WATCH_PLAYERS, 3);
        watch.told(Tale::Reset, None);
        watch.told(Tale::After(None), None);
        assert_eq!(watch.next(), None);
        watch.note(player(2));
        watch.note(player(2));
        assert_eq!(watch.next(), Some(Tale::Changed(player(2))));
        watch.told(Tale::Changed(player(2)), Some(player(2)));
        assert_eq!(watch.next(), None);
    }
}
