//! Cryptography for simulations: a seeded provider, and wrappers that observe any provider.
//!
//! All implement the public trait [`crypto::Provider`].
//!
//! - [`SimProvider`]: real cryptography with seeded randomness. Equal seeds give equal bytes.
//! - [`Counting`]: counts calls by kind, to assert for example that no elliptic-curve call was
//!   made.
//! - [`Recording`]: records each key and nonce used for sealing, to assert that none was reused.
//!
//! Wrappers nest: `Counting<Recording<SimProvider>>` is a provider.

use core::fmt;
use core::ops::Sub;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::provider::{Entropy, RustCryptoAead, RustCryptoEphemeral, RustCryptoSigningKey};
use crypto::{
    Aead, BadPoint, Identity, NoEntropy, OpenError, Provider, PublicKey, Role, RustCrypto,
    Secret32, Suite,
};
use sha2::{Digest, Sha256};
use wire::{Generator, Seed};

/// Real cryptography ([`RustCrypto`]) with randomness from a seed.
///
/// Equal seeds and equal calls give equal bytes, including signatures (RFC 6979). The seed
/// determines every key: use it only in tests, with a different seed for each machine of a world. As
/// in the strictest provider, an accepting side's ephemeral key is consumed by its first agreement,
/// even if that fails.
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

wire::opaque_debug!(SimProvider);

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

struct SeedEntropy(Generator);

impl Entropy for SeedEntropy {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.0.fill(out);
        Ok(())
    }
}

/// Generator stream of the seed for cryptography alone; "crypto" in ASCII.
const PURPOSE: u64 = 0x6372_7970_746F;

/// Counts the calls of `P`, and of every AEAD it makes, into a [`Counts`].
#[derive(Debug)]
pub struct Counting<P> {
    inner: P,
    counts: Counts,
}

impl<P> Counting<P> {
    /// Wraps `inner`; several providers may share one `counts`.
    pub fn new(inner: P, counts: &Counts) -> Self {
        Self {
            inner,
            counts: counts.clone(),
        }
    }
}

/// A handle to shared counters. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Mutex<CallCounts>>);

impl Counts {
    /// Returns the counts so far.
    #[must_use]
    pub fn now(&self) -> CallCounts {
        *lock(&self.0)
    }

    fn add(&self, counter: impl FnOnce(&mut CallCounts) -> &mut u64) {
        *counter(&mut lock(&self.0)) += 1;
    }
}

/// Calls of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Draws of random bytes.
    pub random: u64,
    /// Ephemeral key pairs created.
    pub ephemeral: u64,
    /// Key agreements, including failed ones.
    pub agree: u64,
    /// Identities prepared for signing.
    pub signing_key: u64,
    /// Signatures created.
    pub sign: u64,
    /// Signatures verified, including bad ones.
    pub verify: u64,
    /// SHA-256 hashes.
    pub sha256: u64,
    /// HMACs; each is two hashes, and each Extract or Expand is one HMAC.
    pub hmac: u64,
    /// AEAD keys set up.
    pub aead: u64,
    /// Seals.
    pub seal: u64,
    /// Opens, including failed ones.
    pub open: u64,
}

impl CallCounts {
    /// Returns the number of elliptic-curve calls: key pairs, agreements, signatures,
    /// verifications.
    #[must_use]
    pub const fn elliptic_curve(&self) -> u64 {
        self.ephemeral
            .saturating_add(self.agree)
            .saturating_add(self.sign)
            .saturating_add(self.verify)
    }

    /// Returns the number of hash calls: SHA-256 and HMAC.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.sha256.saturating_add(self.hmac)
    }
}

impl Sub for CallCounts {
    type Output = Self;

    /// Returns the calls between two readings; a count that would be negative is zero.
    fn sub(self, earlier: Self) -> Self {
        Self {
            random: self.random.saturating_sub(earlier.random),
            ephemeral: self.ephemeral.saturating_sub(earlier.ephemeral),
            agree: self.agree.saturating_sub(earlier.agree),
            signing_key: self.signing_key.saturating_sub(earlier.signing_key),
            sign: self.sign.saturating_sub(earlier.sign),
            verify: self.verify.saturating_sub(earlier.verify),
            sha256: self.sha256.saturating_sub(earlier.sha256),
            hmac: self.hmac.saturating_sub(earlier.hmac),
            aead: self.aead.saturating_sub(earlier.aead),
            seal: self.seal.saturating_sub(earlier.seal),
            open: self.open.saturating_sub(earlier.open),
        }
    }
}

impl<P: Provider> Provider for Counting<P> {
    type Aead = CountingAead<P::Aead>;
    type Ephemeral = P::Ephemeral;
    type SigningKey = P::SigningKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.counts.add(|calls| &mut calls.random);
        self.inner.random(out)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(Self::Ephemeral, PublicKey), NoEntropy> {
        self.counts.add(|calls| &mut calls.ephemeral);
        self.inner.ephemeral(role)
    }

