//! Where the randomness of [`RustCrypto`](super::RustCrypto) comes from.

use crate::NoEntropy;

/// A source of bytes nobody else can predict.
///
/// WebAssembly in a browser has no operating system to ask: implement this over the host's
/// `crypto.getRandomValues`, and give it to
/// [`RustCrypto::with_entropy`](super::RustCrypto::with_entropy).
pub trait Entropy: Send + 'static {
    /// Fills `out`.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] where the source fails; never less than all of `out` by other means.
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy>;
}

/// The operating system's source, by the crate getrandom.
///
/// It is an [`Entropy`] on every target but WebAssembly without an operating system
/// (`wasm32-unknown-unknown`), which has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
impl Entropy for OsEntropy {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        getrandom::fill(out).map_err(|_| NoEntropy)
    }
}
