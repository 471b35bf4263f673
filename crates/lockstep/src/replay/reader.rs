//! Opening and checking a replay file; the input chain.

use sha2::{Digest, Sha256};

use super::cursor::{Cursor, Item, Stop};
use super::{Damage, ReplayError, ReplayHeader};
use crate::tick::Tick;

/// Limits of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayLimits {
    /// Longest bundle of the match, in bytes; 1,200, as
    /// [`ClientConfig::bundle_len_max`](crate::ClientConfig::bundle_len_max). Bounds seats and
    /// input width, and so the memory of one tick.
    pub bundle_len_max: u16,
    /// Longest snapshot, in bytes; 4 MiB. The game has to read it.
    pub keyframe_len_max: u32,
    /// Most keyframes; 4,096, two hours at one per two seconds. Each takes 16 bytes of memory.
    pub keyframes_max: u32,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self {
            bundle_len_max: 1_200,
            keyframe_len_max: 4 << 20,
            keyframes_max: 4_096,
        }
    }
}

/// A fully checked replay.
///
/// It borrows the file and holds three rows of inputs and an entry per keyframe, whatever the file
/// contains. Opening reads the file once, in linear time.
#[derive(Clone, Debug)]
pub struct ReplayReader<'a> {
    header: ReplayHeader,
    /// Positioned before tick 0.
    cursor: Cursor<'a>,
    keyframes: Vec<Place>,
    head: ChainHead,
    ending: Ending,
}

/// Position of a keyframe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// First tick after it.
    pub(super) tick: Tick,
    /// Offset of its record.
    pub(super) offset: usize,
}

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an end record: all ticks are there, and match the head of the chain.
    Complete,
    /// Truncated: the recording or a copy was interrupted. All complete ticks are there.
    Cut {
        /// Ticks in the truncated record, which has no checksum.
        unchecked: u32,
    },
}

impl<'a> ReplayReader<'a> {
    /// Checks `bytes`, the whole file, and opens it.
    ///
    /// # Errors
    ///
    /// [`ReplayError`] if it is no replay, exceeds `limits`, or is damaged. A truncated file is no
    /// error; see [`ending`](Self::ending).
    pub fn open(bytes: &'a [u8], limits: &ReplayLimits) -> Result<Self, ReplayError> {
        let (header, start) = ReplayHeader::read(bytes, limits)?;
        let mut match_part = Vec::new();
        header.write_match(&mut match_part);
        let mut chain = InputChain::new(&match_part);
        let before = Cursor::new(bytes, &header, start);
        let mut cursor = before.clone();
        let (mut keyframes, mut unchecked) = (Vec::new(), 0_u32);
        let ending = loop {
            let damaged = |damage, cursor: &Cursor<'_>| ReplayError::Damaged {
                damage,
                offset: cursor.record_at(),
                ticks: cursor.next().0,
            };
            match cursor.next_item() {
                Ok(Item::Tick { bundle, .. }) => {
                    chain.absorb(bundle);
                    unchecked = unchecked.saturating_add((!cursor.is_whole()).into());
                }
                Ok(Item::Keyframe { offset, snapshot }) => {
                    keyframes.push(limits.place(cursor.next(), offset, snapshot)?);
                    limits.count(keyframes.len())?;
                }
                Ok(Item::Seal(_)) => {}
                Ok(Item::End(head)) if head == chain.head() => break Ending::Complete,
                Ok(Item::End(_)) => return Err(damaged(Damage::Chain, &cursor)),
                Err(Stop::Over) => break Ending::Cut { unchecked },
                Err(Stop::Damaged(damage)) => return Err(damaged(damage, &cursor)),
            }
        };
        Ok(Self {
            header,
            cursor: before,
            keyframes,
            head: chain.head(),
            ending,
        })
    }

    /// Returns the metadata.
    #[must_use]
    pub const fn header(&self) -> &ReplayHeader {
        &self.header
    }

    /// Returns the number of ticks.
    #[must_use]
    pub const fn ticks(&self) -> u32 {
        self.head.ticks
    }

    /// Returns how the file ends.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        self.ending
    }

    /// Returns the hash over the match and all its ticks, recomputed.
    #[must_use]
    pub const fn head(&self) -> ChainHead {
        self.head
    }

    /// Returns the ticks that have a keyframe before them, in order.
    pub fn keyframes(&self) -> impl Iterator<Item = Tick> {
        self.keyframes.iter().map(|place| place.tick)
    }

    /// Returns each seal recorded by [`ReplayWriter::seal`](super::ReplayWriter::seal), with the
    /// head it is about. Reads the file once.
    pub fn seals(&self) -> impl Iterator<Item = (ChainHead, &'a [u8])> + use<'a> {
        let mut match_part = Vec::new();
        self.header.write_match(&mut match_part);
        let mut chain = InputChain::new(&match_part);
        let mut cursor = self.cursor();
        core::iter::from_fn(move || {
            loop {
                match cursor.next_item().ok()? {
                    Item::Tick { bundle, .. } => chain.absorb(bundle),
                    Item::Seal(words) => return Some((chain.head(), words)),
                    Item::Keyframe { .. } | Item::End(_) => {}
                }
            }
        })
    }

    /// Returns the heap bytes in use besides the file, accurate to about one allocation.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        let names = [&self.header.game, &self.header.seed, &self.header.neutral];
        let places = self.keyframes.capacity().saturating_mul(size_of::<Place>());
        names
            .into_iter()
            .map(Vec::capacity)
            .chain([places, self.cursor.memory_len()])
            .fold(0, usize::saturating_add)
    }

    /// Creates a cursor at tick 0.
    pub(super) fn cursor(&self) -> Cursor<'a> {
        self.cursor.clone()
    }

    /// Returns the last keyframe at or before `tick`.
    pub(super) fn keyframe_before(&self, tick: Tick) -> Option<Place> {
        let count = self.keyframes.partition_point(|place| place.tick <= tick);
        self.keyframes.get(count.checked_sub(1)?).copied()
    }
}

impl ReplayLimits {
    fn place(&self, tick: Tick, offset: usize, snapshot: &[u8]) -> Result<Place, ReplayError> {
        if u32::try_from(snapshot.len()).is_ok_and(|len| len <= self.keyframe_len_max) {
            Ok(Place { tick, offset })
        } else {
            Err(ReplayError::TooLarge("a keyframe"))
        }
    }

    fn count(&self, keyframes: usize) -> Result<(), ReplayError> {
        if u32::try_from(keyframes).is_ok_and(|count| count <= self.keyframes_max) {
            Ok(())
        } else {
            Err(ReplayError::TooLarge("the number of its keyframes"))
        }
    }
}

/// Domain separation between the start of a chain and its links.
const START: u8 = 0;
const LINK: u8 = 1;
/// Domain separation of signed heads.
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
    /// Bundles are canonical, so equal inputs have equal heads.
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
/// Equal heads mean equal inputs and origins from tick 0 on, since SHA-256 collisions are
/// infeasible. A server that signs [`to_bytes`](Self::to_bytes) certifies the match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// Number of ticks covered.
    pub ticks: u32,
    /// SHA-256.
    pub digest: [u8; 32],
}

impl ChainHead {
    /// Returns the 48 bytes to sign: `twrp head 1` and a zero, 4 of ticks, 32 of hash.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [&LABEL[..], &self.ticks.to_be_bytes(), &self.digest].concat()
    }
}
