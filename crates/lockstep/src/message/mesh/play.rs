//! The datagram of a mesh peer for each tick.

use core::ops::Range;

use wire::{Reader, Writer};

use crate::bundle::{self, Shape};
use crate::message::{DecodeError, HASHES_MAX, MESH_COMMITTED, MESH_PLAY};
use crate::tick::Tick;

/// What a peer says each tick.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | flags: bit 7 gap, bit 6 a hash is asked for, bit 5 zero, bits 4 to 0 number of hashes | 1 |
/// | low half of the first tick of the receiver that the sender lacks | 2 |
/// | sender's place in its ticks: low 16 bits of the next boundary, 8 bits of fraction | 3 |
/// | receiver's place less the sender's at arrival, smoothed, in 1/32 tick, signed | 2 |
/// | where a hash is asked for: low half of its step | 2 |
/// | where there are hashes: low half of the first one's step | 2 |
/// | hashes of consecutive steps | 4 each |
/// | low half of the first bundle's tick | 2 |
/// | bundles of one seat, one after the other, to the end | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Play<'a> {
    /// The header.
    pub head: PlayHead,
    /// State hashes, if any.
    pub hashes: LaneHashes<'a>,
    /// The sender's inputs.
    pub bundles: LaneBundles<'a>,
}

/// The header of a [`Play`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlayHead {
    /// Whether a tick of the receiver is missing that redundancy no longer covers.
    pub is_gap: bool,
    /// Low half of the receiver's first tick that the sender lacks.
    pub next_low: u16,
    /// The sender's clock position: low 16 bits of a tick, 8 bits of fraction.
    pub clock: u32,
    /// The receiver's position minus the sender's on arrival, in 1/32 tick; [`LEAD_UNKNOWN`] before
    /// the first datagram.
    pub lead: i16,
    /// Low half of the first state hash that the sender requests.
    pub wanted_low: Option<u16>,
    /// Low half of the first bundle's tick.
    pub first_low: u16,
}

/// A [`PlayHead::lead`] without a value.
pub const LEAD_UNKNOWN: i16 = i16::MIN;

/// State hashes of consecutive steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneHashes<'a> {
    /// Low half of the first one's step.
    pub first_low: u16,
    /// 4 bytes each, at most [`HASHES_MAX`] of them.
    bytes: &'a [u8],
}

impl<'a> LaneHashes<'a> {
    /// Returns whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the hashes, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|hash| u32::from_be_bytes(*hash))
    }
}

/// Whole, well-formed bundles of one seat and consecutive ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneBundles<'a> {
    bytes: &'a [u8],
    shape: Shape,
    /// Number of bundles.
    count: u32,
    /// Length of the last one, in bytes.
    last_len: usize,
}

impl<'a> LaneBundles<'a> {
    /// Checks the bundles that `bytes` are.
    pub(super) fn check(bytes: &'a [u8], shape: Shape) -> Result<Self, DecodeError> {
        Self::check_knowing(bytes, shape, |_| None)
    }

    /// As [`check`](Self::check), but skips parsing of known bundles: `known(index)` may return a
    /// valid one. Bytes that begin with it are the same bundle, since no bundle is a prefix of
    /// another.
    fn check_knowing<'k>(
        bytes: &'a [u8],
        shape: Shape,
        known: impl Fn(u32) -> Option<&'k [u8]>,
    ) -> Result<Self, DecodeError> {
        let (mut rest, mut count, mut last_len) = (bytes, 0_u32, 0);
        loop {
            let quiet = rest.iter().take_while(|byte| **byte == QUIET).count();
            if quiet > 0 {
                last_len = 1;
                rest = rest.get(quiet..).ok_or(DecodeError::Malformed)?;
                count = count.saturating_add(u32::try_from(quiet).unwrap_or(u32::MAX));
            }
            if rest.is_empty() {
                break;
            }
            last_len = match known(count) {
                Some(known) if !known.is_empty() && rest.starts_with(known) => known.len(),
                Some(_) | None => bundle::check(rest, shape)?,
            };
            rest = rest.get(last_len..).ok_or(DecodeError::Malformed)?;
            count = count.saturating_add(1);
        }
        Ok(Self {
            bytes,
            shape,
            count,
            last_len,
        })
    }

    /// Returns the number of bundles.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the last one; empty if there is none.
    #[must_use]
    pub fn last(&self) -> &'a [u8] {
        let start = self.bytes.len().saturating_sub(self.last_len);
        self.bytes.get(start..).unwrap_or_default()
    }

    /// Returns the bundles, one per tick.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Self {
            mut bytes, shape, ..
        } = *self;
        core::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let len = lane_bundle_len(bytes, shape).ok()?;
            let (bundle, rest) = bytes.split_at_checked(len)?;
            bytes = rest;
            Some(bundle)
        })
    }
}

/// A bundle of one unchanged seat: no extension, a run of one.
pub const QUIET: u8 = 0b0010_0000;

fn lane_bundle_len(bytes: &[u8], shape: Shape) -> Result<usize, DecodeError> {
    if bytes.first() == Some(&QUIET) {
        return Ok(1);
    }
    Ok(bundle::check(bytes, shape)?)
}

