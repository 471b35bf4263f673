//! A failed random source is an error and never gives a weak key.

use crypto::{
    BadPoint, Identity, NoEntropy, Provider, PublicKey, Ring, Role, SealTokenError, Secret32,
    Suite, TokenKey,
};

use crate::token::smallest;

#[test]
fn no_key_is_generated_without_entropy() {
    let mut silent = Faulty(None);
    assert_eq!(Identity::generate(&mut silent).err(), Some(NoEntropy));
    assert_eq!(Secret32::random(&mut silent).err(), Some(NoEntropy));
    assert!(TokenKey::generate(&mut silent, 1).is_err());
    let key = TokenKey::generate(&mut Ring::new(), 1).unwrap();
    assert_eq!(
        key.seal(&mut silent, 1, &smallest()),
        Err(SealTokenError::NoEntropy)
    );
}

#[test]
fn a_random_source_without_valid_scalars_does_not_hang() {
    for byte in [0x00, 0xFF] {
        let mut stuck = Faulty(Some(byte));
        assert_eq!(Identity::generate(&mut stuck).err(), Some(NoEntropy));
    }
    assert!(Identity::generate(&mut Faulty(Some(0x55))).is_ok());
}

#[cfg(feature = "rustcrypto")]
#[test]
fn rustcrypto_generates_no_key_without_entropy() {
    for source in [Faulty(None), Faulty(Some(0x00)), Faulty(Some(0xFF))] {
        let mut provider = crypto::RustCrypto::with_entropy(source);
        for role in [Role::Dialler, Role::Accepter] {
            assert_eq!(provider.ephemeral(role).err(), Some(NoEntropy));
        }
        assert_eq!(Identity::generate(&mut provider).err(), Some(NoEntropy));
    }
    let mut provider = crypto::RustCrypto::with_entropy(Faulty(None));
    let mut out = [9; 4];
    assert_eq!(provider.random(&mut out), Err(NoEntropy));
    assert_eq!(out, [9; 4], "nothing else filled it");
    let mut provider = crypto::RustCrypto::with_entropy(Faulty(Some(0x55)));
    assert!(provider.ephemeral(Role::Dialler).is_ok());
}

#[cfg(feature = "rustcrypto")]
impl crypto::provider::Entropy for Faulty {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        out.fill(self.0.ok_or(NoEntropy)?);
        Ok(())
    }
}

/// Ring, but its random bytes are all the same, or it fails.
struct Faulty(Option<u8>);

impl Provider for Faulty {
    type Aead = <Ring as Provider>::Aead;
    type Ephemeral = <Ring as Provider>::Ephemeral;
    type SigningKey = <Ring as Provider>::SigningKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        out.fill(self.0.ok_or(NoEntropy)?);
        Ok(())
    }

    fn ephemeral(&mut self, role: Role) -> Result<(Self::Ephemeral, PublicKey), NoEntropy> {
        Ring::new().ephemeral(role)
    }

    fn agree(&self, own: &mut Self::Ephemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        Ring::new().agree(own, peer)
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> Self::Aead {
        Ring::new().aead(suite, key)
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<Self::SigningKey, NoEntropy> {
        Ring::new().signing_key(identity)
    }

    fn sign(&mut self, key: &Self::SigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        Ring::new().sign(key, message)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        Ring::new().verify(key, message, signature)
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        Ring::new().sha256(parts)
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        Ring::new().hmac_sha256(key, parts)
    }
}
