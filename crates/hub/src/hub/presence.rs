//! Who is where, and who hears of it.

use core::ops::Bound;
use std::collections::VecDeque;

use bytes::Bytes;
use wire::{ClientId, ConnectionId, NodeId};

use super::Hub;
use super::claim::{Claim, Generation, Reading};
use super::config::DuplicateClaim;
use super::watch::{Key, Tale};
use crate::id::{ClaimNumber, Lease, MailSeq};
use crate::record::{RevokeReason, Seen, ToNode};

/// What a node says with a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed<'a> {
    pub(super) number: ClaimNumber,
    pub(super) lease: Lease,
    pub(super) delivered: MailSeq,
    pub(super) acknowledged: MailSeq,
    pub(super) meta: &'a [u8],
}

impl Hub {
    pub(super) fn on_claim(&mut self, id: ConnectionId, player: ClientId, mut said: Claimed<'_>) {
        // A lease that this hub never gave would outrank those that it gives.
        if said.lease > Lease::new(self.boot, self.leases) {
            said.lease = Lease::NONE;
        }
        let Some(node) = self.links.get(&id).map(|link| link.node) else {
            return;
        };
        // Nor can two nodes hold leases of one start of the hub with the earlier one still there.
        if let Some(held) = self.claims.get(player)
            && held.node != node
            && said.lease.boot() == self.boot
            && said.lease >= held.lease
        {
            said.lease = Lease::NONE;
        }
        if let Some(reason) = self.refusal(node, player, said.lease) {
            self.stats.stale = self.stats.stale.saturating_add(1);
            let claim = said.number;
            self.send(
                id,
                &ToNode::Revoked {
                    player,
                    claim,
                    reason,
                },
            );
            return;
        }
        let lease = if said.lease == Lease::NONE {
            self.leases = self.leases.saturating_add(1);
            Lease::new(self.boot, self.leases)
        } else {
            said.lease
        };
        let claim = Claim {
            node,
            generation: Generation::default(),
            link: Some(id),
            number: said.number,
            lease,
            meta: Bytes::copy_from_slice(said.meta),
            given: said.delivered.max(said.acknowledged),
            unacknowledged: VecDeque::new(),
            acknowledged: said.acknowledged,
            acknowledging: None,
            reading: Reading::Done,
        };
        if let Some(old) = self.claims.insert(player, claim) {
            self.revoke(id, player, &old);
        }
        let claim = said.number;
        self.send(
            id,
            &ToNode::Granted {
                player,
                claim,
                lease,
            },
        );
        if said.acknowledged > MailSeq(0) {
            self.acknowledging.insert(player);
        }
        self.want_mail(player);
        self.touch(Key::Player(player));
    }

    /// Says why `node` does not get `player`, if it does not.
    fn refusal(&self, node: NodeId, player: ClientId, lease: Lease) -> Option<RevokeReason> {
        let held = self.claims.get(player);
        let is_own = held.is_some_and(|held| held.node == node);
        if !is_own && self.claims.count_of(node) >= self.config.node_players_max {
            return Some(RevokeReason::Busy);
        }
        let Some(held) = held else {
            let is_full = self.claims.len() >= self.config.players_max;
            return is_full.then_some(RevokeReason::Busy);
        };
        if is_own {
            // A node that comes back names its lease; an older one was taken in between.
            return (lease != Lease::NONE && lease < held.lease).then_some(RevokeReason::Taken);
        }
        if lease != Lease::NONE {
            return (lease < held.lease).then_some(RevokeReason::Taken);
        }
        match self.config.duplicate_claim {
            DuplicateClaim::NewestWins => None,
            DuplicateClaim::Refuse => Some(RevokeReason::Held),
        }
    }

    /// Takes back what a claim held that another has replaced.
    fn revoke(&mut self, by: ConnectionId, player: ClientId, old: &Claim) {
        self.part(player, old);
        let Some(holder) = old.link else {
            return;
        };
        self.forget_unacknowledged(holder, player, old);
        if holder != by {
            let claim = old.number;
            let reason = RevokeReason::Taken;
            self.send(
                holder,
                &ToNode::Revoked {
                    player,
                    claim,
                    reason,
                },
            );
        }
    }

    pub(super) fn on_release(&mut self, id: ConnectionId, player: ClientId, number: ClaimNumber) {
        let holds = self
            .claims
            .get(player)
            .is_some_and(|claim| claim.link == Some(id) && claim.number == number);
        if !holds {
            self.stats.stale = self.stats.stale.saturating_add(1);
            return;
        }
        self.remove_claim(player);
    }