/// `known(first_low, index)` may return the valid bundle `index` ticks after the one with this low
/// half.
pub(super) fn decode_play<'a, 'k>(
    mut reader: Reader<'a>,
    lane: Shape,
    known: impl Fn(u16, u32) -> Option<&'k [u8]>,
) -> Result<Play<'a>, DecodeError> {
    let [
        flags,
        next_high,
        next_low,
        clock_a,
        clock_b,
        clock_c,
        lead_high,
        lead_low,
    ] = reader.array()?;
    let count = u32::from(flags & FLAGS_HASHES);
    if flags & FLAG_ZERO != 0 || count > HASHES_MAX {
        return Err(DecodeError::Malformed);
    }
    let wanted_low = if flags & FLAG_ASKS == 0 {
        None
    } else {
        Some(reader.u16()?)
    };
    let mut hashes = LaneHashes::default();
    if count > 0 {
        hashes.first_low = reader.u16()?;
        let len = usize::from(flags & FLAGS_HASHES).saturating_mul(4);
        hashes.bytes = reader.bytes(len)?;
    }
    let head = PlayHead {
        is_gap: flags & FLAG_GAP != 0,
        next_low: u16::from_be_bytes([next_high, next_low]),
        clock: u32::from_be_bytes([0, clock_a, clock_b, clock_c]),
        lead: i16::from_be_bytes([lead_high, lead_low]),
        wanted_low,
        first_low: reader.u16()?,
    };
    let known = |index| known(head.first_low, index);
    Ok(Play {
        head,
        hashes,
        bundles: LaneBundles::check_knowing(reader.take_rest(), lane, known)?,
    })
}

/// Appends the header; `hashes` are those of `steps`, at most [`HASHES_MAX`].
pub(crate) fn write_play_head(
    out: &mut Vec<u8>,
    head: &PlayHead,
    steps: &Range<u32>,
    hashes: impl Iterator<Item = u32>,
) {
    debug_assert!(steps.len() <= 16, "as many as the flags can count");
    let count = u8::try_from(steps.len()).unwrap_or(0) & FLAGS_HASHES;
    let gap = if head.is_gap { FLAG_GAP } else { 0 };
    let asks = head.wanted_low.map_or(0, |_| FLAG_ASKS);
    let [next_high, next_low] = head.next_low.to_be_bytes();
    let [_, clock_a, clock_b, clock_c] = head.clock.to_be_bytes();
    let [lead_high, lead_low] = head.lead.to_be_bytes();
    out.extend_from_slice(&[
        MESH_PLAY,
        count | gap | asks,
        next_high,
        next_low,
        clock_a,
        clock_b,
        clock_c,
        lead_high,
        lead_low,
    ]);
    if let Some(wanted) = head.wanted_low {
        out.extend_from_slice(&wanted.to_be_bytes());
    }
    if count > 0 {
        out.extend_from_slice(&Tick(steps.start).low().to_be_bytes());
        for hash in hashes {
            out.extend_from_slice(&hash.to_be_bytes());
        }
    }
    out.extend_from_slice(&head.first_low.to_be_bytes());
}

/// Longest header of a [`Play`]: all flags, 16 hashes.
pub const PLAY_HEAD_LEN_MAX: usize = 9 + 2 + 2 + 64 + 2;

const FLAG_GAP: u8 = 0x80;
const FLAG_ASKS: u8 = 0x40;
const FLAG_ZERO: u8 = 0x20;
const FLAGS_HASHES: u8 = 0x1f;

/// What the sender commits to, in front of a [`Play`] with the inputs that it shows.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | low half of the first tick that the head is not over | 2 |
/// | head: commits to all inputs before that tick | 16 |
/// | number of salts, as many as there are bundles in the play | 2 |
/// | salts of the bundles' ticks, in order | 8 each |
/// | a datagram of play | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commitment<'a> {
    /// Low half of the first tick that the head does not cover.
    pub end_low: u16,
    /// Commits to all inputs before that tick.
    pub head: [u8; 16],
    salts: &'a [[u8; COMMITTED_SALT_LEN]],
}

impl<'a> Commitment<'a> {
    /// Returns the salts of the bundles' ticks, in order.
    pub fn salts(&self) -> impl Iterator<Item = [u8; COMMITTED_SALT_LEN]> + use<'a> {
        self.salts.iter().copied()
    }
}

/// Bytes of one salt.
pub const COMMITTED_SALT_LEN: usize = 8;

/// Bytes in front of the salts.
pub const COMMITTED_HEAD_LEN: usize = 1 + 2 + 16 + 2;

/// Decodes the prefix after its kind.
pub(super) fn decode_committed(
    mut reader: Reader<'_>,
    lane: Shape,
) -> Result<(Commitment<'_>, Play<'_>), DecodeError> {
    let end_low = reader.u16()?;
    let head = reader.array()?;
    let count = usize::from(reader.u16()?);
    let salts = reader.bytes(count.saturating_mul(COMMITTED_SALT_LEN))?;
    let commitment = Commitment {
        end_low,
        head,
        salts: salts.as_chunks().0,
    };
    if reader.u8()? != MESH_PLAY {
        return Err(DecodeError::Malformed);
    }
    let play = decode_play(reader, lane, |_, _| None)?;
    if usize::try_from(play.bundles.len()) == Ok(count) {
        Ok((commitment, play))
    } else {
        Err(DecodeError::Malformed)
    }
}

/// Appends the header of `count` salts.
pub(crate) fn write_committed_head(out: &mut Vec<u8>, end_low: u16, head: &[u8; 16], count: u16) {
    let mut writer = Writer::new(out);
    writer.u8(MESH_COMMITTED);
    writer.u16(end_low);
    writer.bytes(head);
    writer.u16(count);
}
