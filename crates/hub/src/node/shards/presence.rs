//! Presence from several hubs: nodes from the first, players from each.

use std::collections::BTreeSet;

use bytes::Bytes;
use wire::{ClientId, NodeId};

use super::super::NodeEvent;
use crate::field::Redacted;
use crate::record::{NodeFilter, NodeInfo, PlayerFilter, PresenceFilter};

/// Merges the presence of all hubs into one stream.
///
/// The stream begins with a reset once. When one hub starts a snapshot again, only what it no longer
/// reports is reported as gone; what other hubs have reported stays.
#[derive(Debug)]
pub(super) struct MergedPresence {
    /// Whether a reset is due: at the start, and after another filter was set.
    is_reset_due: bool,
    hubs: Vec<HubPresence>,
    nodes: Snapshot<NodeId>,
    /// Players of all hubs that are tracked, and the limit.
    tracked: usize,
    tracked_max: usize,
    /// What is gone, to report; afterwards the snapshot of this hub is complete.
    gone: Option<(u8, BTreeSet<NodeId>, BTreeSet<ClientId>)>,
    dropped: u64,
}

#[derive(Debug)]
struct HubPresence {
    stage: Stage,
    players: Snapshot<ClientId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The filter includes nothing of this hub.
    Unwatched,
    /// No snapshot has begun since the filter was set.
    Awaited,
    Begun,
    Complete,
}

/// What a hub reports as present.
#[derive(Debug)]
struct Snapshot<K> {
    present: BTreeSet<K>,
    /// Present before the snapshot that is being received, and not in it so far.
    stale: BTreeSet<K>,
}

impl<K> Default for Snapshot<K> {
    fn default() -> Self {
        Self {
            present: BTreeSet::new(),
            stale: BTreeSet::new(),
        }
    }
}

impl<K: Ord> Snapshot<K> {
    fn reset(&mut self) {
        self.stale.append(&mut self.present);
    }

    fn insert(&mut self, key: K) {
        self.stale.remove(&key);
        self.present.insert(key);
    }

    fn remove(&mut self, key: &K) {
        self.stale.remove(key);
        self.present.remove(key);
    }

    fn contains(&self, key: &K) -> bool {
        self.present.contains(key) || self.stale.contains(key)
    }

    fn len(&self) -> usize {
        self.present.len().saturating_add(self.stale.len())
    }
}

impl MergedPresence {
    pub(super) fn new(hubs: u8, filter: &PresenceFilter, tracked_max: usize) -> Self {
        let mut presence = Self {
            is_reset_due: true,
            hubs: Vec::new(),
            nodes: Snapshot::default(),
            tracked: 0,
            tracked_max,
            gone: None,
            dropped: 0,
        };
        presence.hubs.resize_with(hubs.into(), || HubPresence {
            stage: Stage::Unwatched,
            players: Snapshot::default(),
        });
        presence.set_filter(filter);
        presence
    }

    /// Starts over with another filter. What hubs still report by the last one is ignored.
    pub(super) fn set_filter(&mut self, filter: &PresenceFilter) {
        self.is_reset_due = true;
        self.gone = None;
        self.tracked = 0;
        self.nodes = Snapshot::default();
        for (index, hub) in (0_u8..).zip(&mut self.hubs) {
            let filter = filter_of(index, filter);
            let is_watched = filter != PresenceFilter::default();
            hub.stage = if is_watched {
                Stage::Awaited
            } else {
                Stage::Unwatched
            };
            hub.players = Snapshot::default();
        }
    }

    /// Returns the next event that is due before others of the hubs.
    pub(super) fn next(&mut self) -> Option<NodeEvent> {
        let (hub, nodes, players) = self.gone.as_mut()?;
        if let Some(player) = players.pop_first() {
            return Some(NodeEvent::PlayerPresence(player, None));
        }
        if let Some(node) = nodes.pop_first() {
            return Some(NodeEvent::NodePresence(node, None));
        }
        let index = usize::from(*hub);
        self.gone = None;
        if let Some(hub) = self.hubs.get_mut(index) {
            hub.stage = Stage::Complete;
        }
        let mut stages = self.hubs.iter().map(|hub| hub.stage);
        let is_complete = stages.all(|stage| matches!(stage, Stage::Complete | Stage::Unwatched));
        is_complete.then_some(NodeEvent::PresenceComplete)
    }

