//! Eager and lazy links, and what is sent over them.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::neighbour::{Neighbour, PushMode, RecordParts};
use super::wanted::Newer;
use super::{Gossip, GossipUpdate};
use crate::link_state::{LinkDelta, ShortId, low_half};
use crate::measure::LinkReport;
use crate::message::{Have, LINK_DELTAS_MAX, Message};

impl<P: Provider> Gossip<P> {
    /// Queues a new record for all gossip neighbours except `from`.
    pub(super) fn spread(&mut self, from: Option<NodeId>, origin: ShortId, what: RecordParts) {
        for (id, neighbour) in &mut self.neighbours {
            if Some(*id) == from {
                continue;
            }
            match neighbour.push_mode {
                PushMode::Lazy if what == RecordParts::LINKS => {
                    neighbour.have.insert(origin);
                }
                PushMode::None | PushMode::Lazy => {}
                PushMode::Eager => {
                    let held = neighbour.push.entry(origin).or_default();
                    *held = *held | what;
                }
            }
        }
    }

    /// Sends the queued records whose flush interval has passed over eager links. The first record
    /// after a pause is sent at once; those that follow closely are batched.
    ///
    /// Call it after a batch of inputs.
    pub fn flush(&mut self, now: Instant) {
        let next = now + self.flush_interval();
        let mut waiting = Vec::new();
        for (id, neighbour) in &mut self.neighbours {
            if neighbour.next_flush <= now && !neighbour.push.is_empty() {
                neighbour.next_flush = next;
                waiting.push((*id, core::mem::take(&mut neighbour.push)));
            }
        }
        for (to, push) in waiting {
            self.tell(to, &push);
        }
    }

    /// Sends queued records with the next [`flush`](Self::flush).
    pub(super) fn hurry(&mut self, now: Instant) {
        for neighbour in self.neighbours.values_mut() {
            neighbour.next_flush = neighbour.next_flush.min(now);
        }
    }

    fn tell(&mut self, to: NodeId, push: &BTreeMap<ShortId, RecordParts>) {
        let mut deltas: Vec<LinkDelta> = Vec::new();
        let mut bytes = Vec::new();
        for (origin, what) in push {
            if let Some((node, links)) = self.table.records(*origin) {
                let node = Some(node).filter(|_| what.has(RecordParts::NODE));
                let links = links.filter(|_| what.has(RecordParts::LINKS));
                let messages = node.map(Message::NodeRecord).into_iter();
                for message in messages.chain(links.map(Message::LinkRecord)) {
                    bytes.clear();
                    message.encode(&mut bytes);
                    self.outbox.push_back((to, bytes.clone()));
                }
            }
            if what.has(RecordParts::DELTA) {
                deltas.extend(self.table.delta(*origin).cloned());
            }
        }
        for deltas in deltas.chunks(LINK_DELTAS_MAX) {
            self.send(to, &Message::LinkDeltas(deltas.to_vec()));
        }
    }

    /// Sends advertisements over lazy links.
    pub(super) fn send_haves(&mut self) {
        let waiting: Vec<(NodeId, Have)> = self
            .neighbours
            .iter_mut()
            .filter(|(_, neighbour)| !neighbour.have.is_empty())
            .map(|(id, neighbour)| {
                let origins = core::mem::take(&mut neighbour.have);
                let held = origins.into_iter().map(|origin| {
                    let version = self.table.held(origin);
                    (origin, low_half(version))
                });
                (*id, Have::new(held))
            })
            .collect();
        for (to, have) in waiting {
            self.send(to, &Message::Have(have));
        }
    }

    /// Chooses gossip neighbours in place of those that are gone or do not answer.
    pub(super) fn choose(&mut self, now: Instant, links: &BTreeMap<NodeId, LinkReport>) {
        self.part_from_dead(links);
        while self
            .neighbours
            .values()
            .filter(|held| held.is_chosen)
            .count()
            < CHOSEN
        {
            // Unmeasured links are used only if there are no others.
            let free = self.neighbours.iter().filter(|(_, held)| !held.is_chosen);
            let (up, new): (Vec<_>, Vec<_>) = free.partition(|(_, held)| held.was_up);
            let is_up = |id: &NodeId| links.get(id).is_some_and(LinkReport::is_up);
            let up = up.into_iter().filter(|(id, _)| is_up(id));
            let up: Vec<NodeId> = up.map(|(id, _)| *id).collect();
            let candidates = if up.is_empty() {
                new.into_iter().map(|(id, _)| *id).collect()
            } else {
                up
            };
            let count = u64::try_from(candidates.len()).unwrap_or(0);
            let drawn = usize::try_from(self.generator.below(count)).unwrap_or(0);
            let Some(&id) = candidates.get(drawn) else {
                break;
            };
            if let Some(neighbour) = self.neighbours.get_mut(&id) {
                neighbour.is_chosen = true;
                if neighbour.push_mode == PushMode::None {
                    neighbour.push_mode = PushMode::Eager;
                    self.send(id, &Message::Graft);
                    self.send_digest(now, id);
                }
            }
        }
    }

    /// Replaces a chosen neighbour with a lazy link by a random one. If that has records which the
    /// tree does not deliver, its link is soon grafted.
    pub(super) fn change_one(&mut self) {
        let lazy = |held: &Neighbour| held.is_chosen && held.push_mode == PushMode::Lazy;
        let free = |held: &Neighbour| held.was_up && held.push_mode == PushMode::None;
        let (Some(old), Some(new)) = (self.draw(lazy), self.draw(free)) else {
            return;
        };
        if let Some(neighbour) = self.neighbours.get_mut(&old) {
            neighbour.part();
            self.send(old, &Message::Part);
        }
        if let Some(neighbour) = self.neighbours.get_mut(&new) {
            neighbour.is_chosen = true;
            neighbour.push_mode = PushMode::Lazy;
            self.send(new, &Message::Have(Have::new([])));
        }
    }

