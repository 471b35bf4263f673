//! Tick numbers and peers.

use core::fmt;

/// One simulation step, numbered from 0.
///
/// At 60 Hz a `u32` lasts 2.2 years; a match ends before it (`MatchServer` closes no tick after
/// [`Tick::LAST`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u32);

impl Tick {
    /// The last tick that a match can have; its successor still fits.
    pub const LAST: Self = Self(u32::MAX - 65_536);

    /// Returns the tick `count` later, saturating.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// Returns the tick `count` earlier, saturating at `Tick(0)`.
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self(self.0.saturating_sub(count))
    }

    /// Returns the number of ticks since `earlier`, 0 if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the low half, as in datagrams.
    #[must_use]
    pub const fn low(self) -> u16 {
        let [_, _, high, low] = self.0.to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// Returns the latest tick at or before `self` with this low half.
    ///
    /// For acknowledgements, which never name future ticks. `None` if there is no such tick.
    #[must_use]
    pub const fn widen_back(self, low: u16) -> Option<Self> {
        let back = self.low().wrapping_sub(low);
        match self.0.checked_sub(back as u32) {
            Some(tick) => Some(Self(tick)),
            None => None,
        }
    }

    /// Returns the tick nearest to `self` with this low half; RFC 9000, appendix A.3.
    ///
    /// `None` if that is before tick 0 or past the last number.
    #[must_use]
    pub fn widen_near(self, low: u16) -> Option<Self> {
        let distance = low.wrapping_sub(self.low()).cast_signed();
        self.0.checked_add_signed(distance.into()).map(Self)
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The driver's id for a peer: a session, never an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_half_is_widened_across_the_wrap() {
        let tick = Tick(65_540);
        assert_eq!(tick.widen_back(4), Some(Tick(65_540)));
        assert_eq!(tick.widen_back(5), Some(Tick(5)));
        assert_eq!(tick.widen_back(65_535), Some(Tick(65_535)));
        assert_eq!(tick.widen_near(65_535), Some(Tick(65_535)));
        assert_eq!(tick.widen_near(10), Some(Tick(65_546)));
        assert_eq!(
            Tick(3).widen_back(4),
            None,
            "nothing at or before tick 3 ends in 4"
        );
        assert_eq!(Tick(3).widen_near(65_535), None);
    }

    #[test]
    fn widening_matches_a_search() {
        for base in [0, 1, 300, 32_767, 32_768, 65_535, 65_536, 131_071] {
            for low in [0, 1, 299, 32_767, 32_768, 65_534, 65_535] {
                let tick = Tick(base);
                let searched = (0..=base).rev().find(|&t| Tick(t).low() == low).map(Tick);
                assert_eq!(tick.widen_back(low), searched, "{base} {low}");
            }
        }
    }
}
