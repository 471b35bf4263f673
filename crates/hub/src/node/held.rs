//! Players of this node, and how far their mail has come.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use wire::ClientId;

use super::event::ClaimId;
use crate::id::{ClaimNumber, Lease, MailSeq};

/// Players of this node, and what the hub has yet to hear of them.
#[derive(Debug, Default)]
pub(super) struct HeldPlayers {
    /// The last number given to a claim.
    last_claim: ClaimNumber,
    players: BTreeMap<ClientId, HeldPlayer>,
    /// Whose claim has ended and is to be released before it is made again, with the last
    /// acknowledgement where that is to be sent first.
    releases: BTreeMap<ClientId, (ClaimNumber, Option<MailSeq>)>,
    /// Whose claim is to be sent.
    claims: BTreeSet<ClientId>,
    /// Whose acknowledgement is to be sent.
    acks: BTreeSet<ClientId>,
}

/// A player of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldPlayer {
    pub(super) claim: ClaimId,
    pub(super) lease: Lease,
    /// The last mail that the application was given.
    pub(super) delivered: MailSeq,
    /// The last mail that the application has acknowledged.
    pub(super) acknowledged: MailSeq,
    pub(super) meta: Bytes,
    /// Whether the hub was told of it over this link.
    sent: bool,
}

impl HeldPlayers {
    /// Begins a claim, and ends the one before.
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

    /// Forgets a player whose claim the hub has ended.
    pub(super) fn remove(&mut self, player: ClientId) -> Option<HeldPlayer> {
        self.claims.remove(&player);
        self.acks.remove(&player);
        self.players.remove(&player)
    }

    /// Forgets a player, and tells the hub where it knows of it. Returns whether there was one.
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

    /// Forgets what lived with a link: over the next one the hub hears of claims only, and frees
    /// who is not claimed again.
    pub(super) fn on_down(&mut self) {
        self.releases.clear();
        self.claims.clear();
        self.acks.clear();
        for held in self.players.values_mut() {
            held.sent = false;
        }
    }

    /// Forgets how far mail has come: the hub keeps another log.
    pub(super) fn forget_marks(&mut self) {
        for held in self.players.values_mut() {
            held.delivered = MailSeq(0);
            held.acknowledged = MailSeq(0);
            held.lease = Lease::NONE;
        }
    }

    /// Tells the hub of all players again, over a new link.
    pub(super) fn reclaim(&mut self) {
        self.claims = self.players.keys().copied().collect();
        self.acks.clear();
    }

    /// Notes a mail that came; returns whether it is new.
    ///
    /// What was under way to an earlier claim is stray: it may be ahead of what this one has yet
    /// to hear.
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
        // The hub has not heard of the acknowledgement.
        if seq <= held.acknowledged {
            self.acks.insert(player);
        }
        Delivered::Repeated
    }

    /// Takes an acknowledgement; returns whether the claim still is this one.
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

    /// Returns the claim that has this number.
    pub(super) fn get_mut(
        &mut self,
        player: ClientId,
        number: ClaimNumber,
    ) -> Option<&mut HeldPlayer> {
        self.players
            .get_mut(&player)
            .filter(|held| held.claim.number == number)
    }

    /// Returns a release to send, or the acknowledgement that goes before it.
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

    /// Returns a claim to send.
    pub(super) fn next_claim(&self) -> Option<(ClientId, &HeldPlayer)> {
        let player = self.claims.first()?;
        Some((*player, self.players.get(player)?))
    }

    /// Returns an acknowledgement to send.
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

    /// Returns whether the claim still is this one.
    pub(super) fn is_current(&self, claim: ClaimId) -> bool {
        self.players
            .get(&claim.player)
            .is_some_and(|held| held.claim == claim)
    }

    /// Returns about how many bytes all of it takes.
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

/// What a mail that came is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    New(ClaimId),
    Repeated,
    Stray,
}
