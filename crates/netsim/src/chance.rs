//! Probabilities.

use wire::Generator;

/// A probability in millionths, at most 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u32);

impl Chance {
    /// Probability 0.
    pub const NEVER: Self = Self(0);
    /// Probability 1.
    pub const ALWAYS: Self = Self(ONE);

    /// Creates the probability `count` / 1,000,000; a higher count gives [`Self::ALWAYS`].
    #[must_use]
    pub const fn per_million(count: u32) -> Self {
        if count > ONE {
            Self::ALWAYS
        } else {
            Self(count)
        }
    }

    /// Creates the probability `count` / 100; a higher count gives [`Self::ALWAYS`].
    #[must_use]
    pub const fn percent(count: u32) -> Self {
        Self::per_million(count.saturating_mul(ONE / 100))
    }

    /// Returns the probability in millionths.
    #[must_use]
    pub const fn as_per_million(self) -> u32 {
        self.0
    }

    /// Draws whether the event happens. Uses one number of `generator`, or none for
    /// [`Self::NEVER`].
    pub fn draw(self, generator: &mut Generator) -> bool {
        self != Self::NEVER && generator.chance(self.0)
    }
}

/// Probability 1, in millionths.
const ONE: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Seed;

    #[test]
    fn stays_between_never_and_always() {
        assert_eq!(Chance::percent(100), Chance::ALWAYS);
        assert_eq!(Chance::percent(u32::MAX), Chance::ALWAYS);
        assert_eq!(Chance::per_million(1_000_001), Chance::ALWAYS);
        assert_eq!(Chance::default(), Chance::NEVER);
    }

    #[test]
    fn never_draws_no_number() {
        let (mut used, mut fresh) = (generator(), generator());
        assert!(!Chance::NEVER.draw(&mut used));
        assert_eq!(used.next_u64(), fresh.next_u64());
        assert!(Chance::ALWAYS.draw(&mut used));
    }

    fn generator() -> Generator {
        Seed::from_number(1).generator(0)
    }
}