    pub(super) fn remove_claim(&mut self, player: ClientId) {
        let Some(claim) = self.claims.remove(player) else {
            return;
        };
        self.part(player, &claim);
        self.hungry.remove(&player);
        self.unread.remove(&player);
        if let Some(holder) = claim.link {
            self.forget_unacknowledged(holder, player, &claim);
        }
        self.touch(Key::Player(player));
    }

    /// Keeps the last acknowledgement of a claim that ends: the store takes it though nobody waits
    /// for it.
    fn part(&mut self, player: ClientId, claim: &Claim) {
        let waits = self.acknowledging.remove(&player) | self.deferred.remove(&player);
        let stored = claim.acknowledging.unwrap_or_default();
        if claim.acknowledged <= stored || !(waits || stored > MailSeq(0)) {
            return;
        }
        let is_full = self.parting.len() >= self.config.players_max;
        match self.parting.get_mut(&player) {
            Some(upto) => *upto = claim.acknowledged.max(*upto),
            None if is_full => {
                self.stats.acks_dropped = self.stats.acks_dropped.saturating_add(1);
            }
            None => {
                self.parting.insert(player, claim.acknowledged);
            }
        }
    }

    fn forget_unacknowledged(&mut self, holder: ConnectionId, player: ClientId, claim: &Claim) {
        let freed = claim.unacknowledged_bytes();
        if let Some(member) = self
            .links
            .get_mut(&holder)
            .and_then(|link| link.member_mut())
        {
            member.unacknowledged = member.unacknowledged.saturating_sub(freed);
            member.waiting.remove(&player);
            member.blocked.remove(&player);
        }
        self.on_room(holder);
    }

    /// Tells watchers that `key` has changed.
    pub(super) fn touch(&mut self, key: Key) {
        for id in self.watchers.of(key) {
            if let Some(member) = self.links.get_mut(&id).and_then(|link| link.member_mut())
                && member.watch.note(key)
            {
                self.ready.insert(id);
            }
        }
    }

    /// Gives a watcher what it hears next, where its link has written the last of that.
    pub(super) fn tell_presence(&mut self, id: ConnectionId) {
        let Some(link) = self.links.get(&id).filter(|link| link.wants_news()) else {
            return;
        };
        let Some(member) = link.member() else {
            return;
        };
        let Some(tale) = member.watch.next() else {
            return;
        };
        let reached = match tale {
            Tale::Reset => None,
            Tale::After(told) => self.key_after(told, |key| member.watch.wants(key)),
            Tale::Changed(key) => Some(key),
        };
        let mut encoded = Vec::new();
        match (tale, reached) {
            (Tale::Reset, _) => ToNode::PresenceReset.encode(&mut encoded),
            (_, None) => ToNode::PresenceComplete.encode(&mut encoded),
            (_, Some(Key::Node(node))) => self.describe_node(node, &mut encoded),
            (_, Some(Key::Player(player))) => self.describe_player(player, &mut encoded),
        }
        if let Some(link) = self.links.get_mut(&id) {
            if let Some(member) = link.member_mut() {
                member.watch.told(tale, reached);
            }
            link.push_news(encoded.into());
        }
    }

    fn describe_node(&self, node: NodeId, out: &mut Vec<u8>) {
        let member = self
            .joined
            .get(&node)
            .and_then(|id| self.links.get(id))
            .and_then(|link| link.member());
        let seen = member.map(|member| Seen {
            instance: member.instance,
            epoch: member.epoch,
            role: member.role,
            services: member.services.clone(),
        });
        ToNode::PresenceNode { node, seen }.encode(out);
    }

    fn describe_player(&self, player: ClientId, out: &mut Vec<u8>) {
        let claim = self
            .claims
            .get(player)
            .filter(|claim| self.live_link(claim).is_some());
        let holder = claim.map(|claim| (claim.node, &claim.meta[..]));
        ToNode::PresencePlayer { player, holder }.encode(out);
    }

    /// Returns the first key after `told` that is wanted.
    fn key_after(&self, told: Option<Key>, wants: impl Fn(Key) -> bool) -> Option<Key> {
        let node_after = match told {
            None => self.joined.keys().next(),
            Some(Key::Node(told)) => {
                let behind = (Bound::Excluded(told), Bound::Unbounded);
                self.joined.range(behind).next().map(|(node, _)| node)
            }
            Some(Key::Player(_)) => None,
        };
        let node = node_after.copied().map(Key::Node).filter(|key| wants(*key));
        let player_after = match told {
            Some(Key::Player(told)) => Some(told),
            None | Some(Key::Node(_)) => None,
        };
        node.or_else(|| {
            self.claims
                .after(player_after)
                .map(Key::Player)
                .filter(|key| wants(*key))
        })
    }
}
