//! Presence as the API shows it: the current state, and the keys that changed, by revision.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hub::record::NodeInfo;
use tokio::sync::watch;
use wire::{ClientId, NodeId};

/// A number for each change of presence. It is valid during one run of the API only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Revision {
    run: u32,
    number: u64,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}", self.run, self.number)
    }
}

impl FromStr for Revision {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (run, number) = text.split_once('-').ok_or(())?;
        let run = u32::from_str_radix(run, 16).map_err(|_| ())?;
        let number = number.parse().map_err(|_| ())?;
        let revision = Self { run, number };
        // One spelling each.
        (revision.to_string() == text).then_some(revision).ok_or(())
    }
}

/// What has a presence; nodes sort before players.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Node(NodeId),
    Player(ClientId),
}

/// The state of a key; `None` if it is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Node(NodeId, Option<NodeInfo>),
    Player(ClientId, Option<(NodeId, Bytes)>),
}

/// Presence, shared between the node that writes it and the requests that read it. The lock is
/// never held across a wait.
#[derive(Clone, Debug)]
pub(super) struct Presence {
    table: Arc<Mutex<Table>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct Table {
    run: u32,
    last: u64,
    nodes: BTreeMap<NodeId, NodeInfo>,
    players: BTreeMap<ClientId, (NodeId, Bytes)>,
    /// Keys of the snapshot that is arriving; `None` if it is complete.
    arriving: Option<BTreeSet<Key>>,
    /// Whether a snapshot was complete once.
    is_loaded: bool,
    /// Keys that changed, the last one with revision `last`.
    changes: VecDeque<Key>,
}

/// Changes that can be resumed from, at most. A watcher further behind is closed.
pub(super) const CHANGES_MAX: usize = 65_536;

/// The place of a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cursor {
    /// It gets a snapshot: all keys after this one, then the changes after the number.
    Snapshot(Option<Key>, u64),
    /// It has all changes up to this number.
    Live(u64),
}

/// A part of what a watcher has not got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// States, each with its revision; none if there is nothing new.
    States(Vec<(Revision, State)>),
    /// The last states of the snapshot; the changes after the revision follow.
    SnapshotEnd(Vec<(Revision, State)>, Revision),
    /// The changes that it needs are forgotten.
    TooSlow,
}

impl Presence {
    /// Creates an empty presence; draw `run` at random.
    pub(super) fn new(run: u32) -> Self {
        let table = Table {
            run,
            last: 0,
            nodes: BTreeMap::new(),
            players: BTreeMap::new(),
            arriving: Some(BTreeSet::new()),
            is_loaded: false,
            changes: VecDeque::new(),
        };
        Self {
            table: Arc::new(Mutex::new(table)),
            changed: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // The table stays valid after a panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        let mut table = self.lock();
        let before = table.last;
        change(&mut table);
        let after = table.last;
        drop(table);
        if after != before {
            self.changed.send_replace(after);
        }
    }

    /// A snapshot follows.
    pub(super) fn begin(&self) {
        self.lock().arriving = Some(BTreeSet::new());
    }

    pub(super) fn set_node(&self, node: NodeId, info: Option<NodeInfo>) {
        self.change(|table| table.set_node(node, info));
    }

    pub(super) fn set_player(&self, player: ClientId, holder: Option<(NodeId, Bytes)>) {
        self.change(|table| table.set_player(player, holder));
    }

    /// The snapshot is complete: what it did not name is absent.
    pub(super) fn complete(&self) {
        self.change(Table::complete);
        // Requests may wait for the first snapshot.
        self.changed.send_modify(|_| {});
    }

    /// Returns a receiver that is notified of changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether a snapshot was complete once.
    pub(super) fn is_loaded(&self) -> bool {
        self.lock().is_loaded
    }

    /// Returns the cursor of a watcher that has everything up to `from`, or nothing.
    pub(super) fn cursor(&self, from: Option<Revision>) -> Cursor {
        let table = self.lock();
        match from {
            Some(from) if table.run == from.run && table.has_changes_after(from.number) => {
                Cursor::Live(from.number)
            }
            Some(_) | None => Cursor::Snapshot(None, table.last),
        }
    }

    /// Returns the current revision.
    pub(super) fn revision(&self) -> Revision {
        let table = self.lock();
        table.revision(table.last)
    }

    /// Returns the next states for `cursor`, at most `max`, and moves it.
    pub(super) fn page(&self, cursor: &mut Cursor, max: usize) -> Page {
        let table = self.lock();
        match *cursor {
            Cursor::Snapshot(after, number) => {
                let keys = table.keys_after(after, max);
                let revision = table.revision(number);
                let states = keys.iter().map(|key| (revision, table.state(*key)));
                let states: Vec<_> = states.collect();
                if states.len() < max {
                    *cursor = Cursor::Live(number);
                    Page::SnapshotEnd(states, revision)
                } else {
                    *cursor = Cursor::Snapshot(keys.last().copied(), number);
                    Page::States(states)
                }
            }
            Cursor::Live(number) => {
                if !table.has_changes_after(number) {
                    return Page::TooSlow;
                }
                let missed = table.last.saturating_sub(number);
                let missed = usize::try_from(missed).unwrap_or(usize::MAX);
                let first = table.changes.len().saturating_sub(missed);
                let keys = table.changes.iter().skip(first).take(max);
                let mut states = Vec::new();
                let mut reached = number;
                for key in keys {
                    reached = reached.saturating_add(1);
                    states.push((table.revision(reached), table.state(*key)));
                }
                *cursor = Cursor::Live(reached);
                Page::States(states)
            }
        }
    }

    /// Returns states after `after` that `filter` admits: at most `max`, of at most `scan_max`
    /// looked at. The last key is where the next call continues; `None` at the end.
    pub(super) fn list(
        &self,
        after: Option<Key>,
        (max, scan_max): (usize, usize),
        filter: impl Fn(Key) -> bool,
    ) -> (Vec<State>, Option<Key>) {
        let table = self.lock();
        let mut states = Vec::new();
        let mut last = None;
        for key in table.keys_after(after, scan_max) {
            if filter(key) {
                if states.len() >= max {
                    return (states, last);
                }
                states.push(table.state(key));
            }
            last = Some(key);
        }
        let is_end = last.is_none_or(|last| table.keys_after(Some(last), 1).is_empty());
        (states, last.filter(|_| !is_end))
    }
}

impl Table {
    const fn revision(&self, number: u64) -> Revision {
        Revision {
            run: self.run,
            number,
        }
    }

