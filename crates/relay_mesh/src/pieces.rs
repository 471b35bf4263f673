//! Player datagrams that travel in two pieces.

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

use crate::hop::Piece;

/// Longest player datagram that is not split, in bytes: 1,280 - 16 header - 2 × 16 tag.
pub const WHOLE_MAX: usize = 1_232;
/// Longest player datagram, in bytes: 1,500 of Ethernet less 28 of IPv4 and UDP.
pub const DATAGRAM_MAX: usize = 1_472;

/// Longest piece of a datagram, in bytes: half of the longest.
pub(crate) const PIECE_MAX: usize = DATAGRAM_MAX / 2;

/// Splits a datagram if necessary; `None` if it is too long for two pieces.
pub(crate) fn split(datagram: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
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
    let (first, second) = datagram.split_at_checked(datagram.len().div_ceil(2))?;
    Some((first, Some(second)))
}

/// Joins pieces; stores at most 8 KiB of them for at most 1 s.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    /// Pieces without their other half, oldest first.
    waiting: VecDeque<StoredPiece>,
    bytes: usize,
}

#[derive(Debug)]
struct StoredPiece {
    /// Number of the first piece of the pair.
    pair: u64,
    piece: Piece,
    since: Instant,
    bytes: Vec<u8>,
}

impl Joiner {
    /// Creates an empty joiner; it allocates nothing until a piece arrives.
    pub(crate) const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Adds the piece with packet number `number`. If its datagram is complete, appends that to
    /// `out` and returns true. A second first or second half of a pair drops both: only their
    /// sender can have made them.
    pub(crate) fn add(
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
            self.wait(StoredPiece {
                pair,
                piece,
                since: now,
                bytes: bytes.to_vec(),
            });
            return false;
        };
        self.bytes = self.bytes.saturating_sub(other.bytes.len());
        let (first, second) = match (other.piece, piece) {
            (Piece::First, Piece::Second) => (&*other.bytes, bytes),
            (Piece::Second, Piece::First) => (bytes, &*other.bytes),
            _ => return false,
        };
        out.extend_from_slice(first);
        out.extend_from_slice(second);
        true
    }

    fn wait(&mut self, piece: StoredPiece) {
        self.bytes = self.bytes.saturating_add(piece.bytes.len());
        self.waiting.push_back(piece);
        while self.bytes > BYTES_MAX || self.waiting.len() > PIECES_MAX {
            self.drop_oldest();
        }
    }

    fn forget(&mut self, now: Instant) {
        let is_old = |piece: &StoredPiece| now.saturating_since(piece.since) >= WAIT;
        while self.waiting.front().is_some_and(is_old) {
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
/// Stored pieces; limits pieces shorter than our senders make.
const PIECES_MAX: usize = 16;
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
            prop_assert_eq!(joiner.bytes, 0);
        }
    }

    #[test]
    fn too_big_is_reported() {
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
            assert!(joiner.bytes <= BYTES_MAX);
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
        assert_eq!(joiner.bytes, 0);
        assert_eq!(join(&mut joiner, 0, 0, Piece::Second, &[2]), None);
        assert_eq!(joiner.bytes, 0);
    }
}
