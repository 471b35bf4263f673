//! Insecure cryptography for meshes of a thousand nodes: anybody can forge its signatures, and read
//! and forge its sealed data.

use crypto::{
    Aead, BadPoint, Identity, NoEntropy, OpenError, Provider, PublicKey, Role, Secret32, Suite,
};
use netsim::provider::SimProvider;
use wire::Seed;

/// A provider with a keyed hash under the public key as its signature. It tells signers apart at a
/// hundredth of the cost. A test forges by signing with another key. Sealed data is plaintext with
/// a keyed hash as the tag. The shared secret is the sum of both keys.
pub(crate) struct TestProvider(SimProvider);

impl TestProvider {
    pub(crate) fn new(seed: Seed) -> Self {
        Self(SimProvider::new(seed))
    }
}

impl Provider for TestProvider {
    type Aead = TestAead;
    type Ephemeral = PublicKey;
    type SigningKey = PublicKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.0.random(out)
    }

    fn ephemeral(&mut self, _role: Role) -> Result<(PublicKey, PublicKey), NoEntropy> {
        let mut key = PublicKey([4; 65]);
        self.0.random(&mut key.0[1..])?;
        Ok((key, key))
    }

    fn agree(&self, own: &mut PublicKey, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        let mut sum = PublicKey([4; 65]);
        for (place, (one, other)) in sum.0.iter_mut().zip(own.0.iter().zip(peer.0)) {
            *place = one ^ other;
        }
        Ok(Secret32::new(*tag(&sum, &[]).first_chunk().unwrap()))
    }

    fn aead(&self, _suite: Suite, key: &Secret32) -> TestAead {
        let mut toy = PublicKey([0; 65]);
        toy.0[..32].copy_from_slice(key.expose());
        TestAead(toy)
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

pub(crate) struct TestAead(PublicKey);

impl TestAead {
    fn tag(&self, nonce: [u8; 12], aad: &[u8], bytes: &[u8]) -> [u8; 16] {
        let head = tag(&self.0, &nonce);
        let mut key = PublicKey([0; 65]);
        key.0[..16].copy_from_slice(&head[..16]);
        let aad = tag(&key, aad);
        key.0[16..32].copy_from_slice(&aad[..16]);
        *tag(&key, bytes).first_chunk().unwrap()
    }
}

impl Aead for TestAead {
    fn seal(&self, nonce: [u8; 12], aad: &[u8], inout: &mut [u8], tag: &mut [u8; 16]) {
        *tag = self.tag(nonce, aad, inout);
    }

    fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        inout: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        if self.tag(nonce, aad, inout) == *tag {
            Ok(())
        } else {
            Err(OpenError)
        }
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
