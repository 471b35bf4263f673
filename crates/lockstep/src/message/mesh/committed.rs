//! Play of a match whose players commit to their inputs before they show them.

use wire::{Reader, Writer};

use super::play::{Play, decode_play};
use crate::bundle::Shape;
use crate::message::{DecodeError, MESH_COMMITTED, MESH_PLAY};

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
    /// Low half of the first tick that the head is not over.
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

/// Reads what is behind the kind.
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

/// Appends what stands before `count` salts.
pub(crate) fn write_committed_head(out: &mut Vec<u8>, end_low: u16, head: &[u8; 16], count: u16) {
    let mut writer = Writer::new(out);
    writer.u8(MESH_COMMITTED);
    writer.u16(end_low);
    writer.bytes(head);
    writer.u16(count);
}
