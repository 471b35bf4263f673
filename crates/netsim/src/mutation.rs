//! Damage that an adversary does on purpose.

use wire::Generator;

/// One way to turn a captured datagram or record into a hostile one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// Unchanged: a replay.
    None,
    /// One bit flips.
    FlipBit,
    /// One byte gets an extreme value: 0, 1, 127, 128 or 255, as lengths and counts may.
    ExtremeByte,
    /// A run of up to 8 bytes becomes random.
    Overwrite,
    /// The end is cut off.
    Truncate,
    /// Up to 64 random bytes follow.
    Extend,
    /// A run of bytes is repeated in place.
    Repeat,
    /// Random bytes of a random length up to 1,500 in place of all.
    Replace,
}

impl Mutation {
    /// Every way, in the order in which [`draw`](Self::draw) numbers them.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::FlipBit,
        Self::ExtremeByte,
        Self::Overwrite,
        Self::Truncate,
        Self::Extend,
        Self::Repeat,
        Self::Replace,
    ];

    /// Draws one way.
    pub fn draw(generator: &mut Generator) -> Self {
        let index = below(generator, Self::ALL.len());
        Self::ALL.get(index).copied().unwrap_or(Self::None)
    }

    /// Returns `original` so changed. An empty one can only grow or be replaced.
    #[must_use]
    pub fn apply(self, generator: &mut Generator, original: &[u8]) -> Vec<u8> {
        let mut bytes = original.to_vec();
        let at = below(generator, bytes.len());
        match self {
            Self::None => {}
            Self::FlipBit => {
                let bit = generator.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            Self::ExtremeByte => {
                let value = EXTREMES.get(below(generator, EXTREMES.len()));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value.copied().unwrap_or_default();
                }
            }
            Self::Overwrite => {
                let end = bytes.len().min(at + 1 + below(generator, 8));
                generator.fill(bytes.get_mut(at..end).unwrap_or_default());
            }
            Self::Truncate => bytes.truncate(at),
            Self::Extend => {
                let tail = 1 + below(generator, 64);
                append_random(generator, &mut bytes, tail);
            }
            Self::Repeat => {
                let end = bytes.len().min(at + 1 + below(generator, 64));
                let run = bytes.get(at..end).unwrap_or_default().to_vec();
                bytes.splice(at..at, run);
            }
            Self::Replace => {
                bytes.clear();
                let len = below(generator, 1_501);
                append_random(generator, &mut bytes, len);
            }
        }
        bytes
    }
}

/// Values at which lengths, counts and signs change their meaning.
const EXTREMES: [u8; 5] = [0, 1, 127, 128, 255];

fn append_random(generator: &mut Generator, bytes: &mut Vec<u8>, count: usize) {
    let start = bytes.len();
    bytes.resize(start + count, 0);
    generator.fill(bytes.get_mut(start..).unwrap_or_default());
}

/// Draws an index below `len`; 0 where `len` is 0.
pub(crate) fn below(generator: &mut Generator, len: usize) -> usize {
    let bound = u64::try_from(len).unwrap_or(u64::MAX);
    usize::try_from(generator.below(bound)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Seed;

    #[test]
    fn every_way_but_the_replay_changes_most_datagrams() {
        let mut generator = Seed::from_number(1).generator(0);
        let original: Vec<u8> = (0..200).collect();
        for way in Mutation::ALL {
            let changed = (0..100)
                .filter(|_| way.apply(&mut generator, &original) != original)
                .count();
            let expected = if way == Mutation::None {
                0..=0
            } else {
                90..=100
            };
            assert!(expected.contains(&changed), "{way:?}: {changed}");
        }
    }

    #[test]
    fn an_empty_datagram_is_no_trouble() {
        let mut generator = Seed::from_number(2).generator(0);
        for way in Mutation::ALL {
            let len = way.apply(&mut generator, &[]).len();
            assert!(len <= 1_500, "{way:?}: {len}");
        }
    }

    #[test]
    fn every_way_is_drawn() {
        let mut generator = Seed::from_number(3).generator(0);
        let drawn: Vec<Mutation> = (0..200).map(|_| Mutation::draw(&mut generator)).collect();
        assert!(Mutation::ALL.iter().all(|way| drawn.contains(way)));
    }
}
