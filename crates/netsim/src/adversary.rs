//! An adversary that observes datagrams and injects its own.

use core::net::SocketAddr;
use core::time::Duration;

use wire::Generator;

use crate::{Datagram, TapId, World};

/// Replays, damages and forges datagrams of a world.
///
/// Its datagrams bypass the links, as if sent from next to the victim. To drop, delay or change
/// what passes a link, see [`World::intercept`]; for a custom script, see [`World::captured`] and
/// [`World::inject`].
#[derive(Debug)]
pub struct Adversary {
    tap: TapId,
    generator: Generator,
}

impl Adversary {
    /// Creates an adversary that knows what `tap` records.
    #[must_use]
    pub const fn new(tap: TapId, generator: Generator) -> Self {
        Self { tap, generator }
    }

    /// Resends a captured datagram, `delay` from now; false if none was captured.
    pub fn replay(&mut self, world: &mut World, delay: Duration) -> bool {
        self.repeat(world, delay, |_, _| {})
    }

    /// Resends a captured datagram from `source`, `delay` from now; false if none was captured.
    pub fn replay_from(&mut self, world: &mut World, source: SocketAddr, delay: Duration) -> bool {
        self.repeat(world, delay, |_, datagram| datagram.source = source)
    }

    /// Sends a damaged copy of a captured datagram, `delay` from now; false if none was captured.
    pub fn damage(&mut self, world: &mut World, mutation: Mutation, delay: Duration) -> bool {
        self.repeat(world, delay, |generator, datagram| {
            datagram.bytes = mutation.apply(generator, &datagram.bytes);
        })
    }

    /// Sends up to 1,500 random bytes from any address, `delay` from now.
    pub fn forge(
        &mut self,
        world: &mut World,
        source: SocketAddr,
        destination: SocketAddr,
        delay: Duration,
    ) {
        let bytes = Mutation::Replace.apply(&mut self.generator, &[]);
        world.inject(delay, Datagram::new(source, destination, bytes));
    }

    /// Performs a random attack: any [`Mutation`] of any capture, from its sender or that of
    /// another capture, up to two seconds from now. False if none was captured.
    pub fn strike(&mut self, world: &mut World) -> bool {
        let mutation = Mutation::draw(&mut self.generator);
        let delay = Duration::from_micros(self.generator.below(2_000_000));
        let other = self.choose(world).map(|datagram| datagram.source);
        let foreign = self.generator.chance(FOREIGN_PER_MILLION);
        self.repeat(world, delay, |generator, datagram| {
            datagram.bytes = mutation.apply(generator, &datagram.bytes);
            if let (true, Some(other)) = (foreign, other) {
                datagram.source = other;
            }
        })
    }

    fn repeat(
        &mut self,
        world: &mut World,
        delay: Duration,
        change: impl FnOnce(&mut Generator, &mut Datagram),
    ) -> bool {
        let Some(mut datagram) = self.choose(world) else {
            return false;
        };
        change(&mut self.generator, &mut datagram);
        world.inject(delay, datagram);
        true
    }

    fn choose(&mut self, world: &World) -> Option<Datagram> {
        let captured = world.captured(self.tap);
        let at = below(&mut self.generator, captured.len());
        captured.get(at).map(|captured| captured.datagram.clone())
    }
}

/// Share of attacks with another sender's address, per million.
const FOREIGN_PER_MILLION: u32 = 250_000;

/// A mutation that turns a captured datagram or record into a hostile one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// Unchanged: a replay.
    None,
    /// One bit flips.
    FlipBit,
    /// One byte gets an extreme value: 0, 1, 127, 128 or 255.
    ExtremeByte,
    /// A run of up to 8 bytes becomes random.
    Overwrite,
    /// The end is cut off.
    Truncate,
    /// Up to 64 random bytes are appended.
    Extend,
    /// A run of bytes is repeated in place.
    Repeat,
    /// All bytes are replaced by up to 1,500 random ones.
    Replace,
}

impl Mutation {
    /// Every mutation, in the order in which [`draw`](Self::draw) numbers them.
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

    /// Draws a mutation.
    pub fn draw(generator: &mut Generator) -> Self {
        let index = below(generator, Self::ALL.len());
        Self::ALL.get(index).copied().unwrap_or(Self::None)
    }

    /// Returns a changed copy of `original`. An empty one can only grow or be replaced.
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

/// Draws an index below `len`; 0 if `len` is 0.
pub(crate) fn below(generator: &mut Generator, len: usize) -> usize {
    let bound = u64::try_from(len).unwrap_or(u64::MAX);
    usize::try_from(generator.below(bound)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Seed;

    #[test]
    fn every_attack_but_the_replay_changes_most_datagrams() {
        let mut generator = Seed::from_number(1).generator(0);
        let original: Vec<u8> = (0..200).collect();
        for mutation in Mutation::ALL {
            let changed = (0..100)
                .filter(|_| mutation.apply(&mut generator, &original) != original)
                .count();
            let expected = if mutation == Mutation::None {
                0..=0
            } else {
                90..=100
            };
            assert!(expected.contains(&changed), "{mutation:?}: {changed}");
        }
    }

    #[test]
    fn an_empty_datagram_is_accepted() {
        let mut generator = Seed::from_number(2).generator(0);
        for mutation in Mutation::ALL {
            let len = mutation.apply(&mut generator, &[]).len();
            assert!(len <= 1_500, "{mutation:?}: {len}");
        }
    }

    #[test]
    fn every_attack_is_drawn() {
        let mut generator = Seed::from_number(3).generator(0);
        let drawn: Vec<Mutation> = (0..200).map(|_| Mutation::draw(&mut generator)).collect();
        assert!(Mutation::ALL.iter().all(|way| drawn.contains(way)));
    }
}
