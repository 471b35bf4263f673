//! Hashes that detect and locate desyncs. They do not detect cheats: a cheater can compute them
//! too.

use wire::MatchId;

/// FNV-1a over 64 bits: offset basis and prime; draft-eastlake-fnv, section 5.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// Most sections of one state; further ones are merged into the last.
pub const SECTIONS_MAX: usize = 64;

/// Hashes a game state, in the order in which its parts are written.
///
/// Order matters, so write parts in an order that all participants share: by seat or by a stable
/// id, never in a hash table's order. Write numbers, not floats, and include the lengths of lists.
/// The hash is keyed by the match, so states of different matches do not compare equal.
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
///
/// # Sections
///
/// [`section`](Self::section) divides the state by name; a desync is then reported with the first
/// section that differs. Good sections are parts that one piece of code changes: `"clock"`,
/// `"random"`, `"units"`, `"projectiles"`, `"terrain"`. Write sections first that others depend on,
/// above all random numbers: of the sections that diverged in one tick, the first is reported. A
/// section split in sixteen (units by seat, terrain by region) is located sixteen times as
/// precisely. Begin the same sections in the same order in every tick, also empty ones. Each costs
/// 4 bytes per kept tick, and some nanoseconds.
///
/// ```
/// # use lockstep::StateHasher;
/// # let mut hasher = StateHasher::new(wire::MatchId([7; 16]));
/// hasher.section("random");
/// hasher.u64(0x5eed);
/// hasher.section("units");
/// for (id, health) in [(1, 100), (2, 80)] {
///     hasher.u32(id);
///     hasher.u32(health);
/// }
/// let names = hasher.sections().map(|(name, _)| name);
/// assert!(names.eq(["random", "units"]));
/// ```
#[derive(Clone, Debug)]
pub struct StateHasher {
    key: u64,
    root: u64,
    hash: u64,
    name: &'static str,
    is_divided: bool,
    /// The ended sections, the first `ended_count` entries.
    ended: [(&'static str, u32); SECTIONS_MAX - 1],
    ended_count: usize,
}

impl StateHasher {
    /// Starts the hash of one state of `match_id`.
    #[must_use]
    pub fn new(match_id: MatchId) -> Self {
        let key = absorb(BASIS, &match_id.0);
        Self {
            key,
            root: key,
            hash: key,
            name: "",
            is_divided: false,
            ended: [("", 0); SECTIONS_MAX - 1],
            ended_count: 0,
        }
    }

    pub(crate) const fn clear(&mut self) {
        (self.root, self.hash) = (self.key, self.key);
        (self.name, self.is_divided) = ("", false);
        self.ended_count = 0;
    }

    /// Begins the section `name`; bytes written before the first are in section `""`.
    ///
    /// Names and their order are part of the hash. Datagrams carry the first 32 bytes of a name, as
    /// ASCII; with more than 27 sections, the first `1_000 / sections - 5`.
    pub fn section(&mut self, name: &'static str) {
        if self.is_divided || self.hash != self.key {
            let hash = finish(self.hash);
            if let Some(ended) = self.ended.get_mut(self.ended_count) {
                *ended = (self.name, low_half(hash));
                self.ended_count = self.ended_count.saturating_add(1);
                self.root = absorb(self.root, &hash.to_be_bytes());
                self.hash = self.key;
                self.name = name;
            }
        } else {
            self.name = name;
        }
        self.is_divided = true;
        self.bytes(name.as_bytes());
        self.u64(u64::try_from(name.len()).unwrap_or(u64::MAX));
    }

    /// Adds `bytes`, without their length.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.hash = absorb(self.hash, bytes);
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

    /// Returns the hash over all sections, the *root*.
    pub fn finish(&self) -> u64 {
        if self.is_divided {
            finish(absorb(self.root, &finish(self.hash).to_be_bytes()))
        } else {
            finish(self.hash)
        }
    }

    /// Returns name and hash of each section, 1 to [`SECTIONS_MAX`], in order.
    pub fn sections(&self) -> impl Iterator<Item = (&'static str, u32)> + Clone {
        let last = (self.name, low_half(finish(self.hash)));
        self.ended
            .iter()
            .take(self.ended_count)
            .copied()
            .chain([last])
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogHash(u64);

impl LogHash {
    pub(crate) fn new(match_id: MatchId) -> Self {
        Self(absorb(BASIS, &match_id.0))
    }

    /// Returns the internal state, from which to continue.
    pub(crate) const fn to_raw(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Adds one bundle, with its length. Bundles are canonical, so equal logs have equal hashes.
    pub(crate) fn absorb(&mut self, bundle: &[u8]) {
        let len = u64::try_from(bundle.len()).unwrap_or(u64::MAX);
        self.0 = absorb(absorb(self.0, &len.to_be_bytes()), bundle);
    }

    pub(crate) const fn finish(self) -> u64 {
        finish(self.0)
    }

    /// Returns the 32 bits reported to the server, over log and state.
    pub(crate) fn report(self, state_hash: u64) -> u32 {
        low_half(finish(absorb(self.0, &state_hash.to_be_bytes())))
    }

    /// Returns 32 bits over the log alone, to tell diverged inputs from diverged states.
    pub(crate) const fn short(self) -> u32 {
        low_half(finish(self.0))
    }
}

fn absorb(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

const fn low_half(hash: u64) -> u32 {
    let [.., a, b, c, d] = hash.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Mixes all bits, which FNV-1a does not do for its last bytes; the finaliser of `SplitMix64`
/// (Steele, Lea, Flood, 2014).
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
        // Frozen: logs of older runs are compared with it.
        let mut hasher = StateHasher::new(MatchId([0; 16]));
        hasher.u32(0xdead_beef);
        assert_eq!(hasher.finish(), 935_856_892_089_023_466);
    }

    fn divided(sections: &[(&'static str, u8)]) -> StateHasher {
        let mut hasher = StateHasher::new(MatchId([2; 16]));
        for (name, value) in sections {
            hasher.section(name);
            hasher.u8(*value);
        }
        hasher
    }

    #[test]
    fn the_hash_of_sections_is_frozen() {
        let hasher = divided(&[("one", 1), ("two", 2)]);
        assert_eq!(hasher.finish(), 6_411_566_512_731_492_642);
        let sections: Vec<_> = hasher.sections().collect();
        assert_eq!(sections, [("one", 2_007_850_498), ("two", 2_513_217_242)]);
    }

    #[test]
    fn names_order_and_borders_of_sections_count() {
        let root = |sections| divided(sections).finish();
        let one = root(&[("one", 1), ("two", 2)]);
        assert_ne!(one, root(&[("two", 2), ("one", 1)]), "order");
        assert_ne!(one, root(&[("one", 1), ("Two", 2)]), "names");
        assert_ne!(one, root(&[("one", 1), ("two", 2), ("", 0)]));
        // The same bytes, divided differently.
        let hash = |name: [&'static str; 2], split: usize| {
            let mut hasher = StateHasher::new(MatchId([2; 16]));
            hasher.section(name[0]);
            hasher.bytes(&[7; 4][..split]);
            hasher.section(name[1]);
            hasher.bytes(&[7; 4][split..]);
            hasher.finish()
        };
        assert_ne!(hash(["a", "b"], 2), hash(["a", "b"], 3));
        assert_ne!(hash(["a", "b"], 4), hash(["a", "b"], 0));
    }

    #[test]
    fn a_section_depends_on_its_own_bytes_alone() {
        let sections = |last: u8| -> Vec<_> {
            let hasher = divided(&[("one", 1), ("two", last), ("three", 3)]);
            hasher.sections().collect()
        };
        let (one, other) = (sections(2), sections(3));
        assert_eq!(one[0], other[0]);
        assert_ne!(one[1], other[1]);
        assert_eq!(one[2], other[2]);
    }

    #[test]
    fn bytes_before_the_first_section_form_an_unnamed_one() {
        let mut hasher = StateHasher::new(MatchId([2; 16]));
        assert!(hasher.sections().map(|(name, _)| name).eq([""]));
        hasher.u8(9);
        hasher.section("one");
        assert!(hasher.sections().map(|(name, _)| name).eq(["", "one"]));
        // An empty section is not one.
        let names = divided(&[("one", 1)]);
        assert!(names.sections().map(|(name, _)| name).eq(["one"]));
    }

    #[test]
    fn sections_past_the_last_are_part_of_it() {
        let all: Vec<_> = (0..70).map(|value| ("part", value)).collect();
        let hasher = divided(&all);
        assert_eq!(hasher.sections().count(), SECTIONS_MAX);
        let mut changed = all.clone();
        changed[69].1 += 1;
        let other = divided(&changed);
        let differing: Vec<_> = (0..)
            .zip(hasher.sections().zip(other.sections()))
            .filter_map(|(index, (one, other))| (one != other).then_some(index))
            .collect();
        assert_eq!(differing, [SECTIONS_MAX - 1]);
        assert_ne!(hasher.finish(), other.finish());
    }
}
