//! Questions that bisect a desync, and their answers.
//!
//! Each fits one datagram: 255 hashes of ticks, or 64 of sections with their names.

use wire::{Reader, Seat, Writer};

use super::{ANSWER, DecodeError, QUESTION, require};
use crate::checksum::SECTIONS_MAX;
use crate::event::{Cause, SectionName};
use crate::hash_history::{HashHistory, TickRecord};
use crate::tick::Tick;

/// Most ticks of one question.
pub const BISECT_TICKS_MAX: u8 = u8::MAX;

/// Bytes that the sections of an answer may take: hashes, and names with their lengths.
pub const BISECT_SECTIONS_LEN_MAX: usize = 1_000;

/// Most ticks of a question whose answer fits `datagram_len_max`; at least 1.
pub(crate) fn bisect_ticks_max(datagram_len_max: u16) -> u8 {
    // Eight ticks take a byte of bits and eight hashes.
    let room = datagram_len_max.saturating_sub(ANSWER_HEAD_LEN);
    let ticks = (room / 33).saturating_mul(8);
    u8::try_from(ticks).unwrap_or(BISECT_TICKS_MAX).max(1)
}

const ANSWER_HEAD_LEN: u16 = 5;

/// Longest answer: 255 ticks, all of them known.
pub const ANSWER_LEN_MAX: usize = 5 + 32 + 4 * 255;

const SECTIONS_HEAD_LEN: usize = 10;

const TICKS: u8 = 0;
const SECTIONS: u8 = 1;
const DIVERGED: u8 = 2;

const NO_SECTION: u8 = u8::MAX;

/// A server's question, or the result that it sends last. Repeated until the answer arrives.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | form: 0 ticks, 1 sections, 2 diverged | 1 |
/// | low half of the (first) tick | 2 |
/// | form 0: how many ticks, 1 to 255 | 1 |
/// | form 2: seat | 2 |
/// | – cause: 0 unknown, 1 inputs, 2 state | 1 |
/// | – section, 0 to 63; 255 where it is none | 1 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Requests the reported, or reportable, hashes of these ticks.
    Ticks {
        /// Low half of the first tick.
        first_low: u16,
        /// Number of ticks, at least 1.
        count: u8,
    },
    /// Requests the section hashes of this tick.
    Sections {
        /// Low half of the tick.
        tick_low: u16,
    },
    /// The result, about the receiver or the participant it was compared with.
    Diverged {
        /// Low half of the first tick that differs.
        tick_low: u16,
        /// The seat that differs.
        seat: Seat,
        /// What differs.
        cause: Cause,
        /// First section that differs, below [`SECTIONS_MAX`].
        section: Option<u8>,
    },
}

/// What a client answers.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | form, as the question's | 1 |
/// | low half of the (first) tick | 2 |
/// | form 0: how many ticks | 1 |
/// | – a bit for each tick, set if its hash is known, padded with zeros | `count / 8`, rounded up |
/// | – hashes of those, as a report has them | 4 each |
/// | form 1: 1 where the tick is kept; else 0, and nothing behind it | 1 |
/// | – hash over the log of closed ticks up to this one | 4 |
/// | – how many sections, at most 64 | 1 |
/// | – their hashes | 4 each |
/// | – their names: length, at most 32, and printable ASCII | 1 + length each |
/// | form 2: seat | 2 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Hashes of consecutive ticks.
    Ticks(TickHashes<'a>),
    /// Hashes of the sections of one tick.
    Sections {
        /// Low half of the tick.
        tick_low: u16,
        /// `None` if the tick is not kept.
        known: Option<SectionHashes<'a>>,
    },
    /// Acknowledges a result.
    Acknowledged {
        /// Low half of its tick.
        tick_low: u16,
        /// Its seat.
        seat: Seat,
    },
}

