//! Sources of randomness for [`RustCrypto`](super::RustCrypto).

use crate::NoEntropy;

/// A source of unpredictable bytes.
///
/// WebAssembly in a browser has no operating system: implement this trait with the host's
/// `crypto.getRandomValues`, and pass it to
/// [`RustCrypto::with_entropy`](super::RustCrypto::with_entropy).
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
