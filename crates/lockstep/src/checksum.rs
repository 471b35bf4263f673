//! Hashes that find desyncs. They say nothing against cheats, who can compute them too.

use wire::MatchId;

/// FNV-1a over 64 bits: offset basis and prime; draft-eastlake-fnv, section 5.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// Hashes a game state, in the order in which its parts are written.
///
/// Order matters, so write things in an order that all participants share: by seat, by a stable
/// id, never as a hash table gives them. Write numbers, not floats. Lengths of lists belong in the
/// hash too. Keyed by the match, so that states of two matches never compare equal by habit.
///
/// ```
/// use lockstep::StateHasher;
/// use wire::MatchId;
///
/// let mut one = StateHasher::new(MatchId([7; 16]));
/// one.u32(1);
/// one.u32(2);
/// let mut other = StateHasher::new(MatchId([7; 16]));
/// other.u32(2);
/// other.u32(1);
/// assert_ne!(one.finish(), other.finish());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StateHasher(u64);

impl StateHasher {
    /// Starts the hash of one state of `match_id`.
    #[must_use]
    pub fn new(match_id: MatchId) -> Self {
        let mut hasher = Self(BASIS);
        hasher.bytes(&match_id.0);
        hasher
    }

    /// Adds `bytes` as they are; their number is not part of it.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(PRIME)
        });
    }

    /// Adds 8 bits.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Adds 32 bits.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    /// Adds 64 bits.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    /// Adds a signed number of 64 bits.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.bytes(&value.to_be_bytes());
    }

    /// Returns the hash.
    #[must_use]
    pub const fn finish(self) -> u64 {
        finish(self.0)
    }
}

/// Hash over all closed ticks so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogHash(u64);

impl LogHash {
    pub(crate) fn new(match_id: MatchId) -> Self {
        Self(StateHasher::new(match_id).0)
    }

    /// Returns what has to be known to go on from here.
    pub(crate) const fn to_raw(self) -> u64 {
        self.0
    }

    /// Goes on from where [`to_raw`](Self::to_raw) was called.
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Adds one bundle. Bundles are the only encoding of what they say, so equal logs have equal
    /// hashes; the length goes in as well.
    pub(crate) fn absorb(&mut self, bundle: &[u8]) {
        let mut hasher = StateHasher(self.0);
        hasher.u64(u64::try_from(bundle.len()).unwrap_or(u64::MAX));
        hasher.bytes(bundle);
        self.0 = hasher.0;
    }

    pub(crate) const fn finish(self) -> u64 {
        finish(self.0)
    }

    /// Returns the 32 bits that go to the server: over the log and the state, so that it learns
    /// of either's divergence.
    pub(crate) fn report(self, state_hash: u64) -> u32 {
        let mut hasher = StateHasher(self.0);
        hasher.u64(state_hash);
        let [.., a, b, c, d] = hasher.finish().to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

/// Spreads every bit over all others, which FNV-1a's last bytes do not reach; the finaliser of
/// `SplitMix64` (Steele, Lea, Flood, 2014).
const fn finish(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_match_and_every_bit_count() {
        let hash = |id: u8, parts: &[u64]| {
            let mut hasher = StateHasher::new(MatchId([id; 16]));
            for &part in parts {
                hasher.u64(part);
            }
            hasher.finish()
        };
        assert_ne!(hash(1, &[1, 2]), hash(1, &[2, 1]));
        assert_ne!(hash(1, &[1]), hash(2, &[1]));
        for bit in 0..64 {
            assert_ne!(hash(1, &[0]), hash(1, &[1 << bit]), "bit {bit}");
        }
    }

    #[test]
    fn a_report_depends_on_log_and_state() {
        let start = LogHash::new(MatchId([3; 16]));
        let mut other = start;
        other.absorb(&[0]);
        assert_ne!(start.report(1), other.report(1));
        assert_ne!(start.report(1), start.report(2));
        let (mut split, mut joined) = (start, start);
        split.absorb(&[1]);
        split.absorb(&[2]);
        joined.absorb(&[1, 2]);
        assert_ne!(split, joined, "bytes cannot move between ticks unseen");
    }

    #[test]
    fn the_hash_is_frozen() {
        // Logs of older runs are compared with it.
        let mut hasher = StateHasher::new(MatchId([0; 16]));
        hasher.u32(0xdead_beef);
        assert_eq!(hasher.finish(), 935_856_892_089_023_466);
    }
}