/// Hashes of consecutive ticks; some may be unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickHashes<'a> {
    /// Low half of the first tick.
    pub first_low: u16,
    /// Number of ticks, at least 1.
    pub count: u8,
    /// A bit per tick, from the highest bit of the first byte on.
    known: &'a [u8],
    /// 4 bytes per set bit.
    hashes: &'a [u8],
}

/// Hashes and names of the sections of one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionHashes<'a> {
    /// Hash over the log of closed ticks up to this one.
    pub log: u32,
    /// 4 bytes per section.
    hashes: &'a [u8],
    /// Length and characters per section.
    names: &'a [u8],
}

impl<'a> TickHashes<'a> {
    /// Returns the hash of each tick, `None` if unknown.
    pub fn iter(&self) -> impl Iterator<Item = Option<u32>> + use<'a> {
        let (known, mut hashes) = (self.known, Reader::new(self.hashes));
        (0..self.count).map(move |index| {
            if is_set(known, index) {
                hashes.u32().ok()
            } else {
                None
            }
        })
    }
}

impl<'a> SectionHashes<'a> {
    /// Returns hash and name of each section, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, SectionName)> + use<'a> {
        let (mut hashes, mut names) = (Reader::new(self.hashes), Reader::new(self.names));
        core::iter::from_fn(move || {
            let hash = hashes.u32().ok()?;
            Some((hash, read_name(&mut names).ok()?))
        })
    }
}

pub(crate) fn write_question(out: &mut Vec<u8>, question: Question) {
    let mut writer = Writer::new(out);
    writer.u8(QUESTION);
    match question {
        Question::Ticks { first_low, count } => {
            writer.u8(TICKS);
            writer.u16(first_low);
            writer.u8(count);
        }
        Question::Sections { tick_low } => {
            writer.u8(SECTIONS);
            writer.u16(tick_low);
        }
        Question::Diverged {
            tick_low,
            seat,
            cause,
            section,
        } => {
            writer.u8(DIVERGED);
            writer.u16(tick_low);
            writer.u16(seat.0);
            writer.u8(cause.code());
            writer.u8(section.unwrap_or(NO_SECTION));
        }
    }
}

/// Appends the kept hashes from `first` on; none for ticks that do not exist.
pub(crate) fn write_ticks(
    out: &mut Vec<u8>,
    hash_history: &HashHistory,
    (first, first_low): (Option<Tick>, u16),
    count: u8,
) {
    let report = |index: u8| Some(hash_history.get(first?.plus(index.into()))?.report);
    let mut writer = Writer::new(out);
    writer.u8(ANSWER);
    writer.u8(TICKS);
    writer.u16(first_low);
    writer.u8(count);
    for start in (0..count).step_by(8) {
        let bits = (start..count.min(start.saturating_add(8))).zip(0_u32..);
        let byte = bits
            .filter(|(index, _)| report(*index).is_some())
            .fold(0, |byte, (_, bit)| byte | 0x80_u8.wrapping_shr(bit));
        writer.u8(byte);
    }
    for hash in (0..count).filter_map(report) {
        writer.u32(hash);
    }
}

