//! The proof of a match's inputs: one hash behind which all of them stand.

use sha2::{Digest, Sha256};

/// What goes before all that starts a chain, and before each of its links: neither passes for the
/// other.
const START: u8 = 0;
const LINK: u8 = 1;
/// What goes before a head that is signed, so that the signature is good for nothing else.
const LABEL: [u8; 12] = *b"twrp head 1\0";

/// SHA-256 (FIPS 180-4) over the match and every bundle, each hashed with the head before it.
#[derive(Clone, Debug)]
pub(super) struct InputChain {
    head: ChainHead,
}

impl InputChain {
    /// Starts with the part of the header that all recorders of a match share.
    pub(super) fn new(match_part: &[u8]) -> Self {
        let hasher = Sha256::new_with_prefix([START]).chain_update(match_part);
        let head = ChainHead {
            ticks: 0,
            digest: hasher.finalize().into(),
        };
        Self { head }
    }

    /// Adds the bundle of the next tick.
    ///
    /// Bundles are the only encoding of what they say, so equal inputs have equal heads.
    pub(super) fn absorb(&mut self, bundle: &[u8]) {
        let hasher = Sha256::new_with_prefix([LINK])
            .chain_update(self.head.digest)
            .chain_update(bundle);
        self.head = ChainHead {
            ticks: self.head.ticks.saturating_add(1),
            digest: hasher.finalize().into(),
        };
    }

    pub(super) const fn head(&self) -> ChainHead {
        self.head
    }
}

/// The hash of a match and all inputs of its first ticks.
///
/// Whoever has equal heads has equal inputs and origins, from tick 0 on: nobody finds two matches
/// with one SHA-256. A server that signs [`to_bytes`](Self::to_bytes) says that this was the match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// How many ticks it covers.
    pub ticks: u32,
    /// SHA-256.
    pub digest: [u8; 32],
}

impl ChainHead {
    /// Returns what to sign, 48 bytes: `twrp head 1` and a zero, 4 of ticks, 32 of hash.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [&LABEL[..], &self.ticks.to_be_bytes(), &self.digest].concat()
    }
}
