//! A wrapper that records every key and nonce used for sealing.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::{
    Aead, BadPoint, Identity, NoEntropy, OpenError, Provider, PublicKey, Role, Secret32, Suite,
};
use sha2::{Digest, Sha256};

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
        let nonces = self.lock();
        let count = nonces.by_key.values().map(Vec::len).sum::<usize>();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// Returns the number of distinct keys that were used for sealing.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.lock().by_key.len()
    }

    /// Returns every pair of key and nonce that sealed more than once, in order.
    #[must_use]
    pub fn reuses(&self) -> Vec<NonceReuse> {
        let mut reuses = Vec::new();
        for (&key, nonces) in &mut self.lock().by_key {
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
        self.lock().is_closed = true;
    }

    fn note(&self, key: KeyFingerprint, nonce: [u8; 12]) {
        let mut nonces = self.lock();
        if !nonces.is_closed {
            nonces.by_key.entry(key).or_default().push(nonce);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Nonces> {
        // Each change is a single push, so the log is consistent after a panic elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Nonces used for sealing, by key.
#[derive(Debug, Default)]
struct Nonces {
    by_key: BTreeMap<KeyFingerprint, Vec<[u8; 12]>>,
    is_closed: bool,
}