    fn has_changes_after(&self, number: u64) -> bool {
        let kept = u64::try_from(self.changes.len()).unwrap_or(u64::MAX);
        number <= self.last && self.last.saturating_sub(number) <= kept
    }

    fn state(&self, key: Key) -> State {
        match key {
            Key::Node(node) => State::Node(node, self.nodes.get(&node).cloned()),
            Key::Player(player) => State::Player(player, self.players.get(&player).cloned()),
        }
    }

    fn keys_after(&self, after: Option<Key>, max: usize) -> Vec<Key> {
        let (node, player) = match after {
            None => (Some(Bound::Unbounded), Bound::Unbounded),
            Some(Key::Node(node)) => (Some(Bound::Excluded(node)), Bound::Unbounded),
            Some(Key::Player(player)) => (None, Bound::Excluded(player)),
        };
        let nodes = node.map(|first| self.nodes.range((first, Bound::Unbounded)));
        let nodes = nodes
            .into_iter()
            .flatten()
            .map(|(node, _)| Key::Node(*node));
        let players = self.players.range((player, Bound::Unbounded));
        let players = players.map(|(player, _)| Key::Player(*player));
        nodes.chain(players).take(max).collect()
    }

    fn set_node(&mut self, node: NodeId, info: Option<NodeInfo>) {
        let key = Key::Node(node);
        let is_changed = match info {
            Some(info) => {
                self.note_arrived(key);
                self.nodes.insert(node, info.clone()) != Some(info)
            }
            None => self.nodes.remove(&node).is_some(),
        };
        if is_changed {
            self.record(key);
        }
    }

    fn set_player(&mut self, player: ClientId, holder: Option<(NodeId, Bytes)>) {
        let key = Key::Player(player);
        let is_changed = match holder {
            Some(holder) => {
                self.note_arrived(key);
                self.players.insert(player, holder.clone()) != Some(holder)
            }
            None => self.players.remove(&player).is_some(),
        };
        if is_changed {
            self.record(key);
        }
    }

    fn note_arrived(&mut self, key: Key) {
        if let Some(arriving) = &mut self.arriving {
            arriving.insert(key);
        }
    }

    fn record(&mut self, key: Key) {
        self.last = self.last.saturating_add(1);
        self.changes.push_back(key);
        if self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
        }
    }

