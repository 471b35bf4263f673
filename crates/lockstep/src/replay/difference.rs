//! Where two recordings of a match part.

use super::ReplayReader;
use super::cursor::{Cursor, Item};
use crate::tick::Tick;

/// The first tick in which two replays differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// They are of different matches, or of builds or seeds that say they differ.
    Match,
    /// Inputs or origins of `tick` differ.
    Inputs {
        /// First such tick.
        tick: Tick,
    },
    /// Inputs are equal up to `tick`, and the states after it have different hashes: two machines
    /// came to different results.
    State {
        /// First such tick among those that both have a hash of.
        tick: Tick,
    },
    /// All is equal as far as both go, and one goes on from `tick`.
    Length {
        /// First tick that only one has.
        tick: Tick,
    },
}

/// Compares two replays and returns where they first differ; `None` where they tell the same match.
///
/// Hashes are compared where both have them, keyframes and seals are not. Work grows with the
/// length of both.
#[must_use]
pub fn first_difference(one: &ReplayReader<'_>, other: &ReplayReader<'_>) -> Option<Difference> {
    let match_part = |replay: &ReplayReader<'_>| {
        let mut bytes = Vec::new();
        replay.header().write_match(&mut bytes);
        bytes
    };
    if match_part(one) != match_part(other) {
        return Some(Difference::Match);
    }
    let (mut ones, mut others) = (one.cursor(), other.cursor());
    loop {
        let tick = ones.next();
        match (next_tick(&mut ones), next_tick(&mut others)) {
            (Some((bundle, hash)), Some((other_bundle, other_hash))) => {
                if bundle != other_bundle {
                    return Some(Difference::Inputs { tick });
                }
                if hash
                    .zip(other_hash)
                    .is_some_and(|(one, other)| one != other)
                {
                    return Some(Difference::State { tick });
                }
            }
            (None, None) => return None,
            (Some(_), None) | (None, Some(_)) => return Some(Difference::Length { tick }),
        }
    }
}

/// Returns the next bundle and state hash.
fn next_tick<'a>(cursor: &mut Cursor<'a>) -> Option<(&'a [u8], Option<u64>)> {
    loop {
        if let Item::Tick {
            bundle, state_hash, ..
        } = cursor.next_item().ok()?
        {
            return Some((bundle, state_hash));
        }
    }
}
