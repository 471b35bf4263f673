//! The pure Rust provider: p256, aes-gcm, chacha20poly1305, sha2 and hmac.

use alloc::boxed::Box;

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use chacha20poly1305::ChaCha20Poly1305;
use hmac::{Hmac, Mac};
use p256::ecdsa::signature::{Signer, Verifier};
use p256::ecdsa::{Signature, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::{Aead, AgreementKey, NoEntropy, OpenError, Provider, Role, x_of_shared_point};
use crate::{BadPoint, Identity, PublicKey, Secret32, Suite};

/// Provider in Rust alone, without C or assembly, for WebAssembly; several times slower than
/// [`Ring`](crate::Ring). `E` is its source of randomness. Signatures are deterministic (RFC 6979).
/// All keys are wiped on drop.
pub struct RustCrypto<E = OsEntropy> {
    entropy: E,
}

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
impl RustCrypto {
    /// Creates a provider with the randomness of the operating system, at no cost.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_entropy(OsEntropy)
    }
}

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
impl Default for RustCrypto {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Entropy> RustCrypto<E> {
    /// Creates a provider with randomness from `entropy`.
    #[must_use]
    pub const fn with_entropy(entropy: E) -> Self {
        Self { entropy }
    }
}

wire::opaque_debug!(
    RustCrypto<E>,
    RustCryptoAead,
    RustCryptoEphemeral,
    RustCryptoSigningKey
);

/// A source of unpredictable bytes.
///
/// WebAssembly in a browser has no operating system: implement this trait with the host's
/// `crypto.getRandomValues`, and pass it to
/// [`RustCrypto::with_entropy`].
pub trait Entropy: Send + 'static {
    /// Fills `out`.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the source fails. An implementation must not fill any part of `out` by
    /// other means.
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy>;
}

/// The operating system's randomness, through the crate getrandom.
///
/// It implements [`Entropy`] on every target except WebAssembly without an operating system
/// (`wasm32-unknown-unknown`).
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
impl Entropy for OsEntropy {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        getrandom::fill(out).map_err(|_| NoEntropy)
    }
}

impl<E: Entropy> Provider for RustCrypto<E> {
    type Aead = RustCryptoAead;
    type Ephemeral = RustCryptoEphemeral;
    type SigningKey = RustCryptoSigningKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.entropy.fill(out)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(RustCryptoEphemeral, PublicKey), NoEntropy> {
        let key = crate::identity::random_scalar(self)?;
        let public = PublicKey::from(key.public_key());
        Ok((RustCryptoEphemeral(AgreementKey::new(role, key)), public))
    }

    fn agree(&self, own: &mut RustCryptoEphemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        own.0.agree(|key| x_of_shared_point(key, peer))
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> RustCryptoAead {
        let bytes = key.expose().get(..suite.key_len()).unwrap_or_default();
        let cipher = match suite {
            Suite::Aes128Gcm => Aes128Gcm::new_from_slice(bytes)
                .map(Box::new)
                .map(Cipher::Aes128Gcm),
            Suite::Aes256Gcm => Aes256Gcm::new_from_slice(bytes)
                .map(Box::new)
                .map(Cipher::Aes256Gcm),
            Suite::ChaCha20Poly1305 => {
                ChaCha20Poly1305::new_from_slice(bytes).map(Cipher::ChaCha20Poly1305)
            }
        };
        let Ok(cipher) = cipher else {
            unreachable!("a key is refused for its length only, and the suite's length is right");
        };
        RustCryptoAead(cipher)
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<RustCryptoSigningKey, NoEntropy> {
        let Ok(key) = SigningKey::from_slice(identity.scalar().expose()) else {
            unreachable!("an identity holds a valid scalar");
        };
        Ok(RustCryptoSigningKey(key))
    }

    fn sign(&mut self, key: &RustCryptoSigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        let signature: Signature = key.0.sign(message);
        Ok(signature.to_bytes().into())
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        let Ok(point) = key.to_p256() else {
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

/// An AEAD of [`RustCrypto`] with its key.
pub struct RustCryptoAead(Cipher);

/// The AES variants are boxed, because they have over a thousand bytes.
enum Cipher {
    Aes128Gcm(Box<Aes128Gcm>),
    Aes256Gcm(Box<Aes256Gcm>),
    ChaCha20Poly1305(ChaCha20Poly1305),
}

/// Each cipher wipes itself.
impl ZeroizeOnDrop for RustCryptoAead {}

const fn wiped_on_drop<T: ZeroizeOnDrop>() {}
const _: () = {
    wiped_on_drop::<Aes128Gcm>();
    wiped_on_drop::<Aes256Gcm>();
    wiped_on_drop::<ChaCha20Poly1305>();
    wiped_on_drop::<p256::SecretKey>();
    wiped_on_drop::<SigningKey>();
};

impl Aead for RustCryptoAead {
    fn seal(&self, nonce: [u8; 12], aad: &[u8], inout: &mut [u8], tag: &mut [u8; 16]) {
        let nonce = nonce.into();
        let buffer = (&mut *inout).into();
        let sealed = match &self.0 {
            Cipher::Aes128Gcm(aead) => aead.encrypt_inout_detached(&nonce, aad, buffer),
            Cipher::Aes256Gcm(aead) => aead.encrypt_inout_detached(&nonce, aad, buffer),
            Cipher::ChaCha20Poly1305(aead) => aead.encrypt_inout_detached(&nonce, aad, buffer),
        };
        if let Ok(made) = sealed {
            *tag = made.into();
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
        let (nonce, tag) = (nonce.into(), (*tag).into());
        let buffer = inout.into();
        match &self.0 {
            Cipher::Aes128Gcm(aead) => aead.decrypt_inout_detached(&nonce, aad, buffer, &tag),
            Cipher::Aes256Gcm(aead) => aead.decrypt_inout_detached(&nonce, aad, buffer, &tag),
            Cipher::ChaCha20Poly1305(aead) => {
                aead.decrypt_inout_detached(&nonce, aad, buffer, &tag)
            }
        }
        .map_err(|_| OpenError)
    }
}

/// An ephemeral key of [`RustCrypto`]. The first agreement consumes an accepter's key.
pub struct RustCryptoEphemeral(AgreementKey<p256::SecretKey>);

/// p256 wipes the scalar.
impl ZeroizeOnDrop for RustCryptoEphemeral {}

/// An identity prepared for signing by [`RustCrypto`].
pub struct RustCryptoSigningKey(SigningKey);

/// p256 wipes the scalar.
impl ZeroizeOnDrop for RustCryptoSigningKey {}

#[cfg(test)]
impl RustCryptoEphemeral {
    pub(super) fn from_scalar(role: Role, scalar: &[u8; 32]) -> Self {
        Self(AgreementKey::new(
            role,
            p256::SecretKey::from_slice(scalar).unwrap(),
        ))
    }
}
