//! Opening and checking a replay file; the input chain.

use sha2::{Digest, Sha256};
use wire::codec::Reader;

use super::format::{CHECKSUM_LEN, HEAD_LEN, Head, Kind, Layout, SEAL_LEN_MAX, checksum};
use super::{Damage, ReplayError, ReplayHeader};
use crate::bundle;
use crate::input::Row;
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

/// A fully checked replay. It borrows the file and holds three rows of inputs and an entry per
/// keyframe.
#[derive(Clone, Debug)]
pub struct ReplayReader<'a> {
    header: ReplayHeader,
    cursor: Cursor<'a>,
    keyframes: Vec<KeyframeAt>,
    head: ChainHead,
    ending: Ending,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct KeyframeAt {
    pub(super) tick: Tick,
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
        let mut chain = ChainHead::new(&match_part);
        let before = Cursor::new(bytes, &header, start);
        let mut cursor = before.clone();
        let (mut keyframes, mut unchecked) = (Vec::new(), 0_u32);
        let ending = loop {
            let damaged = |damage, cursor: &Cursor<'_>| ReplayError::Damaged {
                damage,
                offset: cursor.record_at,
                ticks: cursor.next.0,
            };
            match cursor.next_item() {
                Ok(Item::Tick { bundle, .. }) => {
                    chain.absorb(bundle);
                    unchecked = unchecked.saturating_add((!cursor.is_whole).into());
                }
                Ok(Item::Keyframe { offset, snapshot }) => {
                    keyframes.push(limits.locate(cursor.next, offset, snapshot)?);
                    limits.count(keyframes.len())?;
                }
                Ok(Item::Seal(_)) => {}
                Ok(Item::End(head)) if head == chain => break Ending::Complete,
                Ok(Item::End(_)) => return Err(damaged(Damage::Chain, &cursor)),
                Err(Stop::Over) => break Ending::Cut { unchecked },
                Err(Stop::Damaged(damage)) => return Err(damaged(damage, &cursor)),
            }
        };
        Ok(Self {
            header,
            cursor: before,
            keyframes,
            head: chain,
            ending,
        })
    }

    /// Returns the metadata.
    pub const fn header(&self) -> &ReplayHeader {
        &self.header
    }

    /// Returns the number of ticks.
    pub const fn ticks(&self) -> u32 {
        self.head.ticks
    }

    /// Returns how the file ends.
    pub const fn ending(&self) -> Ending {
        self.ending
    }

    /// Returns the hash over the match and all its ticks, recomputed.
    pub const fn head(&self) -> ChainHead {
        self.head
    }

    /// Returns the ticks that have a keyframe before them, in order.
    pub fn keyframes(&self) -> impl Iterator<Item = Tick> {
        self.keyframes.iter().map(|keyframe| keyframe.tick)
    }

    /// Returns each seal recorded by [`ReplayWriter::seal`](super::ReplayWriter::seal), with the
    /// head it is about. Reads the file once.
    pub fn seals(&self) -> impl Iterator<Item = (ChainHead, &'a [u8])> + use<'a> {
        let mut match_part = Vec::new();
        self.header.write_match(&mut match_part);
        let mut chain = ChainHead::new(&match_part);
        let mut cursor = self.cursor();
        core::iter::from_fn(move || {
            loop {
                match cursor.next_item().ok()? {
                    Item::Tick { bundle, .. } => chain.absorb(bundle),
                    Item::Seal(words) => return Some((chain, words)),
                    Item::Keyframe { .. } | Item::End(_) => {}
                }
            }
        })
    }

    /// Returns the heap bytes in use besides the file, accurate to about one allocation.
    pub fn memory_len(&self) -> usize {
        let names = [&self.header.game, &self.header.seed, &self.header.neutral];
        let keyframes = self
            .keyframes
            .capacity()
            .saturating_mul(size_of::<KeyframeAt>());
        names
            .into_iter()
            .map(Vec::capacity)
            .chain([keyframes, self.cursor.memory_len()])
            .fold(0, usize::saturating_add)
    }

    pub(super) fn cursor(&self) -> Cursor<'a> {
        self.cursor.clone()
    }

    pub(super) fn keyframe_before(&self, tick: Tick) -> Option<KeyframeAt> {
        let count = self
            .keyframes
            .partition_point(|keyframe| keyframe.tick <= tick);
        self.keyframes.get(count.checked_sub(1)?).copied()
    }
}

