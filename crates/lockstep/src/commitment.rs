//! Commitments to inputs before they are revealed: heads of a hash chain, each over all inputs
//! before it.
//!
//! The head after tick `t` is the first 16 bytes of SHA-256 (FIPS 180-4) over the head after `t -
//! 1`, the salt of `t` and the bundle of `t`. The chain starts with match and seat. So one head
//! commits to all inputs up to it, and a receiver that misses some heads checks the same inputs by
//! the next. To reveal other inputs than committed takes two inputs with one head, 2^64 tries; to
//! guess inputs from a head takes guessing a salt, 2^63 tries on average.

use core::fmt;

use sha2::{Digest, Sha256};
use wire::{MatchId, Seat};

use crate::tick::Tick;

/// Secret from which one player's salts are derived: 32 random bytes.
///
/// Take them from the operating system. Salts differ by match id and seat, so one secret may serve
/// all matches of a player if their ids differ; use another one if an id is reused.
#[derive(Clone, PartialEq, Eq)]
pub struct CommitSecret([u8; 32]);

impl CommitSecret {
    /// Takes 32 bytes, as random as a key.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for CommitSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommitSecret(..)")
    }
}

/// A commitment to all inputs before some tick.
pub(crate) type Head = [u8; 16];

/// Hides one tick's input until it is revealed.
pub(crate) type Salt = [u8; 8];

/// Prefix reserved for salts.
const SALT_LABEL: &[u8] = b"tickwire mesh salt";
const START_LABEL: &[u8] = b"tickwire mesh start";

/// The salts of one player in one match.
#[derive(Clone)]
pub(crate) struct Salts {
    key: [u8; 32],
}

impl fmt::Debug for Salts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salts(..)")
    }
}

impl Salts {
    pub(crate) fn new(secret: &CommitSecret, match_id: MatchId, seat: Seat) -> Self {
        let hasher = Sha256::new_with_prefix(SALT_LABEL)
            .chain_update(secret.0)
            .chain_update(match_id.0)
            .chain_update(seat.0.to_be_bytes());
        Self {
            key: hasher.finalize().into(),
        }
    }

    pub(crate) fn of(&self, tick: Tick) -> Salt {
        let hasher = Sha256::new_with_prefix(self.key).chain_update(tick.0.to_be_bytes());
        first_of(hasher.finalize().into())
    }
}

/// The head before a player's first input.
pub(crate) fn first_head(match_id: MatchId, seat: Seat) -> Head {
    let hasher = Sha256::new_with_prefix(START_LABEL)
        .chain_update(match_id.0)
        .chain_update(seat.0.to_be_bytes());
    first_of(hasher.finalize().into())
}

/// The head after a tick with this salt and bundle, from the one before it.
pub(crate) fn next_head(head: &Head, salt: Salt, bundle: &[u8]) -> Head {
    // All but the last field have a fixed length, so the encoding is unambiguous.
    let hasher = Sha256::new_with_prefix(head)
        .chain_update(salt)
        .chain_update(bundle);
    first_of(hasher.finalize().into())
}

fn first_of<const N: usize>(digest: [u8; 32]) -> [u8; N] {
    *digest.first_chunk().unwrap_or(&[0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATCH: MatchId = MatchId([7; 16]);

    #[test]
    fn a_head_is_over_every_input_before_it_and_over_match_and_seat() {
        let heads = |match_id, seat, bundles: [&[u8]; 3]| {
            let first = first_head(match_id, Seat(seat));
            bundles
                .iter()
                .fold(first, |head, bundle| next_head(&head, [3; 8], bundle))
        };
        let all = [
            heads(MATCH, 1, [&[0x20], &[0x43], &[0x20]]),
            heads(MATCH, 1, [&[0x43], &[0x20], &[0x20]]),
            heads(MATCH, 1, [&[0x20, 0x43], &[], &[0x20]]),
            heads(MATCH, 2, [&[0x20], &[0x43], &[0x20]]),
            heads(MatchId([8; 16]), 1, [&[0x20], &[0x43], &[0x20]]),
        ];
        for (index, head) in all.iter().enumerate() {
            assert!(!all[..index].contains(head));
        }
        let head = first_head(MATCH, Seat(1));
        assert_ne!(next_head(&head, [3; 8], &[]), next_head(&head, [4; 8], &[]));
    }

    #[test]
    fn salts_differ_by_secret_match_seat_and_tick_and_nothing_prints_them() {
        let salts = |byte, match_id, seat, tick| {
            let secret = CommitSecret::new([byte; 32]);
            Salts::new(&secret, match_id, Seat(seat)).of(Tick(tick))
        };
        let all = [
            salts(1, MATCH, 1, 1),
            salts(2, MATCH, 1, 1),
            salts(1, MatchId([8; 16]), 1, 1),
            salts(1, MATCH, 2, 1),
            salts(1, MATCH, 1, 2),
        ];
        for (index, salt) in all.iter().enumerate() {
            assert!(!all[..index].contains(salt));
        }
        let secret = CommitSecret::new([0x5a; 32]);
        assert_eq!(format!("{secret:?}"), "CommitSecret(..)");
        let salts = Salts::new(&secret, MATCH, Seat(1));
        assert_eq!(format!("{salts:?}"), "Salts(..)");
    }

    #[test]
    fn heads_and_salts_are_what_another_program_makes() {
        // Computed by Python's hashlib.
        let head = first_head(MatchId(*b"AAAAAAAAAAAAAAAA"), Seat(1));
        let next = next_head(&head, *b"saltsalt", b"\x20");
        let salts = Salts::new(
            &CommitSecret::new([b'k'; 32]),
            MatchId(*b"AAAAAAAAAAAAAAAA"),
            Seat(1),
        );
        assert_eq!(head, FIRST);
        assert_eq!(next, NEXT);
        assert_eq!(salts.of(Tick(5)), SALT);
    }

    const FIRST: Head = [
        0x84, 0xd2, 0x99, 0x82, 0x34, 0xca, 0x81, 0x0b, 0x98, 0x27, 0x30, 0x03, 0x7f, 0x8f, 0xa6,
        0x9d,
    ];
    const NEXT: Head = [
        0x10, 0x26, 0x86, 0x2b, 0x7e, 0xda, 0xee, 0x8b, 0x74, 0x7c, 0xf2, 0xc4, 0x69, 0x75, 0x26,
        0x3f,
    ];
    const SALT: Salt = [0x5a, 0x40, 0xc0, 0x49, 0x7b, 0xdc, 0xcb, 0xf4];
}
