//! The default provider, on ring 0.17.

use core::fmt;

use ring::aead::{self, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::agreement::{self, EphemeralPrivateKey, UnparsedPublicKey};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{self, EcdsaKeyPair};
use ring::{digest, hmac};
use zeroize::Zeroize;

use super::{Aead, NoEntropy, OpenError, Provider, Role, first_32, x_of_shared_point};
use crate::{BadPoint, Identity, PublicKey, Secret32, Suite};

/// Provider on ring, with the randomness of the operating system. ring consumes an ephemeral key at
/// its first agreement, even a failed one, so p256 handles the dialler's.
pub struct Ring {
    random: SystemRandom,
}

impl Ring {
    /// Creates a provider, at no cost.
    #[must_use]
    pub fn new() -> Self {
        Self {
            random: SystemRandom::new(),
        }
    }

    /// Hashes with SHA-1, for protocols that require it and do not rely on it: the handshake of a
    /// WebSocket (RFC 6455, section 1.3).
    #[must_use]
    pub fn legacy_sha1(parts: &[&[u8]]) -> [u8; 20] {
        let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        for part in parts {
            context.update(part);
        }
        // The digest has 20 bytes.
        context.finish().as_ref().try_into().unwrap_or_default()
    }

    fn dialler(&mut self) -> Result<(RingEphemeral, PublicKey), NoEntropy> {
        let key = crate::identity::random_scalar(self)?;
        let public = PublicKey::from(key.public_key());
        Ok((RingEphemeral(Key::Dialler(key)), public))
    }

    fn accepter(&self) -> Result<(RingEphemeral, PublicKey), NoEntropy> {
        let key = EphemeralPrivateKey::generate(&agreement::ECDH_P256, &self.random)
            .map_err(|_| NoEntropy)?;
        let public = key.compute_public_key().map_err(|_| NoEntropy)?;
        let public = public.as_ref().try_into().map_err(|_| NoEntropy)?;
        Ok((RingEphemeral(Key::Accepter(key)), PublicKey(public)))
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ring")
    }
}

impl Provider for Ring {
    type Aead = RingAead;
    type Ephemeral = RingEphemeral;
    type SigningKey = RingSigningKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.random.fill(out).map_err(|_| NoEntropy)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(RingEphemeral, PublicKey), NoEntropy> {
        match role {
            Role::Dialler => self.dialler(),
            Role::Accepter => self.accepter(),
        }
    }

    fn agree(&self, own: &mut RingEphemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        if let Key::Dialler(key) = &own.0 {
            return x_of_shared_point(key, peer);
        }
        let Key::Accepter(key) = core::mem::replace(&mut own.0, Key::Spent) else {
            return Err(BadPoint);
        };
        let peer = UnparsedPublicKey::new(&agreement::ECDH_P256, &peer.0);
        agreement::agree_ephemeral(key, &peer, |x| x.try_into().map(Secret32::new))
            .map_err(|_| BadPoint)?
            .map_err(|_| BadPoint)
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> RingAead {
        let algorithm = match suite {
            Suite::Aes128Gcm => &aead::AES_128_GCM,
            Suite::Aes256Gcm => &aead::AES_256_GCM,
            Suite::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        let bytes = key.expose().get(..suite.key_len());
        let Some(Ok(key)) = bytes.map(|bytes| UnboundKey::new(algorithm, bytes)) else {
            unreachable!("ring refuses a key for its length only, and the suite's length is right");
        };
        RingAead(LessSafeKey::new(key))
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<RingSigningKey, NoEntropy> {
        // The scalar and the point of an `Identity` always match, so only randomness can fail.
        EcdsaKeyPair::from_private_key_and_public_key(
            &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            identity.scalar().expose(),
            &identity.public_key().0,
            &self.random,
        )
        .map(RingSigningKey)
        .map_err(|_| NoEntropy)
    }

    fn sign(&mut self, key: &RingSigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        let signature = key.0.sign(&self.random, message).map_err(|_| NoEntropy)?;
        signature.as_ref().try_into().map_err(|_| NoEntropy)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, &key.0)
            .verify(message, signature)
            .is_ok()
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

wire::opaque_debug!(RingAead, RingEphemeral, RingSigningKey);

/// An AEAD of ring with its key.
pub struct RingAead(LessSafeKey);

impl Aead for RingAead {
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
            .open_in_place_separate_tag(nonce, Aad::from(aad), Tag::from(*tag), inout, 0..)
            .map(|_| ())
            .map_err(|_| OpenError)
    }
}

/// An ephemeral key of [`Ring`].
pub struct RingEphemeral(Key);

enum Key {
    /// Usable for any number of agreements; wiped on drop.
    Dialler(p256::SecretKey),
    /// Usable for one agreement.
    Accepter(EphemeralPrivateKey),
    Spent,
}

/// An identity prepared for signing by [`Ring`].
pub struct RingSigningKey(EcdsaKeyPair);

#[cfg(test)]
impl RingEphemeral {
    pub(super) fn dialler_from_scalar(scalar: &[u8; 32]) -> Self {
        Self(Key::Dialler(p256::SecretKey::from_slice(scalar).unwrap()))
    }
}
