//! Tick numbers, peers, and settings that count ticks.

use core::fmt;

use wire::Instant;

/// One simulation step, numbered from 0; at 60 Hz a `u32` lasts 2.2 years.
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

    /// Returns the slot of this tick in a ring of `len` slots.
    pub(crate) fn slot(self, len: u32) -> usize {
        slot(self.0, len)
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

/// Ticks between the newest tick that a client can have received and the tick its input is for: 1
/// to 60, a fixed number or a range. If it is too small, inputs arrive late and are substituted.
///
/// Within a range each client adapts its own delay: it starts at the minimum, rises at once when
/// inputs are late, and falls by at most one tick per 5 s, never within 10 s of a rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputDelay {
    min: u8,
    max: u8,
}

impl InputDelay {
    /// 6 ticks.
    pub const DEFAULT: Self = Self { min: 6, max: 6 };

    /// The same delay for all clients, if `ticks` is in range.
    #[must_use]
    pub const fn fixed(ticks: u8) -> Option<Self> {
        Self::adaptive(ticks, ticks)
    }

    /// Each client adapts between `min` and `max`, if both are in range and in order.
    #[must_use]
    pub const fn adaptive(min: u8, max: u8) -> Option<Self> {
        // Four fewer than the window in which a server accepts inputs.
        if min >= 1 && min <= max && max <= 60 {
            Some(Self { min, max })
        } else {
            None
        }
    }

    /// Returns the minimum.
    #[must_use]
    pub const fn min(self) -> u8 {
        self.min
    }

    /// Returns the maximum.
    #[must_use]
    pub const fn max(self) -> u8 {
        self.max
    }
}

/// Ticks per second: 1 to 1,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRate(u16);

impl TickRate {
    /// 60 Hz.
    pub const DEFAULT: Self = Self(60);

    /// Accepts `hz` if it is in range.
    #[must_use]
    pub const fn new(hz: u16) -> Option<Self> {
        if hz >= 1 && hz <= 1_000 {
            Some(Self(hz))
        } else {
            None
        }
    }

    /// Returns the length of a tick in nanoseconds, rounded down.
    #[must_use]
    pub fn period_nanos(self) -> u32 {
        1_000_000_000_u32
            .checked_div(self.0.into())
            .unwrap_or(1_000_000_000)
    }
}

/// Ticks in each datagram: 1 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair(u8);

impl Repair {
    /// 4.
    pub const DEFAULT: Self = Self(4);

    /// Accepts `ticks` if it is in range.
    #[must_use]
    pub const fn new(ticks: u8) -> Option<Self> {
        if ticks >= 1 && ticks <= 8 {
            Some(Self(ticks))
        } else {
            None
        }
    }

    /// Returns the number of ticks.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Returns the slot of `number` in a ring of `len` slots; 0 if there are none.
pub(crate) fn slot(number: u32, len: u32) -> usize {
    usize::try_from(number.checked_rem(len).unwrap_or(0)).unwrap_or(0)
}

/// Returns a time as signed nanoseconds, for differences; saturating.
pub(crate) fn signed_nanos(at: Instant) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns the time of signed nanoseconds; the origin if they are negative.
pub(crate) fn instant_of(nanos: i64) -> Instant {
    Instant::from_nanos(u64::try_from(nanos).unwrap_or(0))
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