    fn agree(&self, own: &mut Self::Ephemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        self.counts.add(|calls| &mut calls.agree);
        self.inner.agree(own, peer)
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> Self::Aead {
        self.counts.add(|calls| &mut calls.aead);
        CountingAead {
            inner: self.inner.aead(suite, key),
            counts: self.counts.clone(),
        }
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<Self::SigningKey, NoEntropy> {
        self.counts.add(|calls| &mut calls.signing_key);
        self.inner.signing_key(identity)
    }

    fn sign(&mut self, key: &Self::SigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        self.counts.add(|calls| &mut calls.sign);
        self.inner.sign(key, message)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        self.counts.add(|calls| &mut calls.verify);
        self.inner.verify(key, message, signature)
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.counts.add(|calls| &mut calls.sha256);
        self.inner.sha256(parts)
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        self.counts.add(|calls| &mut calls.hmac);
        self.inner.hmac_sha256(key, parts)
    }
}

/// An AEAD that counts its calls.
#[derive(Debug)]
pub struct CountingAead<A> {
    inner: A,
    counts: Counts,
}

impl<A: Aead> Aead for CountingAead<A> {
    fn seal(&self, nonce: [u8; 12], aad: &[u8], inout: &mut [u8], tag: &mut [u8; 16]) {
        self.counts.add(|calls| &mut calls.seal);
        self.inner.seal(nonce, aad, inout, tag);
    }

    fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        inout: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        self.counts.add(|calls| &mut calls.open);
        self.inner.open(nonce, aad, inout, tag)
    }
}

/// Records each seal of every AEAD that `P` creates in a [`NonceLog`].
#[derive(Debug)]
pub struct Recording<P> {
    inner: P,
    log: NonceLog,
}

impl<P> Recording<P> {
    /// Wraps `inner`. Give all machines of a world the same `log`, so that reuse between them is
    /// found.
    pub fn new(inner: P, log: &NonceLog) -> Self {
        Self {
            inner,
            log: log.clone(),
        }
    }
}

/// A handle to a shared record of seals, 12 bytes each.
#[derive(Clone, Debug, Default)]
pub struct NonceLog(Arc<Mutex<Nonces>>);

impl NonceLog {
    /// Returns the number of seals.
    #[must_use]
    pub fn sealed(&self) -> u64 {
        let nonces = lock(&self.0);
        let count = nonces.by_key.values().map(Vec::len).sum::<usize>();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// Returns the number of distinct keys that were used for sealing.
    #[must_use]
    pub fn keys(&self) -> usize {
        lock(&self.0).by_key.len()
    }

    /// Returns every pair of key and nonce that sealed more than once, in order.
    #[must_use]
    pub fn reuses(&self) -> Vec<NonceReuse> {
        let mut reuses = Vec::new();
        for (&key, nonces) in &mut lock(&self.0).by_key {
            // Their order carries no information, so they are sorted in place.
            nonces.sort_unstable();
            for run in nonces.chunk_by(|a, b| a == b) {
                if let [nonce, _, ..] = run {
                    reuses.push(NonceReuse {
                        key,
                        nonce: *nonce,
                        times: run.len(),
                    });
                }
            }
        }
        reuses
    }

    /// Stops recording, for tests that measure the machines' allocations without the log's.
    pub fn close(&self) {
        lock(&self.0).is_closed = true;
    }

    fn note(&self, key: KeyFingerprint, nonce: [u8; 12]) {
        let mut nonces = lock(&self.0);
        if !nonces.is_closed {
            nonces.by_key.entry(key).or_default().push(nonce);
        }
    }
}

/// A key and a nonce that sealed more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonceReuse {
    /// The key.
    pub key: KeyFingerprint,
    /// The nonce.
    pub nonce: [u8; 12],
    /// Number of seals; 2 or more.
    pub times: usize,
}

/// First half of SHA-256 over an AEAD's key bytes, for any cipher suite.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyFingerprint([u8; 16]);

impl KeyFingerprint {
    fn of(suite: Suite, key: &Secret32) -> Self {
        let bytes = key.expose().get(..suite.key_len()).unwrap_or_default();
        let hash: [u8; 32] = Sha256::digest(bytes).into();
        Self(hash.first_chunk().copied().unwrap_or_default())
    }
}

impl fmt::Debug for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFingerprint(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

impl<P: Provider> Provider for Recording<P> {
    type Aead = RecordingAead<P::Aead>;
    type Ephemeral = P::Ephemeral;
    type SigningKey = P::SigningKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.inner.random(out)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(Self::Ephemeral, PublicKey), NoEntropy> {
        self.inner.ephemeral(role)
    }

    fn agree(&self, own: &mut Self::Ephemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        self.inner.agree(own, peer)
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> Self::Aead {
        RecordingAead {
            inner: self.inner.aead(suite, key),
            key: KeyFingerprint::of(suite, key),
            log: self.log.clone(),
        }
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<Self::SigningKey, NoEntropy> {
        self.inner.signing_key(identity)
    }

    fn sign(&mut self, key: &Self::SigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        self.inner.sign(key, message)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        self.inner.verify(key, message, signature)
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.inner.sha256(parts)
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        self.inner.hmac_sha256(key, parts)
    }
}

/// An AEAD that records its seals.
#[derive(Debug)]
pub struct RecordingAead<A> {
    inner: A,
    key: KeyFingerprint,
    log: NonceLog,
}

impl<A: Aead> Aead for RecordingAead<A> {
    fn seal(&self, nonce: [u8; 12], aad: &[u8], inout: &mut [u8], tag: &mut [u8; 16]) {
        self.log.note(self.key, nonce);
        self.inner.seal(nonce, aad, inout, tag);
    }

    fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        inout: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        self.inner.open(nonce, aad, inout, tag)
    }
}

/// Locks `shared`, whose changes are single steps: it is consistent after a panic elsewhere.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Nonces {
    by_key: BTreeMap<KeyFingerprint, Vec<[u8; 12]>>,
    is_closed: bool,
}
