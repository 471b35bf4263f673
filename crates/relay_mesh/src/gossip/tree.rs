//! Eager and lazy links, and what is sent over them.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::neighbour::{Neighbour, PushMode, RecordParts};
use super::repair::Newer;
use super::{Gossip, draw_index};
use crate::link_state::{Have, LINK_DELTAS_MAX, LinkDelta, Message, ShortId, low_half};
use crate::measure::LinkReport;

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

    /// Sends the queued records after their flush interval; call it after a batch of inputs.
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
            self.push(to, &push);
        }
    }

    pub(super) fn expedite(&mut self, now: Instant) {
        for neighbour in self.neighbours.values_mut() {
            neighbour.next_flush = neighbour.next_flush.min(now);
        }
    }

    fn push(&mut self, to: NodeId, push: &BTreeMap<ShortId, RecordParts>) {
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

    pub(super) fn send_haves(&mut self) {
        let waiting: Vec<(NodeId, Have)> = self
            .neighbours
            .iter_mut()
            .filter(|(_, neighbour)| !neighbour.have.is_empty())
            .map(|(id, neighbour)| {
                let origins = core::mem::take(&mut neighbour.have).into_iter();
                let held = origins.map(|origin| (origin, low_half(self.table.held(origin))));
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
        loop {
            let all = self.neighbours.values();
            let (chosen, free): (Vec<_>, Vec<_>) = all.partition(|held| held.is_chosen);
            if chosen.len() >= CHOSEN {
                break;
            }
            // Links that are not up are used only if there are no others.
            let has_up = free.iter().any(|held| held.is_up);
            let Some(id) = self.draw(|held| !held.is_chosen && held.is_up == has_up) else {
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

    /// Replaces a chosen neighbour with a lazy link by a random one.
    pub(super) fn change_one(&mut self) {
        let lazy = |held: &Neighbour| held.is_chosen && held.push_mode == PushMode::Lazy;
        let free = |held: &Neighbour| held.is_up && held.push_mode == PushMode::None;
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

    fn draw(&mut self, is_so: impl Fn(&Neighbour) -> bool) -> Option<NodeId> {
        let matching = self.neighbours.iter().filter(|(_, held)| is_so(held));
        let matching: Vec<NodeId> = matching.map(|(id, _)| *id).collect();
        let drawn = draw_index(&mut self.generator, matching.len());
        matching.get(drawn).copied()
    }

    /// Stops gossip over dead links, informs the remote end, and bridges a cut of the tree.
    fn part_from_dead(&mut self, links: &BTreeMap<NodeId, LinkReport>) {
        let (mut dead, mut is_cut) = (Vec::new(), false);
        for (id, neighbour) in &mut self.neighbours {
            let was_up = neighbour.is_up;
            neighbour.is_up = links.get(id).is_some_and(LinkReport::is_up);
            if was_up && !neighbour.is_up && neighbour.push_mode != PushMode::None {
                is_cut |= neighbour.push_mode == PushMode::Eager;
                neighbour.part();
                dead.push(*id);
            }
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
        let lazy: Vec<NodeId> = self.with_mode(PushMode::Lazy).collect();
        for id in lazy {
            self.graft(id);
        }
    }

    pub(super) fn graft(&mut self, node: NodeId) {
        if let Some(neighbour) = self.neighbours.get_mut(&node) {
            neighbour.push_mode = PushMode::Eager;
            self.stats.grafts = self.stats.grafts.saturating_add(1);
            self.send(node, &Message::Graft);
        }
    }

    /// Makes an eager link lazy that delivered a known record, unless it is the only one.
    pub(super) fn prune(&mut self, from: NodeId) {
        let has_other = self.with_mode(PushMode::Eager).any(|id| id != from);
        if has_other
            && let Some(neighbour) = self.neighbours.get_mut(&from)
            && neighbour.make_lazy()
        {
            self.stats.prunes = self.stats.prunes.saturating_add(1);
            self.send(from, &Message::Prune);
        }
    }

    pub(super) fn on_have(&mut self, now: Instant, from: NodeId, have: &Have) {
        self.join(now, from, PushMode::Lazy);
        for &(origin, low) in have.entries() {
            if self.table.lacks_record(origin, low) {
                self.wanted
                    .add(origin, from, Newer::Record(low), now + GRAFT_AFTER);
            }
        }
    }

    pub(super) fn on_graft(&mut self, now: Instant, from: NodeId) {
        self.join(now, from, PushMode::Eager);
        if let Some(neighbour) = self.neighbours.get_mut(&from)
            && neighbour.push_mode == PushMode::Lazy
        {
            neighbour.push_mode = PushMode::Eager;
        }
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
                self.stats.neighbours_refused = self.stats.neighbours_refused.saturating_add(1);
            } else {
                neighbour.push_mode = push_mode;
                if push_mode == PushMode::Eager {
                    self.send_digest(now, node);
                }
            }
        }
    }
}

/// Neighbours that a node chooses: a random graph of degree 3 is almost surely connected.
const CHOSEN: usize = 3;
/// Others that may choose this node; if 1,000 nodes choose 3 each, hardly one is chosen by more.
const JOINED_MAX: usize = 16;
/// Delay before an advertised record is requested: a renewal takes less over the whole tree.
const GRAFT_AFTER: Duration = Duration::from_secs(2);

/// The current root, as far as this node knows.
///
/// A root marks its record and renews it every 3 s; of several, the one with the lowest id counts.
/// The node with the lowest id becomes root at once if there is none; each of the next four ids
/// waits 10 s longer than the one before, so that a dead root is soon replaced.
#[derive(Debug)]
pub(super) struct Root {
    id: Option<NodeId>,
    /// When its last record arrived, or the start of the search.
    at: Instant,
}

impl Root {
    /// Nodes that may become root, lowest ids first.
    pub(super) const CANDIDATES: usize = 5;

    pub(super) const fn new(now: Instant) -> Self {
        Self { id: None, at: now }
    }

    /// Records a root's announcement; returns whether it is the root that counts.
    pub(super) fn on_record(&mut self, now: Instant, id: NodeId) -> bool {
        let is_silent = now.saturating_since(self.at) > ROOT_TIMEOUT;
        let counts = is_silent || self.id.is_none_or(|held| id <= held);
        if counts {
            self.id = Some(id);
            self.at = now;
        }
        counts
    }

    pub(super) fn is(&self, id: &NodeId) -> bool {
        self.id.as_ref() == Some(id)
    }

    /// Whether this node must be root; `below` live nodes have lower ids.
    pub(super) fn is_due(&self, now: Instant, own: NodeId, below: usize) -> bool {
        if self.is(&own) {
            return true;
        }
        if below >= Self::CANDIDATES {
            return false;
        }
        let silent = now.saturating_since(self.at);
        let turns = u32::try_from(below).unwrap_or(u32::MAX).saturating_add(1);
        let wait = ROOT_TIMEOUT.saturating_mul(turns);
        let has_no_rival = self.id.is_none() && below == 0;
        let higher = self.id.is_some_and(|held| own < held) && below == 0;
        has_no_rival || higher || silent > wait
    }
}

/// A root without a record for this long counts as dead: three of its records.
const ROOT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: NodeId = NodeId([1; 32]);
    const MIDDLE: NodeId = NodeId([2; 32]);
    const HIGH: NodeId = NodeId([3; 32]);

    #[test]
    fn the_lowest_is_root_at_once_and_others_follow_when_it_is_silent() {
        let at = Instant::from_millis;
        let mut root = Root::new(at(0));
        assert!(root.is_due(at(0), LOW, 0));
        assert!(!root.is_due(at(0), MIDDLE, 1));
        assert!(root.on_record(at(0), LOW));
        assert!(!root.on_record(at(10_000), MIDDLE), "the lower one counts");
        assert!(!root.is_due(at(20_000), MIDDLE, 1));
        assert!(root.is_due(at(20_001), MIDDLE, 1));
        assert!(
            !root.is_due(at(1_000_000), HIGH, 5),
            "too many are before it"
        );
        assert!(root.on_record(at(20_002), MIDDLE));
        assert!(root.is(&MIDDLE) && root.is_due(at(20_003), MIDDLE, 1));
        assert!(
            root.is_due(at(20_003), LOW, 0),
            "who comes back takes it back"
        );
        assert!(root.on_record(at(20_004), LOW) && !root.is(&MIDDLE));
    }
}