    /// Draws a random neighbour that matches.
    fn draw(&mut self, is_so: impl Fn(&Neighbour) -> bool) -> Option<NodeId> {
        let fitting = self.neighbours.iter().filter(|(_, held)| is_so(held));
        let fitting: Vec<NodeId> = fitting.map(|(id, _)| *id).collect();
        let count = u64::try_from(fitting.len()).unwrap_or(0);
        let drawn = usize::try_from(self.generator.below(count)).unwrap_or(0);
        fitting.get(drawn).copied()
    }

    /// Stops gossip over dead links and informs the far end. A cut tree is repaired at once; the
    /// root's next record prunes surplus eager links.
    fn part_from_dead(&mut self, links: &BTreeMap<NodeId, LinkReport>) {
        let (mut dead, mut is_cut) = (Vec::new(), false);
        for (id, neighbour) in &mut self.neighbours {
            let is_up = links.get(id).is_some_and(LinkReport::is_up);
            if neighbour.was_up && !is_up && neighbour.push_mode != PushMode::None {
                is_cut |= neighbour.push_mode == PushMode::Eager;
                neighbour.part();
                dead.push(*id);
            }
            neighbour.was_up = is_up;
        }
        for id in dead {
            self.send(id, &Message::Part);
        }
        if is_cut {
            self.make_lazy_eager();
        }
    }

    /// Makes all lazy links eager, to bridge a cut in the tree.
    pub(super) fn make_lazy_eager(&mut self) {
        let lazy = self
            .neighbours
            .iter()
            .filter(|(_, held)| held.push_mode == PushMode::Lazy);
        let lazy: Vec<NodeId> = lazy.map(|(id, _)| *id).collect();
        for id in lazy {
            self.graft(id);
        }
    }

    /// Makes a link eager from this side.
    pub(super) fn graft(&mut self, node: NodeId) {
        if let Some(neighbour) = self.neighbours.get_mut(&node) {
            neighbour.push_mode = PushMode::Eager;
            self.stats.grafts = self.stats.grafts.saturating_add(1);
            self.send(node, &Message::Graft);
        }
    }

    /// Makes an eager link lazy that delivered a known record, unless it is the only one.
    pub(super) fn prune(&mut self, from: NodeId) {
        let is_eager = |held: &Neighbour| held.push_mode == PushMode::Eager;
        let mut others = self.neighbours.iter().filter(|(id, _)| **id != from);
        if others.any(|(_, held)| is_eager(held))
            && let Some(neighbour) = self.neighbours.get_mut(&from)
            && is_eager(neighbour)
        {
            neighbour.push_mode = PushMode::Lazy;
            neighbour.push.clear();
            self.stats.prunes = self.stats.prunes.saturating_add(1);
            self.send(from, &Message::Prune);
        }
    }

    pub(super) fn on_have(&mut self, now: Instant, from: NodeId, have: &Have) -> GossipUpdate {
        self.join(now, from, PushMode::Lazy);
        for &(origin, low) in have.entries() {
            if self.table.lacks_record(origin, low) {
                self.wanted
                    .add(origin, from, Newer::Record(low), now + GRAFT_AFTER);
            }
        }
        GossipUpdate::None
    }

    pub(super) fn on_graft(&mut self, now: Instant, from: NodeId) -> GossipUpdate {
        self.join(now, from, PushMode::Eager);
        if let Some(neighbour) = self.neighbours.get_mut(&from)
            && neighbour.push_mode == PushMode::Lazy
        {
            neighbour.push_mode = PushMode::Eager;
        }
        GossipUpdate::None
    }

    pub(super) fn on_prune(&mut self, from: NodeId) -> GossipUpdate {
        if let Some(neighbour) = self.neighbours.get_mut(&from)
            && neighbour.push_mode == PushMode::Eager
        {
            neighbour.push_mode = PushMode::Lazy;
            neighbour.push.clear();
        }
        GossipUpdate::None
    }

    pub(super) fn on_part(&mut self, from: NodeId) -> GossipUpdate {
        if let Some(neighbour) = self.neighbours.get_mut(&from) {
            neighbour.part();
        }
        GossipUpdate::None
    }

    /// Starts gossip with a neighbour that asks for it, up to [`JOINED_MAX`].
    fn join(&mut self, now: Instant, node: NodeId, push_mode: PushMode) {
        let sharing = self.neighbours.values();
        let sharing = sharing.filter(|held| held.push_mode != PushMode::None && !held.is_chosen);
        let is_full = sharing.count() >= JOINED_MAX;
        if let Some(neighbour) = self.neighbours.get_mut(&node)
            && neighbour.push_mode == PushMode::None
        {
            if is_full {
                self.stats.crowded = self.stats.crowded.saturating_add(1);
            } else {
                neighbour.push_mode = push_mode;
                if push_mode == PushMode::Eager {
                    self.send_digest(now, node);
                }
            }
        }
    }
}

/// Neighbours that a node chooses. A random graph with at least 3 links per node is almost surely
/// connected.
const CHOSEN: usize = 3;
/// Others that may choose this node; if 1,000 nodes choose 3 each, hardly one is chosen by more.
const JOINED_MAX: usize = 16;
/// Delay before an advertised record is requested: longer than a renewal takes over the whole tree,
/// so that no record in flight is requested.
const GRAFT_AFTER: Duration = Duration::from_secs(2);
