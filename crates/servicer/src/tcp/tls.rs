//! TLS 1.3 of connections: what dials and listeners prove and verify.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crypto::tls::{KeyRefused, NodeVerifier, TlsIdentity, client_config, node_of, server_config};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConnection, Error, OtherError, ServerConfig};
use wire::{NodeId, PeerIdentity};

use super::application::{Dial, DialPeer};
use super::connection::{Expected, Side};

/// ALPN name (RFC 7301) of this protocol: records with 4-byte lengths, and an empty first record
/// from the accepter.
pub(super) const PROTOCOL: &[u8] = b"tickwire-records/1";

/// Which peers a listener admits. All others are rejected in the TLS handshake, and the machine
/// does not see them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Admission {
    /// All peers, with or without an identity key.
    Anyone,
    /// All peers that prove an identity key. The machine may reject them later.
    AnyNode,
    /// Only these nodes.
    Only(NodeList),
}

/// Nodes that a listener admits. Clones share the list, so it can change while the listener runs.
#[derive(Clone, Debug, Default)]
pub struct NodeList(Arc<RwLock<BTreeSet<NodeId>>>);

impl NodeList {
    /// Replaces the nodes. Connections that were admitted stay; the machine may close them.
    pub fn replace(&self, nodes: impl IntoIterator<Item = NodeId>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = nodes.into_iter().collect();
    }

    /// Returns whether `node` is listed.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        nodes.contains(&node)
    }
}

impl FromIterator<NodeId> for NodeList {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        Self(Arc::new(RwLock::new(nodes.into_iter().collect())))
    }
}

impl Admission {
    pub(super) fn admits(&self, peer: &PeerIdentity) -> bool {
        match (self, peer) {
            (Self::Anyone, _) | (Self::AnyNode, PeerIdentity::Node(_)) => true,
            (Self::Only(nodes), PeerIdentity::Node(node)) => nodes.contains(*node),
            (Self::AnyNode | Self::Only(_), _) => false,
        }
    }
}

pub(super) fn connect(
    own: Option<&TlsIdentity>,
    dial: &Dial,
) -> Result<ClientConnection, KeyRefused> {
    let (config, name) = match &dial.peer {
        DialPeer::Node(node) => {
            let config = client_config(own, only(*node), PROTOCOL).map_err(|_| KeyRefused)?;
            (Arc::new(config), ServerName::from(dial.address.ip()))
        }
        DialPeer::Host(host) => (Arc::clone(&host.config), host.name.clone()),
    };
    ClientConnection::new(config, name).map_err(|_| KeyRefused)
}

fn only(expected: NodeId) -> NodeVerifier {
    NodeVerifier::new(move |node| {
        if node == expected {
            Ok(())
        } else {
            Err(UnknownNode(node).into())
        }
    })
}

/// Returns the configuration of a listener that proves `own` to the peers that it admits.
pub(super) fn node_server(
    own: &TlsIdentity,
    admission: Admission,
) -> Result<Arc<ServerConfig>, Error> {
    let is_open = admission.admits(&PeerIdentity::Anonymous);
    let mut verifier = NodeVerifier::new(move |node| {
        let is_admitted = admission.admits(&PeerIdentity::Node(node));
        is_admitted
            .then_some(())
            .ok_or_else(|| UnknownNode(node).into())
    });
    if is_open {
        verifier = verifier.or_anonymous();
    }
    server_config(own.server_key(), Arc::new(verifier), PROTOCOL).map(Arc::new)
}

/// Returns the peer's identity after the handshake; `None` if another protocol was negotiated.
///
/// If a host was dialled, its certificate has been verified for its name.
pub(super) fn peer(tls: &rustls::Connection, side: Side) -> Option<PeerIdentity> {
    if tls.alpn_protocol() != Some(PROTOCOL) {
        return None;
    }
    if let Side::Dialled(_, Expected::Host) = side {
        return Some(PeerIdentity::Host);
    }
    match tls.peer_certificates() {
        None | Some([]) => Some(PeerIdentity::Anonymous),
        Some([key, ..]) => node_of(key).map(PeerIdentity::Node),
    }
}

/// Returns the node that a verifier of this module rejected.
pub(super) fn unknown_node(error: &Error) -> Option<NodeId> {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) = error else {
        return None;
    };
    cause.downcast_ref().map(|UnknownNode(found)| *found)
}

/// A peer proved or claimed to be a node that is not admitted.
#[derive(Debug)]
struct UnknownNode(NodeId);

impl From<UnknownNode> for Error {
    fn from(unknown: UnknownNode) -> Self {
        CertificateError::Other(OtherError(Arc::new(unknown))).into()
    }
}

impl fmt::Display for UnknownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} is not the one to be let in", self.0)
    }
}

impl std::error::Error for UnknownNode {}
