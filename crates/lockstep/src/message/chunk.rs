//! Chunks of a snapshot, and their acknowledgements. Both directions use one format; only the kinds
//! differ.

use wire::{Reader, Writer};

use super::{DecodeError, require};

/// Chunks past the first missing one that an acknowledgement can name and a receiver keeps.
///
/// A sender sends no further ahead: 1.1 MB at the usual length, 0.9 s at 10 Mbit/s.
pub const AHEAD_MAX: u32 = 1_024;

/// Header of a chunk, in bytes.
pub const CHUNK_HEAD_LEN: usize = 16;

const CHUNK_DOWN: u8 = 0x87;
const ACK_DOWN: u8 = 0x8c;
const ACK_UP: u8 = 0x05;
const CHUNK_UP: u8 = 0x0a;

/// Direction of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a client to the server.
    Up,
    /// From the server to a client.
    Down,
}

impl Direction {
    /// Returns the opposite direction.
    #[must_use]
    pub const fn back(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// A piece of a snapshot.
///
/// | field | bytes |
/// |---|---|
/// | kind: `0x87` down, `0x0a` up | 1 |
/// | transfer id | 1 |
/// | length of the whole snapshot | 4 |
/// | stride: length of every chunk but the last, 1 at least | 2 |
/// | index of the chunk; its bytes stand `index` × stride into the snapshot | 4 |
/// | number of the transmission: each one more than the one before, whatever chunk it carries | 4 |
/// | its bytes, as many as the fields before say | |
///
/// A snapshot of no bytes is one chunk of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Id of the sender's transfer.
    pub id: u8,
    /// Length of the whole snapshot, in bytes.
    pub total: u32,
    /// Length of every chunk but the last, in bytes; at least 1.
    pub stride: u16,
    /// Index, from 0; below [`chunk_count`].
    pub index: u32,
    /// Number of the transmission, from 0.
    pub number: u32,
    /// Its bytes; [`chunk_len`] of them.
    pub bytes: &'a [u8],
}

/// Which chunks of a transfer arrived.
///
/// | field | bytes |
/// |---|---|
/// | kind: `0x05` up, `0x8c` down | 1 |
/// | transfer id | 1 |
/// | index of the first chunk that is missing; all before it arrived | 4 |
/// | greatest number of a transmission that arrived | 4 |
/// | a bit for each chunk past the missing one, highest first, set where it arrived; to the last set one, in whole bytes | 0 to 128 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkAck<'a> {
    /// Id of the transfer.
    pub id: u8,
    /// Index of the first missing chunk; the number of chunks if none is.
    pub next: u32,
    /// Greatest number of a transmission that arrived.
    pub latest: u32,
    /// Bits of the chunks past `next`; the last byte is not zero.
    bits: &'a [u8],
}

impl ChunkAck<'_> {
    /// Returns the indices of the chunks past `next` that arrived, in order; at most [`AHEAD_MAX`].
    pub fn arrived(&self) -> impl Iterator<Item = u32> + '_ {
        let first = self.next.saturating_add(1);
        (0_u32..).zip(self.bits).flat_map(move |(index, byte)| {
            let first = first.saturating_add(index.saturating_mul(8));
            (0_u32..8)
                .filter(move |bit| byte & (0x80 >> bit) != 0)
                .map(move |bit| first.saturating_add(bit))
        })
    }
}

/// Returns the number of chunks of a snapshot of `total` bytes: at least one, even if it is empty.
#[must_use]
pub const fn chunk_count(total: u32, stride: u16) -> u32 {
    let stride = if stride == 0 { 1 } else { stride as u32 };
    let count = total.div_ceil(stride);
    if count == 0 { 1 } else { count }
}

/// Returns the length of one chunk, in bytes; 0 past the last.
#[must_use]
pub fn chunk_len(total: u32, stride: u16, index: u32) -> usize {
    let rest = u64::from(total).saturating_sub(chunk_offset(stride, index));
    usize::from(u16::try_from(rest).unwrap_or(u16::MAX).min(stride))
}

