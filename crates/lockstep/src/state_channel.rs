//! Unordered delivery of opaque states, of which only the newest counts: for games that are not
//! lockstep, and for what a lockstep game displays in addition to its turns.
//!
//! There is one [`StateSender`] per receiver. It takes states as often as the game produces them, and
//! sends them as fast as its rate allows: a newer state replaces one that was not begun. A
//! [`StateReceiver`] returns complete states in increasing order, each once, and only the newest. The
//! last one always arrives, since it is retransmitted until acknowledged. Both are sans-IO.
//!
//! A sequenced channel drops older messages too, but does not repair losses: the last state before a
//! pause may be lost, and a state of a hundred fragments arrives once in 170 times at 5 % loss. It also
//! sends what is queued although a newer state is available. So send these datagrams on an unreliable,
//! unordered channel.
//!
//! A state of one datagram is not retransmitted once a newer one is available. A state of several
//! datagrams is abandoned for a newer one once all of it was sent. But if none was acknowledged for
//! [`StateLimits::gap_max`], it is repaired until complete, so that long, frequent states arrive at any
//! loss rate.
//!
//! States are not delta-coded. A game that does so takes its reference from
//! [`StateSender::acknowledged`], and prefixes its number to the state.
//!
//! A hostile sender makes a receiver hold at most three states of the receiver's maximum length, and
//! send at most 50 acknowledgements per second. A hostile receiver makes a sender send at its rate, and
//! no faster.
//!
//! ```
//! use lockstep::state_channel::{StateLimits, StateReceiver, StateSender};
//! use wire::Instant;
//!
//! let now = Instant::ZERO;
//! let mut sender = StateSender::new(&StateLimits::default(), now);
//! let mut receiver = StateReceiver::new(64 << 10);
//! sender.push(now, b"an older state".as_slice().into())?;
//! let newest = sender.push(now, b"the newest state".as_slice().into())?;
//!
//! let mut datagram = Vec::new();
//! while sender.poll(now, &mut datagram) {
//!     receiver.handle_datagram(now, &datagram);
//!     datagram.clear();
//! }
//! assert_eq!(receiver.poll_state(), Some((newest, b"the newest state".as_slice())));
//! assert!(receiver.poll_ack(now, &mut datagram));
//! sender.handle_datagram(now, &datagram);
//! assert_eq!(sender.acknowledged(), Some(newest));
//! # Ok::<(), lockstep::state_channel::PushError>(())
//! ```

mod receiver;
mod sender;

use core::ops::Range;
use core::time::Duration;

use wire::{Reader, Writer};

use crate::event::errors;
use crate::message::{DecodeError, require};

pub use receiver::{StateReceiver, StateReceiverStats};
pub use sender::{StateSender, StateSenderStats};

/// Send rate and datagram size of states, per receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateLimits {
    /// Bytes per second, headers of the channel included, but not of the transport; 250,000, which
    /// is 2 Mbit/s. With 0, nothing is sent after the burst.
    pub rate_bytes_per_s: u32,
    /// Bytes that may be sent in one burst; 4,400, four datagrams of the usual length. One datagram
    /// is always allowed.
    pub burst_bytes: u32,
    /// Longest datagram, in bytes, header included; 1,100 as
    /// [`Config::datagram_len_max`](crate::Config::datagram_len_max). Values below 80 count as 80.
    pub datagram_len_max: u16,
    /// How long states of several datagrams may be abandoned for newer ones without any being
    /// acknowledged; 250 ms. Then one is repaired until it is complete, or for at most 31 times as
    /// long.
    pub gap_max: Duration,
}

impl Default for StateLimits {
    fn default() -> Self {
        Self {
            rate_bytes_per_s: 250_000,
            burst_bytes: 4_400,
            datagram_len_max: 1_100,
            gap_max: Duration::from_millis(250),
        }
    }
}

errors! {
    /// Why a state is refused.
    PushError {
        /// It is longer than [`StateSender::len_max`].
        TooLong => "the state takes more datagrams than one may",
        /// All numbers are used: 4,294,967,295 states, 2 years at 60 Hz.
        Exhausted => "all numbers of states are used",
    }
}

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
    const fn new(whole: u32, partial: u32, bits: &'a [u8]) -> Self {
        Self {
            whole,
            partial,
            bits,
        }
    }

    /// Returns the indices of the fragments of `partial` that arrived, in order; at most
    /// [`FRAGMENTS_MAX`].
    pub fn arrived(&self) -> impl Iterator<Item = u16> + '_ {
        (0_u16..).zip(self.bits).flat_map(|(index, byte)| {
            let first = index.saturating_mul(8);
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
    require(number > 0 && bytes.len() == len && (kind == WHOLE || is_split))?;
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
    let is_valid = bits.len() <= MARKS_LEN && bits.last().is_some_and(|byte| *byte != 0);
    require(partial > whole && is_valid)?;
    Ok(StateAck::new(whole, partial, bits))
}

fn write_part(out: &mut Vec<u8>, part: &StatePart<'_>) {
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

fn write_ack(out: &mut Vec<u8>, ack: &StateAck<'_>) {
    let mut writer = Writer::new(out);
    writer.u8(ACK);
    writer.u32(ack.whole);
    if ack.partial > 0 {
        writer.u32(ack.partial);
        writer.bytes(ack.bits);
    }
}

const MARKS_LEN: usize = 32;

const _: () = assert!(MARKS_LEN * 8 == FRAGMENTS_MAX as usize);

/// A bit per fragment, up to [`FRAGMENTS_MAX`], highest first; those past the last are not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FragmentSet {
    bytes: [u8; MARKS_LEN],
    count: u16,
}

impl FragmentSet {
    fn insert(&mut self, index: u16) -> bool {
        let bit = bit(index);
        let Some(byte) = self.bytes.get_mut(usize::from(index / 8)) else {
            return false;
        };
        if *byte & bit != 0 {
            return false;
        }
        *byte |= bit;
        self.count = self.count.saturating_add(1);
        true
    }

    fn has(&self, index: u16) -> bool {
        let byte = self.bytes.get(usize::from(index / 8));
        byte.is_some_and(|byte| byte & bit(index) != 0)
    }

    fn used(&self) -> &[u8] {
        let last = self.bytes.iter().rposition(|byte| *byte != 0);
        let len = last.map_or(0, |last| last.saturating_add(1));
        self.bytes.get(..len).unwrap_or_default()
    }
}

const fn bit(index: u16) -> u8 {
    0x80 >> (index % 8)
}

#[cfg(test)]
mod tests;
