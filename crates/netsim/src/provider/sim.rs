//! A provider with randomness from a seed.

use core::fmt;

use crypto::provider::{Entropy, RustCryptoAead, RustCryptoEphemeral, RustCryptoSigningKey};
use crypto::{
    BadPoint, Identity, NoEntropy, Provider, PublicKey, Role, RustCrypto, Secret32, Suite,
};
use wire::{Generator, Seed};

/// Real cryptography ([`RustCrypto`]) with randomness from a seed.
///
/// Equal seeds and equal calls give equal bytes, including signatures (RFC 6979). The seed
/// determines every key, so use it only for simulations and tests. It is as strict as the strictest
/// provider: an ephemeral key of the accepting side is consumed by its first agreement, even if
/// that fails. Give each machine of a world a different seed, or they draw the same keys.
pub struct SimProvider(RustCrypto<SeedEntropy>);

impl SimProvider {
    /// Creates a provider from `seed`.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self(RustCrypto::with_entropy(SeedEntropy(
            seed.generator(PURPOSE),
        )))
    }
}

/// An AEAD of [`SimProvider`] with its key.
pub type SimAead = RustCryptoAead;

/// An ephemeral key of [`SimProvider`].
pub type SimEphemeral = RustCryptoEphemeral;

/// A signing key of [`SimProvider`].
pub type SimSigningKey = RustCryptoSigningKey;

impl fmt::Debug for SimProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimProvider(..)")
    }
}

impl Provider for SimProvider {
    type Aead = SimAead;
    type Ephemeral = SimEphemeral;
    type SigningKey = SimSigningKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.0.random(out)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(SimEphemeral, PublicKey), NoEntropy> {
        self.0.ephemeral(role)
    }

    fn agree(&self, own: &mut SimEphemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        self.0.agree(own, peer)
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> SimAead {
        self.0.aead(suite, key)
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<SimSigningKey, NoEntropy> {
        self.0.signing_key(identity)
    }

    fn sign(&mut self, key: &SimSigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        self.0.sign(key, message)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify(key, message, signature)
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.0.sha256(parts)
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        self.0.hmac_sha256(key, parts)
    }
}

/// An unlimited stream of bytes from the seed.
struct SeedEntropy(Generator);

impl Entropy for SeedEntropy {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.0.fill(out);
        Ok(())
    }
}

/// Generator stream of the seed for cryptography alone; "crypto" in ASCII.
const PURPOSE: u64 = 0x6372_7970_746F;
