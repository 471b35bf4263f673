//! A provider that caches signatures, so that repeated runs compute each one once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crypto::{BadPoint, Identity, NoEntropy, Provider, PublicKey, Role, Secret32, Suite};
use netsim::provider::{SimAead, SimEphemeral, SimProvider, SimSigningKey};

/// [`SimProvider`] with a cache of what it signed and verified.
///
/// This does not weaken the check: RFC 6979 signatures and their verification are functions of
/// their inputs.
pub(crate) struct Memo {
    inner: SimProvider,
    known: Known,
}

/// The cache that several providers share.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<Mutex<Tables>>);

/// Keyed by the hash of all inputs.
#[derive(Default)]
struct Tables {
    signed: BTreeMap<[u8; 32], [u8; 64]>,
    checked: BTreeMap<[u8; 32], bool>,
}

impl Known {
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap() = Tables::default();
    }
}

impl Memo {
    pub(crate) fn new(inner: SimProvider, known: &Known) -> Self {
        Self {
            inner,
            known: known.clone(),
        }
    }
}

impl Provider for Memo {
    type Aead = SimAead;
    type Ephemeral = SimEphemeral;
    /// With the public key, which is part of the cache key.
    type SigningKey = (PublicKey, SimSigningKey);

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.inner.random(out)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(SimEphemeral, PublicKey), NoEntropy> {
        self.inner.ephemeral(role)
    }

    fn agree(&self, own: &mut SimEphemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        self.inner.agree(own, peer)
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> SimAead {
        self.inner.aead(suite, key)
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<Self::SigningKey, NoEntropy> {
        let key = self.inner.signing_key(identity)?;
        Ok((*identity.public_key(), key))
    }

    fn sign(&mut self, key: &Self::SigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        let (public, key) = key;
        let inputs = self.inner.sha256(&[&public.0, message]);
        let mut tables = self.known.0.lock().unwrap();
        if let Some(signature) = tables.signed.get(&inputs) {
            return Ok(*signature);
        }
        let signature = self.inner.sign(key, message)?;
        tables.signed.insert(inputs, signature);
        Ok(signature)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        let inputs = self.inner.sha256(&[&key.0, signature, message]);
        let mut tables = self.known.0.lock().unwrap();
        *tables
            .checked
            .entry(inputs)
            .or_insert_with(|| self.inner.verify(key, message, signature))
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.inner.sha256(parts)
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        self.inner.hmac_sha256(key, parts)
    }
}

#[test]
fn cached_verifications_agree_with_real_ones() {
    let known = Known::default();
    let mut memo = Memo::new(SimProvider::new(wire::Seed([1; 32])), &known);
    let mut plain = SimProvider::new(wire::Seed([1; 32]));
    let identity = Identity::generate(&mut plain).unwrap();
    let public = *identity.public_key();
    let real = plain.signing_key(&identity).unwrap();
    let real = plain.sign(&real, b"links").unwrap();
    let key = memo.signing_key(&identity).unwrap();
    for _ in 0..2 {
        assert_eq!(memo.sign(&key, b"links").unwrap(), real);
        assert!(memo.verify(&public, b"links", &real));
        assert!(!memo.verify(&public, b"other", &real));
        assert!(!memo.verify(&public, b"links", &[1; 64]));
    }
    known.clear();
    assert_eq!(memo.sign(&key, b"links").unwrap(), real);
}