    /// A hub starts a snapshot; returns what to report, here and below.
    pub(super) fn on_reset(&mut self, index: u8) -> Option<NodeEvent> {
        let hub = self.hubs.get_mut(usize::from(index))?;
        if hub.stage == Stage::Unwatched {
            return None;
        }
        hub.stage = Stage::Begun;
        hub.players.reset();
        if index == 0 {
            self.nodes.reset();
        }
        let is_due = core::mem::take(&mut self.is_reset_due);
        is_due.then_some(NodeEvent::PresenceReset)
    }

    pub(super) fn on_player(
        &mut self,
        index: u8,
        player: ClientId,
        holder: Option<(NodeId, Redacted<Bytes>)>,
    ) -> Option<NodeEvent> {
        let hub = self.hubs.get_mut(usize::from(index))?;
        if !matches!(hub.stage, Stage::Begun | Stage::Complete) {
            return None;
        }
        let was_tracked = hub.players.contains(&player);
        if holder.is_none() {
            hub.players.remove(&player);
            self.tracked = self.tracked.saturating_sub(usize::from(was_tracked));
        } else if was_tracked || self.tracked < self.tracked_max {
            hub.players.insert(player);
            self.tracked = self.tracked.saturating_add(usize::from(!was_tracked));
        } else {
            self.dropped = self.dropped.saturating_add(1);
            return None;
        }
        Some(NodeEvent::PlayerPresence(player, holder))
    }

    pub(super) fn on_node(
        &mut self,
        index: u8,
        node: NodeId,
        info: Option<NodeInfo>,
    ) -> Option<NodeEvent> {
        let hub = self.hubs.get(usize::from(index))?;
        // Other hubs are not asked for nodes.
        if index > 0 || !matches!(hub.stage, Stage::Begun | Stage::Complete) {
            return None;
        }
        if info.is_none() {
            self.nodes.remove(&node);
        } else if self.nodes.contains(&node) || self.nodes.len() < NODES_MAX {
            self.nodes.insert(node);
        } else {
            self.dropped = self.dropped.saturating_add(1);
            return None;
        }
        Some(NodeEvent::NodePresence(node, info))
    }

    /// The snapshot of a hub is complete: [`next`](Self::next) reports what it does not include.
    pub(super) fn on_complete(&mut self, index: u8) {
        let Some(hub) = self.hubs.get_mut(usize::from(index)) else {
            return;
        };
        if hub.stage != Stage::Begun {
            return;
        }
        let players = core::mem::take(&mut hub.players.stale);
        self.tracked = self.tracked.saturating_sub(players.len());
        let nodes = if index == 0 {
            core::mem::take(&mut self.nodes.stale)
        } else {
            BTreeSet::new()
        };
        self.gone = Some((index, nodes, players));
    }

    /// Returns how many changes were dropped.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn memory_bytes(&self) -> usize {
        const PLAYER: usize = size_of::<ClientId>() + 8;
        let nodes = self.nodes.len().saturating_mul(64);
        let gone = self.gone.iter().map(|(_, nodes, players)| {
            let nodes = nodes.len().saturating_mul(64);
            nodes.saturating_add(players.len().saturating_mul(PLAYER))
        });
        self.tracked
            .saturating_mul(PLAYER)
            .saturating_add(nodes)
            .saturating_add(gone.sum())
    }
}

/// Nodes that are tracked at most, as a join file lists.
const NODES_MAX: usize = crate::join_file::JoinFile::GRANTS_MAX;

/// Returns what to watch at the hub `index` for a filter of the application.
pub(super) fn filter_of(index: u8, filter: &PresenceFilter) -> PresenceFilter {
    let nodes = if index == 0 {
        filter.nodes.clone()
    } else {
        NodeFilter::None
    };
    let players: PlayerFilter = filter.players.clone();
    PresenceFilter { nodes, players }
}
