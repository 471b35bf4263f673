//! The provider on aws-lc-rs.

use core::fmt;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::encoding::{AsBigEndian, EcPublicKeyUncompressedBin};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{self, EcdsaKeyPair};
use aws_lc_rs::{digest, hmac};
use zeroize::Zeroize;

use super::{Aead, AgreementKey, NoEntropy, OpenError, Provider, Role, first_32};
use crate::{BadPoint, Identity, PublicKey, Secret32, Suite};

/// Provider on aws-lc-rs, with the randomness of AWS-LC, which the operating system seeds.
///
/// If the operating system has no randomness, AWS-LC aborts the process.
pub struct AwsLcRs {
    random: SystemRandom,
}

impl AwsLcRs {
    /// Creates a provider, at no cost.
    #[must_use]
    pub fn new() -> Self {
        Self {
            random: SystemRandom::new(),
        }
    }
}

impl Default for AwsLcRs {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for AwsLcRs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsLcRs")
    }
}

impl Provider for AwsLcRs {
    type Aead = AwsLcRsAead;
    type Ephemeral = AwsLcRsEphemeral;
    type SigningKey = AwsLcRsSigningKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.random.fill(out).map_err(|_| NoEntropy)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(AwsLcRsEphemeral, PublicKey), NoEntropy> {
        let key = PrivateKey::generate(&agreement::ECDH_P256).map_err(|_| NoEntropy)?;
        let public = key.compute_public_key().map_err(|_| NoEntropy)?;
        let point: EcPublicKeyUncompressedBin<'_> = public.as_be_bytes().map_err(|_| NoEntropy)?;
        let point = point.as_ref().try_into().map_err(|_| NoEntropy)?;
        Ok((
            AwsLcRsEphemeral(AgreementKey::new(role, key)),
            PublicKey(point),
        ))
    }

    fn agree(&self, own: &mut AwsLcRsEphemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        own.0.agree(|key| {
            let peer = UnparsedPublicKey::new(&agreement::ECDH_P256, uncompressed(peer)?);
            agreement::agree(key, peer, BadPoint, |x| {
                x.try_into().map(Secret32::new).map_err(|_| BadPoint)
            })
        })
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> AwsLcRsAead {
        let algorithm = match suite {
            Suite::Aes128Gcm => &aead::AES_128_GCM,
            Suite::Aes256Gcm => &aead::AES_256_GCM,
            Suite::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        let bytes = key.expose().get(..suite.key_len());
        let Some(Ok(key)) = bytes.map(|bytes| UnboundKey::new(algorithm, bytes)) else {
            unreachable!("a key is refused for its length only, and the suite's length is right");
        };
        AwsLcRsAead(LessSafeKey::new(key))
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<AwsLcRsSigningKey, NoEntropy> {
        // The scalar and the point of an `Identity` always match.
        EcdsaKeyPair::from_private_key_and_public_key(
            &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            identity.scalar().expose(),
            &identity.public_key().0,
        )
        .map(AwsLcRsSigningKey)
        .map_err(|_| NoEntropy)
    }

    fn sign(&mut self, key: &AwsLcRsSigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        let signature = key.0.sign(&self.random, message).map_err(|_| NoEntropy)?;
        signature.as_ref().try_into().map_err(|_| NoEntropy)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        uncompressed(key).is_ok_and(|point| {
            signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                .verify(message, signature)
                .is_ok()
        })
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in parts {
            context.update(part);
        }
        first_32(context.finish().as_ref())
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
        for part in parts {
            context.update(part);
        }
        first_32(context.sign().as_ref())
    }
}

wire::opaque_debug!(AwsLcRsAead, AwsLcRsEphemeral, AwsLcRsSigningKey);

/// An AEAD of [`AwsLcRs`] with its key.
pub struct AwsLcRsAead(LessSafeKey);

impl Aead for AwsLcRsAead {
    fn seal(&self, nonce: [u8; 12], aad: &[u8], inout: &mut [u8], tag: &mut [u8; 16]) {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(aad), inout);
        if let Ok(Ok(bytes)) = sealed.map(|sealed| sealed.as_ref().try_into()) {
            *tag = bytes;
        } else {
            inout.zeroize();
            tag.zeroize();
        }
    }

    fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        inout: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .open_in_place_separate_tag(nonce, Aad::from(aad), tag, inout)
            .map(|_| ())
            .map_err(|_| OpenError)
    }
}

/// An ephemeral key of [`AwsLcRs`]. The first agreement consumes an accepter's key.
pub struct AwsLcRsEphemeral(AgreementKey<PrivateKey>);

/// An identity prepared for signing by [`AwsLcRs`].
pub struct AwsLcRsSigningKey(EcdsaKeyPair);

/// AWS-LC would also accept the hybrid form of SEC1; the protocol allows only one form.
const fn uncompressed(key: &PublicKey) -> Result<&[u8; 65], BadPoint> {
    match key.0 {
        [0x04, ..] => Ok(&key.0),
        _ => Err(BadPoint),
    }
}

#[cfg(test)]
impl AwsLcRsEphemeral {
    pub(super) fn from_scalar(role: Role, scalar: &[u8; 32]) -> Self {
        let key = PrivateKey::from_private_key(&agreement::ECDH_P256, scalar).unwrap();
        Self(AgreementKey::new(role, key))
    }
}
