//! Eviction of peers when link slots are scarce.

use core::time::Duration;

use crypto::{Provider, Role};
use udp_proto::CloseCode;
use wire::{Instant, NodeId};

use super::Node;
use super::peers::{Peer, Up};
use crate::link::LinkId;
use crate::link_state::Roles;
use crate::selection::{InboundPeer, LinkReason, eviction_order};

impl<P: Provider> Node<P> {
    /// Keeps some slots free, by evicting the newest inbound peer with an unused link.
    ///
    /// A new peer stays long enough to learn of other nodes, and uses its link if it needs this
    /// node. Needed inbound peers keep their share of the slots.
    pub(super) fn make_room_for_links(&mut self, now: Instant) {
        let slots = self.selecting.slots;
        let contacts = self.peers.contacts();
        let wanted = contacts.saturating_add(self.reserved_slots());
        let is_full = wanted >= slots.max;
        // While slots are free, link use is checked once a second.
        let is_time = (is_full && self.selecting.room_at <= now) || self.ticks.is_multiple_of(10);
        if !self.selecting.is_choosing || contacts <= slots.soft_max || !is_time {
            return;
        }
        let stay = if is_full { STAY_CROWDED } else { STAY };
        let spare = self.needed_inbound_peers() > slots.needed_inbound();
        let mut order = self.inbound_peers();
        order.retain(|peer| now.saturating_since(peer.since) >= stay && (spare || !peer.is_needed));
        // If a required node has no slot, the newest inbound peer is evicted even if its link is in
        // use; otherwise inbound peers could hold all slots. Needed peers are spared up to their
        // share.
        let needs_slot = self.is_reserved_for(LinkReason::Required) && contacts >= slots.max;
        let may_cut = needs_slot && self.selecting.cut_at <= now;
        let is_owed = may_cut && order.iter().any(|peer| !peer.is_needed);
        let order = eviction_order(order.into_iter());
        let newest = order.first().filter(|_| is_owed);
        let mut is_parted = self.part_from_first(now, &order);
        if let Some(link) = newest.filter(|_| !is_parted) {
            self.selecting.cut_at = now + CUT_GAP;
            is_parted = self.evict(now, *link);
        }
        if !is_parted {
            self.selecting.room_at = now + LOOK_AGAIN;
        }
    }

    /// Slots kept free for nodes that are required or drawn at random and have no link yet.
    pub(super) fn reserved_slots(&self) -> usize {
        self.reserved()
            .filter(|why| *why != LinkReason::LowLatency)
            .count()
    }

    /// Whether a slot is reserved for this reason.
    fn is_reserved_for(&self, cause: LinkReason) -> bool {
        self.reserved().any(|why| why == cause)
    }

    /// Reasons for the selected nodes that have no link yet.
    fn reserved(&self) -> impl Iterator<Item = LinkReason> {
        let wanted_links = self.selecting.wanted_links.iter();
        wanted_links.filter_map(|link| self.selecting.chosen.get(link).copied())
    }

    /// Whether there is no free slot for an inbound peer.
    pub(super) fn is_full_for(&self, link: Option<LinkId>) -> bool {
        let is_wanted = link.is_some_and(|link| self.selecting.wanted_links.contains(&link));
        let kept = if is_wanted { 0 } else { self.reserved_slots() };
        self.peers.contacts().saturating_add(kept) >= self.config.links_max
    }

    /// Frees a slot for a needed inbound peer, by evicting a peer with an unused link. Returns
    /// whether it did.
    pub(super) fn make_slot_for(&mut self, now: Instant, node: &NodeId) -> bool {
        if !self.selecting.is_choosing || !self.is_needed(node) {
            return false;
        }
        let mut peers = self.inbound_peers();
        let needed_inbound = peers.iter().filter(|peer| peer.is_needed).count();
        if needed_inbound >= self.selecting.slots.needed_inbound() {
            // Needed peers replace each other once they have their share: one that claims to be an
            // entry may have no players.
            peers.retain(|peer| peer.is_needed && now.saturating_since(peer.since) >= STAY);
            peers.sort_unstable_by_key(|peer| (peer.since, peer.link));
            let order: Vec<LinkId> = peers.into_iter().map(|peer| peer.link).collect();
            return self.part_from_first(now, &order);
        }
        peers.retain(|peer| !peer.is_needed);
        let mut order = eviction_order(peers.into_iter());
        // Then nodes that this node dialed, except required ones.
        let is_required =
            |link: &LinkId| self.selecting.chosen.get(link) == Some(&LinkReason::Required);
        let ours = self.peers.up().filter(|(link, _, up)| {
            self.endpoint.role(up.session) == Some(Role::Dialler) && !is_required(link)
        });
        let mut ours: Vec<_> = ours
            .map(|(link, ..)| (self.selecting.chosen.contains_key(&link), link))
            .collect();
        ours.sort_unstable();
        order.extend(ours.into_iter().map(|(_, link)| link));
        self.part_from_first(now, &order)
    }

    /// Evicts the first peer in `order` with an unused link; returns whether there is one.
    fn part_from_first(&mut self, now: Instant, order: &[LinkId]) -> bool {
        if order.is_empty() {
            return false;
        }
        let used = self.links_in_use();
        let Some(link) = order.iter().find(|link| !used.contains(**link)) else {
            return false;
        };
        self.evict(now, *link)
    }

    /// Evicts a peer, which is not accepted again for a while.
    fn evict(&mut self, now: Instant, link: LinkId) -> bool {
        self.part(now, link, CloseCode::Full);
        if let Some(peer) = self.peers.get_mut(link) {
            peer.evict(now);
        }
        true
    }

    /// Whether a connecting node was evicted recently, and slots are scarce.
    pub(super) fn is_evicted(&self, now: Instant, node: &NodeId) -> bool {
        let known = self.peers.find(node).and_then(|link| self.peers.get(link));
        self.selecting.is_choosing
            && self.peers.contacts() >= self.selecting.slots.soft_max
            && known.is_some_and(|peer| peer.shut_until.is_some_and(|until| now < until))
    }

    /// Whether a peer probably needs this node: this node is an exit, and the peer is an entry.
    fn is_needed(&self, guest: &NodeId) -> bool {
        let roles = self.gossip.table().profile(guest);
        self.config.profile.roles.contains(Roles::EXIT)
            && roles.is_some_and(|(_, roles)| roles.contains(Roles::ENTRY))
    }

    fn inbound_peers(&self) -> Vec<InboundPeer<Instant>> {
        let guest = |(link, peer, up): (LinkId, &Peer, &Up)| InboundPeer {
            link,
            since: up.since,
            is_needed: self.is_needed(&peer.node),
        };
        let peers = self.peers.up().filter(|(link, _, up)| {
            self.endpoint.role(up.session) == Some(Role::Accepter)
                && !self.selecting.chosen.contains_key(link)
        });
        peers.map(guest).collect()
    }

    /// Number of needed inbound peers that this node did not select itself.
    pub(super) fn needed_inbound_peers(&self) -> usize {
        let peers = self.inbound_peers().into_iter();
        peers.filter(|peer| peer.is_needed).count()
    }
}

/// Least time between two evictions of peers with links in use: the required node may not answer.
const CUT_GAP: Duration = Duration::from_secs(60);
/// Wait after a search that found no peer to evict, as each visits all labels. The same as the
/// interval while slots are free.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long an unneeded inbound peer stays: enough to fetch the records of 1,000 nodes, at 64 a
/// second.
const STAY: Duration = Duration::from_secs(20);
/// The same if no slot is free: enough to fetch 192 records.
const STAY_CROWDED: Duration = Duration::from_secs(3);
