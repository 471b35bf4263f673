//! Record and header format.

use wire::MatchId;
use wire::codec::{Reader, Truncated, Writer};

use super::{Mismatch, ReplayLimits};
use crate::bundle::Shape;
use crate::event::errors;
use crate::input::{Row, Width};
use crate::message::PERIOD_NANOS;
use crate::tick::Tick;

pub(super) const MAGIC: [u8; 4] = *b"TWRP";
/// Version of the format; others are refused.
pub(super) const VERSION: u8 = 1;
/// Record header: kind, length, check byte.
pub(super) const HEAD_LEN: usize = 5;
/// CRC32C after the body.
pub(super) const CHECKSUM_LEN: usize = 4;
pub(super) const BODY_LEN_MAX: usize = 0xff_ffff;
/// Longest signature or other seal.
pub(super) const SEAL_LEN_MAX: usize = 1_024;

#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) shape: Shape,
    pub(super) hash_interval: u8,
    pub(super) keyframe_interval: u32,
}

impl Layout {
    pub(super) fn has_hash_at(self, tick: Tick) -> bool {
        self.hash_interval > 0 && tick.0.is_multiple_of(self.hash_interval.into())
    }

    pub(super) const fn has_keyframe_at(self, tick: Tick) -> bool {
        let interval = self.keyframe_interval;
        tick.0 > 0 && interval > 0 && tick.0.is_multiple_of(interval)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bundles of some ticks, and state hashes.
    Ticks,
    /// Everything that a step from here on depends on.
    Keyframe,
    /// The application's statement about the chain so far.
    Seal,
    /// Number of ticks, and head of the chain; the last record.
    End,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Ticks => 1,
            Self::Keyframe => 2,
            Self::Seal => 3,
            Self::End => 4,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Ticks),
            2 => Some(Self::Keyframe),
            3 => Some(Self::Seal),
            4 => Some(Self::End),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) len: usize,
}

impl Head {
    /// Reads a record header; the inner `None` if it is invalid.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, Truncated> {
        let [kind, high, middle, low, check] = reader.array()?;
        let is_whole = check == head_check([kind, high, middle, low]);
        let len = u32::from_be_bytes([0, high, middle, low]);
        Ok(Kind::from_code(kind)
            .filter(|_| is_whole)
            .zip(usize::try_from(len).ok())
            .map(|(kind, len)| Self { kind, len }))
    }
}

/// Appends one record with the body `parts`, at most [`BODY_LEN_MAX`] bytes, and returns its
/// checksum; `before` is that of the record before it.
pub(super) fn write(kind: Kind, parts: &[&[u8]], before: u32, out: &mut Vec<u8>) -> u32 {
    let start = out.len();
    let len = parts.iter().map(|part| part.len()).sum::<usize>();
    debug_assert!(len <= BODY_LEN_MAX, "a longer body is refused before");
    let [.., high, middle, low] = len.to_be_bytes();
    let head = [kind.code(), high, middle, low];
    let mut writer = Writer::new(out);
    writer.bytes(&head);
    writer.u8(head_check(head));
    for part in parts {
        writer.bytes(part);
    }
    let checksum = checksum(before, out.get(start..).unwrap_or_default());
    Writer::new(out).u32(checksum);
    checksum
}

/// CRC32C (RFC 3720, appendix B.4) of `bytes`, continuing from `before`: also detects records that
/// are missing, duplicated or moved.
pub(super) fn checksum(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// Detects any one changed byte of the header; if it fails, the length of the body is not trusted.
fn head_check(head: [u8; 4]) -> u8 {
    !head.iter().fold(0, |all, byte| all ^ byte)
}

/// Metadata of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayHeader {
    /// The match; it keys state hashes.
    pub match_id: MatchId,
    /// Seats and width of an input.
    pub shape: Shape,
    /// Length of a tick, in nanoseconds; 1,000,000 to 1,000,000,000.
    pub period_nanos: u32,
    /// Game and build that play it; chosen by the application, at most 64 bytes.
    pub game: Vec<u8>,
    /// Initial state of the match; chosen by the application, at most 64 bytes.
    pub seed: Vec<u8>,
    /// The input of an empty seat: [`Input`](crate::Input)'s default, `shape.width` bits.
    pub neutral: Vec<u8>,
    /// Ticks between state hashes; 0 if there are none.
    pub hash_interval: u8,
    /// Ticks between keyframes; 0 if there are none.
    pub keyframe_interval: u32,
}

