//! The datagrams of a state channel. Their kinds do not overlap those of [`crate::message`], so
//! both may share a transport channel.

use core::ops::Range;

use wire::{Reader, Writer};

use super::marks::MARKS_LEN;
use crate::message::DecodeError;

/// Most datagrams that one state may take.
pub const FRAGMENTS_MAX: u16 = 256;

/// Header of a state in one datagram, in bytes.
pub const WHOLE_HEAD_LEN: usize = 5;

/// Header of a fragment, in bytes.
pub const FRAGMENT_HEAD_LEN: usize = 11;

const WHOLE: u8 = 0xc0;
const FRAGMENT: u8 = 0xc1;
const ACK: u8 = 0xc2;

/// A state, or a fragment of one.
///
/// | field | bytes |
/// |---|---|
/// | kind: `0xc0` the whole, `0xc1` a fragment | 1 |
/// | number of the state: 1 at least, and more than those before | 4 |
/// | fragments only: length of the whole state, not below the number of fragments | 4 |
/// | fragments only: number of fragments less one, 1 at least | 1 |
/// | fragments only: index of this one | 1 |
/// | its bytes: those of [`part_range`] | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePart<'a> {
    /// Number of the state; at least 1.
    pub number: u32,
    /// Length of the whole state, in bytes.
    pub total: u32,
    /// Number of parts; 1 to [`FRAGMENTS_MAX`].
    pub count: u16,
    /// Index of this part; below `count`.
    pub index: u16,
    /// Its bytes; as many as [`part_range`] requires.
    pub bytes: &'a [u8],
}

/// Acknowledgement of a receiver.
///
/// | field | bytes |
/// |---|---|
/// | kind: `0xc2` | 1 |
/// | number of the newest complete state; 0 for none | 4 |
/// | number of the newest state with a received fragment, if that is newer | 0 or 4 |
/// | with it: a bit for each of its fragments, highest first, set if it arrived; to the last set one, in whole bytes | 1 to 32 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateAck<'a> {
    /// Number of the newest complete state; 0 for none.
    pub whole: u32,
    /// Number of a newer, incomplete state; 0 for none.
    pub partial: u32,
    /// Bits of its fragments; the last byte is not zero.
    bits: &'a [u8],
}

impl<'a> StateAck<'a> {
    pub(super) const fn new(whole: u32, partial: u32, bits: &'a [u8]) -> Self {
        Self {
            whole,
            partial,
            bits,
        }
    }

    /// Returns the indices of the fragments of `partial` that arrived, in order; at most
    /// [`FRAGMENTS_MAX`].
    pub fn arrived(&self) -> impl Iterator<Item = u16> + '_ {
        (0_u16..).zip(self.bits).flat_map(|(place, byte)| {
            let first = place.saturating_mul(8);
            (0_u16..8)
                .filter(move |bit| byte & (0x80 >> bit) != 0)
                .map(move |bit| first.saturating_add(bit))
        })
    }
}

/// Returns the range of a part in its state. The parts of a state differ by at most one byte; past
/// the last part, the range is empty.
#[must_use]
pub fn part_range(total: u32, count: u16, index: u16) -> Range<u32> {
    let at = |index: u16| {
        let product = u64::from(index.min(count)).saturating_mul(total.into());
        let offset = product.checked_div(count.into()).unwrap_or(0);
        u32::try_from(offset).unwrap_or(total)
    };
    at(index)..at(index.saturating_add(1))
}

/// Decodes a state or a fragment.
///
/// Allocates nothing; the work does not depend on the length. An accepted part lies within its
/// state, and is canonical.
///
/// # Errors
///
/// [`DecodeError`], for the first fault found.
pub fn decode_state_part(datagram: &[u8]) -> Result<StatePart<'_>, DecodeError> {
    let mut reader = Reader::new(datagram);
    let kind = reader.u8()?;
    if !matches!(kind, WHOLE | FRAGMENT) {
        return Err(DecodeError::UnknownKind(kind));
    }
    let number = reader.u32()?;
    let (total, count, index) = if kind == FRAGMENT {
        let total = reader.u32()?;
        let count = u16::from(reader.u8()?).saturating_add(1);
        (total, count, reader.u8()?.into())
    } else {
        let total = u32::try_from(reader.len()).map_err(|_| DecodeError::Malformed)?;
        (total, 1, 0)
    };
    let bytes = reader.take_rest();
    let range = part_range(total, count, index);
    let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    let is_split = count > 1 && index < count && total >= count.into();
    if number == 0 || bytes.len() != len || (kind == FRAGMENT && !is_split) {
        return Err(DecodeError::Malformed);
    }
    Ok(StatePart {
        number,
        total,
        count,
        index,
        bytes,
    })
}

/// Decodes an acknowledgement.
///
/// Allocates nothing. Accepts only the canonical encoding.
///
/// # Errors
///
/// [`DecodeError`], for the first fault found.
pub fn decode_state_ack(datagram: &[u8]) -> Result<StateAck<'_>, DecodeError> {
    let mut reader = Reader::new(datagram);
    let kind = reader.u8()?;
    if kind != ACK {
        return Err(DecodeError::UnknownKind(kind));
    }
    let whole = reader.u32()?;
    if reader.is_empty() {
        return Ok(StateAck::new(whole, 0, &[]));
    }
    let partial = reader.u32()?;
    let bits = reader.take_rest();
    let is_told = bits.len() <= MARKS_LEN && bits.last().is_some_and(|byte| *byte != 0);
    if partial <= whole || !is_told {
        return Err(DecodeError::Malformed);
    }
    Ok(StateAck::new(whole, partial, bits))
}

/// Appends a state or a fragment, depending on the number of parts.
pub(super) fn write_part(out: &mut Vec<u8>, part: &StatePart<'_>) {
    let mut writer = Writer::new(out);
    if part.count > 1 {
        writer.u8(FRAGMENT);
        writer.u32(part.number);
        writer.u32(part.total);
        writer.u8(u8::try_from(part.count.saturating_sub(1)).unwrap_or(u8::MAX));
        writer.u8(u8::try_from(part.index).unwrap_or(u8::MAX));
    } else {
        writer.u8(WHOLE);
        writer.u32(part.number);
    }
    writer.bytes(part.bytes);
}

/// Appends an acknowledgement.
pub(super) fn write_ack(out: &mut Vec<u8>, ack: &StateAck<'_>) {
    let mut writer = Writer::new(out);
    writer.u8(ACK);
    writer.u32(ack.whole);
    if ack.partial > 0 {
        writer.u32(ack.partial);
        writer.bytes(ack.bits);
    }
}