/// Appends the sections of a tick, if it is kept, in at most `len_max` bytes: names are shortened.
/// 64 sections without names take 330 bytes.
pub(crate) fn write_sections(
    out: &mut Vec<u8>,
    (tick_low, len_max): (u16, usize),
    entry: Option<TickRecord<'_>>,
    names: &[&'static str],
) {
    let mut writer = Writer::new(out);
    writer.u8(ANSWER);
    writer.u8(SECTIONS);
    writer.u16(tick_low);
    let Some(entry) = entry else {
        writer.u8(0);
        return;
    };
    writer.u8(1);
    writer.u32(entry.log);
    let count = entry.sections.len();
    writer.u8(u8::try_from(count).unwrap_or(u8::MAX));
    for hash in entry.sections {
        writer.u32(*hash);
    }
    let len = name_len_max(count, len_max);
    // A tick with more sections than the newest has unnamed ones.
    let names = names.iter().copied().chain(core::iter::repeat(""));
    for (name, _) in names.zip(entry.sections) {
        let name = SectionName::shortened(name, len);
        let bytes = name.as_str().as_bytes();
        writer.u8(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
        writer.bytes(bytes);
    }
}

pub(crate) fn write_acknowledged(out: &mut Vec<u8>, tick_low: u16, seat: Seat) {
    let mut writer = Writer::new(out);
    writer.u8(ANSWER);
    writer.u8(DIVERGED);
    writer.u16(tick_low);
    writer.u16(seat.0);
}

pub(super) fn decode_question(mut reader: Reader<'_>) -> Result<Question, DecodeError> {
    let form = reader.u8()?;
    let low = reader.u16()?;
    let question = match form {
        TICKS => Question::Ticks {
            first_low: low,
            count: reader.u8()?,
        },
        SECTIONS => Question::Sections { tick_low: low },
        DIVERGED => Question::Diverged {
            tick_low: low,
            seat: Seat(reader.u16()?),
            cause: Cause::from_code(reader.u8()?).ok_or(DecodeError::Malformed)?,
            section: match reader.u8()? {
                NO_SECTION => None,
                index if usize::from(index) < SECTIONS_MAX => Some(index),
                _ => return Err(DecodeError::Malformed),
            },
        },
        _ => return Err(DecodeError::Malformed),
    };
    let is_empty = matches!(question, Question::Ticks { count: 0, .. });
    require(!is_empty && reader.is_empty()).map(|()| question)
}

pub(super) fn decode_answer(mut reader: Reader<'_>) -> Result<Answer<'_>, DecodeError> {
    let form = reader.u8()?;
    let low = reader.u16()?;
    let answer = match form {
        TICKS => decode_ticks(&mut reader, low).map(Answer::Ticks)?,
        SECTIONS => {
            let known = match reader.u8()? {
                0 => None,
                1 => Some(decode_sections(&mut reader)?),
                _ => return Err(DecodeError::Malformed),
            };
            Answer::Sections {
                tick_low: low,
                known,
            }
        }
        DIVERGED => Answer::Acknowledged {
            tick_low: low,
            seat: Seat(reader.u16()?),
        },
        _ => return Err(DecodeError::Malformed),
    };
    require(reader.is_empty()).map(|()| answer)
}

fn decode_ticks<'a>(
    reader: &mut Reader<'a>,
    first_low: u16,
) -> Result<TickHashes<'a>, DecodeError> {
    let count = reader.u8()?;
    let known = reader.bytes(usize::from(count).div_ceil(8))?;
    let bits: u32 = known.iter().map(|byte| byte.count_ones()).sum();
    let used = (0..count).filter(|index| is_set(known, *index)).count();
    let is_padded = usize::try_from(bits).is_ok_and(|bits| bits == used);
    require(count > 0 && is_padded)?;
    Ok(TickHashes {
        first_low,
        count,
        known,
        hashes: reader.bytes(used.saturating_mul(4))?,
    })
}

fn decode_sections<'a>(reader: &mut Reader<'a>) -> Result<SectionHashes<'a>, DecodeError> {
    let log = reader.u32()?;
    let count = usize::from(reader.u8()?);
    require(count <= SECTIONS_MAX)?;
    let hashes = reader.bytes(count.saturating_mul(4))?;
    let names = reader.rest();
    for _ in 0..count {
        read_name(reader)?;
    }
    let names_len = names.len().saturating_sub(reader.len());
    let names = names.get(..names_len).ok_or(DecodeError::Malformed)?;
    require(hashes.len().saturating_add(names_len) <= BISECT_SECTIONS_LEN_MAX)?;
    Ok(SectionHashes { log, hashes, names })
}

fn read_name(reader: &mut Reader<'_>) -> Result<SectionName, DecodeError> {
    let len = reader.u8()?;
    SectionName::from_bytes(reader.bytes(len.into())?).ok_or(DecodeError::Malformed)
}

