//! Whom a listener lets in.

use std::collections::BTreeSet;

use wire::{NodeId, PeerIdentity};

/// Whom a listener lets in. Whoever else dials learns so in the handshake, and the machine never
/// hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// Whoever comes, with or without a key to prove.
    Anyone,
    /// Whoever proves a key; the machine decides the rest.
    AnyNode,
    /// Only these.
    Only(BTreeSet<NodeId>),
}

impl Admission {
    pub(super) fn admits(&self, peer: &PeerIdentity) -> bool {
        match (self, peer) {
            (Self::Anyone, _) | (Self::AnyNode, PeerIdentity::Node(_)) => true,
            (Self::Only(nodes), PeerIdentity::Node(node)) => nodes.contains(node),
            (Self::AnyNode | Self::Only(_), _) => false,
        }
    }
}
