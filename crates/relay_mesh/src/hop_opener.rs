//! The opener of a link.

use core::fmt;

use crypto::{Aead, OpenError, Provider};
use wire::Instant;

use crate::hop::HopHeader;
use crate::key_ring::{KeyRing, Sealed};
use crate::link_secret::{EPOCHS, LinkSecret, ShardPair, mask};

/// Opens the frames of one link and direction between two shards.
pub struct HopOpener<A> {
    keys: KeyRing<A>,
}

impl<A: Aead> HopOpener<A> {
    /// Creates the opener of frames from one shard to the other.
    pub fn new<P: Provider<Aead = A>>(provider: &P, secret: &LinkSecret, pair: ShardPair) -> Self {
        let (suite, secret) = secret.of(provider, pair);
        Self {
            keys: KeyRing::new(provider, suite, secret, EPOCHS),
        }
    }

    /// Handles the announced key epoch of the other end; returns false if it is more than 64 epochs
    /// ahead, or exceeds one epoch a second.
    pub fn reach<P: Provider<Aead = A>>(&mut self, provider: &P, now: Instant, epoch: u32) -> bool {
        self.keys.reach(provider, now, epoch)
    }

    /// Decrypts a sealed frame in place and returns its body, the end-to-end ciphertext and tag.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the frame was modified or is of another link; the frame is then garbage.
    pub fn open<'a, P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        header: &HopHeader,
        frame: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        let (aad, rest) = frame
            .split_first_chunk_mut::<{ HopHeader::LEN }>()
            .ok_or(OpenError)?;
        let (tag, body) = rest.split_first_chunk_mut::<16>().ok_or(OpenError)?;
        let sealed = Sealed {
            phase: header.epoch,
            mask: mask(header),
            aad,
            body,
            tag,
        };
        self.keys.open(provider, now, sealed)?;
        Ok(body)
    }
}

impl<A> fmt::Debug for HopOpener<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HopOpener(..)")
    }
}
