//! The head of a file: which match it is of, and what the recorder keeps.

use wire::MatchId;
use wire::codec::{Reader, Writer};

use super::format::{CHECKSUM_LEN, Layout, MAGIC, VERSION, checksum};
use super::{ReplayError, ReplayLimits};
use crate::bundle::Shape;
use crate::input::Width;
use crate::message::PERIOD_NANOS;
use crate::turn::Row;

/// What a replay says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayHeader {
    /// The match; state hashes are keyed by it.
    pub match_id: MatchId,
    /// Seats and width of an input.
    pub shape: Shape,
    /// Length of a tick, in nanoseconds; 1,000,000 to 1,000,000,000.
    pub period_nanos: u32,
    /// Which build of which game plays it; the application's own words, at most 64 bytes.
    pub game: Vec<u8>,
    /// What the match began from; the application's own bytes, at most 64.
    pub seed: Vec<u8>,
    /// The input of an empty seat: [`Input`](crate::Input)'s default, `shape.width` bits.
    pub neutral: Vec<u8>,
    /// Ticks from one state hash to the next; 0 where there are none.
    pub hash_interval: u8,
    /// Ticks from one keyframe to the next; 0 where there are none.
    pub keyframe_interval: u32,
}

impl ReplayHeader {
    /// Longest `game` and `seed`, in bytes.
    pub const NAME_LEN_MAX: usize = 64;

    /// Returns what decides where a record's parts lie.
    pub(super) const fn layout(&self) -> Layout {
        Layout {
            shape: self.shape,
            hash_interval: self.hash_interval,
            keyframe_interval: self.keyframe_interval,
        }
    }

    /// Makes the row before tick 0.
    pub(super) fn initial_row(&self) -> Row {
        Row::initial(self.shape.seats, self.shape.width, &self.neutral)
    }

    /// Appends the part that all recorders of a match share.
    pub(super) fn write_match(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.bytes(&MAGIC);
        writer.u8(VERSION);
        writer.bytes(&self.match_id.0);
        writer.u16(self.shape.seats);
        writer.u16(self.shape.width.get());
        writer.u32(self.period_nanos);
        for name in [&self.game, &self.seed] {
            writer.u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
            writer.bytes(name);
        }
        writer.bytes(&self.neutral);
    }

    /// Appends the whole header and returns its checksum.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> u32 {
        let start = out.len();
        self.write_match(out);
        let mut writer = Writer::new(out);
        writer.u8(self.hash_interval);
        writer.u32(self.keyframe_interval);
        let checksum = checksum(0, out.get(start..).unwrap_or_default());
        Writer::new(out).u32(checksum);
        checksum
    }

    /// Reads the header at the front of `bytes`; returns its length too.
    pub(super) fn read(bytes: &[u8], limits: &ReplayLimits) -> Result<(Self, usize), ReplayError> {
        let mut reader = Reader::new(bytes);
        if reader.array() != Ok(MAGIC) {
            return Err(ReplayError::NotAReplay);
        }
        match reader.u8() {
            Ok(VERSION) => {}
            Ok(other) => return Err(ReplayError::Version(other)),
            Err(_) => return Err(ReplayError::Header),
        }
        let header = Self::read_fields(&mut reader).ok_or(ReplayError::Header)?;
        let len = bytes.len().saturating_sub(reader.len());
        let counted = bytes.get(..len).unwrap_or_default();
        if reader.u32() != Ok(checksum(0, counted)) {
            return Err(ReplayError::Header);
        }
        if header.shape.bundle_len_max() > usize::from(limits.bundle_len_max) {
            return Err(ReplayError::TooLarge("its bundles"));
        }
        Ok((header, len.saturating_add(CHECKSUM_LEN)))
    }

    fn read_fields(reader: &mut Reader<'_>) -> Option<Self> {
        let match_id = MatchId(reader.array().ok()?);
        let seats = reader.u16().ok().filter(|seats| *seats > 0)?;
        let width = Width::new(reader.u16().ok()?)?;
        let period_nanos = reader.u32().ok()?;
        let game = read_name(reader)?;
        let seed = read_name(reader)?;
        let neutral = reader.bytes(width.byte_len()).ok()?.to_vec();
        let spare = u32::from(width.get().wrapping_neg() % 8);
        let is_cut = neutral.last()?.trailing_zeros() >= spare;
        let (hash_interval, keyframe_interval) = (reader.u8().ok()?, reader.u32().ok()?);
        (is_cut && PERIOD_NANOS.contains(&period_nanos)).then_some(Self {
            match_id,
            shape: Shape { seats, width },
            period_nanos,
            game,
            seed,
            neutral,
            hash_interval,
            keyframe_interval,
        })
    }
}

/// Takes a length and so many bytes.
fn read_name(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    let len = usize::from(reader.u8().ok()?);
    let name = reader.bytes(len).ok()?;
    (len <= ReplayHeader::NAME_LEN_MAX).then(|| name.to_vec())
}
