//! A wrapper that counts the calls of a provider.

use core::ops::Sub;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crypto::{
    Aead, BadPoint, Identity, NoEntropy, OpenError, Provider, PublicKey, Role, Secret32, Suite,
};

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
pub struct Counts(Arc<Counters>);

impl Counts {
    /// Returns the counts so far.
    #[must_use]
    pub fn now(&self) -> CallCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &*self.0;
        CallCounts {
            random: of(&counters.random),
            ephemeral: of(&counters.ephemeral),
            agree: of(&counters.agree),
            signing_key: of(&counters.signing_key),
            sign: of(&counters.sign),
            verify: of(&counters.verify),
            sha256: of(&counters.sha256),
            hmac: of(&counters.hmac),
            aead: of(&counters.aead),
            seal: of(&counters.seal),
            open: of(&counters.open),
        }
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
        bump(&self.counts.0.random);
        self.inner.random(out)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(Self::Ephemeral, PublicKey), NoEntropy> {
        bump(&self.counts.0.ephemeral);
        self.inner.ephemeral(role)
    }

    fn agree(&self, own: &mut Self::Ephemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        bump(&self.counts.0.agree);
        self.inner.agree(own, peer)
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> Self::Aead {
        bump(&self.counts.0.aead);
        CountingAead {
            inner: self.inner.aead(suite, key),
            counts: self.counts.clone(),
        }
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<Self::SigningKey, NoEntropy> {
        bump(&self.counts.0.signing_key);
        self.inner.signing_key(identity)
    }

    fn sign(&mut self, key: &Self::SigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        bump(&self.counts.0.sign);
        self.inner.sign(key, message)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        bump(&self.counts.0.verify);
        self.inner.verify(key, message, signature)
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        bump(&self.counts.0.sha256);
        self.inner.sha256(parts)
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        bump(&self.counts.0.hmac);
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
        bump(&self.counts.0.seal);
        self.inner.seal(nonce, aad, inout, tag);
    }

    fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        inout: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        bump(&self.counts.0.open);
        self.inner.open(nonce, aad, inout, tag)
    }
}

/// Atomic because providers are `Send`. Counters are independent, so relaxed order is enough.
#[derive(Debug, Default)]
struct Counters {
    random: AtomicU64,
    ephemeral: AtomicU64,
    agree: AtomicU64,
    signing_key: AtomicU64,
    sign: AtomicU64,
    verify: AtomicU64,
    sha256: AtomicU64,
    hmac: AtomicU64,
    aead: AtomicU64,
    seal: AtomicU64,
    open: AtomicU64,
}

fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
