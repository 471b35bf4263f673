//! Claimed players of this node, and the delivery state of their mail.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use wire::ClientId;

use super::event::ClaimId;
use crate::id::{ClaimNumber, Lease, MailSeq};

/// Claimed players, and what is still to be sent to the hub about them.
#[derive(Debug, Default)]
pub(super) struct HeldPlayers {
    /// The last claim number assigned.
    last_claim: ClaimNumber,
    players: BTreeMap<ClientId, HeldPlayer>,
    /// Claims to release, each with a last acknowledgement to send first.
    releases: BTreeMap<ClientId, (ClaimNumber, Option<MailSeq>)>,
    /// Players with a claim to send.
    claims: BTreeSet<ClientId>,
    /// Players with an acknowledgement to send.
    acks: BTreeSet<ClientId>,
}

/// A claimed player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldPlayer {
    pub(super) claim: ClaimId,
    pub(super) lease: Lease,
    /// The last mail delivered to the application.
    pub(super) delivered: MailSeq,
    /// The last mail that the application has acknowledged.
    pub(super) acknowledged: MailSeq,
    pub(super) meta: Bytes,
    /// Whether the claim was sent over this link.
    sent: bool,
}

impl HeldPlayers {
    /// Starts a claim; ends an earlier one of the player.
    pub(super) fn claim(&mut self, player: ClientId, delivered: MailSeq, meta: Bytes) -> ClaimId {
        self.release(player);
        self.last_claim = ClaimNumber(self.last_claim.0.saturating_add(1));
        let claim = ClaimId {
            player,
            number: self.last_claim,
        };
        let held = HeldPlayer {
            claim,
            lease: Lease::NONE,
            delivered,
            acknowledged: MailSeq(0),
            meta,
            sent: false,
        };
        self.players.insert(player, held);
        self.claims.insert(player);
        claim
    }

    /// Removes a player whose claim the hub has ended.
    pub(super) fn remove(&mut self, player: ClientId) -> Option<HeldPlayer> {
        self.claims.remove(&player);
        self.acks.remove(&player);
        self.players.remove(&player)
    }

    /// Removes a player, and queues a release if the hub knows the claim. Returns whether it was
    /// claimed.
    pub(super) fn release(&mut self, player: ClientId) -> bool {
        let ack = self.acks.contains(&player);
        let Some(held) = self.remove(player) else {
            return false;
        };
        if held.sent {
            let ack = ack.then_some(held.acknowledged);
            self.releases.insert(player, (held.claim.number, ack));
        }
        true
    }

    /// Drops acknowledgements and releases when the link closes: after the next join the hub ends
    /// each claim that is not renewed.
    pub(super) fn on_down(&mut self) {
        self.releases.clear();
        self.claims.clear();
        self.acks.clear();
        for held in self.players.values_mut() {
            held.sent = false;
        }
    }

    /// Resets delivery state, since the hub has another log.
    pub(super) fn forget_marks(&mut self) {
        for held in self.players.values_mut() {
            held.delivered = MailSeq(0);
            held.acknowledged = MailSeq(0);
            held.lease = Lease::NONE;
        }
    }

    /// Queues all claims for a new link.
    pub(super) fn reclaim(&mut self) {
        self.claims = self.players.keys().copied().collect();
        self.acks.clear();
    }

    /// Records a delivered mail; returns whether it is new.
    ///
    /// Mail for an earlier claim is stray: its number may exceed what this claim has received.
    pub(super) fn deliver(
        &mut self,
        player: ClientId,
        number: ClaimNumber,
        seq: MailSeq,
    ) -> Delivered {
        let Some(held) = self.get_mut(player, number) else {
            return Delivered::Stray;
        };
        if seq > held.delivered {
            held.delivered = seq;
            return Delivered::New(held.claim);
        }
        // The acknowledgement did not reach the hub.
        if seq <= held.acknowledged {
            self.acks.insert(player);
        }
        Delivered::Repeated
    }

    /// Records an acknowledgement; returns whether the claim is current.
    pub(super) fn acknowledge(&mut self, claim: ClaimId, upto: MailSeq) -> bool {
        let player = claim.player;
        let Some(held) = self
            .players
            .get_mut(&player)
            .filter(|held| held.claim == claim)
        else {
            return false;
        };
        let upto = upto.min(held.delivered);
        if upto > held.acknowledged {
            held.acknowledged = upto;
            self.acks.insert(player);
        }
        true
    }

    /// Returns the player if its claim has this number.
    pub(super) fn get_mut(
        &mut self,
        player: ClientId,
        number: ClaimNumber,
    ) -> Option<&mut HeldPlayer> {
        self.players
            .get_mut(&player)
            .filter(|held| held.claim.number == number)
    }

    /// Returns the next release, or the acknowledgement to send before it.
    pub(super) fn next_release(&self) -> Option<(ClientId, ClaimNumber, Option<MailSeq>)> {
        let (player, (claim, ack)) = self.releases.first_key_value()?;
        Some((*player, *claim, *ack))
    }

    pub(super) fn on_release_sent(&mut self, player: ClientId) {
        if let Some((_, ack)) = self.releases.get_mut(&player)
            && ack.take().is_none()
        {
            self.releases.remove(&player);
        }
    }

    pub(super) fn next_claim(&self) -> Option<(ClientId, &HeldPlayer)> {
        let player = self.claims.first()?;
        Some((*player, self.players.get(player)?))
    }

    pub(super) fn next_ack(&self) -> Option<(ClientId, MailSeq)> {
        let player = self.acks.first()?;
        Some((*player, self.players.get(player)?.acknowledged))
    }

    pub(super) fn on_claim_sent(&mut self, player: ClientId) {
        self.claims.remove(&player);
        if let Some(held) = self.players.get_mut(&player) {
            held.sent = true;
        }
    }

    pub(super) fn on_ack_sent(&mut self, player: ClientId) {
        self.acks.remove(&player);
    }

    /// Returns whether the claim is current.
    pub(super) fn is_current(&self, claim: ClaimId) -> bool {
        self.players
            .get(&claim.player)
            .is_some_and(|held| held.claim == claim)
    }

    /// Returns about how many bytes it holds.
    pub(super) fn memory_bytes(&self) -> usize {
        let each = size_of::<HeldPlayer>().saturating_add(64);
        let notes: usize = self.players.values().map(|held| held.meta.len()).sum();
        let waiting = self.releases.len().saturating_mul(64);
        let players = self.players.len().saturating_mul(each);
        players.saturating_add(notes).saturating_add(waiting)
    }

    pub(super) fn len(&self) -> usize {
        self.players.len()
    }
}

/// Result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    New(ClaimId),
    Repeated,
    Stray,
}
