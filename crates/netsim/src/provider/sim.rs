//! The provider that a seed replays.

use core::fmt;

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use chacha20poly1305::ChaCha20Poly1305;
use crypto::{
    Aead, BadPoint, Identity, NoEntropy, OpenError, Provider, PublicKey, Role, Secret32, Suite,
};
use hmac::{Hmac, Mac};
use p256::ecdsa::signature::{Signer, Verifier};
use p256::ecdsa::{Signature, SigningKey, VerifyingKey};
use p256::elliptic_curve::sec1::ToSec1Point;
use sha2::{Digest, Sha256};
use wire::{Generator, Seed};

/// Real cryptography (p256, aes-gcm, chacha20poly1305, sha2) with randomness from a seed.
///
/// Equal seeds and equal calls give equal bytes, signatures included (RFC 6979). Whoever knows the
/// seed knows every key, so it is for simulations and tests. It is as strict as the strictest
/// provider: an accepter's key is spent by its first agreement, also by one that fails. Give each
/// machine of a world a seed of its own, else they draw the same keys.
pub struct SimProvider {
    generator: Generator,
}

impl SimProvider {
    /// Makes the provider that `seed` names.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self {
            generator: seed.generator(PURPOSE),
        }
    }
}

impl fmt::Debug for SimProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimProvider(..)")
    }
}

impl Provider for SimProvider {
    type Aead = SimAead;
    type Ephemeral = SimEphemeral;
    type SigningKey = SimSigningKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.generator.fill(out);
        Ok(())
    }

    fn ephemeral(&mut self, role: Role) -> Result<(SimEphemeral, PublicKey), NoEntropy> {
        let key = loop {
            let mut bytes = [0; 32];
            self.generator.fill(&mut bytes);
            // Outside 1 to n - 1 once in 2^32; a generator does not stay there.
            if let Ok(key) = p256::SecretKey::from_slice(&bytes) {
                break key;
            }
        };
        let point = key.public_key().to_sec1_point(false);
        let public = point.as_bytes().try_into().map_err(|_| NoEntropy)?;
        let key = Some(key);
        Ok((SimEphemeral { role, key }, PublicKey(public)))
    }

    fn agree(&self, own: &mut SimEphemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        let spent;
        let key = match own.role {
            Role::Dialler => own.key.as_ref(),
            Role::Accepter => {
                spent = own.key.take();
                spent.as_ref()
            }
        };
        let point = parse(peer).ok_or(BadPoint)?;
        let shared = key.ok_or(BadPoint)?.diffie_hellman(&point);
        Ok(Secret32::new(shared.raw_secret_bytes().0))
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> SimAead {
        let bytes = key.expose().get(..suite.key_len()).unwrap_or_default();
        let aead = match suite {
            Suite::Aes128Gcm => Aes128Gcm::new_from_slice(bytes)
                .map(Box::new)
                .map(SimAead::Aes128Gcm),
            Suite::Aes256Gcm => Aes256Gcm::new_from_slice(bytes)
                .map(Box::new)
                .map(SimAead::Aes256Gcm),
            Suite::ChaCha20Poly1305 => {
                ChaCha20Poly1305::new_from_slice(bytes).map(SimAead::ChaCha20Poly1305)
            }
        };
        let Ok(aead) = aead else {
            unreachable!("a key is refused for its length only, and the suite's length is right");
        };
        aead
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<SimSigningKey, NoEntropy> {
        let scalar = identity.scalar();
        let Ok(key) = SigningKey::from_slice(scalar.expose()) else {
            unreachable!("an identity holds a valid scalar");
        };
        Ok(SimSigningKey(key))
    }

    fn sign(&mut self, key: &SimSigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        let signature: Signature = key.0.sign(message);
        Ok(signature.to_bytes().into())
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        let Some(point) = parse(key) else {
            return false;
        };
        Signature::from_slice(signature).is_ok_and(|signature| {
            VerifyingKey::from(point)
                .verify(message, &signature)
                .is_ok()
        })
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        hash.finalize().into()
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
            unreachable!("HMAC takes a key of any length");
        };
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// An AEAD of [`SimProvider`] with its key.
pub enum SimAead {
    /// Suite 1.
    Aes128Gcm(Box<Aes128Gcm>),
    /// Suite 2.
    Aes256Gcm(Box<Aes256Gcm>),
    /// Suite 3.
    ChaCha20Poly1305(ChaCha20Poly1305),
}

impl fmt::Debug for SimAead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimAead(..)")
    }
}

impl Aead for SimAead {
    fn seal(&self, nonce: [u8; 12], aad: &[u8], inout: &mut [u8], tag: &mut [u8; 16]) {
        let buffer = (&mut *inout).into();
        let sealed = match self {
            Self::Aes128Gcm(aead) => aead.encrypt_inout_detached(&nonce.into(), aad, buffer),
            Self::Aes256Gcm(aead) => aead.encrypt_inout_detached(&nonce.into(), aad, buffer),
            Self::ChaCha20Poly1305(aead) => aead.encrypt_inout_detached(&nonce.into(), aad, buffer),
        };
        if let Ok(made) = sealed {
            *tag = made.into();
        } else {
            // Past the length limit of the AEAD: nothing readable may leave.
            inout.fill(0);
            tag.fill(0);
        }
    }

    fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        inout: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        let (nonce, buffer) = (nonce.into(), inout.into());
        let tag = (*tag).into();
        match self {
            Self::Aes128Gcm(aead) => aead.decrypt_inout_detached(&nonce, aad, buffer, &tag),
            Self::Aes256Gcm(aead) => aead.decrypt_inout_detached(&nonce, aad, buffer, &tag),
            Self::ChaCha20Poly1305(aead) => aead.decrypt_inout_detached(&nonce, aad, buffer, &tag),
        }
        .map_err(|_| OpenError)
    }
}

/// An ephemeral key of [`SimProvider`].
pub struct SimEphemeral {
    role: Role,
    /// `None` once an accepter's has served.
    key: Option<p256::SecretKey>,
}

impl fmt::Debug for SimEphemeral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimEphemeral(..)")
    }
}

/// An identity made ready for signing by [`SimProvider`].
pub struct SimSigningKey(SigningKey);

impl fmt::Debug for SimSigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimSigningKey(..)")
    }
}

/// The point, where it stands in uncompressed form.
fn parse(key: &PublicKey) -> Option<p256::PublicKey> {
    if key.0.first() != Some(&0x04) {
        return None;
    }
    p256::PublicKey::from_sec1_bytes(&key.0).ok()
}

/// Stream of the seed's generator that no other part of a world draws from; "crypto" in ASCII.
const PURPOSE: u64 = 0x6372_7970_746F;
