//! A wrapper that keeps every pair of key and nonce that was sealed under.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::{
    Aead, BadPoint, Identity, NoEntropy, OpenError, Provider, PublicKey, Role, Secret32, Suite,
};
use sha2::{Digest, Sha256};

/// Notes each seal of every AEAD that `P` makes in a [`NonceLog`].
#[derive(Debug)]
pub struct Recording<P> {
    inner: P,
    log: NonceLog,
}

impl<P> Recording<P> {
    /// Wraps `inner`; give all machines of a world one `log`, so that reuse between them shows.
    pub fn new(inner: P, log: &NonceLog) -> Self {
        Self {
            inner,
            log: log.clone(),
        }
    }
}

/// Handle on a shared record of seals: 12 bytes for each.
#[derive(Clone, Debug, Default)]
pub struct NonceLog(Arc<Mutex<Nonces>>);

impl NonceLog {
    /// Returns how many seals there were.
    #[must_use]
    pub fn sealed(&self) -> u64 {
        let nonces = self.lock();
        let count = nonces.by_key.values().map(Vec::len).sum::<usize>();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// Returns under how many keys there were seals.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.lock().by_key.len()
    }

    /// Returns every pair of key and nonce that was sealed under more than once, in order.
    #[must_use]
    pub fn reuses(&self) -> Vec<NonceReuse> {
        let mut reuses = Vec::new();
        for (&key, nonces) in &mut self.lock().by_key {
            // The order in which they came says nothing, so they may be sorted where they lie.
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

    /// Notes nothing from here on: for a test that counts what the machines allocate, and not the log.
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
        // A test that panicked elsewhere leaves whole entries: each is one push.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key and a nonce that were sealed under more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonceReuse {
    /// The key.
    pub key: KeyFingerprint,
    /// The nonce.
    pub nonce: [u8; 12],
    /// How often; 2 or more.
    pub times: usize,
}

/// First half of SHA-256 over the key bytes of an AEAD, whichever suite it is.
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

/// An AEAD whose seals are recorded.
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

/// Nonces sealed under, by key.
#[derive(Debug, Default)]
struct Nonces {
    by_key: BTreeMap<KeyFingerprint, Vec<[u8; 12]>>,
    is_closed: bool,
}
