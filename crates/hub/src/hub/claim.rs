//! Claims of players, and the delivery state of their mail.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{ClientId, ConnectionId, NodeId};

use crate::id::{ClaimNumber, Lease, MailSeq};

/// Claims of players, and the delivery state of their mail.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_player: BTreeMap<ClientId, Claim>,
    by_node: BTreeSet<(NodeId, ClientId)>,
    /// Claims per node.
    counts: BTreeMap<NodeId, usize>,
    /// The last generation assigned.
    generation: Generation,
}

/// Identifies an entry of the table. A renewed claim is a new entry, so that store completions for
/// the old one are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// A player that a node holds.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) node: NodeId,
    pub(super) generation: Generation,
    /// `None` while the node is disconnected.
    pub(super) link: Option<ConnectionId>,
    /// The node's number of the session.
    pub(super) number: ClaimNumber,
    /// Orders claims of one player: the larger one wins.
    pub(super) lease: Lease,
    /// The node's note for watchers.
    pub(super) meta: Bytes,
    /// The last mail delivered to the node.
    pub(super) given: MailSeq,
    /// Mails delivered and not acknowledged, with their bytes.
    pub(super) unacknowledged: VecDeque<(MailSeq, usize)>,
    /// The last mail that the node has acknowledged.
    pub(super) acknowledged: MailSeq,
    /// The acknowledgement in flight to the store.
    pub(super) acknowledging: Option<MailSeq>,
    pub(super) reading: Reading,
}

/// State of the mailbox reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// All mail was delivered.
    Done,
    /// There may be more mail.
    Due,
    /// A read is in flight.
    InFlight,
    /// A read is in flight that may miss mail stored since.
    InFlightAndDue,
}

impl Claims {
    pub(super) fn get(&self, player: ClientId) -> Option<&Claim> {
        self.by_player.get(&player)
    }

    pub(super) fn get_mut(&mut self, player: ClientId) -> Option<&mut Claim> {
        self.by_player.get_mut(&player)
    }

    pub(super) fn insert(&mut self, player: ClientId, mut claim: Claim) -> Option<Claim> {
        self.generation = Generation(self.generation.0.saturating_add(1));
        claim.generation = self.generation;
        let node = claim.node;
        let old = self.by_player.insert(player, claim);
        if let Some(old) = &old {
            self.uncount(old.node, player);
        }
        self.by_node.insert((node, player));
        let count = self.counts.entry(node).or_default();
        *count = count.saturating_add(1);
        old
    }

    fn uncount(&mut self, node: NodeId, player: ClientId) {
        self.by_node.remove(&(node, player));
        if let Some(count) = self.counts.get_mut(&node) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&node);
            }
        }
    }

    /// Returns the number of players of `node`.
    pub(super) fn count_of(&self, node: NodeId) -> usize {
        self.counts.get(&node).copied().unwrap_or(0)
    }

    pub(super) fn remove(&mut self, player: ClientId) -> Option<Claim> {
        let claim = self.by_player.remove(&player)?;
        self.uncount(claim.node, player);
        Some(claim)
    }

    pub(super) fn len(&self) -> usize {
        self.by_player.len()
    }

    /// Returns about how many bytes the table holds.
    pub(super) fn memory_bytes(&self) -> usize {
        let held: usize = self
            .by_player
            .values()
            .map(|claim| {
                claim
                    .meta
                    .len()
                    .saturating_add(claim.unacknowledged.len().saturating_mul(16))
            })
            .sum();
        held.saturating_add(self.by_player.len().saturating_mul(super::CLAIM_BYTES))
    }

    pub(super) fn after(&self, after: Option<ClientId>) -> Option<ClientId> {
        match after {
            None => self.by_player.keys().next(),
            Some(ClientId(u64::MAX)) => None,
            Some(ClientId(id)) => self
                .by_player
                .range(ClientId(id.saturating_add(1))..)
                .next()
                .map(|(player, _)| player),
        }
        .copied()
    }

    /// Returns up to `max` players of `node` after `after`.
    pub(super) fn of_node(
        &self,
        node: NodeId,
        after: Option<ClientId>,
        max: usize,
    ) -> Vec<ClientId> {
        let first = after.map_or(Bound::Included((node, ClientId(0))), |after| {
            Bound::Excluded((node, after))
        });
        let last = Bound::Included((node, ClientId(u64::MAX)));
        self.by_node
            .range((first, last))
            .map(|(_, player)| *player)
            .take(max)
            .collect()
    }
}

impl Claim {
    /// Applies an acknowledgement; returns the bytes that it frees.
    pub(super) fn acknowledge(&mut self, upto: MailSeq) -> usize {
        // A node cannot acknowledge mail that was not delivered to it.
        let upto = upto.min(self.given);
        self.acknowledged = self.acknowledged.max(upto);
        let mut freed = 0_usize;
        while let Some((seq, bytes)) = self.unacknowledged.front()
            && *seq <= upto
        {
            freed = freed.saturating_add(*bytes);
            self.unacknowledged.pop_front();
        }
        freed
    }

    /// Returns the bytes delivered and not acknowledged.
    pub(super) fn unacknowledged_bytes(&self) -> usize {
        self.unacknowledged.iter().map(|(_, bytes)| *bytes).sum()
    }
}
