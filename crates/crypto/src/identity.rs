//! Identities: P-256 private keys and their PEM encoding.

use p256::SecretKey;
use p256::pkcs8::{EncodePrivateKey, LineEnding};
use wire::NodeId;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{NoEntropy, Provider, PublicKey, Secret32};

/// Private key of a server or node, wiped on drop. The hash of its public key is the [`NodeId`].
pub struct Identity {
    key: SecretKey,
    /// Its point, computed once.
    public: PublicKey,
}

impl Identity {
    /// Generates an identity.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider has no randomness.
    pub fn generate<P: Provider>(provider: &mut P) -> Result<Self, NoEntropy> {
        random_scalar(provider).map(Self::from_key)
    }

    /// Reads the first private key in PEM: PKCS#8 (`PRIVATE KEY`) or SEC1 (`EC PRIVATE KEY`), as
    /// openssl writes them.
    ///
    /// # Errors
    ///
    /// [`PemError`] names the fault.
    pub fn from_pem(text: &str) -> Result<Self, PemError> {
        let key = if let Some(block) = pem_block(text, "PRIVATE KEY") {
            p256::pkcs8::DecodePrivateKey::from_pkcs8_pem(block).map_err(|_| PemError::Malformed)
        } else if let Some(block) = pem_block(text, "EC PRIVATE KEY") {
            SecretKey::from_sec1_pem(block).map_err(|_| PemError::Malformed)
        } else if pem_block(text, "ENCRYPTED PRIVATE KEY").is_some() {
            Err(PemError::Encrypted)
        } else {
            Err(PemError::NoKey)
        };
        key.map(Self::from_key)
    }

    /// Returns the key as PEM in PKCS#8 form, wiped on drop.
    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<alloc::string::String> {
        let Ok(text) = self.key.to_pkcs8_pem(LineEnding::LF) else {
            unreachable!("a valid key of fixed size always encodes");
        };
        text
    }

    /// Returns the key as PEM in SEC1 form (RFC 5915), wiped on drop, for programs without PKCS#8
    /// support.
    #[must_use]
    pub fn to_sec1_pem(&self) -> Zeroizing<alloc::string::String> {
        let Ok(text) = self.key.to_sec1_pem(LineEnding::LF) else {
            unreachable!("a valid key of fixed size always encodes");
        };
        text
    }

    /// Returns the public key.
    pub const fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// Returns the node id, which is the hash of the public key.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        self.public.node_id()
    }

    /// Returns the private scalar, big-endian, for a provider's [`Provider::signing_key`].
    #[must_use]
    pub fn scalar(&self) -> Secret32 {
        let mut bytes = self.key.to_bytes().0;
        Secret32::take(&mut bytes)
    }

    fn from_key(key: SecretKey) -> Self {
        let public = PublicKey::from(key.public_key());
        Self { key, public }
    }
}

/// p256 wipes the scalar.
impl ZeroizeOnDrop for Identity {}

wire::debug_fields!(
    Identity,
    this {
        public: this.public
    }
);

/// Why a text contains no usable key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PemError {
    /// The text has no PEM block of the required kind.
    NoKey,
    /// The private key is protected by a passphrase.
    Encrypted,
    /// The block is malformed, is not a P-256 key, or its two halves do not match.
    Malformed,
}

wire::error_text! { PemError {
    Self::NoKey => "no PEM block with such a key",
    Self::Encrypted => "the private key is encrypted, and only plain ones are read",
    Self::Malformed => "the PEM block holds no valid P-256 key",
}}

pub(crate) fn pem_block<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let begin = alloc::format!("-----BEGIN {label}-----");
    let end = alloc::format!("-----END {label}-----");
    let (_, after) = text.split_at_checked(text.find(&begin)?)?;
    let len = after.find(&end)?.checked_add(end.len())?;
    after.get(..len)
}

/// Draws a private scalar from 1 to n - 1, uniformly.
pub(crate) fn random_scalar<P: Provider>(provider: &mut P) -> Result<SecretKey, NoEntropy> {
    // A draw is out of range once in 2^32; eight in a row indicate a broken source.
    for _ in 0..8 {
        let mut bytes = [0; 32];
        provider.random(&mut bytes)?;
        let key = SecretKey::from_slice(&bytes);
        bytes.zeroize();
        if let Ok(key) = key {
            return Ok(key);
        }
    }
    Err(NoEntropy)
}
