//! Errors of replays.

use core::error::Error;
use core::fmt::{self, Display};

use super::Mismatch;
use crate::tick::Tick;

/// Why a recording does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayConfigError {
    /// The match has no seat.
    NoSeats,
    /// A tick in which every seat changes is over 65,535 bytes.
    TooLarge,
    /// The name of the game or the seed is over 64 bytes.
    TooLong,
}

impl Display for ReplayConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSeats => "a match needs at least 1 seat",
            Self::TooLarge => "a tick in which every seat changes is over 65,535 bytes",
            Self::TooLong => "the name of the game or the seed is over 64 bytes",
        })
    }
}

impl Error for ReplayConfigError {}

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

impl Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfOrder { expected } => write!(f, "the recording is at tick {expected}"),
            Self::Seats => f.write_str("the turn has another number of seats"),
            Self::KeyframeMissing => f.write_str("a keyframe is due before this turn"),
            Self::TooLong => f.write_str("a snapshot is over 16 MiB, or a seal over 1,024 bytes"),
        }
    }
}

impl Error for RecordError {}

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

impl Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAReplay => f.write_str("it is no replay"),
            Self::Version(version) => write!(f, "it has version {version}, and not 1"),
            Self::Header => f.write_str("its header is damaged"),
            Self::TooLarge(what) => write!(f, "{what} is over what is read here"),
            Self::Damaged {
                damage,
                offset,
                ticks,
            } => write!(
                f,
                "it is damaged at byte {offset}, behind {ticks} ticks: {damage}"
            ),
        }
    }
}

impl Error for ReplayError {}

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

impl Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "a record's head does not fit its check",
            Self::Checksum => "a record does not fit its checksum",
            Self::Ticks => "a record holds what no tick is",
            Self::Order => "a keyframe is missing or out of place",
            Self::Keyframe => "a keyframe names other inputs than the tick before it",
            Self::Seal => "a seal is too long",
            Self::End => "the end does not fit what is before or behind it",
            Self::Chain => "the inputs do not lead to the head of the chain",
        })
    }
}

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

impl Display for SeekError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PastEnd { ticks } => write!(f, "the replay ends behind {ticks} ticks"),
            Self::Keyframe { tick } => {
                write!(f, "the game does not read the keyframe of tick {tick}")
            }
        }
    }
}

impl Error for SeekError {}

impl Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State {
                tick,
                recorded,
                replayed,
            } => write!(
                f,
                "tick {tick} leads to the state {replayed:016x}, and was recorded with {recorded:016x}"
            ),
            Self::Keyframe { tick } => {
                write!(
                    f,
                    "the keyframe of tick {tick} is not the state that play leads to"
                )
            }
        }
    }
}

impl Error for Mismatch {}
