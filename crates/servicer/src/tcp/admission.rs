//! Which peers a listener admits.

use std::collections::BTreeSet;

use wire::{NodeId, PeerIdentity};

/// Which peers a listener admits. All others are rejected in the TLS handshake, and the machine
/// does not see them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// All peers, with or without an identity key.
    Anyone,
    /// All peers that prove an identity key. The machine may reject them later.
    AnyNode,
    /// Only these nodes.
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
