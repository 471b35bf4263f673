//! HKDF with SHA-256 (RFC 5869), on a provider's HMAC.

use zeroize::Zeroize;

use crate::{Provider, Secret32};

/// Extracts one secret from `input`; RFC 5869, section 2.2.
pub fn extract<P: Provider>(provider: &P, salt: &[u8], input: &[u8]) -> Secret32 {
    let mut secret = provider.hmac_sha256(salt, &[input]);
    Secret32::take(&mut secret)
}

/// Expands `secret` to `LEN` bytes, different for each `info`; RFC 5869, section 2.3.
///
/// `LEN` over 8,160 does not compile.
pub fn expand<P: Provider, const LEN: usize>(
    provider: &P,
    secret: &Secret32,
    info: &[u8],
) -> [u8; LEN] {
    const { assert!(LEN <= 255 * 32, "RFC 5869, section 2.3") };
    let mut out = [0; LEN];
    let mut block = [0; 32];
    let mut previous_len = 0;
    for (counter, chunk) in (1..=u8::MAX).zip(out.chunks_mut(block.len())) {
        let previous = block.get(..previous_len).unwrap_or_default();
        block = provider.hmac_sha256(secret.expose(), &[previous, info, &[counter]]);
        previous_len = block.len();
        for (to, from) in chunk.iter_mut().zip(block) {
            *to = from;
        }
    }
    block.zeroize();
    out
}
