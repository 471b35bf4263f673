//! Secret bytes: not printed, compared in constant time, wiped on drop.

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{NoEntropy, Provider};

/// 32 secret bytes: a pre-shared key, a step of the key schedule, an AEAD key. Wiped on drop;
/// moving one may leave a copy in an old stack frame.
#[derive(Clone)]
pub struct Secret32([u8; 32]);

impl Secret32 {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// Creates a secret from bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Generates a random secret.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider has no randomness.
    pub fn random<P: Provider>(provider: &mut P) -> Result<Self, NoEntropy> {
        let mut secret = Self([0; 32]);
        provider.random(&mut secret.0)?;
        Ok(secret)
    }

    /// Moves bytes into a secret and wipes the source.
    pub fn take(bytes: &mut [u8; 32]) -> Self {
        let secret = Self(*bytes);
        bytes.zeroize();
        secret
    }

    /// Returns the bytes, for a key derivation or a sealed encoding; never for a log.
    pub const fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Zeroize for Secret32 {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

impl Drop for Secret32 {
    fn drop(&mut self) {
        self.zeroize();
    }
}

impl ZeroizeOnDrop for Secret32 {}

wire::opaque_debug!(Secret32);

impl PartialEq for Secret32 {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        equal(&self.0, &other.0)
    }
}

impl Eq for Secret32 {}

/// Compares two MACs or secrets in time that depends on their lengths only.
#[must_use]
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn twp_k12_a_secret_prints_no_byte_of_it() {
        assert_eq!(format!("{:?}", Secret32::new([0xAB; 32])), "Secret32(..)");
    }

    #[test]
    fn take_wipes_the_source() {
        let mut bytes = [7; 32];
        let secret = Secret32::take(&mut bytes);
        assert_eq!(bytes, [0; 32]);
        assert_eq!(secret.expose(), &[7; 32]);
    }

    #[test]
    fn twp_k12_a_secret_is_wiped_on_drop() {
        const fn wiped_on_drop<T: ZeroizeOnDrop>() {}
        wiped_on_drop::<Secret32>();
        let mut secret = Secret32::new([7; 32]);
        secret.zeroize();
        assert_eq!(secret.expose(), &[0; 32]);
    }

    #[test]
    fn equality_compares_every_byte_and_the_length() {
        let a = [5; 32];
        assert!(equal(&a, &a));
        assert!(!equal(&a, &a[..31]));
        for index in 0..a.len() {
            let mut b = a;
            b[index] ^= 1;
            assert!(!equal(&a, &b));
            assert_ne!(Secret32::new(a), Secret32::new(b));
        }
    }
}