impl ReplayLimits {
    fn locate(
        &self,
        tick: Tick,
        offset: usize,
        snapshot: &[u8],
    ) -> Result<KeyframeAt, ReplayError> {
        if u32::try_from(snapshot.len()).is_ok_and(|len| len <= self.keyframe_len_max) {
            Ok(KeyframeAt { tick, offset })
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

/// The hash of a match and all inputs of its first ticks.
///
/// Equal heads mean equal inputs and origins from tick 0 on, since SHA-256 collisions are
/// infeasible. A server that signs [`to_bytes`](Self::to_bytes) certifies the match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// Number of ticks covered.
    pub ticks: u32,
    /// SHA-256 (FIPS 180-4) over the match and every bundle, each hashed with the digest before it.
    pub digest: [u8; 32],
}

impl ChainHead {
    /// Starts with the part of the header that all recorders of a match share.
    pub(super) fn new(match_part: &[u8]) -> Self {
        let hasher = Sha256::new_with_prefix([START]).chain_update(match_part);
        Self {
            ticks: 0,
            digest: hasher.finalize().into(),
        }
    }

    /// Adds the bundle of the next tick. Bundles are canonical, so equal inputs have equal heads.
    pub(super) fn absorb(&mut self, bundle: &[u8]) {
        let hasher = Sha256::new_with_prefix([LINK])
            .chain_update(self.digest)
            .chain_update(bundle);
        self.ticks = self.ticks.saturating_add(1);
        self.digest = hasher.finalize().into();
    }

    /// Returns the 48 bytes to sign: `twrp head 1` and a zero, 4 of ticks, 32 of hash.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&LABEL[..], &self.ticks.to_be_bytes(), &self.digest].concat()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    layout: Layout,
    start: usize,
    pub(super) record_at: usize,
    /// Offset of the next record; a truncated file ends before it.
    next_at: usize,
    ticks: &'a [u8],
    pub(super) is_whole: bool,
    pub(super) next: Tick,
    /// Tick of the last keyframe read; `Tick(0)` if none was.
    keyframe: Tick,
    initial: Row,
    pub(super) row: Row,
    scratch: Row,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Item<'a> {
    /// A tick; the cursor's row holds its inputs.
    Tick {
        tick: Tick,
        bundle: &'a [u8],
        state_hash: Option<u64>,
    },
    /// A state, as bytes of the game.
    Keyframe {
        offset: usize,
        snapshot: &'a [u8],
    },
    Seal(&'a [u8]),
    End(ChainHead),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Over,
    Damaged(Damage),
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], header: &ReplayHeader, start: usize) -> Self {
        let initial = header.initial_row();
        Self {
            bytes,
            layout: header.layout(),
            start,
            record_at: start,
            next_at: start,
            ticks: &[],
            is_whole: true,
            next: Tick(0),
            keyframe: Tick(0),
            row: initial.clone(),
            scratch: initial.clone(),
            initial,
        }
    }

    pub(super) fn next_item(&mut self) -> Result<Item<'a>, Stop> {
        loop {
            if !self.ticks.is_empty() {
                return self.read_tick();
            }
            if let Some(item) = self.read_record()? {
                return Ok(item);
            }
        }
    }

    pub(super) fn next_tick(&mut self) -> Option<(Tick, Option<u64>)> {
        loop {
            if let Item::Tick {
                tick, state_hash, ..
            } = self.next_item().ok()?
            {
                return Some((tick, state_hash));
            }
        }
    }

    pub(super) fn rewind(&mut self) {
        self.go_to(self.start, Tick(0));
        self.row.copy_from(&self.initial);
    }

