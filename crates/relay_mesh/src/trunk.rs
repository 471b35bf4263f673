//! Trunks: several hop frames to one neighbour in one datagram.

use crate::hop::FRAME_MAX;

/// Frames of a trunk: [`KIND`], then for each frame its length, 2 bytes, big-endian, and the frame,
/// up to the end of the datagram.
///
/// Frames are read one by one, so those before an invalid length are returned. A trunk has no tag
/// of its own; each frame has one.
#[derive(Debug)]
pub struct Frames<'a> {
    rest: &'a mut [u8],
}

impl<'a> Frames<'a> {
    /// Starts to read a datagram.
    ///
    /// # Errors
    ///
    /// [`TrunkError`] if it is no trunk.
    pub fn new(datagram: &'a mut [u8]) -> Result<Self, TrunkError> {
        if datagram.len() > FRAME_MAX {
            return Err(TrunkError::Oversize(datagram.len()));
        }
        match datagram {
            [KIND] | [] => Err(TrunkError::Truncated),
            [KIND, rest @ ..] => Ok(Self { rest }),
            [other, ..] => Err(TrunkError::NoTrunk(*other)),
        }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<&'a mut [u8], TrunkError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        let Some((&mut prefix, after)) = rest.split_first_chunk_mut::<PREFIX_LEN>() else {
            return Some(Err(TrunkError::Truncated));
        };
        let len = usize::from(u16::from_be_bytes(prefix));
        let Some((frame, after)) = after.split_at_mut_checked(len) else {
            return Some(Err(TrunkError::Truncated));
        };
        if matches!(frame, [] | [KIND, ..]) {
            return Some(Err(TrunkError::BadFrame));
        }
        self.rest = after;
        Some(Ok(frame))
    }
}

/// Longest trunk sent, in bytes: every path carries it.
pub const TRUNK_MAX: usize = 1_200;

/// Appends a frame to a trunk that already starts with [`KIND`].
pub fn append(frame: &[u8], out: &mut Vec<u8>) {
    let len = u16::try_from(frame.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(frame);
}

/// Returns the length of a trunk of `len` bytes with one more frame; `None` if that is too long.
#[must_use]
pub const fn grown(len: usize, frame: usize) -> Option<usize> {
    let grown = len.saturating_add(PREFIX_LEN).saturating_add(frame);
    if grown > TRUNK_MAX { None } else { Some(grown) }
}

/// Why a datagram, or the rest of it, has no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrunkError {
    /// It ends within a length or a frame, or has no frames.
    Truncated,
    /// It is longer than a link allows.
    Oversize(usize),
    /// It starts with another byte.
    NoTrunk(u8),
    /// An empty frame, or a trunk within a trunk.
    BadFrame,
}

wire::error_text! { TrunkError {
    Self::Truncated => "trunk cut short",
    Self::Oversize(len) => "trunk of {len} bytes, over {FRAME_MAX}",
    Self::NoTrunk(first) => "no trunk: it begins with {first:#04x}",
    Self::BadFrame => "trunk with an empty frame, or another trunk, in it",
}}

/// First byte of a trunk.
pub const KIND: u8 = 0x82;
/// Bytes before the first frame.
pub const HEAD_LEN: usize = 1;
/// Bytes before each frame.
pub const PREFIX_LEN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trunk(frames: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![KIND];
        for frame in frames {
            append(frame, &mut out);
        }
        out
    }

    fn read(datagram: &[u8]) -> Vec<Result<Vec<u8>, TrunkError>> {
        let mut datagram = datagram.to_vec();
        match Frames::new(&mut datagram) {
            Ok(frames) => frames
                .map(|frame| frame.map(|frame| frame.to_vec()))
                .collect(),
            Err(error) => vec![Err(error)],
        }
    }

    #[test]
    fn the_bytes_are_frozen() {
        assert_eq!(
            trunk(&[&[0x81, 5], &[0x80]]),
            [0x82, 0, 2, 0x81, 5, 0, 1, 0x80]
        );
    }

    #[test]
    fn mesh_a1_lengths_are_exact_and_those_before_a_bad_one_are_given() {
        let good = trunk(&[&[0x81, 5], &[0x80, 6, 7]]);
        let both = vec![Ok(vec![0x81, 5]), Ok(vec![0x80, 6, 7])];
        assert_eq!(read(&good), both);
        let first = |why| vec![Ok(vec![0x81, 5]), Err(why)];
        for len in 6..good.len() {
            assert_eq!(read(&good[..len]), first(TrunkError::Truncated), "{len}");
        }
        assert_eq!(read(&good[..5]), both[..1]);
        assert_eq!(read(&good[..1]), [Err(TrunkError::Truncated)]);
        assert_eq!(read(&[]), [Err(TrunkError::Truncated)]);
        assert_eq!(read(&[0x81, 0, 1, 2]), [Err(TrunkError::NoTrunk(0x81))]);
        // Empty frames and nested trunks are invalid.
        let nested = trunk(&[&[0x81, 5], &trunk(&[&[0x80]])]);
        assert_eq!(read(&nested), first(TrunkError::BadFrame));
        assert_eq!(
            read(&trunk(&[&[0x81, 5], &[]])),
            first(TrunkError::BadFrame)
        );
        let trailing = [&good[..], &[0]].concat();
        assert_eq!(read(&trailing).last(), Some(&Err(TrunkError::Truncated)));
    }

    #[test]
    fn mesh_a1_a_trunk_is_no_longer_than_a_link_carries() {
        let longest = TRUNK_MAX - HEAD_LEN - PREFIX_LEN;
        assert_eq!(grown(HEAD_LEN, longest), Some(TRUNK_MAX));
        assert_eq!(grown(HEAD_LEN, longest + 1), None);
        // A received trunk may be as long as a link allows.
        let whole = vec![0x81; FRAME_MAX - HEAD_LEN - PREFIX_LEN];
        assert_eq!(read(&trunk(&[&whole])), [Ok(whole.clone())]);
        let long = [&whole[..], &[0]].concat();
        let oversize = TrunkError::Oversize(FRAME_MAX + 1);
        assert_eq!(read(&trunk(&[&long])), [Err(oversize)]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut datagram: Vec<u8>, is_trunk: bool) {
            if let Some(first) = datagram.first_mut().filter(|_| is_trunk) {
                *first = KIND;
            }
            let read = read(&datagram);
            prop_assert!(read.len() <= datagram.len().max(1));
            let mut again = vec![KIND];
            let good = read.iter().take_while(|frame| frame.is_ok()).count();
            for frame in read.iter().flatten() {
                append(frame, &mut again);
            }
            if good > 0 {
                prop_assert!(datagram.starts_with(&again));
            }
            prop_assert!(read.len() <= good.saturating_add(1), "it ends where it is bad");
            prop_assert!(good < read.len() || again == datagram, "all of it is read");
        }
    }
}
