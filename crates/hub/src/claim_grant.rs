//! Grants of claims: the signature of an issuer that one node may claim one player.

use core::fmt;

use wire::codec::concat;
use wire::{ClientId, NodeId, UnixTime};

/// A signed grant: one node may claim one player, until a time.
///
/// 178 bytes: `version 1 | player 8 | node 32 | not after 8 (Unix seconds) | key 65 | signature 64`.
/// The signature, ECDSA over P-256 with SHA-256, is by `key` over "tw1 hub claim grant" and the first
/// 114 bytes. The join file lists the keys that may issue.
///
/// A matchmaker signs [`message`](Self::message) and passes the result of [`new`](Self::new) to the
/// game server, which proves its claim by [`Node::prove`](crate::Node::prove).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimGrant([u8; 178]);

/// What a grant permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantTerms {
    /// The player.
    pub player: ClientId,
    /// The node that may claim it.
    pub node: NodeId,
    /// The last second in which a claim may be made. A claim lasts until it is released, but after
    /// a restart of the hub it has to be made again.
    pub not_after: UnixTime,
}

/// Checks the signatures of grants, so that this crate needs no cryptography.
pub trait ClaimVerifier: Send {
    /// Returns the id of the node that holds `key`, an uncompressed point of P-256, if that key has
    /// signed `message` (ECDSA with SHA-256; r and s).
    fn verify(&self, key: &[u8; 65], message: &[u8], signature: &[u8; 64]) -> Option<NodeId>;
}

const VERSION: u8 = 1;
const LABEL: &[u8] = b"tw1 hub claim grant";
const SIGNED_LEN: usize = 1 + 8 + 32 + 8 + 65;

const _: () = assert!(SIGNED_LEN + 64 == ClaimGrant::LEN);
const _: () = assert!(LABEL.len() + SIGNED_LEN == ClaimGrant::MESSAGE_LEN);

impl ClaimGrant {
    /// Length in bytes.
    pub const LEN: usize = 178;
    /// Length of what an issuer signs, bytes.
    pub const MESSAGE_LEN: usize = 133;

    /// Returns what the issuer with the public `key` signs.
    #[must_use]
    pub fn message(terms: &GrantTerms, key: &[u8; 65]) -> [u8; Self::MESSAGE_LEN] {
        concat(&[LABEL, &encode(terms, key)])
    }

    /// Composes a grant from its terms, and the issuer's key and signature.
    #[must_use]
    pub fn new(terms: &GrantTerms, key: &[u8; 65], signature: &[u8; 64]) -> Self {
        Self(concat(&[&encode(terms, key), signature]))
    }

    /// Parses a grant; `None` if the length is not [`LEN`](Self::LEN) or the version not 1.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        matches!(bytes, [VERSION, ..]).then_some(Self(*bytes))
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Returns the terms, which are valid only if the signature is.
    #[must_use]
    pub fn terms(&self) -> GrantTerms {
        let [_, rest @ ..] = &self.0;
        let (player, rest) = rest.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let (node, rest) = rest.split_first_chunk().unwrap_or((&[0; 32], &[]));
        let end = rest.first_chunk().unwrap_or(&[0; 8]);
        GrantTerms {
            player: ClientId(u64::from_be_bytes(*player)),
            node: NodeId(*node),
            not_after: UnixTime::from_secs(u64::from_be_bytes(*end)),
        }
    }

    /// Returns the issuer, if `verifier` finds the signature valid.
    pub(crate) fn issuer(&self, verifier: &dyn ClaimVerifier) -> Option<NodeId> {
        let signed = self.0.get(..SIGNED_LEN)?;
        let key = signed.last_chunk()?;
        let message: [u8; Self::MESSAGE_LEN] = concat(&[LABEL, signed]);
        verifier.verify(key, &message, self.0.last_chunk()?)
    }
}

fn encode(terms: &GrantTerms, key: &[u8; 65]) -> [u8; SIGNED_LEN] {
    concat(&[
        &[VERSION],
        &terms.player.0.to_be_bytes(),
        &terms.node.0,
        &terms.not_after.as_secs().to_be_bytes(),
        key,
    ])
}

impl fmt::Debug for ClaimGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimGrant")
            .field("terms", &self.terms())
            .finish_non_exhaustive()
    }
}