pub(crate) fn chunk_offset(stride: u16, index: u32) -> u64 {
    u64::from(stride).saturating_mul(index.into())
}

/// Decodes a chunk sent in `direction`.
///
/// Allocates nothing; the work does not depend on the length. An accepted chunk lies within its
/// snapshot and has the length that its index requires.
///
/// # Errors
///
/// [`DecodeError`], for the first fault found.
pub fn decode_chunk(datagram: &[u8], direction: Direction) -> Result<Chunk<'_>, DecodeError> {
    let mut reader = Reader::new(datagram);
    let kind = reader.u8()?;
    if kind != chunk_kind(direction) {
        return Err(DecodeError::UnknownKind(kind));
    }
    let id = reader.u8()?;
    let total = reader.u32()?;
    let stride = reader.u16()?;
    let index = reader.u32()?;
    let number = reader.u32()?;
    let bytes = reader.take_rest();
    let is_whole = stride > 0
        && index < chunk_count(total, stride)
        && bytes.len() == chunk_len(total, stride, index);
    require(is_whole)?;
    Ok(Chunk {
        id,
        total,
        stride,
        index,
        number,
        bytes,
    })
}

/// Decodes an acknowledgement sent in `direction`, opposite to the chunks.
///
/// Allocates nothing. Accepts only the canonical encoding.
///
/// # Errors
///
/// [`DecodeError`], for the first fault found.
pub fn decode_chunk_ack(
    datagram: &[u8],
    direction: Direction,
) -> Result<ChunkAck<'_>, DecodeError> {
    let mut reader = Reader::new(datagram);
    let kind = reader.u8()?;
    if kind != ack_kind(direction) {
        return Err(DecodeError::UnknownKind(kind));
    }
    let id = reader.u8()?;
    let next = reader.u32()?;
    let latest = reader.u32()?;
    let bits = reader.take_rest();
    require(bits.len() <= BITS_LEN_MAX && bits.last() != Some(&0))?;
    Ok(ChunkAck {
        id,
        next,
        latest,
        bits,
    })
}

pub(crate) fn write_chunk(out: &mut Vec<u8>, direction: Direction, chunk: &Chunk<'_>) {
    let mut writer = Writer::new(out);
    writer.u8(chunk_kind(direction));
    writer.u8(chunk.id);
    writer.u32(chunk.total);
    writer.u16(chunk.stride);
    writer.u32(chunk.index);
    writer.u32(chunk.number);
    writer.bytes(chunk.bytes);
}

pub(crate) fn write_chunk_ack(
    out: &mut Vec<u8>,
    direction: Direction,
    ack: &ChunkAck<'_>,
    arrived: impl Iterator<Item = u32>,
) {
    debug_assert!(ack.bits.is_empty(), "`arrived` says it");
    let mut writer = Writer::new(out);
    writer.u8(ack_kind(direction));
    writer.u8(ack.id);
    writer.u32(ack.next);
    writer.u32(ack.latest);
    let first = ack.next.saturating_add(1);
    // Whole bytes before the current one.
    let (mut written, mut byte) = (0_u32, 0_u8);
    for index in arrived {
        let bit = index.saturating_sub(first);
        debug_assert!(bit < AHEAD_MAX, "no receiver keeps more");
        while written < bit / 8 {
            writer.u8(byte);
            byte = 0;
            written = written.saturating_add(1);
        }
        byte |= 0x80 >> (bit % 8);
    }
    if byte != 0 {
        writer.u8(byte);
    }
}

pub(crate) const fn ack_of(id: u8, next: u32, latest: u32) -> ChunkAck<'static> {
    ChunkAck {
        id,
        next,
        latest,
        bits: &[],
    }
}

const fn chunk_kind(direction: Direction) -> u8 {
    match direction {
        Direction::Up => CHUNK_UP,
        Direction::Down => CHUNK_DOWN,
    }
}

const fn ack_kind(direction: Direction) -> u8 {
    match direction {
        Direction::Up => ACK_UP,
        Direction::Down => ACK_DOWN,
    }
}

/// A bit for each of [`AHEAD_MAX`] chunks.
const BITS_LEN_MAX: usize = 128;
