//! The interface between protocols and cryptography: [`Provider`] and [`Aead`].
//!
//! A provider is a value with its own randomness, passed to the constructor of a machine. Cargo
//! features enable providers; a type parameter selects one. The traits are open: a wrapper may
//! count, record or delay the calls of any other provider.

use wire::{InstanceId, Seed};

use crate::{BadPoint, Identity, PublicKey, Secret32, Suite};

#[cfg(feature = "aws-lc-rs")]
mod aws_lc_rs;
#[cfg(feature = "ring")]
mod ring;
#[cfg(feature = "rustcrypto")]
mod rustcrypto;
#[cfg(test)]
mod tests;

#[cfg(feature = "aws-lc-rs")]
pub use self::aws_lc_rs::{AwsLcRs, AwsLcRsAead, AwsLcRsEphemeral, AwsLcRsSigningKey};
#[cfg(feature = "ring")]
pub use self::ring::{Ring, RingAead, RingEphemeral, RingSigningKey};
#[cfg(feature = "rustcrypto")]
pub use self::rustcrypto::{
    Entropy, OsEntropy, RustCrypto, RustCryptoAead, RustCryptoEphemeral, RustCryptoSigningKey,
};

/// Cryptography and randomness of one machine.
///
/// All hashes are SHA-256, all curves P-256. Two providers must agree on every byte except random
/// ones; test vectors and pairwise tests check this.
pub trait Provider: Send + 'static {
    /// An AEAD with its key.
    type Aead: Aead;
    /// A private key for one handshake.
    type Ephemeral: Send + 'static;
    /// An identity prepared for signing.
    type SigningKey: Send + 'static;

    /// Fills `out` with unpredictable bytes.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the source fails. There is no fallback; do not use `out`.
    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy>;

    /// Draws a seed for values that peers may see, such as jitter.
    ///
    /// # Errors
    ///
    /// As [`random`](Self::random).
    fn random_seed(&mut self) -> Result<Seed, NoEntropy> {
        let mut seed = [0; 32];
        self.random(&mut seed)?;
        Ok(Seed(seed))
    }

    /// Draws the id of one run of a server.
    ///
    /// # Errors
    ///
    /// As [`random`](Self::random).
    fn random_instance(&mut self) -> Result<InstanceId, NoEntropy> {
        let mut id = [0; 8];
        self.random(&mut id)?;
        Ok(InstanceId(u64::from_be_bytes(id)))
    }

    /// Generates a key pair for one handshake.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider has no randomness.
    fn ephemeral(&mut self, role: Role) -> Result<(Self::Ephemeral, PublicKey), NoEntropy>;

    /// Agrees on a secret, the x coordinate of the shared point, with the holder of `peer`.
    ///
    /// A dialler's key serves any number of agreements, so that a forged answer does not consume
    /// it. An accepter's may be consumed by the first, failed or not.
    ///
    /// # Errors
    ///
    /// [`BadPoint`] if `peer` is not a point of the curve in uncompressed form, or the key was
    /// consumed.
    fn agree(&self, own: &mut Self::Ephemeral, peer: &PublicKey) -> Result<Secret32, BadPoint>;

    /// Makes an AEAD of `suite` from the first [`Suite::key_len`] bytes of `key`.
    fn aead(&self, suite: Suite, key: &Secret32) -> Self::Aead;

    /// Prepares `identity` for signing. Do this once, because it costs more than a signature.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider has no randomness.
    fn signing_key(&mut self, identity: &Identity) -> Result<Self::SigningKey, NoEntropy>;

    /// Signs `message` by ECDSA with SHA-256; the signature is r and s, 32 bytes each.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider has no randomness.
    fn sign(&mut self, key: &Self::SigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy>;

    /// Returns whether the holder of `key` signed `message`. Both (r, s) and (r, n - s) verify, so
    /// a signature is no identifier.
    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool;

    /// Hashes the concatenated parts.
    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32];

    /// Computes HMAC-SHA-256 over the concatenated parts; `key` may have any length.
    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32];
}

/// An AEAD with its key; 12 bytes of nonce, 16 of tag. The caller of [`seal`](Self::seal) is
/// responsible for the nonce, as [`SealingKey`](crate::SealingKey) is.
pub trait Aead: Send + 'static {
    /// Encrypts `inout`, at most a datagram, in place and writes its tag. On failure, wipes it.
    fn seal(&self, nonce: [u8; 12], aad: &[u8], inout: &mut [u8], tag: &mut [u8; 16]);

    /// Decrypts `inout` in place.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if anything was changed or the key differs. `inout` is then garbage and must
    /// not be read.
    fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        inout: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError>;
}

/// The side of a handshake that uses an ephemeral key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sends HELLO, and runs the agreement for each ACCEPT until one is genuine.
    Dialler,
    /// Answers a HELLO and runs the agreement once.
    Accepter,
}

/// The source of randomness failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoEntropy;

wire::error_text! { NoEntropy {
    Self => "the source of randomness failed",
}}

/// Sealed bytes were changed, or sealed under another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenError;

wire::error_text! { OpenError {
    Self => "sealed bytes were changed or belong to another key",
}}

#[cfg(any(feature = "aws-lc-rs", feature = "ring"))]
/// SHA-256 and its HMAC give 32 bytes.
fn first_32(bytes: &[u8]) -> [u8; 32] {
    let Some(array) = bytes.first_chunk() else {
        unreachable!("SHA-256 gives 32 bytes");
    };
    *array
}

#[cfg(any(feature = "aws-lc-rs", feature = "rustcrypto"))]
/// A private key: a dialler may use it any number of times, an accepter once.
struct AgreementKey<K> {
    role: Role,
    /// `None` after an accepter's key has been used.
    key: Option<K>,
}

#[cfg(any(feature = "aws-lc-rs", feature = "rustcrypto"))]
impl<K> AgreementKey<K> {
    const fn new(role: Role, key: K) -> Self {
        Self {
            role,
            key: Some(key),
        }
    }

    /// Agrees with the key. An accepter's key is dropped, even if the agreement fails.
    fn agree(
        &mut self,
        agree: impl FnOnce(&K) -> Result<Secret32, BadPoint>,
    ) -> Result<Secret32, BadPoint> {
        match self.role {
            Role::Dialler => agree(self.key.as_ref().ok_or(BadPoint)?),
            Role::Accepter => agree(&self.key.take().ok_or(BadPoint)?),
        }
    }
}

#[cfg(any(feature = "ring", feature = "rustcrypto"))]
/// ECDH; SEC 1, section 3.3.1. Neither factor is zero, so the product is a point with an x.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "multiplication in a group does not overflow"
)]
fn x_of_shared_point(key: &p256::SecretKey, peer: &PublicKey) -> Result<Secret32, BadPoint> {
    use p256::elliptic_curve::point::AffineCoordinates;
    use zeroize::{Zeroize, Zeroizing};

    let scalar = Zeroizing::new(key.to_nonzero_scalar());
    let mut shared = (peer.to_p256()?.to_projective() * scalar.as_ref()).to_affine();
    let mut x = shared.x().0;
    shared.zeroize();
    Ok(Secret32::take(&mut x))
}
