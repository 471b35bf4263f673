//! A length of time that takes as little room as a point in time.

use core::ops::Add;
use core::time::Duration;

use wire::Instant;

/// A span of time in nanoseconds. A [`Duration`] has seconds of its own, and is twice as large: too much for what each
/// session keeps, and one multiplication more wherever it is added to an [`Instant`].
///
/// Arithmetic saturates; 2^64 nanoseconds are 584 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nanos(u64);

impl Nanos {
    /// No time.
    pub(crate) const ZERO: Self = Self(0);

    /// Longer than all that is measured.
    pub(crate) const MAX: Self = Self(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The span as long as `duration`; past 584 years, the longest.
    pub(crate) const fn of(duration: Duration) -> Self {
        let nanos = duration
            .as_secs()
            .saturating_mul(1_000_000_000)
            .saturating_add(duration.subsec_nanos() as u64);
        Self::from_nanos(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The same as std has it.
    pub(crate) const fn get(self) -> Duration {
        Duration::from_nanos(self.as_nanos())
    }

    pub(crate) const fn saturating_mul(self, factor: u64) -> Self {
        Self::from_nanos(self.as_nanos().saturating_mul(factor))
    }

    /// The part of it that is one in so many, all of it for zero.
    pub(crate) const fn divided(self, parts: u64) -> Self {
        let Some(part) = self.as_nanos().checked_div(parts) else {
            return self;
        };
        Self::from_nanos(part)
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;

    fn add(self, span: Nanos) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add(span.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_same_as_a_duration_in_half_the_room() {
        assert_eq!(size_of::<Nanos>() * 2, size_of::<Duration>());
        let start = Instant::from_millis(7);
        for duration in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_millis(1_500),
            Duration::from_hours(24 * 365 * 200),
        ] {
            let span = Nanos::of(duration);
            assert_eq!(span.get(), duration);
            assert_eq!(start + span, start + duration);
            assert_eq!((span + span).get(), duration * 2);
            assert_eq!(span.saturating_mul(3) > span, !duration.is_zero());
        }
        assert_eq!(Nanos::of(Duration::MAX), Nanos::from_nanos(u64::MAX));
    }
}
