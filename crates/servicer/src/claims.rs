//! Grants of claims, signed and verified with the identities of nodes (P-256).

use std::fmt;

use crypto::{Identity, NoEntropy, Provider, PublicKey, Ring};
use hub::{ClaimGrant, ClaimVerifier, GrantTerms};
use wire::NodeId;

/// Verifies grants for a hub; see [`Hub::set_claim_verifier`](hub::Hub::set_claim_verifier).
#[derive(Default)]
pub struct P256Verifier {
    provider: Ring,
}

impl P256Verifier {
    /// Creates a verifier.
    #[must_use]
    pub fn new() -> Self {
        Self {
            provider: Ring::new(),
        }
    }
}

impl ClaimVerifier for P256Verifier {
    fn verify(&self, key: &[u8; 65], message: &[u8], signature: &[u8; 64]) -> Option<NodeId> {
        let key = PublicKey(*key);
        let is_signed = self.provider.verify(&key, message, signature);
        is_signed.then(|| key.node_id())
    }
}

impl fmt::Debug for P256Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("P256Verifier")
    }
}

/// Issues grants, for a matchmaker. The join file marks its key with `issues=claims`.
pub struct ClaimIssuer {
    provider: Ring,
    key: <Ring as Provider>::SigningKey,
    public: PublicKey,
}

impl ClaimIssuer {
    /// Prepares `identity` for signing.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the system has no randomness.
    pub fn new(identity: &Identity) -> Result<Self, NoEntropy> {
        let mut provider = Ring::new();
        let key = provider.signing_key(identity)?;
        Ok(Self {
            provider,
            key,
            public: *identity.public_key(),
        })
    }

    /// Issues a grant.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the system has no randomness.
    pub fn issue(&mut self, terms: &GrantTerms) -> Result<ClaimGrant, NoEntropy> {
        let message = ClaimGrant::message(terms, &self.public.0);
        let signature = self.provider.sign(&self.key, &message)?;
        Ok(ClaimGrant::new(terms, &self.public.0, &signature))
    }
}

impl fmt::Debug for ClaimIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimIssuer")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}