    /// Moves to a keyframe that was read before, and returns its snapshot.
    pub(super) fn resume(&mut self, offset: usize, tick: Tick) -> Option<&'a [u8]> {
        self.go_to(offset, tick);
        let body = self.read_body(self.read_head().ok()??)?;
        let snapshot = self.read_named_row(body).ok()?;
        self.row.copy_from(&self.scratch);
        self.keyframe = tick;
        Some(snapshot)
    }

    pub(super) const fn memory_len(&self) -> usize {
        self.row.memory_len().saturating_mul(3)
    }

    const fn go_to(&mut self, offset: usize, tick: Tick) {
        self.record_at = offset;
        self.next_at = offset;
        self.ticks = &[];
        self.is_whole = true;
        self.next = tick;
        self.keyframe = Tick(0);
    }

    fn read_tick(&mut self) -> Result<Item<'a>, Stop> {
        // The last ticks of a truncated file are read as far as they go.
        let broken = if self.is_whole {
            Stop::Damaged(Damage::Ticks)
        } else {
            Stop::Over
        };
        let tick = self.next;
        if self.layout.has_keyframe_at(tick) && self.keyframe != tick || tick >= Tick::LAST {
            return Err(Stop::Damaged(Damage::Order));
        }
        let mut reader = Reader::new(self.ticks);
        let len = bundle::check(self.ticks, self.layout.shape).map_err(|_| broken)?;
        let bundle = reader.bytes(len).map_err(|_| broken)?;
        bundle::apply(bundle, &mut self.row).map_err(|_| broken)?;
        let mut state_hash = None;
        if self.layout.has_hash_at(tick) {
            state_hash = reader.u64().ok();
            if state_hash.is_none() {
                if self.is_whole {
                    return Err(broken);
                }
                reader.take_rest();
            }
        }
        self.ticks = reader.rest();
        self.next = tick.plus(1);
        Ok(Item::Tick {
            tick,
            bundle,
            state_hash,
        })
    }

    fn read_record(&mut self) -> Result<Option<Item<'a>>, Stop> {
        if !self.is_whole {
            return Err(Stop::Over);
        }
        self.record_at = self.next_at;
        let head = match self.read_head() {
            Ok(Some(head)) => head,
            Ok(None) => return Err(Stop::Damaged(Damage::Head)),
            Err(over) => return Err(over),
        };
        let Some(body) = self.read_body(head) else {
            let rest = self.bytes.get(self.record_at..).unwrap_or_default();
            let rest = rest.get(HEAD_LEN..).unwrap_or_default();
            if head.kind == Kind::Ticks {
                self.is_whole = false;
                self.ticks = rest.get(..head.len).unwrap_or(rest);
                return Ok(None);
            }
            return Err(Stop::Over);
        };
        if !self.is_as_written(body) {
            return Err(Stop::Damaged(Damage::Checksum));
        }
        self.read_whole(head.kind, body)
    }

    fn read_whole(&mut self, kind: Kind, body: &'a [u8]) -> Result<Option<Item<'a>>, Stop> {
        match kind {
            Kind::Ticks if !body.is_empty() => {
                self.ticks = body;
                Ok(None)
            }
            Kind::Ticks => Err(Stop::Damaged(Damage::Ticks)),
            Kind::Keyframe => {
                if !self.layout.has_keyframe_at(self.next) || self.keyframe == self.next {
                    return Err(Stop::Damaged(Damage::Order));
                }
                let snapshot = self.read_named_row(body)?;
                if self.scratch != self.row {
                    return Err(Stop::Damaged(Damage::Keyframe));
                }
                self.keyframe = self.next;
                Ok(Some(Item::Keyframe {
                    offset: self.record_at,
                    snapshot,
                }))
            }
            Kind::Seal if body.len() <= SEAL_LEN_MAX => Ok(Some(Item::Seal(body))),
            Kind::Seal => Err(Stop::Damaged(Damage::Seal)),
            Kind::End => {
                let mut reader = Reader::new(body);
                let (Ok(ticks), Ok(digest), true) =
                    (reader.u32(), reader.array(), reader.is_empty())
                else {
                    return Err(Stop::Damaged(Damage::End));
                };
                if ticks != self.next.0 || self.next_at != self.bytes.len() {
                    return Err(Stop::Damaged(Damage::End));
                }
                Ok(Some(Item::End(ChainHead { ticks, digest })))
            }
        }
    }

    fn read_head(&self) -> Result<Option<Head>, Stop> {
        let rest = self.bytes.get(self.record_at..).unwrap_or_default();
        Head::read(&mut Reader::new(rest)).map_err(|_| Stop::Over)
    }

    fn read_body(&mut self, head: Head) -> Option<&'a [u8]> {
        let start = self.record_at.checked_add(HEAD_LEN)?;
        let end = start.checked_add(head.len)?;
        let next_at = end.checked_add(CHECKSUM_LEN)?;
        self.bytes.get(..next_at)?;
        self.next_at = next_at;
        self.bytes.get(start..end)
    }

    /// Compares the checksum of the current record, which continues from that of the previous one.
    fn is_as_written(&self, body: &[u8]) -> bool {
        let checksum_at = |end: usize| {
            let start = end.checked_sub(CHECKSUM_LEN)?;
            Reader::new(self.bytes.get(start..end)?).u32().ok()
        };
        let len = HEAD_LEN.saturating_add(body.len());
        let end = self.record_at.saturating_add(len);
        let record = self.bytes.get(self.record_at..end);
        let expected = checksum_at(self.record_at)
            .zip(record)
            .map(|(before, record)| checksum(before, record));
        expected.is_some() && expected == checksum_at(self.next_at)
    }

    fn read_named_row(&mut self, body: &'a [u8]) -> Result<&'a [u8], Stop> {
        let damaged = Stop::Damaged(Damage::Keyframe);
        let len = bundle::check(body, self.layout.shape).map_err(|_| damaged)?;
        let (row, snapshot) = body.split_at_checked(len).ok_or(damaged)?;
        self.scratch.copy_from(&self.initial);
        bundle::apply(row, &mut self.scratch).map_err(|_| damaged)?;
        Ok(snapshot)
    }
}
