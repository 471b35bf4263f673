//! Opening a file.

use super::cursor::{Cursor, Item, Stop};
use super::input_chain::InputChain;
use super::{ChainHead, Damage, ReplayError, ReplayHeader};
use crate::tick::Tick;

/// What a reader accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayLimits {
    /// Longest bundle of the match, in bytes; 1,200, as
    /// [`ClientConfig::bundle_len_max`](crate::ClientConfig::bundle_len_max). Bounds seats and
    /// input width, and so the memory of one tick.
    pub bundle_len_max: u16,
    /// Longest snapshot, in bytes; 4 MiB. The game has to read it.
    pub keyframe_len_max: u32,
    /// Most keyframes; 4,096, two hours of one each two seconds. Each takes 16 bytes of memory.
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

/// A replay whose every byte has been checked.
///
/// It borrows the file and holds beside it three rows of inputs and a place for each keyframe,
/// whatever the file says. Opening reads the file once: work grows with its length alone.
#[derive(Clone, Debug)]
pub struct ReplayReader<'a> {
    header: ReplayHeader,
    /// Before tick 0.
    cursor: Cursor<'a>,
    keyframes: Vec<Place>,
    head: ChainHead,
    ending: Ending,
}

/// Where a keyframe lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// First tick that it is not behind.
    pub(super) tick: Tick,
    /// Of its record in the file.
    pub(super) offset: usize,
}

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With its end record: all ticks are there, and the chain's head is theirs.
    Complete,
    /// Sooner: the recorder or a copy was cut off. All whole ticks are there.
    Cut {
        /// How many of them lie in the record that is cut, without its checksum.
        unchecked: u32,
    },
}

impl<'a> ReplayReader<'a> {
    /// Checks `bytes`, the whole file, and opens it.
    ///
    /// # Errors
    ///
    /// [`ReplayError`] where it is no replay, more than `limits` allow, or not as it was written.
    /// A file that is cut off is no error: [`ending`](Self::ending) tells.
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

    /// Returns what the file says of the match.
    #[must_use]
    pub const fn header(&self) -> &ReplayHeader {
        &self.header
    }

    /// Returns how many ticks there are, from tick 0 on.
    #[must_use]
    pub const fn ticks(&self) -> u32 {
        self.head.ticks
    }

    /// Returns how the file ends.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        self.ending
    }

    /// Returns the hash over the match and all its ticks, computed anew.
    #[must_use]
    pub const fn head(&self) -> ChainHead {
        self.head
    }

    /// Returns the ticks before which a keyframe stands, in order.
    pub fn keyframes(&self) -> impl Iterator<Item = Tick> {
        self.keyframes.iter().map(|place| place.tick)
    }

    /// Returns what [`ReplayWriter::seal`](super::ReplayWriter::seal) took, each with the head it
    /// speaks of. Walks the file once.
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

    /// Returns the bytes that it holds on the heap beside the file, to about an allocation's
    /// worth.
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

    /// Makes a walk from tick 0.
    pub(super) fn cursor(&self) -> Cursor<'a> {
        self.cursor.clone()
    }

    /// Returns the last keyframe that is not behind `tick`.
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
