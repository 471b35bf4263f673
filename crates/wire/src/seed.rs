//! Seeds, and the generator made from one.

use core::fmt;
use core::str::FromStr;

use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// 32 bytes that fix a run: with equal inputs, equal seeds give equal outputs.
///
/// Drivers draw it from the system, tests choose it. It is not a key: a [`Generator`]'s output
/// reveals nothing about the seed, but tests print theirs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

impl Seed {
    /// Creates the seed with this number, as tests and command lines name seeds.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        let mut seed = [0; 32];
        for (byte, value) in seed.iter_mut().zip(number.to_le_bytes()) {
            *byte = value;
        }
        Self(seed)
    }

    /// Returns the generator of one `purpose`; each purpose has its own.
    ///
    /// If each part of a simulation has its own generator, one part that draws more numbers does not
    /// change the numbers of the others.
    #[must_use]
    pub fn generator(self, purpose: u64) -> Generator {
        let mut inner = ChaCha8Rng::from_seed(self.0);
        inner.set_stream(purpose);
        Generator { inner }
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

impl FromStr for Seed {
    type Err = core::num::ParseIntError;

    /// Parses a decimal number, as in the command that repeats a failed simulation.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::from_number)
    }
}

/// A `ChaCha8` generator: the same numbers on every platform.
///
/// Use it for values that peers may see, and in simulations. Secrets come from a crypto provider.
#[derive(Debug)]
pub struct Generator {
    inner: ChaCha8Rng,
}

/// The copy returns the same numbers as the original.
impl Clone for Generator {
    fn clone(&self) -> Self {
        Self {
            inner: ChaCha8Rng::deserialize_state(&self.inner.serialize_state()),
        }
    }
}

impl Generator {
    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }

    /// Returns the next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        self.inner.next_u32()
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.inner.fill_bytes(out);
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    ///
    /// Lemire's multiply-shift without the rejection step: the bias is below `bound` / 2^64, and
    /// each call draws exactly once, so that streams stay aligned.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()).saturating_mul(bound.into());
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// Returns a number in `low..=high`, or `low` if the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low).saturating_add(1);
        low.saturating_add(self.below(span))
    }

    /// Returns true `per_million` times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }

    /// Returns a seed for one part of a simulation.
    pub fn seed(&mut self) -> Seed {
        let mut seed = [0; 32];
        self.fill(&mut seed);
        Seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_and_purposes_differ() {
        let seed = Seed::from_number(7);
        let (mut a, mut b, mut c) = (seed.generator(1), seed.generator(1), seed.generator(2));
        let first = a.next_u64();
        assert_eq!(first, b.next_u64());
        assert_ne!(first, c.next_u64());
    }

    #[test]
    fn the_stream_is_frozen() {
        // Replay commands from older runs depend on it.
        let mut generator = Seed::from_number(1).generator(0);
        assert_eq!(generator.next_u64(), 7_037_237_572_835_827_407);
    }

    #[test]
    fn a_copy_continues_like_its_original() {
        let mut generator = Seed::from_number(2).generator(3);
        for step in 0..300_usize {
            let mut copy = generator.clone();
            let mut original = generator.clone();
            // Words, pairs of words and odd bytes, over the ends of blocks and of the buffer.
            let mut draws = [[0; 333]; 2];
            for (draw, generator) in draws.iter_mut().zip([&mut copy, &mut original]) {
                generator.fill(draw);
            }
            assert_eq!(draws[0], draws[1]);
            assert_eq!(copy.next_u64(), original.next_u64());
            let ahead = generator.clone().next_u64();
            assert_eq!(generator.next_u64(), ahead, "step {step}");
            match step % 3 {
                0 => generator.fill(&mut [0; 5]),
                1 => drop(generator.next_u32()),
                _ => {}
            }
        }
    }

    #[test]
    fn below_returns_every_value_of_its_range() {
        let mut generator = Seed::from_number(3).generator(0);
        let mut seen = [false; 5];
        for _ in 0..1_000 {
            seen[usize::try_from(generator.below(5)).unwrap()] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(generator.below(0), 0);
        assert_eq!(generator.between(9, 9), 9);
    }

    #[test]
    fn chances_match_their_probability() {
        let mut generator = Seed::from_number(4).generator(0);
        let hits = (0..100_000).filter(|_| generator.chance(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!(!generator.chance(0));
        assert!(generator.chance(1_000_000));
    }
}
