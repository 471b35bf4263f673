//! Player datagrams that travel in two pieces.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

use crate::hop::Piece;

/// Longest player datagram that is not split, in bytes: a link's 1,280 less header 16, hop tag 16
/// and end-to-end tag 16.
pub const WHOLE_MAX: usize = 1_232;
/// Longest player datagram, in bytes: an Ethernet frame's payload less IPv4 and UDP headers, 1,500
/// - 28.
pub const DATAGRAM_MAX: usize = 1_472;

/// Longest piece of a datagram, in bytes: half of the longest.
pub(crate) const PIECE_MAX: usize = DATAGRAM_MAX / 2;

/// Splits a datagram if necessary; `None` if it is too long for two pieces.
#[must_use]
pub fn split(datagram: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    split_over(datagram, WHOLE_MAX)
}

/// Does the same if at most `whole_max` bytes fit one packet.
pub(crate) fn split_over(datagram: &[u8], whole_max: usize) -> Option<(&[u8], Option<&[u8]>)> {
    if datagram.len() <= whole_max.min(WHOLE_MAX) {
        return Some((datagram, None));
    }
    if datagram.len() > DATAGRAM_MAX {
        return None;
    }
    datagram
        .split_at_checked(datagram.len().div_ceil(2))
        .map(|(first, second)| (first, Some(second)))
}

/// Joins pieces; stores at most 8 KiB of them for at most 1 s.
#[derive(Debug, Default)]
pub struct Joiner {
    /// Pieces without their other half, oldest first.
    waiting: VecDeque<Waiting>,
    /// Bytes of all stored pieces.
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    /// Number of the first piece of the pair.
    pair: u64,
    piece: Piece,
    since: Instant,
    bytes: Vec<u8>,
}

impl Joiner {
    /// Creates an empty joiner; it allocates nothing until a piece arrives.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Adds the piece with packet number `number`. If its datagram is complete, appends that to
    /// `out` and returns true.
    ///
    /// If the same half of the pair is already stored, both are dropped: the pair is contradictory,
    /// and only its sender can have made it.
    pub fn add(
        &mut self,
        now: Instant,
        (number, piece): (u64, Piece),
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        self.forget(now);
        let pair = match piece {
            Piece::Whole => {
                out.extend_from_slice(bytes);
                return true;
            }
            Piece::First => number,
            Piece::Second => match number.checked_sub(1) {
                Some(pair) => pair,
                None => return false,
            },
        };
        let place = self.waiting.iter().position(|other| other.pair == pair);
        let Some(other) = place.and_then(|place| self.waiting.remove(place)) else {
            self.wait(Waiting {
                pair,
                piece,
                since: now,
                bytes: bytes.to_vec(),
            });
            return false;
        };
        self.bytes = self.bytes.saturating_sub(other.bytes.len());
        match (other.piece, piece) {
            (Piece::First, Piece::Second) => {
                out.extend_from_slice(&other.bytes);
                out.extend_from_slice(bytes);
                true
            }
            (Piece::Second, Piece::First) => {
                out.extend_from_slice(bytes);
                out.extend_from_slice(&other.bytes);
                true
            }
            _ => false,
        }
    }

    /// Returns the number of stored bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn wait(&mut self, piece: Waiting) {
        self.bytes = self.bytes.saturating_add(piece.bytes.len());
        self.waiting.push_back(piece);
        while self.bytes > BYTES_MAX || self.waiting.len() > PIECES_MAX {
            self.drop_oldest();
        }
    }

    fn forget(&mut self, now: Instant) {
        while self
            .waiting
            .front()
            .is_some_and(|oldest| now.saturating_since(oldest.since) >= WAIT)
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.waiting.pop_front() {
            self.bytes = self.bytes.saturating_sub(oldest.bytes.len());
        }
    }
}

/// Stored bytes of a flow: eleven longest pieces.
const BYTES_MAX: usize = 8 << 10;
/// Stored pieces. At most 13 pieces of 617 bytes or more fit 8 KiB, so this limits pieces shorter
/// than our senders make.
const PIECES_MAX: usize = 16;
/// How long a piece is stored.
const WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn join(
        joiner: &mut Joiner,
        at: u64,
        number: u64,
        piece: Piece,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        joiner
            .add(Instant::from_millis(at), (number, piece), bytes, &mut out)
            .then_some(out)
    }

    proptest! {
        #[test]
        fn what_was_split_is_joined_in_either_order(
            datagram in prop::collection::vec(any::<u8>(), 0..=DATAGRAM_MAX),
            second_first: bool,
        ) {
            let (first, second) = split(&datagram).unwrap();
            let mut joiner = Joiner::new();
            let Some(second) = second else {
                prop_assert!(datagram.len() <= WHOLE_MAX);
                prop_assert_eq!(join(&mut joiner, 0, 5, Piece::Whole, first), Some(datagram));
                return Ok(());
            };
            prop_assert!(first.len() <= WHOLE_MAX && second.len() <= first.len());
            let joined = if second_first {
                prop_assert_eq!(join(&mut joiner, 0, 6, Piece::Second, second), None);
                join(&mut joiner, 0, 5, Piece::First, first)
            } else {
                prop_assert_eq!(join(&mut joiner, 0, 5, Piece::First, first), None);
                join(&mut joiner, 0, 6, Piece::Second, second)
            };
            prop_assert_eq!(joined, Some(datagram));
            prop_assert_eq!(joiner.bytes(), 0);
        }
    }

    #[test]
    fn too_big_is_said() {
        assert!(split(&[0; DATAGRAM_MAX + 1]).is_none());
    }

    #[test]
    fn pieces_wait_one_second_and_eight_kilobytes() {
        let mut joiner = Joiner::new();
        assert_eq!(join(&mut joiner, 0, 0, Piece::First, &[1; 700]), None);
        assert_eq!(join(&mut joiner, 1_000, 1, Piece::Second, &[2; 700]), None);
        for pair in 1..1_000 {
            assert_eq!(
                join(&mut joiner, 1_000, pair * 2, Piece::First, &[1; 736]),
                None
            );
            assert!(joiner.bytes() <= BYTES_MAX);
        }
        for pair in 1_000..9_000 {
            assert_eq!(join(&mut joiner, 1_000, pair * 2, Piece::First, &[]), None);
            assert!(joiner.waiting.len() <= PIECES_MAX);
        }
    }

    #[test]
    fn a_pair_that_contradicts_itself_is_dropped() {
        let mut joiner = Joiner::new();
        assert_eq!(join(&mut joiner, 0, 4, Piece::First, &[1]), None);
        assert_eq!(join(&mut joiner, 0, 4, Piece::First, &[2]), None);
        assert_eq!(joiner.bytes(), 0);
        assert_eq!(join(&mut joiner, 0, 0, Piece::Second, &[2]), None);
        assert_eq!(joiner.bytes(), 0);
    }
}