fn name_len_max(count: usize, len_max: usize) -> usize {
    let room = len_max.saturating_sub(SECTIONS_HEAD_LEN);
    let share = room.min(BISECT_SECTIONS_LEN_MAX).checked_div(count);
    share.map_or(SectionName::LEN_MAX, |share| share.saturating_sub(5))
}

fn is_set(bits: &[u8], index: u8) -> bool {
    let byte = bits.get(usize::from(index >> 3)).copied();
    byte.unwrap_or(0) & 0x80_u8.wrapping_shr((index & 7).into()) != 0
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests {
    use super::*;

    fn hash_history(ticks: core::ops::Range<u32>, names: &[&'static str]) -> HashHistory {
        let mut hash_history = HashHistory::new(1_024);
        for tick in ticks {
            let sections = names.iter().copied().zip(tick..);
            hash_history.push(Tick(tick), (tick * 3, tick * 5), sections);
        }
        hash_history
    }

    fn read(datagram: &[u8]) -> Answer<'_> {
        assert!(datagram.len() <= ANSWER_LEN_MAX, "{}", datagram.len());
        decode_answer(Reader::new(&datagram[1..])).unwrap()
    }

    #[test]
    fn kept_hashes_are_returned_unchanged() {
        let hash_history = hash_history(10..300, &[]);
        for (first, count) in [(10, 255), (0, 20), (290, 17), (299, 1), (400, 8)] {
            let mut out = Vec::new();
            let at = (Some(Tick(first)), Tick(first).low());
            write_ticks(&mut out, &hash_history, at, count);
            let Answer::Ticks(ticks) = read(&out) else {
                panic!("no ticks");
            };
            let range = first..first + u32::from(count);
            let kept = range.map(|tick| (10..300).contains(&tick).then_some(tick * 3));
            assert!(ticks.iter().eq(kept), "{first} {count}");
        }
        let mut out = Vec::new();
        write_ticks(&mut out, &hash_history, (None, 7), 9);
        assert_eq!(out, [6, 0, 0, 7, 9, 0, 0]);
    }

    #[test]
    fn answers_fit_whatever_length_is_allowed() {
        let long = "x".repeat(40).leak();
        let hash_history = hash_history(0..300, &vec![&*long; 64]);
        for len_max in 400..=1_100_u16 {
            let mut out = Vec::new();
            let count = bisect_ticks_max(len_max);
            write_ticks(&mut out, &hash_history, (Some(Tick(0)), 0), count);
            let fits = |out: &[u8]| out.len() <= len_max.into();
            assert!(fits(&out), "{} of {len_max}", out.len());
            out.clear();
            write_sections(
                &mut out,
                (2, len_max.into()),
                hash_history.get(Tick(2)),
                &hash_history.names,
            );
            assert!(fits(&out), "{} of {len_max}", out.len());
            read(&out);
        }
        assert_eq!(bisect_ticks_max(1_100), BISECT_TICKS_MAX);
        assert_eq!(bisect_ticks_max(0), 1);
    }

    #[test]
    fn sections_and_their_names_fit_one_datagram() {
        let long = "x".repeat(40).leak();
        for (count, len) in [(0, 0), (1, 32), (27, 32), (28, 30), (64, 10)] {
            let names: Vec<&'static str> = vec![long; count];
            let hash_history = hash_history(0..3, &names);
            let mut out = Vec::new();
            write_sections(
                &mut out,
                (2, 1_100),
                hash_history.get(Tick(2)),
                &hash_history.names,
            );
            let Answer::Sections { known, .. } = read(&out) else {
                panic!("no sections");
            };
            let known = known.unwrap();
            assert_eq!(known.log, 10);
            let sections: Vec<_> = known.iter().collect();
            assert_eq!(sections.len(), count);
            for ((hash, name), expected) in sections.iter().zip(2..) {
                assert_eq!((*hash, name.as_str()), (expected, &long[..len]));
            }
        }
    }
}