    fn complete(&mut self) {
        let Some(arrived) = self.arriving.take() else {
            return;
        };
        self.is_loaded = true;
        let gone: Vec<Key> = self
            .keys_after(None, usize::MAX)
            .into_iter()
            .filter(|key| !arrived.contains(key))
            .collect();
        for key in gone {
            match key {
                Key::Node(node) => self.set_node(node, None),
                Key::Player(player) => self.set_player(player, None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hub::{Epoch, Role};
    use wire::InstanceId;

    use super::*;

    const NODE: NodeId = NodeId([1; 32]);

    fn node_info() -> NodeInfo {
        NodeInfo {
            instance: InstanceId(1),
            epoch: Epoch(1),
            role: Role::GameNode,
            services: Vec::new(),
        }
    }

    fn loaded(players: u64) -> Presence {
        let presence = Presence::new(7);
        presence.set_node(NODE, Some(node_info()));
        for player in 0..players {
            presence.set_player(ClientId(player), Some((NODE, Bytes::new())));
        }
        presence.complete();
        presence
    }

    fn states(page: Page) -> Vec<State> {
        match page {
            Page::States(states) | Page::SnapshotEnd(states, _) => {
                states.into_iter().map(|(_, state)| state).collect()
            }
            Page::TooSlow => panic!("too slow"),
        }
    }

    #[test]
    fn a_watcher_gets_the_snapshot_and_then_each_change() {
        let presence = loaded(5);
        let mut cursor = presence.cursor(None);
        let mut count = 0;
        loop {
            let page = presence.page(&mut cursor, 2);
            let is_end = matches!(page, Page::SnapshotEnd(..));
            count += states(page).len();
            if is_end {
                break;
            }
        }
        assert_eq!(count, 6, "a node and five players");
        assert_eq!(states(presence.page(&mut cursor, 2)), []);
        presence.set_player(ClientId(3), None);
        let gone = State::Player(ClientId(3), None);
        assert_eq!(states(presence.page(&mut cursor, 2)), [gone]);
    }

    #[test]
    fn a_watcher_resumes_from_a_revision_of_this_run() {
        let presence = loaded(1);
        let seen = presence.revision();
        assert_eq!(seen.to_string().parse(), Ok(seen));
        presence.set_player(ClientId(8), Some((NODE, Bytes::new())));
        let mut cursor = presence.cursor(Some(seen));
        assert_eq!(states(presence.page(&mut cursor, 9)).len(), 1);
        for other in ["00000008-1", "00000007-9"] {
            let cursor = presence.cursor(Some(other.parse().unwrap()));
            assert!(matches!(cursor, Cursor::Snapshot(None, _)), "{other}");
        }
        for bad in ["", "7-1", "00000007", "00000007-01", "0000000g-1"] {
            assert!(bad.parse::<Revision>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_snapshot_after_a_reset_changes_only_what_differs() {
        let presence = loaded(3);
        let before = presence.revision();
        presence.begin();
        presence.set_node(NODE, Some(node_info()));
        presence.set_player(ClientId(0), Some((NODE, Bytes::new())));
        presence.set_player(ClientId(2), Some((NODE, Bytes::from_static(b"new"))));
        presence.complete();
        let mut cursor = presence.cursor(Some(before));
        let changed = states(presence.page(&mut cursor, 9));
        let moved = Some((NODE, Bytes::from_static(b"new")));
        assert_eq!(
            changed,
            [
                State::Player(ClientId(2), moved),
                State::Player(ClientId(1), None)
            ]
        );
    }

    #[test]
    fn changes_max_is_a_limit_and_a_watcher_further_behind_is_too_slow() {
        let presence = loaded(1);
        let mut cursor = presence.cursor(Some(presence.revision()));
        let holder = |number: usize| {
            let note = Bytes::copy_from_slice(&number.to_be_bytes());
            Some((NODE, note))
        };
        for number in 0..CHANGES_MAX {
            presence.set_player(ClientId(0), holder(number));
        }
        let mut behind = cursor;
        assert_eq!(states(presence.page(&mut behind, 3)).len(), 3);
        presence.set_player(ClientId(0), None);
        assert_eq!(presence.page(&mut cursor, 3), Page::TooSlow);
        assert_eq!(presence.lock().changes.len(), CHANGES_MAX);
    }

    #[test]
    fn lists_are_bounded_and_continue_after_the_last_key() {
        let presence = loaded(10);
        let is_player = |key| matches!(key, Key::Player(_));
        let (first, next) = presence.list(None, (4, 100), is_player);
        assert_eq!(first.len(), 4);
        let (second, next) = presence.list(next, (4, 100), is_player);
        assert_eq!(second.len(), 4);
        let (third, end) = presence.list(next, (4, 100), is_player);
        assert_eq!((third.len(), end), (2, None));
        let (few, next) = presence.list(None, (100, 3), is_player);
        assert_eq!((few.len(), next), (2, Some(Key::Player(ClientId(1)))));
    }
}
