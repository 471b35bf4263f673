//! Cryptography for meshes of a thousand nodes: its signatures anybody could make.

use crypto::{BadPoint, Identity, NoEntropy, Provider, PublicKey, Role, Secret32, Suite};
use netsim::provider::SimProvider;
use wire::Seed;

/// A provider whose signature is a keyed hash, the key being the public one. It keeps apart what
/// was signed by whom, at a hundredth of the cost; who forges in a test signs with another key.
pub(crate) struct ToyProvider(SimProvider);

impl ToyProvider {
    pub(crate) fn new(seed: Seed) -> Self {
        Self(SimProvider::new(seed))
    }
}

impl Provider for ToyProvider {
    type Aead = <SimProvider as Provider>::Aead;
    type Ephemeral = <SimProvider as Provider>::Ephemeral;
    type SigningKey = PublicKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.0.random(out)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(Self::Ephemeral, PublicKey), NoEntropy> {
        self.0.ephemeral(role)
    }

    fn agree(&self, own: &mut Self::Ephemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        self.0.agree(own, peer)
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> Self::Aead {
        self.0.aead(suite, key)
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<PublicKey, NoEntropy> {
        Ok(*identity.public_key())
    }

    fn sign(&mut self, key: &PublicKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        Ok(tag(key, message))
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        tag(key, message) == *signature
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.0.sha256(parts)
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        self.0.hmac_sha256(key, parts)
    }
}

/// Two lanes of FNV-1a over words, repeated.
fn tag(key: &PublicKey, message: &[u8]) -> [u8; 64] {
    let mut state = [0xcbf2_9ce4_8422_2325_u64, 0x9ae1_6a3b_2f90_404f];
    for part in [&key.0[..], message] {
        for chunk in part.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_le_bytes(word) ^ u64::try_from(chunk.len()).unwrap();
            for lane in &mut state {
                *lane = (*lane ^ word)
                    .wrapping_mul(0x0000_0100_0000_01b3)
                    .rotate_left(29);
            }
        }
    }
    let mut out = [0; 64];
    for (chunk, lane) in out.chunks_mut(8).zip(state.iter().cycle()) {
        chunk.copy_from_slice(&lane.to_be_bytes());
    }
    out
}