impl ReplayHeader {
    /// Longest `game` and `seed`, in bytes.
    pub const NAME_LEN_MAX: usize = 64;

    pub(super) const fn layout(&self) -> Layout {
        Layout {
            shape: self.shape,
            hash_interval: self.hash_interval,
            keyframe_interval: self.keyframe_interval,
        }
    }

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

fn read_name(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    let len = usize::from(reader.u8().ok()?);
    let name = reader.bytes(len).ok()?;
    (len <= ReplayHeader::NAME_LEN_MAX).then(|| name.to_vec())
}

errors! {
    /// Why a recording does not begin.
    ReplayConfigError {
        /// The match has no seat.
        NoSeats => "a match needs at least 1 seat",
        /// A tick in which every seat changes is over 65,535 bytes.
        TooLarge => "a tick in which every seat changes is over 65,535 bytes",
        /// The name of the game or the seed is over 64 bytes.
        TooLong => "the name of the game or the seed is over 64 bytes",
    }
}

/// Why an item is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// Record turns in order and each once, and keyframes when they are due.
    OutOfOrder {
        /// The next tick to record.
        expected: Tick,
    },
    /// The turn has another number of seats.
    Seats,
    /// A keyframe is due before this turn.
    KeyframeMissing,
    /// A snapshot is over 16 MiB, or a seal over 1,024 bytes.
    TooLong,
}

wire::error_text! { RecordError {
    Self::OutOfOrder { expected } => "the recording is at tick {expected}",
    Self::Seats => "the turn has another number of seats",
    Self::KeyframeMissing => "a keyframe is due before this turn",
    Self::TooLong => "a snapshot is over 16 MiB, or a seal over 1,024 bytes",
}}

/// Why a file is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// It does not begin like a replay.
    NotAReplay,
    /// This build does not read its version.
    Version(u8),
    /// Its header is truncated or damaged.
    Header,
    /// The named item is over [`ReplayLimits`](super::ReplayLimits).
    TooLarge(&'static str),
    /// A record is damaged.
    Damaged {
        /// The kind of damage.
        damage: Damage,
        /// Offset of the record. The bytes before it open as a truncated file.
        offset: usize,
        /// First tick that is not read.
        ticks: u32,
    },
}

wire::error_text! { ReplayError {
    Self::NotAReplay => "it is no replay",
    Self::Version(version) => "it has version {version}, and not 1",
    Self::Header => "its header is damaged",
    Self::TooLarge(what) => "{what} is over what is read here",
    Self::Damaged { damage, offset, ticks } =>
        "it is damaged at byte {offset}, behind {ticks} ticks: {damage}",
}}

/// How a record is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// Its kind and length do not match their check byte.
    Head,
    /// Its bytes, or the records before it, do not match its checksum.
    Checksum,
    /// It holds an invalid bundle.
    Ticks,
    /// A keyframe is missing or misplaced, or there are too many ticks.
    Order,
    /// A keyframe names other inputs than the tick before it.
    Keyframe,
    /// A seal is too long.
    Seal,
    /// The end record counts other ticks, or is not the last.
    End,
    /// The inputs do not lead to the head of the chain.
    Chain,
}

wire::display_text! { Damage {
    Self::Head => "a record's head does not fit its check",
    Self::Checksum => "a record does not fit its checksum",
    Self::Ticks => "a record holds what no tick is",
    Self::Order => "a keyframe is missing or out of place",
    Self::Keyframe => "a keyframe names other inputs than the tick before it",
    Self::Seal => "a seal is too long",
    Self::End => "the end does not fit what is before or behind it",
    Self::Chain => "the inputs do not lead to the head of the chain",
}}

/// Why a player does not seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeekError {
    /// The replay has fewer ticks.
    PastEnd {
        /// Its number of ticks.
        ticks: u32,
    },
    /// The game cannot read the keyframe before `tick`.
    Keyframe {
        /// First tick after it.
        tick: Tick,
    },
}

wire::error_text! { SeekError {
    Self::PastEnd { ticks } => "the replay ends behind {ticks} ticks",
    Self::Keyframe { tick } => "the game does not read the keyframe of tick {tick}",
}}

wire::error_text! { Mismatch {
    Self::State { tick, recorded, replayed } =>
        "tick {tick} leads to the state {replayed:016x}, and was recorded with {recorded:016x}",
    Self::Keyframe { tick } => "the keyframe of tick {tick} is not the state that play leads to",
}}
